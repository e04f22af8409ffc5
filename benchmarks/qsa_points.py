"""What a sweep of `qsa-attention` tells of the known tables' entries: one `Point` for each problem and state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qsa_summary import Numbers, numbers_of, times_of

from profkit.kernels.qsa.tables import region

SCHEMA = "profkit.sweep/2"
#: What `qsa_compact.py` writes. Version 1 had no verdicts, and so cannot be judged.
COMPACT_SCHEMA = "profkit.qsa-sweep/2"
#: The tables that a new one must beat; of equally fast entries the first one's stays.
KNOWN = ("sm_90", "default")
CACHES = ("bits_16", "fp8")
#: Slower by this factor is slower however large the noise was: nobody would want to find out.
SLOWER = 1.05


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
        """One of `VERDICTS` beside the better known entry, beyond noise or by `SLOWER`."""
        if self.ratio(numbers) >= SLOWER:
            return "worse"
        return self.verdicts[self.better_known].get(numbers, "equal")


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
        timed = times_of(measured, state)
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


def known_timed(measured: Mapping[str, Any], state: str) -> bool:
    """Whether the entries of all known tables were timed."""
    return all(numbers_of(measured["known"][table]) in times_of(measured, state) for table in KNOWN)


def untimed(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """The regions of sweeps that tell nothing, wholly or in one state, because a known entry was not timed."""
    return [
        measured["name"] if state is None else f"{measured['name']} {state}"
        for document in documents
        for measured in document["regions"]
        for state in (measured["timing"] or [None])
        if state is None or not known_timed(measured, state)
    ]
