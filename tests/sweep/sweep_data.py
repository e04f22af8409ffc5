"""Results of a sweep as the protocol leaves them, with times that are known."""

from __future__ import annotations

from typing import Any

import msgspec

from profkit.model.run import DeviceRecord
from profkit.sweep import judge
from profkit.sweep.records import (
    Configuration,
    Parameter,
    Protocol,
    Region,
    State,
    Status,
    Sweep,
    SweptWorkload,
    Timing,
)

HOT: dict[int, float] = {0: 10.0, 1: 8.0}
FATES: list[tuple[int, int, Status, str | None]] = [
    (1, 64, "timed", None),
    (2, 64, "timed", None),
    (4, 64, "screened", "3.8 x the best of the screening at least"),
    (1, 128, "rejected", "no room"),
    (2, 128, "failed", "OutOfResources: shared memory"),
    (4, 128, "wrong", "out: 1 of 9 elements differ"),
]


def samples(us: float, copies: int = 1) -> list[list[list[float]]]:
    """Two orders of two samples; copies that differ by up to 1.4 %."""
    return [[[us * (1 + 0.002 * copy)] * 2] * 2 for copy in range(copies)]


def region(name: str = "r1", **more: Any) -> Region:
    """A region with one configuration of every fate: the known entry takes 10 us hot, the best 8; evicted 10 more."""
    tried = [
        Configuration(parameters={"warps": warps, "tile": tile}, known=[], status=status, reason=reason)
        for warps, tile, status, reason in FATES
    ]
    tried[0].known = ["table"]
    timing: dict[State, Timing] = {}
    later: dict[State, float] = {"hot": 0.0, "evicted": 10.0}
    for state, later_us in later.items():
        for index, us in {**HOT, 2: 30.0}.items():
            tried[index].screen_us[state] = us + later_us
        taken = {index: samples(us + later_us, 1 if index else judge.COPIES) for index, us in HOT.items()}
        for index, times in judge.judge(taken, {"table": 0}).items():
            tried[index].times[state] = times
        nothing_us = 0.9 if state == "hot" else 2.1
        timing[state] = Timing(runs_per_sample=30, nothing_us=nothing_us, noise=judge.noise(taken[0]))
    made = Region(
        name=name,
        shapes={"rows": 4},
        known={"table": {"warps": 1, "tile": 64}},
        least_bytes=16_000,
        tolerance=(0.02, 0.02),
        reference={"warps": 1, "tile": 64},
        timing=timing,
        left_out={},
        configurations=tried,
        duration_s=1.5,
        phases_s={},
        date="2026-01-02T03:04:05+00:00",
    )
    return msgspec.structs.replace(made, **more)


def sweep(*regions: Region, planned: tuple[str, ...] = ()) -> Sweep:
    """The sweep of `regions`, and of others that are `planned`."""
    return Sweep(
        workload=SweptWorkload(name="file.py:W", variant="plain", source="file", sources={"file.py": "0" * 64}),
        device=DeviceRecord(name="NVIDIA H200"),
        versions={"profkit": "0.1.0", "torch": "2.11.0", "triton": "3.6.0", "cuda": "13.0", "python": "3.12"},
        seed=0,
        date="2026-01-02T03:04:05+00:00",
        parameters={
            "warps": Parameter(help="warps", values=[1, 2, 4]),
            "tile": Parameter(help="columns", values=[64, 128]),
        },
        only_known=False,
        protocol=Protocol(
            states=["hot", "evicted"],
            orders=2,
            replays=2,
            screen=1.5,
            screen_replays=3,
            copies=judge.COPIES,
            alpha=0.05,
            confidence=0.95,
            min_us=0.05,
            min_share=0.01,
            methods={"hot": "by hot means", "evicted": "by cold means"},
            steps="one after the other",
            rule=judge.rule(2),
        ),
        start_s=1.0,
        planned={name: {"rows": 4} for name in (*(one.name for one in regions), *planned)},
        regions=list(regions),
    )
