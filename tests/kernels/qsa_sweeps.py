"""Sweeps of `qsa-attention`, written inline, and the script that reads them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from profkit.kernels.qsa.regions import PARAMETERS, SWEPT
from profkit.kernels.qsa.tables import entry
from profkit.model.run import DeviceRecord
from profkit.sweep.records import (
    Against,
    Configuration,
    Noise,
    Parameter,
    Protocol,
    Region,
    State,
    Sweep,
    SweptWorkload,
    Times,
    Timing,
)

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "qsa_table.py"
sys.path.insert(0, str(SCRIPT.parent))

import qsa_table  # noqa: E402, F401

Numbers = tuple[int, int, int]
NOISE = 0.02
NEW, OTHER = (64, 16, 4), (32, 2, 2)
#: The known entries for 1 to 24 pairs.
DEFAULT, SM_90 = (32, 64, 4), (64, 64, 2)


def swept(
    times: dict[Numbers, float],
    *,
    states: tuple[State, ...] = ("hot",),
    rows: int = 4,
    mine: Numbers | None = None,
    verdict: str | None = None,
    name: str = "",
    **shapes: Any,
) -> Region:
    """A region of a sweep: times by configuration, of which those that differ by more than `NOISE` are told apart.

    Args:
        mine: the entry of a table of that name, if there is one.
        verdict: of every comparison, in place of that.
    """
    full = {"rows": rows, "kv_heads": 1, "q_heads": 12, "dtype": "bf16", "mode": "decode", **shapes}
    fp8, prefill = full["dtype"] == "fp8", full["mode"] == "prefill"
    known = {t: entry(t, rows, full["kv_heads"], prefill=prefill, fp8=fp8) for t in ("default", "sm_90")}
    numbers = {table: (one.block_n, one.splits, one.warps) for table, one in known.items()}
    numbers |= {"mine": mine} if mine else {}
    there = {table: one for table, one in numbers.items() if one in times}

    def against(one: Numbers, other: Numbers) -> Against | None:
        ratio = times[one] / times[other]
        told = "equal" if abs(ratio - 1) < NOISE else "better" if ratio < 1 else "worse"
        found: Any = verdict or told
        return None if one == other else Against(ratio=ratio, low=None, high=None, p=None, verdict=found)

    def timed(one: Numbers) -> Times:
        us = times[one]
        compared = {table: against(one, other) for table, other in there.items()}
        return Times(us=us, p25_us=us, p75_us=us, min_us=us, orders_us=[us], samples=1, copies=1, against=compared)

    noise = Noise(percent=1.25, largest_percent=1.25, copies_orders_us=[])
    return Region(
        name=name or f"r{rows}",
        shapes=full,
        known={table: named(one) for table, one in numbers.items()},
        least_bytes=None,
        tolerance=(0.02, 0.02),
        reference=None,
        timing={state: Timing(runs_per_sample=1, nothing_us=0.6, noise=noise) for state in states},
        left_out={},
        phases_s={},
        configurations=[
            Configuration(parameters=named(one), known=[], times={state: timed(one) for state in states})
            for one in times
        ],
    )


def named(numbers: Numbers) -> dict[str, int]:
    return dict(zip(PARAMETERS, numbers, strict=True))


def sweep(*regions: Region, device: str = "a GPU", seed: int = 1, states: tuple[State, ...] = ("hot",)) -> Sweep:
    """A sweep of these regions; of several of one name the later ones get a number."""
    seen: Counter[str] = Counter()
    for region in regions:
        seen[region.name] += 1
        if seen[region.name] > 1:
            region.name = f"{region.name}.{seen[region.name]}"
    return Sweep(
        workload=SweptWorkload(name="qsa-attention", variant="default", source="shipped", sources={}),
        device=DeviceRecord(name=device),
        versions={},
        seed=seed,
        date="2026-01-02T03:04:05+00:00",
        parameters={name: Parameter(help=one.help, values=list(one.values)) for name, one in PARAMETERS.items()},
        only_known=False,
        protocol=Protocol(
            states=list(states),
            orders=1,
            replays=1,
            screen=1.5,
            screen_replays=1,
            copies=1,
            alpha=0.05,
            confidence=0.95,
            min_us=0.05,
            min_share=0.01,
            methods={},
            steps="",
            rule="",
        ),
        start_s=0.0,
        planned={region.name: region.shapes for region in regions},
        regions=list(regions),
    )


def whole(win: bool, mine: Numbers | None = None, states: tuple[State, ...] = ("hot",)) -> Sweep:
    """A sweep of every problem r*, in which one configuration wins everywhere or nowhere."""
    regions = []
    for name, shapes in SWEPT.items():
        if not name.startswith("r"):
            continue
        rows, kv_heads = int(shapes["rows"]), int(shapes["kv_heads"])
        prefill, fp8 = shapes["mode"] == "prefill", shapes["dtype"] == "fp8"
        known = [entry(table, rows, kv_heads, prefill=prefill, fp8=fp8) for table in ("default", "sm_90")]
        times = {(one.block_n, one.splits, one.warps): 10.0 for one in known}
        times[128, 2, 8] = 8.0 if win else 10.0
        regions.append(swept(times, **{**shapes, "rows": rows}, name=name, mine=mine, states=states))
    return sweep(*regions, states=states)


def run(directory: Path, *arguments: str, **sweeps: Sweep | str) -> subprocess.CompletedProcess[str]:
    """The script on files of these names and contents."""
    for name, content in sweeps.items():
        text = content if isinstance(content, str) else msgspec.json.encode(content).decode()
        (directory / f"{name}.json").write_text(text)
    command = [sys.executable, SCRIPT, *(f"{name}.json" for name in sweeps), *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
