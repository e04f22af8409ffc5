"""The split kernel: attention of one row's query heads to its share of the selected tokens.

The tiles of a row's selection are dealt out to the splits in turn, so that short selections use as many splits as long
ones. Only one split: its output is final and goes through the output gate at once.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl

from profkit.kernels.qsa.operands import Operands, Partials
from profkit.kernels.qsa.tables import Launch

#: Loads of the next tile run while this one is multiplied.
STAGES = 2


# The batch's sizes are kept out of the specialisation: a server captures many of them. Strides of the cache stay in it,
# since their alignment decides how wide its loads are.
@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["num_rows", "num_requests", "table_width", "num_blocks", "indices_stride", "table_stride"],
    do_not_specialize_on_alignment=["indices_ptr", "table_ptr", "request_ptr"],
)
def split_kernel(
    query_ptr: tl.tensor,
    keys_ptr: tl.tensor,
    values_ptr: tl.tensor,
    indices_ptr: tl.tensor,
    table_ptr: tl.tensor,
    request_ptr: tl.tensor,
    gate_ptr: tl.tensor,
    out_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    score_scale: tl.tensor,
    out_scale: tl.tensor,
    num_rows: tl.tensor,
    num_requests: tl.tensor,
    table_width: tl.tensor,
    num_blocks: tl.tensor,
    indices_stride: tl.tensor,
    table_stride: tl.tensor,
    keys_stride_block: tl.tensor,
    keys_stride_token: tl.tensor,
    keys_stride_head: tl.tensor,
    values_stride_block: tl.tensor,
    values_stride_token: tl.tensor,
    values_stride_head: tl.tensor,
    WIDTH: tl.constexpr,
    PAGE: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    FP8: tl.constexpr,
    SINGLE: tl.constexpr,
) -> None:
    """One (row, KV head, split). SINGLE: there is one split, which writes the gated output and no partial one."""
    row = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    splits = tl.num_programs(2)
    heads = tl.num_programs(1) * GROUP
    head = tl.arange(0, BLOCK_M)
    dim = tl.arange(0, D)
    lane = tl.arange(0, BLOCK_N)

    request = tl.load(request_ptr + row)
    selection_ptr = indices_ptr + row * indices_stride
    count = tl.load(selection_ptr + WIDTH)
    tiles = tl.cdiv(tl.minimum(count, WIDTH), BLOCK_N)
    # A row of no known request attends to nothing, and neither does any in a cache without blocks.
    tiles = tl.where((request >= 0) & (request < num_requests) & (num_blocks > 0), tiles, 0)
    pages_ptr = table_ptr + request.to(tl.int64) * table_stride

    query_head = row * heads + kv_head * GROUP + head
    own = query_head[:, None] * D + dim[None, :]
    present = head < GROUP
    query = tl.load(query_ptr + own, mask=present[:, None], other=0.0)

    highest = tl.full([BLOCK_M], -1.0e20, dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    weighted = tl.zeros([BLOCK_M, D], dtype=tl.float32)
    for tile in range(split, tiles, splits):
        slot = tile * BLOCK_N + lane
        token = tl.load(selection_ptr + slot, mask=slot < WIDTH, other=-1)
        page = token // PAGE
        # Within a tile -1 alone decides, whatever the count.
        block = tl.load(pages_ptr + page, mask=(token >= 0) & (page < table_width), other=-1)
        valid = (block >= 0) & (block < num_blocks)
        # Where there is no token the cache's first key is read and its score discarded, whatever it is: a mask on this
        # load would take a register for every element that a thread loads, and spill those of the output. The values
        # need theirs, since even a weight of 0 does not cancel a NaN.
        place = tl.where(valid, token - page * PAGE, 0)
        # A cache may hold more than 2^31 elements.
        block = tl.where(valid, block, 0).to(tl.int64)
        key_offset = block * keys_stride_block + place * keys_stride_token + kv_head * keys_stride_head
        key = tl.load(keys_ptr + key_offset[:, None] + dim[None, :])
        scores = tl.dot(query, tl.trans(key.to(query.dtype))) * score_scale
        scores = tl.where(valid[None, :], scores, float("-inf"))
        risen = tl.maximum(highest, tl.max(scores, axis=1))
        shrink = tl.exp2(highest - risen)
        weight = tl.exp2(scores - risen[:, None])
        highest = risen
        total = total * shrink + tl.sum(weight, axis=1)
        value_offset = block * values_stride_block + place * values_stride_token + kv_head * values_stride_head
        value = tl.load(values_ptr + value_offset[:, None] + dim[None, :], mask=valid[:, None], other=0.0)
        if FP8:
            value = value.to(tl.float16)
        weighted = tl.dot(weight.to(value.dtype), value, weighted * shrink[:, None])

    divisor = tl.where(total == 0.0, 1.0, total)
    output = weighted * out_scale / divisor[:, None]
    if SINGLE:
        gate = tl.load(gate_ptr + own, mask=present[:, None], other=0.0).to(tl.float32)
        rounded = output.to(out_ptr.dtype.element_ty).to(tl.float32)
        gated = rounded * tl.sigmoid(gate)
        tl.store(out_ptr + own, gated.to(out_ptr.dtype.element_ty), mask=present[:, None])
    else:
        first = split.to(tl.int64) * num_rows * heads
        tl.store(partial_ptr + first * D + own, output, mask=present[:, None])
        lse = tl.where(total == 0.0, float("-inf"), highest + tl.log2(divisor))
        tl.store(lse_ptr + first + query_head, lse, mask=present)


def split_arguments(
    operands: Operands, launch: Launch, out: torch.Tensor, partials: Partials | None
) -> tuple[list[Any], dict[str, Any]]:
    """The positional arguments of `split_kernel`, and its constants and launch options."""
    rows, heads, head_dim = operands.query.shape
    blocks, page, kv_heads, _ = operands.keys.shape
    group = heads // kv_heads
    arguments = [
        operands.query,
        operands.keys,
        operands.values,
        operands.indices,
        operands.block_table,
        operands.token_to_req,
        operands.gate,
        out,
        # One split writes no partial output: the pointers are never followed.
        out if partials is None else partials.outputs,
        out if partials is None else partials.lse,
        head_dim**-0.5 * operands.k_scale * math.log2(math.e),
        operands.v_scale,
        rows,
        operands.block_table.shape[0],
        operands.block_table.shape[1],
        blocks,
        operands.indices.stride(0),
        operands.block_table.stride(0),
        *operands.keys.stride()[:3],
        *operands.values.stride()[:3],
    ]
    constants = {
        "WIDTH": operands.width,
        "PAGE": page,
        "GROUP": group,
        "D": head_dim,
        "BLOCK_M": triton.next_power_of_2(group),
        "BLOCK_N": launch.block_n,
        "FP8": operands.fp8,
        "SINGLE": partials is None,
        "num_warps": launch.warps,
        "num_stages": STAGES,
    }
    return arguments, constants


def split_attention(operands: Operands, launch: Launch, out: torch.Tensor, partials: Partials | None) -> None:
    """Attend to the selected tokens in `launch.splits` parts: one kernel, or none where there are no rows.

    Scores and sums are in fp32 and base 2. Weights are rounded to the cache's type, or to fp16 for an fp8 cache, before
    they meet the values.

    Args:
        operands: query, cache and selection.
        launch: tile, warps and splits.
        out: ``[R, HQ, D]`` in the query's type, contiguous; written with one split alone: rounded, gated in fp32 and
            rounded again.
        partials: written with several splits: each one's output, and its LSE without the output's scale. None with one.

    Raises:
        ValueError: partials for one split, or none or others than `launch` needs.
    """
    rows = operands.query.shape[0]
    if (partials is None) != (launch.splits == 1) or (partials is not None and partials.splits != launch.splits):
        given = None if partials is None else partials.splits
        raise ValueError(f"{launch.splits} splits need partials of as many splits, and one split none; given: {given}")
    if out.shape != operands.query.shape or out.dtype != operands.query.dtype or not out.is_contiguous():
        raise ValueError(f"out must be {list(operands.query.shape)}, {operands.query.dtype} and contiguous")
    if rows == 0:
        return
    arguments, constants = split_arguments(operands, launch, out, partials)
    split_kernel[(rows, operands.keys.shape[2], launch.splits)](*arguments, **constants)
