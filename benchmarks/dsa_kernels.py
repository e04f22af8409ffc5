"""Times the kernels of `dsa-candidates` on a GPU, untraced: microseconds a call, in CUDA graphs of sixteen calls.

First the arms of both halves over rows, widths and contexts, beside the bytes and operations that each must move and
the floor which these bytes set at the fastest rate measured here. The calls of a graph work on buffers in turn that
together exceed the L2 cache where 16 of them do; the tables say where they do not. Then a sweep of the kernels'
launches. No point is begun after --seconds; what was left out is said.

    python benchmarks/dsa_kernels.py --output dsa_kernels.json          # under two minutes
    python benchmarks/dsa_kernels.py --quick --output dsa_quick.json    # the points that decide, half a minute
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from dsa_arms import Arm, Point, PointTensors, arms
from dsa_sweep import Candidate, candidates
from gpu_timing import Device, capture, measure, this_device

MILLION = 1 << 20
WIDTHS = (MILLION, 1 << 17, 1 << 13)
#: The shape that decides comes first.
ROWS = (52, 1, 8, 256, 1024)
CALLS = 16
#: More than the L2 cache of any device so far, twice over.
COLD_BYTES = 128 << 20
#: Contexts of a point beside half and all of its width.
SHORT = 512

QUICK_POINTS = (
    *(Point(52, MILLION, context) for context in (SHORT, MILLION // 2, MILLION)),
    *(Point(52, width, SHORT) for width in WIDTHS[1:]),
    *(Point(1, MILLION, context) for context in (SHORT, MILLION)),
    Point(1024, MILLION, SHORT),
)
SWEEP_POINTS = (
    Point(52, MILLION, SHORT),
    Point(52, MILLION, MILLION),
    Point(1, MILLION, MILLION),
    Point(1024, MILLION, SHORT),
    Point(8, WIDTHS[2], WIDTHS[2]),
    Point(1024, WIDTHS[2], WIDTHS[2]),
)
#: Of the summary: its columns, and for each the arm.
SUMMARY = {
    "full": "mask, full width",
    "full v4": "mask, full width, vector stores",
    "PR": "mask, live, PR constants",
    "tuned": "mask, live, tuned",
    "m full": "flags + mask, full-width",
    "m live": "flags + mask, live",
    "m bound": "flags + mask, bounded",
    "m one": "flags + mask, one-kernel",
    "s full": "select, full-width",
    "s live": "select, live",
    "s bound": "select, bounded",
    "k torch": "top-k, torch.topk + store",
    "k bound": "top-k, bounded",
    "c full": "scores, full width",
    "c tuned": "scores, live, tuned",
}
Row = dict[str, Any]


def main() -> None:
    options = parse_options()
    began = time.monotonic()
    device = this_device()
    print(f"{device.name}, torch {device.torch}, triton {device.triton}")
    for task in ("fill", "read", "copy"):
        rate = getattr(device, f"{task}_bytes_per_second")
        print(f"fastest {task}: {rate / 1e12:.2f} TB/s ({device.fastest[task]})")
    print(f"an empty kernel in a graph: {device.launch_us:.2f} us; L2 cache: {device.l2_bytes / 1e6:.0f} MB")
    document: dict[str, Any] = {
        "schema": "profkit.dsa-kernels/2",
        "device": asdict(device),
        "calls": CALLS,
        "left_out": [],
        "arms": [],
        "sweep": [],
    }
    tasks = [("arms", point) for point in (QUICK_POINTS if options.quick else all_points())]
    sweeps = [("sweep", point) for point in (SWEEP_POINTS[:2] if options.quick else SWEEP_POINTS)]
    # The sweeps choose defaults: they come before the points that only fill the table.
    for task, point in [*tasks[: len(QUICK_POINTS)], *sweeps, *tasks[len(QUICK_POINTS) :]]:
        if time.monotonic() - began > options.seconds:
            document["left_out"].append(f"{task} at {point}")
        elif task == "arms":
            rows = time_arms(point, device)
            document["arms"] += rows
            if options.quick or point in QUICK_POINTS:
                print_arms(point, rows)
        else:
            document["sweep"] += sweep(point)
        save(options.output, document)
    print_summary(document["arms"])
    for left_out in document["left_out"]:
        print(f"left out after {options.seconds:.0f} s: {left_out}")
    print(f"{time.monotonic() - began:.0f} s in all")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the points that decide, and two sweeps")
    parser.add_argument("--seconds", type=float, default=100.0, help="begin nothing after so many (default 100)")
    parser.add_argument("--output", type=Path, default=None, help="write the results there as JSON")
    return parser.parse_args()


def all_points() -> Iterable[Point]:
    """The points that decide, then all others."""
    grid = [
        Point(rows, width, context)
        for rows, width in itertools.product(ROWS, WIDTHS)
        for context in (SHORT, width // 2, width)
    ]
    return dict.fromkeys([*QUICK_POINTS, *grid])


def time_arms(point: Point, device: Device) -> list[Row]:
    """Time every arm at one point; one row of the report each."""
    tensors = PointTensors(point, copies(point), device="cuda")
    found = {arm.name: arm for arm in arms(point)}
    samples = timed(found, tensors)
    rows = []
    for name, arm in found.items():
        floor_us = device.floor_us(arm.read_bytes, arm.written_bytes)
        row = {**asdict(point), "cold": is_cold(point), "arm": name, **asdict(samples[name])}
        moves = {"read_bytes": arm.read_bytes, "written_bytes": arm.written_bytes, "operations": arm.operations}
        # Bytes that the cache can hold from call to call are moved faster than any memory moves them.
        cached = (arm.read_bytes + arm.written_bytes) * copies(point) <= device.l2_bytes
        share = floor_us / samples[name].median_us
        rows.append({**row, **moves, "floor_us": floor_us, "share": share, "cached": cached})
    return rows


def print_arms(point: Point, rows: list[Row]) -> None:
    """Every arm of one point, a line each, and why a share is above 100 % where one is."""
    print(f"\n{point}, {copies(point)} buffers{'' if is_cold(point) else ', which the L2 cache may hold'}")
    print(f"  {'us a call':34} {'median':>8} {'p25':>8} {'p75':>8} {'MB':>9} {'floor':>7} {'share':>6}")
    for row in rows:
        above = "" if row["share"] <= 1 else " c" if row["cached"] else " !"
        print(
            f"  {row['arm']:34} {row['median_us']:8.2f} {row['p25_us']:8.2f} {row['p75_us']:8.2f} "
            f"{(row['read_bytes'] + row['written_bytes']) / 1e6:9.3f} {row['floor_us']:7.2f} {row['share']:6.0%}{above}"
        )
    over = [row for row in rows if row["share"] > 1]
    if any(row["cached"] for row in over):
        print("  c: above 100 %, since the L2 cache holds these bytes from call to call")
    if not all(row["cached"] for row in over):
        print("  !: above 100 %: faster than any fill, read or copy measured here, so the floor is no floor for it")


def print_summary(rows: list[Row]) -> None:
    """The medians of the arms that matter, a line a point, and how the tuned forms stand against the full width."""
    if not rows:
        return
    print("\nus a call: mask alone; flags + mask (m); select (s); top-k alone (k); scores alone (c)")
    print(f"{'rows':>5} {'width':>8} {'context':>8} {'cold':>4} " + " ".join(f"{name:>8}" for name in SUMMARY))
    median: dict[Point, dict[str, float]] = {}
    cold: dict[Point, bool] = {}
    for row in rows:
        point = Point(row["rows"], row["width"], row["context"])
        median.setdefault(point, {})[row["arm"]] = row["median_us"]
        cold[point] = row["cold"]
    for point in sorted(median, key=lambda point: (point.rows, point.width, point.context)):
        times = " ".join(f"{median[point][arm]:8.2f}" for arm in SUMMARY.values())
        print(f"{point.rows:5} {point.width:8} {point.context:8} {'yes' if cold[point] else 'no':>4} {times}")
    print("\ntuned over full width, at full context: the worst of all rows and widths")
    for after, before in (
        ("mask, live, tuned", "mask, full width"),
        ("mask, live, tuned", "mask, full width, vector stores"),
        ("flags + mask, bounded", "flags + mask, full-width"),
        ("flags + mask, one-kernel", "flags + mask, full-width"),
        ("scores, live, tuned", "scores, full width"),
        ("top-k, bounded", "top-k, torch.topk + store"),
        ("select, bounded", "select, full-width"),
    ):
        ratios = {point: arm[after] / arm[before] for point, arm in median.items() if point.context == point.width}
        if ratios:
            worst = max(ratios, key=lambda point: ratios[point])
            print(f"  {after:26} / {before:34} {ratios[worst]:6.3f} at {worst}")


def timed(found: dict[str, Arm] | dict[str, Candidate], tensors: PointTensors) -> dict[str, Any]:
    """Time a call of each; the graphs are gone, with what they held, when this returns."""
    graphs = {
        name: capture([partial(one.call, tensors, call % len(tensors.logits)) for call in range(CALLS)])
        for name, one in found.items()
    }
    samples = measure(graphs, CALLS, turns=2)
    graphs.clear()
    gc.collect()
    return samples


def copies(point: Point) -> int:
    """How many buffers of logits the calls use in turn."""
    return max(1, min(CALLS, -(-COLD_BYTES // point.logit_bytes)))


def is_cold(point: Point) -> bool:
    return copies(point) * point.logit_bytes >= COLD_BYTES


def sweep(point: Point) -> list[Row]:
    """Time every launch at one point; print the pull request's constants, the default and the best of each kernel."""
    tensors = PointTensors(point, copies(point), device="cuda")
    found = {f"{one.kernel} {one.numbers}": one for one in candidates(point)}
    samples = timed(found, tensors)
    rows = [
        {**asdict(point), "kernel": one.kernel, **one.numbers, **asdict(samples[name])} for name, one in found.items()
    ]
    print(f"\nsweep at {point}: {len(rows)} launches")
    for kernel in dict.fromkeys(one.kernel for one in found.values()):
        ranked = sorted((row for row in rows if row["kernel"] == kernel), key=lambda row: row["median_us"])
        for place, row in enumerate(ranked):
            if place < 5 or row["default"] or row.get("vector") == 1:
                print(f"  {row['median_us']:8.2f} {kernel:6} {numbers(row)}")
    return rows


def numbers(row: Row) -> str:
    names = (
        "floor",
        "total",
        "programs",
        "least_run",
        "cut_tile",
        "tile",
        "warps",
        "vector",
        "early",
        "wide",
    )
    listed = ", ".join(f"{name} {row[name]}" for name in names if name in row)
    return f"{listed}{' (default)' if row['default'] else ''}"


def save(path: Path | None, document: dict[str, Any]) -> None:
    """What is measured so far, so that an interrupted run loses only its last point; a line a row.

    All arms have the same columns, which are named once.
    """
    if path is None:
        return
    arms_rows, sweep_rows = rounded(document["arms"]), rounded(document["sweep"])
    lines = [
        *(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in document.items() if key not in ("arms", "sweep")),
        f'"columns": {json.dumps(list(arms_rows[0]) if arms_rows else [])}',
        f'"arms": {listed([list(row.values()) for row in arms_rows])}',
        f'"sweep": {listed(sweep_rows)}',
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def rounded(rows: list[Row]) -> list[Row]:
    """To nanoseconds, which are digits enough."""
    return [
        {name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()} for row in rows
    ]


def listed(rows: Sequence[Any]) -> str:
    return "[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]"


if __name__ == "__main__":
    main()
