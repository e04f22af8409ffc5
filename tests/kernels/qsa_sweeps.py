"""Sweeps of `qsa-attention` as documents, written inline, and the script that reads them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from profkit.kernels.qsa.regions import SWEPT
from profkit.kernels.qsa.tables import entry

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "qsa_table.py"
sys.path.insert(0, str(SCRIPT.parent))

import qsa_compact  # noqa: E402, F401
import qsa_confirm  # noqa: E402, F401
import qsa_table  # noqa: E402, F401

NOISE = 0.02
NEW, OTHER = (64, 16, 4), (32, 2, 2)


def swept(times: dict[tuple[int, int, int], float], *, rows: int = 4, state: str = "hot", **shapes: Any) -> dict:  # type: ignore[type-arg]
    """A region of a sweep: times by configuration, of which those that differ by more than `NOISE` are told apart."""
    full = {"rows": rows, "kv_heads": 1, "q_heads": 12, "dtype": "bf16", "mode": "decode", **shapes}
    fp8, prefill = full["dtype"] == "fp8", full["mode"] == "prefill"
    known = {t: entry(t, rows, full["kv_heads"], prefill=prefill, fp8=fp8) for t in ("default", "sm_90")}
    numbers = {table: (one.block_n, one.splits, one.warps) for table, one in known.items()}
    configurations = []
    for one, us in times.items():
        against = {}
        for table, other in numbers.items():
            ratio = us / times[other]
            verdict = "equal" if abs(ratio - 1) < NOISE else "better" if ratio < 1 else "worse"
            against[table] = None if one == other else {"ratio": ratio, "verdict": verdict}
        configurations.append({"parameters": named(one), "times": {state: {"us": us, "against": against}}})
    return {
        "name": f"r{rows}",
        "shapes": full,
        "known": {table: named(one) for table, one in numbers.items()},
        "timing": {state: {"noise": {"percent": 1.25}}},
        "left_out": {},
        "configurations": configurations,
    }


def named(numbers: tuple[int, int, int]) -> dict[str, int]:
    return dict(zip(("block_n", "splits", "warps"), numbers, strict=True))


def sweep(*regions: dict[str, Any], device: str = "a GPU") -> dict[str, Any]:
    return {
        "schema": "profkit.sweep/2",
        "workload": {"name": "qsa-attention"},
        "device": {"name": device},
        "seed": 1,
        "date": "2026-01-02T03:04:05+00:00",
        "protocol": {"min_share": 0.01, "states": ["hot"]},
        "regions": list(regions),
    }


#: The known entries for 1 to 24 pairs.
DEFAULT, SM_90 = (32, 64, 4), (64, 64, 2)


def whole(win: bool) -> dict[str, Any]:
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
        regions.append({**swept(times, **{**shapes, "rows": rows}), "name": name})
    return sweep(*regions)
