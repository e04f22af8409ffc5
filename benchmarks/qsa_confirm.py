"""Whether another run confirms a launch table: its entries beside the better known one, point by point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qsa_documents import check, missing
from qsa_points import CACHES, KNOWN, Point, cell_of, points
from qsa_summary import VERDICTS, numbers_of

from profkit.kernels.qsa.tables import REGIONS


@dataclass(frozen=True)
class Judged:
    """A table's entry beside the better known one in one problem and state.

    Args:
        name: the problem and the state.
        cell: region of the tables and kind of cache.
        verdict: one of `VERDICTS`.
        beside: the known table whose entry is faster here.
        ratio: the entry's time over that one's.
    """

    name: str
    cell: tuple[str, str]
    verdict: str
    beside: str
    ratio: float


def confirm(documents: Sequence[Mapping[str, Any]], table: str) -> int:
    """Print how the entries of `table` fare; the exit status: 1 where one is slower beyond noise or was not timed.

    Every problem r* of the workload must be there in every state that the sweeps' protocol has; see `missing`.

    Raises:
        SystemExit: documents that are no sweeps of this workload or of several devices, or that do not know the table.
    """
    judged, untimed = judge(documents, table)
    cells = {(region, cache): [one for one in judged if one.cell == (region, cache)] for region, cache in _CELLS}
    states = ", ".join(dict.fromkeys(state for document in documents for state in document["protocol"]["states"]))
    print(f"{table} beside the better entry of {' and '.join(KNOWN)}; seeds {_seeds(documents)}; states {states}")
    print(f"{'region':13} {'cache':8}" + "".join(f" {verdict:>10}" for verdict in VERDICTS) + "   least    most")
    for (region, cache), found in cells.items():
        if found:
            counts = Counter(one.verdict for one in found)
            ratios = [one.ratio for one in found]
            columns = "".join(f" {counts[verdict]:10}" for verdict in VERDICTS)
            print(f"{region:13} {cache:8}{columns} {min(ratios):7.3f} {max(ratios):7.3f}")
    counts = Counter(one.verdict for one in judged)
    print(f"{'all':22}" + "".join(f" {counts[verdict]:10}" for verdict in VERDICTS))
    for one in judged:
        if one.verdict == "worse":
            print(f"slower: {one.name}, {one.ratio:.3f} of {one.beside}")
    unwon = [
        " ".join(cell)
        for cell, found in cells.items()
        if any(one.verdict != "same entry" for one in found) and not any(one.verdict == "better" for one in found)
    ]
    if unwon:
        print(f"new entries that win nowhere: {', '.join(unwon)}")
    absent = list(dict.fromkeys([*untimed, *missing(documents, [one.name for one in judged])]))
    for what in absent[:_NAMED]:
        print(f"not timed: {what}")
    if absent[_NAMED:]:
        print(f"and {len(absent) - _NAMED} more were not timed")
    refuted = bool(counts["worse"] or absent)
    print(f"{table} is {'NOT confirmed' if refuted else 'confirmed: slower nowhere beyond noise'}.")
    return int(refuted)


#: What was not timed is named up to here, then counted.
_NAMED = 12
_CELLS = [(region, cache) for region in REGIONS for cache in CACHES]


def judge(documents: Sequence[Mapping[str, Any]], table: str) -> tuple[list[Judged], list[str]]:
    """Every point of the sweeps, and the names of the problems (and states) in which an entry was not timed."""
    check(documents)
    judged, untimed = [], []
    for document in documents:
        for measured in document["regions"]:
            if table not in measured["known"]:
                raise SystemExit(f"{measured['name']} was swept without the table {table}.")
            entry = numbers_of(measured["known"][table])
            found = {one.name: one for one in points(document, measured) if entry in one.us}
            judged += [_judged(one, cell_of(measured["shapes"]), entry) for one in found.values()]
            states = [state for state in document["protocol"]["states"] if state not in measured["left_out"]]
            expected = [f"{measured['name']} {state}" for state in states]
            untimed += [name for name in expected if name not in found]
    return judged, untimed


def _judged(point: Point, cell: tuple[str, str], entry: tuple[int, ...]) -> Judged:
    beside = point.better_known
    same = entry == point.known[beside]
    return Judged(point.name, cell, "same entry" if same else point.verdict(entry), beside, point.ratio(entry))


def _seeds(documents: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(str(document["seed"]) for document in documents)
