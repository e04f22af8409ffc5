"""Builds a launch table from sweeps of `qsa-attention`, and says whether it beats the known tables.

    profkit sweep qsa-attention --region 'r*' --format json > sweep.json
    python benchmarks/qsa_table.py sweep.json --name h200 --output table.json --markdown table.md

A table has one entry for each region of (row, KV head) pairs and each kind of cache; a sweep has many problems in it
(rows, groups, KV heads), each hot and evicted. A new entry is taken only where in none of these it is slower than the
faster one of the known entries, in some it is faster beyond noise, and on average it is faster by what counts; of
several such the fastest on average. Where there is none the known entry that is faster on average stays. The table is
worth having if an entry was taken.

A table was chosen for its times in one run, so it must win in another one, which need time the known entries only:

    profkit sweep qsa-attention --region 'r*' --only-known --seed 1 --format json > again.json
    python benchmarks/qsa_table.py again.json --confirm h200

Exit status 1 where the table is slower than the better known entry beyond noise, or was not timed in every problem r*
of the workload and every state of the sweeps' protocol, and where a sweep is damaged or given twice.
With `--compact FILE` both write the first sweep there too, a line a problem; that file can be given in its place.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qsa_compact import compact, read
from qsa_confirm import confirm
from qsa_documents import check
from qsa_points import CACHES, KNOWN, Point, cell_of, points, untimed
from qsa_summary import Numbers, carry_over, carry_over_lines, region_lines

from profkit.kernels.qsa.tables import REGIONS


@dataclass(frozen=True)
class Choice:
    """The entry of one region and kind of cache.

    Args:
        numbers: block_n, splits, warps.
        source: ``measured``, or the known table that it is from.
        points: how many measurements it rests on.
        better: in how many of them it is faster than the better known entry beyond noise.
        least, mean, most: its time over the better known entry's: over all points the smallest, the geometric mean and
            the largest.
        known: the geometric mean of the same for each known table's entry.
        known_worse: in how many points each known table's entry is slower than the other's beyond noise.
    """

    region: str
    cache: str
    numbers: Numbers
    source: str
    points: int
    better: int
    least: float
    mean: float
    most: float
    known: Mapping[str, float]
    known_worse: Mapping[str, int]


def main() -> None:
    options = parse_options()
    documents = [read(path) for path in options.sweeps]
    check(documents)
    if options.compact is not None:
        options.compact.write_text(compact(documents[0]), encoding="utf-8")
    if options.confirm is not None:
        raise SystemExit(confirm(documents, options.confirm))
    choices = choose(documents)
    print_choices(choices)
    left_out = untimed(documents)
    if left_out:
        print(f"\nLeft out, since a known entry was not timed: {', '.join(left_out)}.")
    missing = [f"{name} {cache}" for name in REGIONS for cache in CACHES if (name, cache) not in choices]
    if missing:
        print(f"\nNot measured, so no table: {', '.join(missing)}.")
    taken = [choice for choice in choices.values() if choice.source == "measured"]
    ships = bool(taken) and not missing
    print(f"\n{len(taken)} of {len(choices)} entries win beyond noise: {'a table' if ships else 'no table'}.")
    carried = carry_over_lines(carry_over(documents))
    print("\nThe table tuned on an H20 (sm_90) beside default, regions:", *carried, sep="\n")
    if not missing:
        source = table_source(choices, options.name, documents[0]["device"]["name"], documents[0]["date"][:10])
        print(
            "\nFor TABLES in kernels/qsa/tables.py:" if ships else "\nThe table, if it were to ship:", source, sep="\n"
        )
    if options.markdown is not None:
        rows = region_lines(documents, chosen_of(documents, choices))
        options.markdown.write_text("\n".join([*carried, "", *rows]) + "\n", encoding="utf-8")
    if options.output is not None:
        content = {"schema": "profkit.qsa-table/1", "name": options.name, "ships": ships}
        entries = [asdict(choice) for choice in choices.values()]
        options.output.write_text(json.dumps({**content, "missing": missing, "entries": entries}, indent=1) + "\n")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", type=Path, nargs="+", help="JSON of profkit sweep, or of --compact; of one device")
    parser.add_argument("--name", default="h200", help="what the table is called")
    parser.add_argument("--confirm", metavar="TABLE", default=None, help="judge a known table, make none")
    parser.add_argument("--output", type=Path, default=None, help="write the choices there as JSON")
    parser.add_argument("--compact", type=Path, default=None, help="write the first sweep there, shorter")
    parser.add_argument("--markdown", type=Path, default=None, help="write a row for each problem and state there")
    return parser.parse_args()


def choose(documents: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Choice]:
    """The entry of every region and kind of cache that was measured, in the order of the tables.

    Raises:
        SystemExit: documents that are no sweeps of this workload, or of several devices.
    """
    check(documents)
    cells: dict[tuple[str, str], list[Point]] = {}
    for document in documents:
        for measured in document["regions"]:
            cells.setdefault(cell_of(measured["shapes"]), []).extend(points(document, measured))
    return {
        (name, cache): choose_entry(name, cache, cells[name, cache])
        for name in REGIONS
        for cache in CACHES
        if cells.get((name, cache))
    }


def chosen_of(documents: Sequence[Mapping[str, Any]], choices: Mapping[tuple[str, str], Choice]) -> dict[str, Numbers]:
    """Each swept region to the entry that was chosen for its cell."""
    cells = {one["name"]: cell_of(one["shapes"]) for document in documents for one in document["regions"]}
    return {name: choices[cell].numbers for name, cell in cells.items() if cell in choices}


def choose_entry(name: str, cache: str, found: Sequence[Point]) -> Choice:
    """The entry of one cell; see the module for the rule."""
    everywhere = set.intersection(*(set(point.us) for point in found))
    sound = [numbers for numbers in everywhere if all(point.verdict(numbers) != "worse" for point in found)]
    winners = [
        numbers
        for numbers in sound
        if any(point.verdict(numbers) == "better" for point in found)
        and mean_ratio(found, numbers) <= 1 - max(point.least_share for point in found)
    ]
    # In order of the numbers where times are equal, so that the same sweep always gives the same table.
    best = min(winners, key=lambda numbers: (mean_ratio(found, numbers), numbers), default=None)
    # A table's entry depends on the cell alone, so any of its points has it.
    known = {table: found[0].known[table] for table in KNOWN}
    source = "measured"
    if best is None:
        source = min(KNOWN, key=lambda table: mean_ratio(found, known[table]))
        best = known[source]
    ratios = [point.ratio(best) for point in found]
    return Choice(
        region=name,
        cache=cache,
        numbers=best,
        source=source,
        points=len(found),
        better=sum(point.verdict(best) == "better" for point in found),
        least=min(ratios),
        mean=mean_ratio(found, best),
        most=max(ratios),
        known={table: mean_ratio(found, numbers) for table, numbers in known.items()},
        known_worse={
            table: sum(point.verdict(numbers) == "worse" for point in found) for table, numbers in known.items()
        },
    )


def mean_ratio(found: Sequence[Point], numbers: Numbers) -> float:
    """The geometric mean of a configuration's time over the better known entry's."""
    return math.exp(sum(math.log(point.ratio(numbers)) for point in found) / len(found))


def print_choices(choices: Mapping[tuple[str, str], Choice]) -> None:
    print("block_n,splits,warps; times over those of the better known entry of each point")
    head = f"{'region':13} {'cache':8} {'entry':10} {'from':9} {'points':>6} {'better':>6} {'least':>6} {'mean':>6} "
    print(f"{head}{'most':>6}" + "".join(f" {table:>8} {'worse':>5}" for table in KNOWN))
    for choice in choices.values():
        print(
            f"{choice.region:13} {choice.cache:8} {','.join(map(str, choice.numbers)):10} {choice.source:9} "
            f"{choice.points:6} {choice.better:6} {choice.least:6.3f} {choice.mean:6.3f} {choice.most:6.3f}"
            + "".join(f" {choice.known[table]:8.3f} {choice.known_worse[table]:5}" for table in KNOWN)
        )


def table_source(choices: Mapping[tuple[str, str], Choice], name: str, device: str, date: str) -> str:
    """The table as `kernels/qsa/tables.py` writes one."""
    lines = [f'    "{name}": Table(', f'        "tuned on {device}, {date}",']
    for cache in CACHES:
        entries = [choices[region_name, cache].numbers for region_name in REGIONS]
        # Five a line, as that is all that fits.
        parts = [", ".join(map(str, entries[start : start + 5])) for start in range(0, len(entries), 5)]
        lines += ["        _entries(", *(f"            *({part})," for part in parts), "        ),"]
    return "\n".join([*lines, "    ),"])


if __name__ == "__main__":
    main()
