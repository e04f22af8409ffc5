"""Times the kernels of `dsa-candidates` on a GPU, untraced: microseconds a call, in CUDA graphs of sixteen calls.

Every form of both halves over rows, widths and contexts, beside the bytes and operations that its task takes and the
floor which these bytes set at the fastest rate measured here. The calls of a graph work on buffers in turn that
together exceed the L2 cache where 16 of them do; rows where they do not are marked. No point is begun after --seconds;
what was left out is said. `profkit sweep dsa-candidates` times other launches of the mask.

    python benchmarks/dsa_kernels.py --output docs/results/dsa-kernels.json    # about a minute
    python benchmarks/dsa_kernels.py --quick                                   # the points that decide
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

import torch
from gpu_timing import Device, capture, measure, this_device

from profkit.kernels.dsa.apply import apply_candidate_mask
from profkit.kernels.dsa.bounds import num_blocks
from profkit.kernels.dsa.flags import empty_flags, flag_candidates
from profkit.kernels.dsa.inputs import LogitSource
from profkit.kernels.dsa.mask import PR_MASK, mask_columns, tuned_mask
from profkit.kernels.dsa.scores import PR_SCORES, block_scores
from profkit.kernels.dsa.select import select_candidate_blocks
from profkit.kernels.dsa.store import store_candidates
from profkit.kernels.dsa.topk import topk_live

BLOCK_SIZE = 8
CANDIDATES = 2048
MILLION = 1 << 20
WIDTHS = (MILLION, 1 << 17, 1 << 13)
ROWS = (52, 1, 8, 256, 1024)
CALLS = 16
#: More than the L2 cache of any device so far, twice over.
COLD_BYTES = 128 << 20
#: Contexts of a point beside half and all of its width.
SHORT = 512


@dataclass(frozen=True)
class Point:
    """One size: every row has `context` live columns of `width`."""

    rows: int
    width: int
    context: int

    @property
    def copies(self) -> int:
        """How many buffers of logits the calls use in turn."""
        return max(1, min(CALLS, -(-COLD_BYTES // (4 * self.rows * self.width))))

    @property
    def is_cold(self) -> bool:
        return self.copies * 4 * self.rows * self.width >= COLD_BYTES


QUICK_POINTS = (
    *(Point(52, MILLION, context) for context in (SHORT, MILLION // 2, MILLION)),
    *(Point(52, width, SHORT) for width in WIDTHS[1:]),
    *(Point(1, MILLION, context) for context in (SHORT, MILLION)),
    Point(1024, MILLION, SHORT),
)


class PointTensors:
    """The inputs of one point; masks write to `logits`, which are the same whether masked once or often.

    Attributes:
        source: ``[R, W]`` fp32, never written.
        logits, flags: one for each buffer in turn; the flags are set for `candidates`.
        candidates, scores: what the bounded form makes of the source; scores are -inf behind the live blocks.
    """

    def __init__(self, point: Point, device: str) -> None:
        generator = torch.Generator().manual_seed(0)
        rows, self.width = point.rows, point.width
        pristine = LogitSource(rows, self.width, 1, BLOCK_SIZE, device, generator).layer(0)
        self.source = pristine.clone(memory_format=torch.contiguous_format)
        self.logits = [self.source.clone() for _ in range(point.copies)]
        self.flags = [empty_flags(rows, self.width, BLOCK_SIZE, device) for _ in range(point.copies)]
        self.ends = torch.full((rows,), point.context, dtype=torch.int32, device=device)
        self.candidates = torch.empty(rows, CANDIDATES, dtype=torch.int32, device=device)
        self.scratch_candidates = torch.empty_like(self.candidates)
        self.scores = torch.full((rows, num_blocks(self.width, BLOCK_SIZE)), float("-inf"), device=device)
        self.scratch_scores = torch.empty_like(self.scores)
        block_scores(self.source, None, self.ends, self.scores, BLOCK_SIZE)
        select_candidate_blocks(self.source, None, self.ends, self.candidates, BLOCK_SIZE)
        for flags in self.flags:
            flag_candidates(flags, self.candidates, None, self.ends, self.width, BLOCK_SIZE)


@dataclass(frozen=True)
class Arm:
    """One form, and what its task must read, write and decide at least.

    Args:
        call: given the tensors and the number of a buffer.
        operations: comparisons: one a column or a score that is looked at.
    """

    name: str
    call: Callable[[PointTensors, int], object]
    read_bytes: int
    written_bytes: int
    operations: int


def arms(point: Point) -> Iterator[Arm]:
    """The mask on flags that are there, the flags, both together as a layer runs them, and choosing the candidates."""
    rows, live = point.rows, point.context
    live_blocks, all_blocks = (rows * num_blocks(columns, BLOCK_SIZE) for columns in (live, point.width))
    kept, listed = min(live, CANDIDATES * BLOCK_SIZE), 4 * rows * CANDIDATES
    tuned = tuned_mask(rows, point.width)
    for name, launch, full_width in (
        ("mask, full width", PR_MASK, True),
        ("mask, full width, vector stores", replace(PR_MASK, vector=4), True),
        ("mask, live, PR constants", PR_MASK, False),
        ("mask, live, tuned", tuned, False),
        ("mask, live, tuned, again", tuned, False),
    ):
        columns = point.width if full_width else live

        def mask(t: PointTensors, n: int, launch: Any = launch, full_width: bool = full_width) -> None:
            mask_columns(t.logits[n], t.flags[n], None, t.ends, BLOCK_SIZE, launch=launch, full_width=full_width)

        yield Arm(name, mask, live_blocks, 4 * rows * (columns - kept), rows * columns)

    def flags_full(t: PointTensors, n: int) -> None:
        flag_candidates(t.flags[n], t.candidates, None, t.ends, t.width, BLOCK_SIZE, launch=None)

    def flags_live(t: PointTensors, n: int) -> None:
        flag_candidates(t.flags[n], t.candidates, None, t.ends, t.width, BLOCK_SIZE)

    yield Arm("flags, full width", flags_full, listed, all_blocks + rows, rows * CANDIDATES)
    yield Arm("flags, live", flags_live, listed, live_blocks + rows, rows * CANDIDATES)
    # The task reads the candidates and writes -inf; flags are means.
    for form in ("full-width", "live", "bounded", "one-kernel"):
        columns = point.width if form == "full-width" else live

        def flags_and_mask(t: PointTensors, n: int, form: Any = form) -> None:
            apply_candidate_mask(t.logits[n], None, t.ends, t.candidates, BLOCK_SIZE, form=form)

        yield Arm(f"flags + mask, {form}", flags_and_mask, listed, 4 * rows * (columns - kept), rows * columns)

    def scores_full(t: PointTensors, _: int) -> None:
        block_scores(t.source, None, t.ends, t.scratch_scores, BLOCK_SIZE, launch=None)

    def scores_pr(t: PointTensors, _: int) -> None:
        t.scratch_scores.fill_(float("-inf"))
        block_scores(t.source, None, t.ends, t.scratch_scores, BLOCK_SIZE, launch=PR_SCORES)

    def scores_tuned(t: PointTensors, _: int) -> None:
        block_scores(t.source, None, t.ends, t.scratch_scores, BLOCK_SIZE)

    def torch_topk(t: PointTensors, _: int) -> None:
        values, indices = torch.topk(t.scores, min(CANDIDATES, t.scores.shape[1]), dim=1)
        store_candidates(values, indices, t.scratch_candidates)

    def bounded_topk(t: PointTensors, _: int) -> None:
        topk_live(t.scores, None, t.ends, t.scratch_candidates, t.width, BLOCK_SIZE)

    columns = rows * live
    yield Arm("scores, full width", scores_full, 4 * columns, 4 * all_blocks, columns)
    yield Arm("scores, live, PR (fill + scores)", scores_pr, 4 * columns, 4 * all_blocks, columns)
    yield Arm("scores, live, tuned", scores_tuned, 4 * columns, 4 * live_blocks, columns)
    yield Arm("top-k, torch.topk + store", torch_topk, 4 * all_blocks, listed, all_blocks)
    yield Arm("top-k, bounded", bounded_topk, 4 * live_blocks, listed, live_blocks)
    for form in ("full-width", "live", "bounded"):

        def select(t: PointTensors, _: int, form: Any = form) -> None:
            select_candidate_blocks(t.source, None, t.ends, t.scratch_candidates, BLOCK_SIZE, form=form)

        yield Arm(f"select, {form}", select, 4 * columns, listed, columns + live_blocks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the points that decide")
    parser.add_argument("--seconds", type=float, default=100.0, help="begin nothing after so many (default 100)")
    parser.add_argument("--output", type=Path, default=None, help="write the results there as JSON")
    options = parser.parse_args()
    began = time.monotonic()
    device = this_device()
    print(f"{device.name}, torch {device.torch}, triton {device.triton}")
    for task in ("fill", "read", "copy"):
        rate = getattr(device, f"{task}_bytes_per_second")
        print(f"fastest {task}: {rate / 1e12:.2f} TB/s ({device.fastest[task]})")
    print(f"an empty kernel in a graph: {device.launch_us:.2f} us; L2 cache: {device.l2_bytes / 1e6:.0f} MB")
    grid = [
        Point(rows, width, context)
        for rows, width in itertools.product(ROWS, WIDTHS)
        for context in (SHORT, width // 2, width)
    ]
    found, left_out = [], []
    for point in dict.fromkeys([*QUICK_POINTS, *([] if options.quick else grid)]):
        if time.monotonic() - began > options.seconds:
            left_out.append(str(point))
            print(f"left out after {options.seconds:.0f} s: {point}")
            continue
        rows = time_arms(point, device)
        show(point, rows)
        found += rows
        save(options.output, device, left_out, found)
    save(options.output, device, left_out, found)
    print(f"{time.monotonic() - began:.0f} s in all")


def time_arms(point: Point, device: Device) -> list[dict[str, Any]]:
    """Time every arm at one point; one row of the report each. The graphs are gone when this returns."""
    tensors = PointTensors(point, device="cuda")
    found = {arm.name: arm for arm in arms(point)}
    graphs = {
        name: capture([partial(arm.call, tensors, call % point.copies) for call in range(CALLS)])
        for name, arm in found.items()
    }
    samples = measure(graphs, CALLS, turns=2)
    graphs.clear()
    gc.collect()
    rows = []
    for name, arm in found.items():
        floor_us = device.floor_us(arm.read_bytes, arm.written_bytes)
        row = {**asdict(point), "cold": point.is_cold, "arm": name, **asdict(samples[name])}
        moves = {"read_bytes": arm.read_bytes, "written_bytes": arm.written_bytes, "operations": arm.operations}
        # Bytes that the cache can hold from call to call are moved faster than any memory moves them.
        cached = (arm.read_bytes + arm.written_bytes) * point.copies <= device.l2_bytes
        share = floor_us / samples[name].median_us
        rows.append({**row, **moves, "floor_us": floor_us, "share": share, "cached": cached})
    return rows


def show(point: Point, rows: list[dict[str, Any]]) -> None:
    """Every arm of one point, a line each; a share above 100 % is marked where the cache explains it, or nothing."""
    print(f"\n{point}, {point.copies} buffers{'' if point.is_cold else ', which the L2 cache may hold'}")
    print(f"  {'us a call':34} {'median':>8} {'p25':>8} {'p75':>8} {'MB':>9} {'floor':>7} {'share':>6}")
    for row in rows:
        above = "" if row["share"] <= 1 else " (cached)" if row["cached"] else " (the floor is no floor for it)"
        print(
            f"  {row['arm']:34} {row['median_us']:8.2f} {row['p25_us']:8.2f} {row['p75_us']:8.2f} "
            f"{(row['read_bytes'] + row['written_bytes']) / 1e6:9.3f} {row['floor_us']:7.2f} {row['share']:6.0%}{above}"
        )


def save(path: Path | None, device: Device, left_out: list[str], rows: list[dict[str, Any]]) -> None:
    """What is measured so far, so that an interrupted run loses only its last point; a line a row, to nanoseconds."""
    if path is None:
        return
    values = [[round(v, 3) if isinstance(v, float) else v for v in row.values()] for row in rows]
    head = {"schema": "profkit.dsa-kernels/3", "device": asdict(device), "calls": CALLS, "left_out": left_out}
    lines = [json.dumps(row, separators=(",", ":")) for row in values]
    columns = json.dumps(list(rows[0]) if rows else [])
    path.write_text(f'{json.dumps(head)[:-1]},\n"columns": {columns},\n"arms": [\n' + ",\n".join(lines) + "\n]}\n")


if __name__ == "__main__":
    main()
