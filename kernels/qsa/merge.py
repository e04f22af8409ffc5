"""The merge: the splits' partial outputs, weighted by their LSEs, rounded and gated.

`plain` holds all splits of one head at once, which at 64 splits of 256 columns is more than a thread's registers.
`loop` adds up a few splits at a time, so that its sums need the same registers for any number. `merge_for` chooses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import triton
import triton.language as tl

from profkit.kernels.qsa.operands import Partials


@dataclass(frozen=True)
class Merge:
    """How the merge is launched.

    Args:
        method: ``"plain"`` or ``"loop"``.
        warps: warps a program.
        chunk: splits that the loop holds at a time, a power of two, fewer where there are fewer: with 256 columns and 2
            warps, 8 are 32 registers a thread.
        programs: programs that the loop divides a head's columns among, a power of two.
    """

    method: Literal["plain", "loop"]
    warps: int = 2
    chunk: int = 8
    programs: int = 1


PLAIN = Merge("plain")
LOOP = Merge("loop")
NARROW = Merge("loop", warps=1, chunk=16, programs=4)

#: The most splits that are merged at once. On an H200, 2026-11-29, torch 2.11, triton 3.6, 16 rows of 12 heads of 256,
#: us a call, plain and narrow: 2 splits 1.51 and 1.81, 4 splits 1.69 and 1.84, 8 splits 2.09 and 2.02, 16 splits 2.84
#: and 2.25, 33 splits 2.89 and 2.88, 64 splits 4.51 (it spills) and 3.82. With 4 rows narrow wins from 8 splits on as
#: well; with 64 rows only from 33 on: there it takes 3.32 for 2.69 at 8 splits and 3.58 for 3.41 at 16.
#: See docs/results/qsa-attention-h200.md.
_MOST_AT_ONCE = 4


def merge_for(splits: int) -> Merge:
    """The merge for `splits` splits: the faster one with few rows, which is where there are many splits."""
    return PLAIN if splits <= _MOST_AT_ONCE else NARROW


@triton.jit  # type: ignore[untyped-decorator]
def _gated_store(out_ptr: tl.tensor, gate_ptr: tl.tensor, offset: tl.tensor, output: tl.tensor) -> None:
    """Round to the output's type, gate in fp32, round again."""
    gate = tl.load(gate_ptr + offset).to(tl.float32)
    rounded = output.to(out_ptr.dtype.element_ty).to(tl.float32)
    tl.store(out_ptr + offset, (rounded * tl.sigmoid(gate)).to(out_ptr.dtype.element_ty))


@triton.jit  # type: ignore[untyped-decorator]
def _weights(lse_ptr: tl.tensor, split: tl.tensor, stride: tl.tensor, highest: tl.tensor, SPLITS: tl.constexpr):  # type: ignore[no-untyped-def]
    lse = tl.load(lse_ptr + split * stride, mask=split < SPLITS, other=float("-inf"))
    return tl.exp2(lse - highest)


