"""A clock whose times are known, and the problem that tests of a region time with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="outputs are tensors")

from cpu_tunable import SCALE  # noqa: E402

from profkit.capture.sittings import Progress  # noqa: E402
from profkit.model.workload import Configuration, Problem  # noqa: E402
from profkit.sweep import warm  # noqa: E402
from profkit.sweep.clock import Entry, Run  # noqa: E402
from profkit.sweep.measured import Candidate, Measured  # noqa: E402
from profkit.sweep.phases import Phases  # noqa: E402
from profkit.sweep.plan import Options, Plan, State, make_plan  # noqa: E402
from profkit.sweep.region import build, measure  # noqa: E402


@dataclass(frozen=True)
class KnownEntry:
    """A prepared run, with the configuration that it runs (None: nothing)."""

    run: Run
    configuration: Configuration | None
    state: State
    runs: int

    def replay(self) -> None:
        self.run()


@dataclass
class KnownClock:
    """Times by a formula instead of by running; notes every sample that it is asked for."""

    us: Callable[[Configuration, State], float]
    broken: bool = False
    spared: str | None = None
    samples: list[list[tuple[Any, ...]]] = field(default_factory=list)
    methods: Mapping[State, str] = field(default_factory=lambda: {"hot": "by formula", "evicted": "by formula"})

    def nothing(self) -> None:
        """Nothing."""

    def left_out(self, state: State, least_bytes: int | None) -> str | None:
        return self.spared if state == "evicted" and least_bytes else None

    def synchronize(self) -> None:
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    @contextmanager
    def region(self) -> Iterator[None]:
        yield

    def prepare(self, run: Run, state: State, runs: int) -> KnownEntry:
        configuration = run.args[0] if isinstance(run, partial) else None
        return KnownEntry(run, configuration, state, runs)

    def sample_us(self, entries: Sequence[Entry]) -> list[float]:
        known = [entry for entry in entries if isinstance(entry, KnownEntry)]
        self.samples.append(
            [(e.state, e.runs, None if e.configuration is None else tuple(e.configuration.values())) for e in known]
        )
        return [0.5 if e.configuration is None else self.us(e.configuration, e.state) for e in known]


def by_repeats(configuration: Configuration, state: State) -> float:
    return configuration["repeats"] + 5.0 * configuration["chunks"] + (10.0 if state == "evicted" else 0.0)


def make(**options: Any) -> Plan:
    planned = make_plan(Options(workload="x.py:SCALE", shapes=("size=128",), device="cpu", **options), SCALE)
    return dataclasses.replace(planned, states=("hot", "evicted"))


def problem(**changes: Any) -> Problem:
    plan = make()
    return dataclasses.replace(build(plan, plan.regions[0]), **changes)


def swept(plan: Plan, clock: KnownClock, of: Problem | None = None) -> Measured:
    with warm.started(plan.options, 1, at_once=False) as nobody:
        return measure(plan, plan.regions[0], of or problem(), clock, Progress(0, 1), nobody, Phases())


def by_values(measured: Measured) -> dict[tuple[int, ...], Candidate]:
    return {tuple(c.configuration.values()): c for c in measured.candidates}
