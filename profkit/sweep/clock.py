"""How a sweep times: what `cpu_clock` and `gpu_clock` have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from profkit.sweep.plan import State

#: A hot sample lasts at least about this long, so that its edges weigh little. Untimed edges of an event pair are about
#: a microsecond.
HOT_SAMPLE_US = 300.0
HOT_RUNS = (1, 100)
#: An evicted sample is a mean over several runs, each after an eviction, unless a run is long.
EVICTED_SAMPLE_US = 1000.0
EVICTED_RUNS = (1, 5)

Run = Callable[[], None]


class Entry(Protocol):
    """A configuration that is ready to be timed, again and again."""

    def replay(self) -> None:
        """Run it as it is timed; may return before it has ended."""


class Clock(Protocol):
    """Times runs on one device.

    Args:
        methods: state to a clause that says how it is timed.
    """

    methods: Mapping[State, str]

    def nothing(self) -> None:
        """A run that does nothing; timed like any other it shows what the method itself takes."""

    def left_out(self, state: State, least_bytes: int | None) -> str | None:
        """Why `state` need not be timed where ``hot`` is; None where it must.

        Args:
            least_bytes: of the problem, see `profkit.model.workload.Problem`.
        """

    def synchronize(self) -> None:
        """Wait for the device.

        Raises:
            RuntimeError: something that ran on it has failed.
        """

    def region(self) -> AbstractContextManager[None]:
        """Around all that is done for one region: at its end the region's memory is given back."""

    def prepare(self, run: Run, state: State, runs: int) -> Entry:
        """Make `runs` runs a sample that can be timed; `run` has run before, so that nothing compiles now."""

    def sample_us(self, entries: Sequence[Entry]) -> list[float]:
        """Run each entry once, in this order; returns what one run of each took, in µs."""


def runs_in_a_sample(state: State, fastest_us: float) -> int:
    """How many runs are one sample, the same for every configuration of a region.

    Args:
        fastest_us: about what the fastest configuration takes.
    """
    target_us, (fewest, most) = (HOT_SAMPLE_US, HOT_RUNS) if state == "hot" else (EVICTED_SAMPLE_US, EVICTED_RUNS)
    return max(fewest, min(most, math.ceil(target_us / max(fastest_us, 1e-3))))
