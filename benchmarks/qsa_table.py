"""Builds a launch table from sweeps of `qsa-attention`, and says whether it beats the known tables.

    profkit sweep qsa-attention --region all --format json > sweep.json
    python benchmarks/qsa_table.py sweep.json --name h200 --output table.json

A table has one entry for each region of (row, KV head) pairs and each kind of cache; a sweep has many problems in it
(rows, groups, KV heads), each hot and evicted. A new entry is taken only where in none of these it is slower than the
faster one of the known entries, in some it is faster beyond noise, and on average it is faster by what counts; of
several such the fastest on average. Where there is none the known entry that is faster on average stays. The table is
worth having if an entry was taken.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from profkit.kernels.qsa.regions import PARAMETERS
from profkit.kernels.qsa.tables import REGIONS, region

SCHEMA = "profkit.sweep/1"
#: The tables that a new one must beat; of equally fast entries the first one's stays.
KNOWN = ("sm_90", "default")
CACHES = ("bits_16", "fp8")
#: Slower by this factor is slower however large the noise was: nobody would want to find out.
SLOWER = 1.05

#: A configuration: block_n, splits, warps.
Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Point:
    """One problem in one state, as it was measured.

    Args:
        name: the problem and the state.
        us: the time of every configuration that was timed.
        known: the entry of each table of `KNOWN`.
        verdicts: for each of `KNOWN`, how each other configuration compares with it beyond noise.
        least_share: the smallest difference that counts, as a share.
    """

    name: str
    us: Mapping[Numbers, float]
    known: Mapping[str, Numbers]
    verdicts: Mapping[str, Mapping[Numbers, str]]
    least_share: float

    @property
    def better_known(self) -> str:
        """The known table whose entry is faster here."""
        return min(KNOWN, key=lambda table: self.us[self.known[table]])

    def ratio(self, numbers: Numbers) -> float:
        """Time over that of the better known entry."""
        return self.us[numbers] / self.us[self.known[self.better_known]]

    def verdict(self, numbers: Numbers) -> str:
        """``better``, ``worse`` or ``equal`` beside the better known entry, beyond noise or by `SLOWER`."""
        if self.ratio(numbers) >= SLOWER:
            return "worse"
        return self.verdicts[self.better_known].get(numbers, "equal")


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
    documents = [json.loads(path.read_text()) for path in options.sweeps]
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
    if ships:
        print(table_source(choices, options.name))
    if options.output is not None:
        content = {"schema": "profkit.qsa-table/1", "name": options.name, "ships": ships}
        entries = [asdict(choice) for choice in choices.values()]
        options.output.write_text(json.dumps({**content, "missing": missing, "entries": entries}, indent=1) + "\n")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", type=Path, nargs="+", help="JSON of profkit sweep; of one device")
    parser.add_argument("--name", default="h200", help="what the table is called")
    parser.add_argument("--output", type=Path, default=None, help="write the choices there as JSON")
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


def check(documents: Sequence[Mapping[str, Any]]) -> None:
    """Refuse what is not from `profkit sweep qsa-attention` on one device."""
    for document in documents:
        if document.get("schema") != SCHEMA or document["workload"]["name"] != "qsa-attention":
            raise SystemExit(f"Give sweeps of qsa-attention of schema {SCHEMA}.")
    devices = {document["device"]["name"] for document in documents}
    if len(devices) > 1:
        raise SystemExit(f"One table is of one device, these sweeps are of {', '.join(sorted(devices))}.")


def cell_of(shapes: Mapping[str, Any]) -> tuple[str, str]:
    """Region and kind of cache of a problem."""
    name = region(shapes["rows"], shapes["kv_heads"], prefill=shapes["mode"] == "prefill")
    return name, "fp8" if str(shapes["dtype"]).startswith("fp8") else "bits_16"


def points(document: Mapping[str, Any], measured: Mapping[str, Any]) -> Iterator[Point]:
    """What one region of a sweep tells; nothing where a known entry was not timed."""
    known = {table: numbers_of(measured["known"][table]) for table in KNOWN}
    for state in measured["timing"]:
        if not known_timed(measured, state):
            continue
        timed = timed_in(measured, state)
        yield Point(
            name=f"{measured['name']} {state}",
            us={numbers: times["us"] for numbers, times in timed.items()},
            known=known,
            verdicts={
                table: {n: t["against"][table]["verdict"] for n, t in timed.items() if t["against"].get(table)}
                for table in KNOWN
            },
            least_share=document["protocol"]["min_share"],
        )


def timed_in(measured: Mapping[str, Any], state: str) -> dict[Numbers, Mapping[str, Any]]:
    """The times of every configuration of a region that was timed in one state."""
    return {
        numbers_of(one["parameters"]): one["times"][state]
        for one in measured["configurations"]
        if state in one["times"]
    }


def known_timed(measured: Mapping[str, Any], state: str) -> bool:
    """Whether the entries of all known tables were timed."""
    return all(numbers_of(measured["known"][table]) in timed_in(measured, state) for table in KNOWN)


def untimed(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """The regions of sweeps that tell nothing, wholly or in one state, because a known entry was not timed."""
    return [
        measured["name"] if state is None else f"{measured['name']} {state}"
        for document in documents
        for measured in document["regions"]
        for state in (measured["timing"] or [None])
        if state is None or not known_timed(measured, state)
    ]


def numbers_of(parameters: Mapping[str, int]) -> Numbers:
    return tuple(parameters[name] for name in PARAMETERS)


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


def table_source(choices: Mapping[tuple[str, str], Choice], name: str) -> str:
    """The table as `profkit/kernels/qsa/tables.py` writes one."""
    lines = [f'    "{name}": Table(', '        "tuned on …",']
    for cache in CACHES:
        entries = ", ".join(str(choices[region_name, cache].numbers) for region_name in REGIONS)
        lines.append(f"        _entries({entries}),")
    return "\n".join([*lines, "    ),"])


if __name__ == "__main__":
    main()
