"""Times on the CPU with the host's clock: for workloads of torch's CPU operators."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from profkit.sweep.clock import Entry, Run
from profkit.sweep.plan import State


@dataclass(frozen=True)
class Repeated:
    """A run that is done `runs` times in a sample."""

    run: Run
    runs: int

    def replay(self) -> None:
        """See `profkit.sweep.clock.Entry`."""
        for _ in range(self.runs):
            self.run()


class CpuClock:
    """See `profkit.sweep.clock.Clock`."""

    methods: Mapping[State, str] = {
        "hot": "the host's clock around back-to-back runs on the CPU, after an untimed one, divided by their number; "
        "nothing is subtracted"
    }

    def nothing(self) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """The CPU has ended whatever has returned."""

    @contextmanager
    def region(self) -> Iterator[None]:
        """See `profkit.sweep.clock.Clock`."""
        yield
        gc.collect()

    def prepare(self, run: Run, state: State, runs: int) -> Repeated:
        """See `profkit.sweep.clock.Clock`."""
        if state != "hot":
            raise ValueError(f"the CPU clock times hot runs, not {state} ones")
        return Repeated(run, runs)

    def sample_us(self, entries: Sequence[Entry]) -> list[float]:
        """See `profkit.sweep.clock.Clock`."""
        samples_us = []
        for entry in entries:
            assert isinstance(entry, Repeated)
            entry.run()
            begun_ns = time.perf_counter_ns()
            entry.replay()
            samples_us.append((time.perf_counter_ns() - begun_ns) / 1e3 / entry.runs)
        return samples_us
