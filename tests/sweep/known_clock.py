"""A clock whose times are known, and the problem that tests of a region time with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="outputs are tensors")

from cpu_tunable import SCALE  # noqa: E402

from profkit.capture.sittings import Progress  # noqa: E402
from profkit.model.workload import Configuration, Problem  # noqa: E402
from profkit.sweep.clock import Clock, Run, Sample  # noqa: E402
from profkit.sweep.plan import Options, Plan, make_plan  # noqa: E402
from profkit.sweep.records import Configuration as Tried  # noqa: E402
from profkit.sweep.records import Region, State  # noqa: E402
from profkit.sweep.region import build, measure  # noqa: E402


@dataclass(frozen=True)
class KnownSample(Sample):
    """A prepared run, with the configuration that it runs (None: nothing)."""

    configuration: Configuration | None
    state: State
    runs: int


@dataclass
class KnownClock(Clock):
    """Times by a formula instead of by running; notes every sample that it is asked for."""

    us: Callable[[Configuration, State], float]
    broken: bool = False
    spared: str | None = None
    samples: list[list[tuple[Any, ...]]] = field(default_factory=list)
    methods: Mapping[State, str] = field(default_factory=lambda: {"hot": "by formula", "evicted": "by formula"})

    def left_out(self, state: State, least_bytes: int | None) -> str | None:
        return self.spared if state == "evicted" and least_bytes else None

    def synchronize(self) -> None:
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def prepare(self, run: Run, state: State, runs: int) -> KnownSample:
        configuration = run.args[0] if isinstance(run, partial) else None
        us = 0.5 if configuration is None else self.us(configuration, state)
        return KnownSample(run, lambda: us, configuration, state, runs)

    def sample_us(self, samples: Sequence[Sample]) -> list[float]:
        known = [one for one in samples if isinstance(one, KnownSample)]
        self.samples.append(
            [(e.state, e.runs, None if e.configuration is None else tuple(e.configuration.values())) for e in known]
        )
        return super().sample_us(samples)


def by_repeats(configuration: Configuration, state: State) -> float:
    return configuration["repeats"] + 5.0 * configuration["chunks"] + (10.0 if state == "evicted" else 0.0)


def make(**options: Any) -> Plan:
    planned = make_plan(Options(workload="x.py:SCALE", shapes=("size=128",), device="cpu", **options), SCALE)
    return dataclasses.replace(planned, states=("hot", "evicted"))


def problem(**changes: Any) -> Problem:
    return dataclasses.replace(build(make(), "size=128"), **changes)


def swept(plan: Plan, clock: KnownClock, of: Problem | None = None) -> Region:
    """The region of `plan`, with another problem than the workload's where one is given."""
    if of is not None:
        plan = dataclasses.replace(plan, tunable=dataclasses.replace(plan.tunable, build=lambda context: of))
    return measure(plan, "size=128", clock, Progress(0, 1))


def by_values(region: Region) -> dict[tuple[int, ...], Tried]:
    return {tuple(one.parameters.values()): one for one in region.configurations}
