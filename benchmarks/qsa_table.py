"""Builds a launch table from sweeps of `qsa-attention`, or says whether another run confirms one.

    profkit sweep qsa-attention --region 'r*' --format json > sweep.json
    python benchmarks/qsa_table.py sweep.json --name h200

A table has one entry for each region of (row, KV head) pairs and each kind of cache; a sweep has many problems in it
(rows, groups, KV heads), each hot and evicted. A new entry is taken only where in none of these it is slower than the
faster one of the known entries, in some it is faster beyond noise, and on average it is faster by what counts; of
several such the fastest on average. Where there is none the known entry that is faster on average stays.

A table was chosen for its times in one run, so it must win in another one, which need time the known entries only:

    profkit sweep qsa-attention --region 'r*' --only-known --seed 1 --format json > again.json
    python benchmarks/qsa_table.py again.json --confirm h200

Exit status 1 where the table is slower than the better known entry beyond noise, or was not timed in every problem r*
of the workload and every state of the sweeps' protocol. It says nothing of sizes that were not swept: give sweeps of
`between-*` too.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import profkit
from profkit.errors import ProfkitError
from profkit.kernels.qsa.regions import PARAMETERS, SWEPT
from profkit.kernels.qsa.tables import REGIONS, region
from profkit.sweep.records import Region, State, Sweep

#: The tables that a new one must beat; of equally fast entries the first one's stays.
KNOWN = ("sm_90", "default")
CACHES = ("bits_16", "fp8")
CELLS = [(name, cache) for name in REGIONS for cache in CACHES]
VERDICTS = ("better", "equal", "unclear", "worse", "same entry")
#: Slower by this factor is slower however large the noise was: nobody would want to find out.
SLOWER = 1.05
#: What was not timed is named up to here, then counted.
NAMED = 12
#: A configuration: block_n, splits, warps.
Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Point:
    """One problem in one state, in which the entries of `KNOWN` were timed.

    Args:
        name: the problem and the state.
        cell: region of the tables and kind of cache.
        us: the time of every configuration that was timed.
        known: the entry of every table that was timed.
        verdicts: for each of these how each other configuration compares with it beyond noise.
        least_share: the smallest difference that counts, as a share.
    """

    name: str
    cell: tuple[str, str]
    us: Mapping[Numbers, float]
    known: Mapping[str, Numbers]
    verdicts: Mapping[str, Mapping[Numbers, str]]
    least_share: float

    @property
    def better_known(self) -> str:
        """The table of `KNOWN` whose entry is faster here."""
        return min(KNOWN, key=lambda table: self.us[self.known[table]])

    def ratio(self, numbers: Numbers) -> float:
        """Time over that of the better known entry."""
        return self.us[numbers] / self.us[self.known[self.better_known]]

    def verdict(self, numbers: Numbers) -> str:
        """One of `VERDICTS` beside the better known entry, beyond noise or by `SLOWER`."""
        if numbers == self.known[self.better_known]:
            return "same entry"
        return "worse" if self.ratio(numbers) >= SLOWER else self.verdicts[self.better_known][numbers]


@dataclass(frozen=True)
class Choice:
    """The entry of one cell.

    Args:
        source: ``measured``, or the known table that it is from.
        better: in how many of `points` it is faster than the better known entry beyond noise.
        least, mean, most: its time over the better known entry's: of all points the smallest, the geometric mean and
            the largest.
    """

    numbers: Numbers
    source: str
    points: int
    better: int
    least: float
    mean: float
    most: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", type=Path, nargs="+", help="directories or JSON of profkit sweep; of one device")
    parser.add_argument("--name", default="h200", help="what the table is called")
    parser.add_argument("--confirm", metavar="TABLE", default=None, help="judge a known table, make none")
    options = parser.parse_args()
    try:
        sweeps = [profkit.load_sweep(path) for path in options.sweeps]
    except ProfkitError as error:
        raise SystemExit(str(error)) from None
    raise SystemExit(confirm(sweeps, options.confirm) if options.confirm else make(sweeps, options.name))


def check(sweeps: Sequence[Sweep]) -> None:
    """Refuse what is not from `profkit sweep qsa-attention` on one device, under another's name, or given twice.

    Raises:
        SystemExit: says what.
    """
    if any(one.workload.name != "qsa-attention" for one in sweeps):
        raise SystemExit("Give sweeps of qsa-attention.")
    devices = {str(one.device.name) for one in sweeps}
    if len(devices) > 1:
        raise SystemExit(f"One table is of one device, these sweeps are of {', '.join(sorted(devices))}.")
    seen = set()
    for one in sweeps:
        for measured in one.regions:
            if not SWEPT.get(measured.name, {}).items() <= measured.shapes.items():
                raise SystemExit(f"{measured.name} has other shapes than the problem of that name.")
            of = (one.seed, one.date, measured.name)
            if of in seen:
                raise SystemExit(f"{measured.name} is given twice, by one and the same measurement.")
            seen.add(of)


def points(sweeps: Sequence[Sweep]) -> list[Point]:
    """What the sweeps tell, where the entries of `KNOWN` were timed.

    Raises:
        SystemExit: documents that are no sweeps of this workload, or of several devices.
    """
    check(sweeps)
    return [
        _point(measured, state, one.protocol.min_share)
        for one in sweeps
        for measured in one.regions
        for state in measured.timing
        if set(KNOWN) <= set(measured.entries(state))
    ]


def _point(measured: Region, state: State, least_share: float) -> Point:
    timed = {_numbers(one.parameters): one.times[state] for one in measured.configurations if one.times}
    known = {table: _numbers(one.parameters) for table, one in measured.entries(state).items()}
    rows, kv_heads = int(measured.shapes["rows"]), int(measured.shapes["kv_heads"])
    return Point(
        name=f"{measured.name} {state}",
        cell=(
            region(rows, kv_heads, prefill=measured.shapes["mode"] == "prefill"),
            "fp8" if str(measured.shapes["dtype"]).startswith("fp8") else "bits_16",
        ),
        us={numbers: times.us for numbers, times in timed.items()},
        known=known,
        verdicts={
            table: {n: against.verdict for n, times in timed.items() if (against := times.against[table])}
            for table in known
        },
        least_share=least_share,
    )


def _numbers(parameters: Mapping[str, int]) -> Numbers:
    return tuple(parameters[name] for name in PARAMETERS)


def make(sweeps: Sequence[Sweep], name: str) -> int:
    """Print the table of these sweeps, ready to be pasted."""
    choices = choose(sweeps)
    print("block_n,splits,warps; times over those of the better known entry of each point")
    print(f"{'region':13} {'cache':8} {'entry':10} {'from':9} points better  least   mean   most")
    for (region_name, cache), one in choices.items():
        print(
            f"{region_name:13} {cache:8} {','.join(map(str, one.numbers)):10} {one.source:9} {one.points:6} "
            f"{one.better:6} {one.least:6.3f} {one.mean:6.3f} {one.most:6.3f}"
        )
    told = {one.name for one in points(sweeps)}
    swept = [f"{measured.name} {state}" for one in sweeps for measured in one.regions for state in one.protocol.states]
    if untold := [name for name in swept if name not in told]:
        print(f"\nNot told, as it was left out or a known entry was not timed: {', '.join(untold)}.")
    missing = [f"{region_name} {cache}" for region_name, cache in CELLS if (region_name, cache) not in choices]
    taken = sum(one.source == "measured" for one in choices.values())
    is_worth = bool(taken) and not missing
    print(f"\n{taken} of {len(choices)} entries win beyond noise: {'a table' if is_worth else 'no table'}.")
    if missing:
        print(f"Not measured, so no table: {', '.join(missing)}.")
    else:
        print("\nFor TABLES in kernels/qsa/tables.py:" if is_worth else "\nThe table, if it were to ship:")
        print(source(choices, name, str(sweeps[0].device.name), sweeps[0].date[:10]))
    return 0


def choose(sweeps: Sequence[Sweep]) -> dict[tuple[str, str], Choice]:
    """The entry of every region and kind of cache that was measured, in the order of the tables.

    Raises:
        SystemExit: documents that are no sweeps of this workload, or of several devices.
    """
    cells: dict[tuple[str, str], list[Point]] = {}
    for point in points(sweeps):
        cells.setdefault(point.cell, []).append(point)
    return {cell: _choice(cells[cell]) for cell in CELLS if cell in cells}


def _choice(found: Sequence[Point]) -> Choice:
    """The entry of one cell; see the module for the rule."""
    everywhere = set.intersection(*(set(point.us) for point in found))
    winners = [
        numbers
        for numbers in everywhere
        if all(point.verdict(numbers) != "worse" for point in found)
        and any(point.verdict(numbers) == "better" for point in found)
        and mean_ratio(found, numbers) <= 1 - max(point.least_share for point in found)
    ]
    # In order of the numbers where times are equal, so that the same sweep always gives the same table.
    best = min(winners, key=lambda numbers: (mean_ratio(found, numbers), numbers), default=None)
    from_ = "measured"
    if best is None:
        # A table's entry depends on the cell alone, so any of its points has it.
        from_ = min(KNOWN, key=lambda table: mean_ratio(found, found[0].known[table]))
        best = found[0].known[from_]
    ratios = [point.ratio(best) for point in found]
    return Choice(
        numbers=best,
        source=from_,
        points=len(found),
        better=sum(point.verdict(best) == "better" for point in found),
        least=min(ratios),
        mean=mean_ratio(found, best),
        most=max(ratios),
    )


def mean_ratio(found: Sequence[Point], numbers: Numbers) -> float:
    """The geometric mean of a configuration's time over the better known entry's."""
    return math.exp(sum(math.log(point.ratio(numbers)) for point in found) / len(found))


def source(choices: Mapping[tuple[str, str], Choice], name: str, device: str, date: str) -> str:
    """The table as `kernels/qsa/tables.py` writes one."""
    lines = [f'    "{name}": Table(', f'        "tuned on {device}, {date}",']
    for cache in CACHES:
        entries = [choices[region_name, cache].numbers for region_name in REGIONS]
        # Five a line, as that is all that fits.
        parts = [", ".join(map(str, entries[start : start + 5])) for start in range(0, len(entries), 5)]
        lines += ["        _entries(", *(f"            *({part})," for part in parts), "        ),"]
    return "\n".join([*lines, "    ),"])


def confirm(sweeps: Sequence[Sweep], table: str) -> int:
    """Print how the entries of `table` fare; the exit status: 1 where one is slower beyond noise or was not timed.

    Raises:
        SystemExit: documents that are no sweeps of this workload or of several devices, or that do not know the table.
    """
    judged = [one for one in points(sweeps) if table in one.known]
    unknowing = [measured.name for one in sweeps for measured in one.regions if table not in measured.known]
    if unknowing:
        raise SystemExit(f"{unknowing[0]} was swept without the table {table}.")
    states = dict.fromkeys(state for one in sweeps for state in one.protocol.states)
    seeds = ", ".join(str(one.seed) for one in sweeps)
    print(f"{table} beside the better entry of {' and '.join(KNOWN)}; seeds {seeds}; states {', '.join(states)}")
    print(f"{'region':13} {'cache':8}" + "".join(f" {verdict:>10}" for verdict in VERDICTS) + "   least    most")
    for cell in CELLS:
        found = [one for one in judged if one.cell == cell]
        if found:
            ratios = [one.ratio(one.known[table]) for one in found]
            print(f"{cell[0]:13} {cell[1]:8}{_counts(found, table)} {min(ratios):7.3f} {max(ratios):7.3f}")
    print(f"{'all':22}{_counts(judged, table)}")
    slower = [one for one in judged if one.verdict(one.known[table]) == "worse"]
    for one in slower:
        print(f"slower: {one.name}, {one.ratio(one.known[table]):.3f} of {one.better_known}")
    there = {one.name for one in judged}
    spared = {f"{measured.name} {state}" for one in sweeps for measured in one.regions for state in measured.left_out}
    names = dict.fromkeys([measured.name for one in sweeps for measured in one.regions])
    names |= dict.fromkeys(name for name in SWEPT if name.startswith("r"))
    absent = [what for name in names for what in (f"{name} {state}" for state in states) if what not in there | spared]
    for what in absent[:NAMED]:
        print(f"not timed: {what}")
    if absent[NAMED:]:
        print(f"and {len(absent) - NAMED} more were not timed")
    is_refuted = bool(slower or absent)
    print(f"{table} is {'NOT confirmed' if is_refuted else 'confirmed: slower beyond noise in no problem given'}.")
    return int(is_refuted)


def _counts(found: Sequence[Point], table: str) -> str:
    counts = Counter(one.verdict(one.known[table]) for one in found)
    return "".join(f" {counts[verdict]:10}" for verdict in VERDICTS)


if __name__ == "__main__":
    main()
