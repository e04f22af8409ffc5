"""Results of a sweep as the protocol leaves them, with times that are known."""

from __future__ import annotations

from typing import Any

from profkit.sweep.plan import Region, State
from profkit.sweep.record import protocol, region_record
from profkit.sweep.region import Candidate, Measured
from profkit.sweep.results import document
from profkit.sweep.statistics import RULE


def samples(us: float, copies: int = 1) -> list[list[list[float]]]:
    """Two orders of two samples; copies that differ by up to 1.4 %."""
    return [[[us * (1 + 0.002 * copy)] * 2] * 2 for copy in range(copies)]


def candidate(warps: int, tile: int, us: float | None, **fields: Any) -> Candidate:
    """A configuration that was timed at `us` hot and 10 us more evicted; None where it was not."""
    made = Candidate({"warps": warps, "tile": tile}, fields.pop("known", ()), **fields)
    if us is not None:
        times: dict[State, float] = {"hot": us, "evicted": us + 10}
        made.screen_us = dict(times)
        if made.status == "timed":
            copies = RULE.copies if "table" in made.known else 1
            made.samples_us = {state: samples(value, copies) for state, value in times.items()}
    return made


def region(name: str = "r1", **more: Any) -> dict[str, Any]:
    """A region with one configuration of every fate."""
    candidates = [
        candidate(1, 64, 10.0, known=("table",)),
        candidate(2, 64, 8.0),
        candidate(4, 64, 30.0, status="screened", reason="3.8 x the best of the screening at least"),
        candidate(1, 128, None, status="rejected", reason="no room"),
        candidate(2, 128, None, status="failed", reason="OutOfResources: shared memory"),
        candidate(4, 128, None, status="wrong", reason="out: 1 of 9 elements differ"),
    ]
    measured = Measured(
        candidates=candidates,
        reference=0,
        runs={"hot": 30, "evicted": 5},
        nothing_us={"hot": [[0.9] * 2] * 2, "evicted": [[2.1] * 2] * 2},
        known={"table": {"warps": 1, "tile": 64}},
        least_bytes=16_000,
        tolerance=(0.02, 0.02),
    )
    return {**region_record(Region(name, {"rows": 4}), measured, 1.5, "2026-01-02T03:04:05+00:00"), **more}


def sweep(*regions: dict[str, Any], planned: int | None = None) -> dict[str, Any]:
    """The document of `regions`."""
    facts = {
        "workload": {"name": "file.py:W", "variant": "plain", "source": "file", "sha256": "0" * 64},
        "device": {"name": "NVIDIA H200"},
        "versions": {"profkit": "0.1.0", "torch": "2.11.0", "triton": "3.6.0", "cuda": "13.0", "python": "3.12"},
        "seed": 0,
        "date": "2026-01-02T03:04:05+00:00",
        "parameters": {
            "warps": {"help": "warps", "values": [1, 2, 4]},
            "tile": {"help": "columns", "values": [64, 128]},
        },
        "only_known": False,
        "protocol": protocol(2, 2, 1.5, {"hot": "by hot means", "evicted": "by cold means"}),
    }
    return document(facts, len(regions) if planned is None else planned, regions)
