"""What a region's protocol finds: every configuration, what became of it, and its samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from profkit.model.workload import Configuration
from profkit.sweep.plan import State

#: The entry that the others are compared with where no known table has one.
SCREENING = "screening"

Status = Literal["timed", "screened", "rejected", "failed", "wrong"]


@dataclass
class Candidate:
    """A configuration and what became of it.

    Args:
        known: the tables that choose it.
        reason: why it was not timed; None for those that were.
        screen_us: state to its median in the screening, one run a sample.
        samples_us: state to samples, ``[copies][orders][replays]``.
    """

    configuration: dict[str, int]
    known: Sequence[str]
    status: Status = "timed"
    reason: str | None = None
    screen_us: dict[State, float] = field(default_factory=dict)
    samples_us: dict[State, list[list[list[float]]]] = field(default_factory=dict)

    def leave(self, status: Status, reason: str) -> None:
        """It will not be timed (any further)."""
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Measured:
    """A region that was swept.

    Args:
        candidates: every configuration that was tried.
        reference: the index of the one that was measured as copies; None where nothing could be timed.
        runs: state to how many runs a sample is.
        left_out: state to why it was not timed.
        nothing_us: state to samples of a run that does nothing, ``[orders][replays]``.
        known: what known tables choose, as `Problem.known`.
        least_bytes, tolerance: as in `Problem`.
    """

    candidates: Sequence[Candidate]
    reference: int | None
    runs: Mapping[State, int]
    left_out: Mapping[State, str]
    nothing_us: Mapping[State, Sequence[Sequence[float]]]
    known: Mapping[str, Configuration]
    least_bytes: int | None
    tolerance: tuple[float, float]
