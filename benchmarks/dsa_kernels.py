"""Times the kernels of `dsa-candidates` on a GPU, untraced: microseconds a call, in CUDA graphs of sixteen calls.

First the arms of both halves, beside the bytes and operations that each must move and the floor which these bytes set
at measured bandwidth. The calls of a graph work on buffers in turn that together exceed the L2 cache where 16 of them
do; the table of arms says where they do not. Then a sweep of the launch of the masks and of the bounded top-k.

    python benchmarks/dsa_kernels.py --quick --output dsa_quick.json     # the points that decide, under a minute
    python benchmarks/dsa_kernels.py --output dsa_kernels.json           # all widths and rows, about three minutes
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from dsa_arms import Arm, Point, PointTensors, arms
from gpu_timing import Device, capture, measure, this_device

from profkit.kernels.dsa.fused import TUNED_FUSED, flag_and_mask
from profkit.kernels.dsa.mask import PR_MASK, TUNED_MASK, MaskLaunch, mask_columns
from profkit.kernels.dsa.programs import ProgramPolicy
from profkit.kernels.dsa.topk import TUNED_TOPK, topk_live

MILLION = 1 << 20
WIDTHS = (1 << 13, 1 << 15, 1 << 17, MILLION)
ROWS = (1, 8, 52, 256, 1024)
CALLS = 16
#: More than the L2 cache of any device so far, twice over.
COLD_BYTES = 128 << 20

QUICK_POINTS = (
    Point(52, MILLION, 512),
    Point(52, MILLION, MILLION // 2),
    Point(52, MILLION, MILLION),
    Point(52, 1 << 17, 512),
    Point(52, 1 << 13, 512),
    Point(1, MILLION, 512),
    Point(1, MILLION, MILLION),
    Point(1024, MILLION, 512),
)
SWEEP_POINTS = (
    Point(52, MILLION, 512),
    Point(52, MILLION, MILLION),
    Point(1, MILLION, MILLION),
    Point(1024, MILLION, 512),
)
QUICK_SWEEP_POINTS = SWEEP_POINTS[:2]
FLOORS = (1, 2, 4, 8)
TOTALS = (132, 264, 528, 1024, 2048, 4096, 8192)
TILES = (1024, 2048, 4096, 8192)
WARPS = (2, 4, 8)
FUSED_TOTALS = (264, 528, 1024, 2048)
#: A top-k takes seconds to compile.
TOPK_LAUNCHES = tuple(
    replace(TUNED_TOPK, tile=tile, warps=warps) for tile, warps in ((8192, 32), (4096, 16), (4096, 32), (2048, 8))
)
SUMMARY = (
    "mask, full width",
    "mask, live, PR constants",
    "mask, live, tuned",
    "flags, full width",
    "flags, live",
    "flags + mask, full-width",
    "flags + mask, live",
    "flags + mask, bounded",
    "flags + mask, one-kernel",
    "select, full-width",
    "select, live",
    "select, bounded",
)


@dataclass(frozen=True)
class Candidate:
    """One launch configuration of a sweep: which kernel, its numbers for the report, and one call of it."""

    kernel: str
    numbers: dict[str, Any]
    call: Callable[[PointTensors, int], None]


def main() -> None:
    options = parse_options()
    began = time.monotonic()
    device = this_device()
    print(f"{device.name}, torch {device.torch}, triton {device.triton}")
    print(
        f"copy {device.copy_bytes_per_second / 1e12:.2f} TB/s, fill {device.fill_bytes_per_second / 1e12:.2f} TB/s, "
        f"an empty kernel in a graph {device.launch_us:.2f} us"
    )
    document: dict[str, Any] = {
        "schema": "profkit.dsa-kernels/1",
        "device": asdict(device),
        "calls": CALLS,
        "arms": [],
        "sweep": [],
    }
    for point in QUICK_POINTS if options.quick else all_points():
        rows = time_arms(point, device)
        if options.quick:
            print_arms(point, rows)
        document["arms"] += rows
        save(options.output, document)
    print_summary(document["arms"])
    for point in QUICK_SWEEP_POINTS if options.quick else SWEEP_POINTS:
        document["sweep"] += sweep(point, options.quick)
        save(options.output, document)
    print(f"{time.monotonic() - began:.0f} s in all")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the points that decide, and a smaller sweep")
    parser.add_argument("--output", type=Path, default=None, help="write the results there as JSON")
    return parser.parse_args()


def all_points() -> Iterator[Point]:
    for width, rows in itertools.product(WIDTHS, ROWS):
        for context in (512, width // 2, width):
            yield Point(rows, width, context)


def time_arms(point: Point, device: Device) -> list[dict[str, Any]]:
    """Time every arm at one point; one row of the report each."""
    tensors = PointTensors(point, copies(point), device="cuda")
    found = {arm.name: arm for arm in arms(point)}
    samples = timed(found, tensors)
    rows = []
    for name, arm in found.items():
        floor_us = device.floor_us(arm.read_bytes, arm.written_bytes)
        row = {**asdict(point), "cold": is_cold(point), "arm": name, **asdict(samples[name])}
        moves = {"read_bytes": arm.read_bytes, "written_bytes": arm.written_bytes, "operations": arm.operations}
        rows.append({**row, **moves, "floor_us": floor_us, "share": floor_us / samples[name].median_us})
    return rows


def print_arms(point: Point, rows: list[dict[str, Any]]) -> None:
    """Every arm of one point, a line each."""
    print(f"\n{point}, {copies(point)} buffers{'' if is_cold(point) else ', which the L2 cache may hold'}")
    print(f"  {'us a call':34} {'median':>8} {'p25':>8} {'p75':>8} {'MB':>9} {'floor':>7} {'share':>6}")
    for row in rows:
        print(
            f"  {row['arm']:34} {row['median_us']:8.2f} {row['p25_us']:8.2f} {row['p75_us']:8.2f} "
            f"{(row['read_bytes'] + row['written_bytes']) / 1e6:9.3f} {row['floor_us']:7.2f} {row['share']:6.0%}"
        )


def print_summary(rows: list[dict[str, Any]]) -> None:
    """The medians of the arms that matter, a line a point."""
    if not rows:
        return
    names = [name for name in SUMMARY if any(row["arm"] == name for row in rows)]
    print(f"\n{'us a call: ' + '; '.join(f'{index + 1} {name}' for index, name in enumerate(names))}")
    print(f"{'rows':>5} {'width':>8} {'context':>8} {'cold':>4} " + " ".join(f"{i + 1:>8}" for i in range(len(names))))
    points = dict.fromkeys((row["rows"], row["width"], row["context"], row["cold"]) for row in rows)
    median = {(row["rows"], row["width"], row["context"], row["arm"]): row["median_us"] for row in rows}
    for count, width, context, cold in points:
        times = " ".join(f"{median[count, width, context, name]:8.2f}" for name in names)
        print(f"{count:5} {width:8} {context:8} {'yes' if cold else 'no':>4} {times}")


def timed(found: dict[str, Arm] | dict[str, Candidate], tensors: PointTensors) -> dict[str, Any]:
    """Time a call of each; the graphs are gone, with what they held, when this returns."""
    graphs = {
        name: capture([partial(one.call, tensors, call % len(tensors.logits)) for call in range(CALLS)])
        for name, one in found.items()
    }
    samples = measure(graphs, CALLS)
    graphs.clear()
    gc.collect()
    return samples


def copies(point: Point) -> int:
    """How many buffers of logits the calls use in turn."""
    return max(1, min(CALLS, -(-COLD_BYTES // point.logit_bytes)))


def is_cold(point: Point) -> bool:
    return copies(point) * point.logit_bytes >= COLD_BYTES


def sweep(point: Point, quick: bool) -> list[dict[str, Any]]:
    """Time every launch configuration at one point, and print the best of each kernel beside the defaults."""
    tensors = PointTensors(point, copies(point), device="cuda")
    candidates = {f"{one.kernel} {one.numbers}": one for one in sweep_candidates(quick)}
    samples = timed(candidates, tensors)
    rows = [
        {**asdict(point), "kernel": one.kernel, **one.numbers, **asdict(samples[name])}
        for name, one in candidates.items()
    ]
    print(f"\nsweep at {point}: {len(rows)} configurations")
    for kernel in dict.fromkeys(one.kernel for one in candidates.values()):
        ranked = sorted((row for row in rows if row["kernel"] == kernel), key=lambda row: row["median_us"])
        shown = ranked if len(ranked) <= 8 else ranked[:8]
        for row in shown:
            print(f"  {row['median_us']:8.2f} {kernel:6} {candidate_numbers(row)}")
        for row in ranked[len(shown) :]:
            if row.get("default"):
                print(f"  {row['median_us']:8.2f} {kernel:6} {candidate_numbers(row)}")
    return rows


def candidate_numbers(row: dict[str, Any]) -> str:
    names = ("floor", "total", "tile", "warps", "vector", "sample", "default")
    return ", ".join(f"{name} {row[name]}" for name in names if name in row)


def sweep_candidates(quick: bool) -> Iterator[Candidate]:
    """The launches to time: of the live-range mask, of the one kernel, and of the bounded top-k."""
    # At 52 rows a floor decides nothing that a total does not; the whole sweep shows where it does.
    floors = (1,) if quick else FLOORS
    launches = [
        MaskLaunch(ProgramPolicy(floor, total), tile, warps, 4)
        for floor, total, tile, warps in itertools.product(floors, TOTALS, TILES, WARPS)
        if tile // 4 >= 32 * warps
    ]
    for launch in dict.fromkeys([PR_MASK, replace(PR_MASK, vector=4), TUNED_MASK, *launches]):
        numbers = {**policy_numbers(launch.programs), "tile": launch.tile, "warps": launch.warps}
        yield Candidate(
            "mask",
            {**numbers, "vector": launch.vector, "default": launch == TUNED_MASK},
            lambda tensors, buffer, launch=launch: mask_columns(
                tensors.logits[buffer], tensors.flags[buffer], None, tensors.ends, tensors.block_size, launch=launch
            ),
        )
    fused = [
        replace(TUNED_FUSED, programs=ProgramPolicy(1, total), tile=tile, warps=warps)
        for total, (tile, warps) in itertools.product(FUSED_TOTALS, ((2048, 4), (4096, 4), (4096, 8), (8192, 8)))
    ]
    for launch in dict.fromkeys([TUNED_FUSED, *fused]):
        numbers = {**policy_numbers(launch.programs), "tile": launch.tile, "warps": launch.warps}
        yield Candidate(
            "fused",
            {**numbers, "default": launch == TUNED_FUSED},
            lambda tensors, buffer, launch=launch: flag_and_mask(
                tensors.logits[buffer], tensors.candidates, None, tensors.ends, tensors.block_size, launch=launch
            ),
        )
    for launch in TOPK_LAUNCHES:
        yield Candidate(
            "top-k",
            {**asdict(launch), "default": launch == TUNED_TOPK},
            lambda tensors, buffer, launch=launch: topk_live(
                *(tensors.scores, None, tensors.ends, tensors.scratch_candidates),
                *(tensors.logits[0].shape[1], tensors.block_size),
                launch=launch,
            ),
        )


def policy_numbers(policy: ProgramPolicy) -> dict[str, int]:
    return {"floor": policy.floor, "total": policy.total}


def save(path: Path | None, document: dict[str, Any]) -> None:
    """What is measured so far, so that an interrupted run loses only its last point."""
    if path is not None:
        path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