@triton.jit  # type: ignore[untyped-decorator]
def _highest(lse_ptr: tl.tensor, split: tl.tensor, stride: tl.tensor, SPLITS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The largest LSE; 0 where every split is empty, so that all weights become 0."""
    lse = tl.load(lse_ptr + split * stride, mask=split < SPLITS, other=float("-inf"))
    highest = tl.max(lse, axis=0)
    return tl.where(highest == float("-inf"), 0.0, highest)


@triton.jit(do_not_specialize=["num_rows"])  # type: ignore[untyped-decorator]
def merge_plain_kernel(
    partial_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    gate_ptr: tl.tensor,
    out_ptr: tl.tensor,
    num_rows: tl.tensor,
    D: tl.constexpr,
    SPLITS: tl.constexpr,
    SPLITS_POW2: tl.constexpr,
) -> None:
    """One (row, head), all splits at once."""
    heads = tl.num_programs(1)
    pair = tl.program_id(0).to(tl.int64) * heads + tl.program_id(1)
    stride = num_rows.to(tl.int64) * heads
    dim = tl.arange(0, D)
    split = tl.arange(0, SPLITS_POW2)
    weight = _weights(lse_ptr + pair, split, stride, _highest(lse_ptr + pair, split, stride, SPLITS), SPLITS)
    offset = (split[:, None] * stride + pair) * D + dim[None, :]
    partial = tl.load(partial_ptr + offset, mask=split[:, None] < SPLITS, other=0.0)
    total = tl.sum(weight, axis=0)
    output = tl.sum(weight[:, None] * partial, axis=0) / tl.where(total == 0.0, 1.0, total)
    _gated_store(out_ptr, gate_ptr, pair * D + dim, output)


@triton.jit(do_not_specialize=["num_rows"])  # type: ignore[untyped-decorator]
def merge_loop_kernel(
    partial_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    gate_ptr: tl.tensor,
    out_ptr: tl.tensor,
    num_rows: tl.tensor,
    D: tl.constexpr,
    SPLITS: tl.constexpr,
    SPLITS_POW2: tl.constexpr,
    CHUNK: tl.constexpr,
    REST_POW2: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """One (row, head, COLUMNS columns), CHUNK splits at a time, then those that are left, at most
    REST_POW2, which is 0 where none are. The LSEs of all splits are few and come first."""
    heads = tl.num_programs(1)
    pair = tl.program_id(0).to(tl.int64) * heads + tl.program_id(1)
    stride = num_rows.to(tl.int64) * heads
    dim = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    every = tl.arange(0, SPLITS_POW2)
    highest = _highest(lse_ptr + pair, every, stride, SPLITS)
    total = tl.sum(_weights(lse_ptr + pair, every, stride, highest, SPLITS), axis=0)
    # Summed over the chunk's splits once, at the end: within the loop threads need nothing of each other.
    weighted = tl.zeros([CHUNK, COLUMNS], dtype=tl.float32)
    # Unrolled by us, so that loads of several chunks are under way at once. Left to itself the compiler unrolled four
    # turns of 16 splits and not the three that 33 need, which then took longer.
    for start in tl.static_range(0, SPLITS // CHUNK * CHUNK, CHUNK):
        split = start + tl.arange(0, CHUNK)
        weight = tl.exp2(tl.load(lse_ptr + pair + split * stride) - highest)
        offset = (split[:, None] * stride + pair) * D + dim[None, :]
        weighted += weight[:, None] * tl.load(partial_ptr + offset)
    output = tl.sum(weighted, axis=0)
    if REST_POW2 > 0:
        split = SPLITS // CHUNK * CHUNK + tl.arange(0, REST_POW2)
        weight = _weights(lse_ptr + pair, split, stride, highest, SPLITS)
        offset = (split[:, None] * stride + pair) * D + dim[None, :]
        rest = tl.load(partial_ptr + offset, mask=split[:, None] < SPLITS, other=0.0)
        output += tl.sum(weight[:, None] * rest, axis=0)
    output /= tl.where(total == 0.0, 1.0, total)
    _gated_store(out_ptr, gate_ptr, pair * D + dim, output)


def merge_launch(
    partials: Partials, gate: torch.Tensor, out: torch.Tensor, merge: Merge
) -> tuple[Any, tuple[int, int, int], list[Any], dict[str, Any]]:
    """The kernel, its grid, its positional arguments, and its constants and launch options."""
    splits, rows, heads, head_dim = partials.outputs.shape
    constants = {
        "D": head_dim,
        "SPLITS": splits,
        "SPLITS_POW2": triton.next_power_of_2(splits),
        "num_warps": merge.warps,
    }
    arguments = [partials.outputs, partials.lse, gate, out, rows]
    if merge.method == "plain":
        return merge_plain_kernel, (rows, heads, 1), arguments, constants
    chunk = min(merge.chunk, 1 << (splits.bit_length() - 1))
    rest = splits % chunk
    constants |= {
        "CHUNK": chunk,
        "REST_POW2": triton.next_power_of_2(rest) if rest else 0,
        "COLUMNS": head_dim // merge.programs,
    }
    return merge_loop_kernel, (rows, heads, merge.programs), arguments, constants


def merge_splits(partials: Partials, gate: torch.Tensor, out: torch.Tensor, merge: Merge | None = None) -> None:
    """Merge the splits' partial outputs and gate the result: one kernel, or none where there are no rows.

    A split without tokens has an LSE of -inf and no weight; where all are, the result is 0.

    Args:
        partials: what `split_attention` left.
        gate: ``[R, HQ, D]``, any float type, contiguous.
        out: ``[R, HQ, D]`` bf16 or fp16, contiguous; written: rounded, multiplied by sigmoid(gate) in fp32, rounded.
        merge: which kernel, and how it is launched; None takes that of `merge_for`.

    Raises:
        ValueError: shapes or strides that do not fit.
    """
    shape = partials.outputs.shape[1:]
    for name, tensor in (("gate", gate), ("out", out)):
        if tensor.shape != shape or not tensor.is_contiguous():
            raise ValueError(f"{name} must be {list(shape)} and contiguous; it is {list(tensor.shape)}")
    if shape[0] == 0:
        return
    kernel, grid, arguments, constants = merge_launch(partials, gate, out, merge or merge_for(partials.splits))
    kernel[grid](*arguments, **constants)
