"""The merge: the splits' partial outputs, weighted by their LSEs, rounded and gated.

`plain` holds all splits of one head at once, which at 64 splits of 256 columns is more than a thread's registers.
`loop` takes a few splits at a time and so needs the same registers for any number of splits.
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
        chunk: splits that the loop holds at a time, a power of two: with 256 columns and 2 warps, 8 are 32 registers a
            thread.
        programs: programs that the loop divides a head's columns among, a power of two.
    """

    method: Literal["plain", "loop"]
    warps: int = 2
    chunk: int = 8
    programs: int = 1


PLAIN = Merge("plain")
LOOP = Merge("loop")


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
    COLUMNS: tl.constexpr,
) -> None:
    """One (row, head, COLUMNS columns), CHUNK splits at a time; the LSEs of all splits are few and come first."""
    heads = tl.num_programs(1)
    pair = tl.program_id(0).to(tl.int64) * heads + tl.program_id(1)
    stride = num_rows.to(tl.int64) * heads
    dim = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    every = tl.arange(0, SPLITS_POW2)
    highest = _highest(lse_ptr + pair, every, stride, SPLITS)
    total = tl.sum(_weights(lse_ptr + pair, every, stride, highest, SPLITS), axis=0)
    # Summed over the chunk's splits once, at the end: within the loop threads need nothing of each other.
    weighted = tl.zeros([CHUNK, COLUMNS], dtype=tl.float32)
    for start in range(0, SPLITS, CHUNK):
        split = start + tl.arange(0, CHUNK)
        weight = _weights(lse_ptr + pair, split, stride, highest, SPLITS)
        offset = (split[:, None] * stride + pair) * D + dim[None, :]
        weighted += weight[:, None] * tl.load(partial_ptr + offset, mask=split[:, None] < SPLITS, other=0.0)
    output = tl.sum(weighted, axis=0) / tl.where(total == 0.0, 1.0, total)
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
    constants |= {"CHUNK": merge.chunk, "COLUMNS": head_dim // merge.programs}
    return merge_loop_kernel, (rows, heads, merge.programs), arguments, constants


def merge_splits(partials: Partials, gate: torch.Tensor, out: torch.Tensor, merge: Merge = PLAIN) -> None:
    """Merge the splits' partial outputs and gate the result: one kernel, or none where there are no rows.

    A split without tokens has an LSE of -inf and no weight; where all are, the result is 0.

    Args:
        partials: what `split_attention` left.
        gate: ``[R, HQ, D]``, any float type, contiguous.
        out: ``[R, HQ, D]`` bf16 or fp16, contiguous; written: rounded, multiplied by sigmoid(gate) in fp32, rounded.
        merge: which kernel, and how it is launched.

    Raises:
        ValueError: shapes or strides that do not fit.
    """
    shape = partials.outputs.shape[1:]
    for name, tensor in (("gate", gate), ("out", out)):
        if tensor.shape != shape or not tensor.is_contiguous():
            raise ValueError(f"{name} must be {list(shape)} and contiguous; it is {list(tensor.shape)}")
    if shape[0] == 0:
        return
    kernel, grid, arguments, constants = merge_launch(partials, gate, out, merge)
    kernel[grid](*arguments, **constants)
