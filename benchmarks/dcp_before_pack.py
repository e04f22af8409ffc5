"""The pack kernel: partial outputs and LSEs into one send buffer, optionally masking empty rows on the way.

One program copies one head of every destination rank for one row. All of its loads are issued before its first store,
so that they are in flight together; the metadata search hides behind the payload's loads.
"""

# ruff: noqa: N803

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from profkit.kernels.dcp.layout import buffer_shape, pack_dim
from profkit.kernels.dcp.mask import check_metadata


# Everything that changes with the number of rows or requests is kept out of the specialisation: otherwise a kernel is
# compiled anew for row counts that are 1 or divisible by 16. Alignment of the small arrays buys nothing.
@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=[
        "num_rows",
        "num_seqs",
        "out_stride_row",
        "out_stride_head",
        "out_stride_dim",
        "lse_stride_row",
        "lse_stride_head",
    ],
    do_not_specialize_on_alignment=["lse_ptr", "seq_lens_ptr", "query_start_loc_ptr", "row_mask_ptr"],
)
def pack_kernel(
    out_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    send_ptr: tl.tensor,
    seq_lens_ptr: tl.tensor,
    query_start_loc_ptr: tl.tensor,
    row_mask_ptr: tl.tensor,
    num_rows: tl.tensor,
    num_seqs: tl.tensor,
    out_stride_row: tl.tensor,
    out_stride_head: tl.tensor,
    out_stride_dim: tl.tensor,
    lse_stride_row: tl.tensor,
    lse_stride_head: tl.tensor,
    N: tl.constexpr,
    N_POW2: tl.constexpr,
    D: tl.constexpr,
    HEADS: tl.constexpr,
    LSE_SLOTS: tl.constexpr,
    MASK: tl.constexpr,
    NUM_SEQS_POW2: tl.constexpr,
    OUT_VECTOR: tl.constexpr,
    DIM_CONTIGUOUS: tl.constexpr,
) -> None:
    """One (row, local head) for all N ranks.

    MASK is ``"none"``, ``"fused"`` (search seq_lens and query_start_loc) or ``"row"`` (read row_mask).
    out_stride_row and out_stride_head count in units of OUT_VECTOR elements, which tells the compiler their alignment.
    """
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    rank = tl.arange(0, N_POW2)
    present = rank < N
    dim = tl.arange(0, D)
    slot = tl.arange(0, LSE_SLOTS)
    source_head = (rank * HEADS + head).to(tl.int64)

    source = out_ptr + row * (out_stride_row * OUT_VECTOR) + source_head * (out_stride_head * OUT_VECTOR)
    if DIM_CONTIGUOUS:
        payload = tl.load(source[:, None] + dim[None, :], mask=present[:, None])
    else:
        payload = tl.load(source[:, None] + dim[None, :].to(tl.int64) * out_stride_dim, mask=present[:, None])
    lse = tl.load(lse_ptr + row * lse_stride_row + source_head * lse_stride_head, mask=present, other=0.0)
    lse = lse.to(tl.float32)

    if MASK == "fused":
        # A row is live iff some request spans it and has KV here. The spans [begin, end) partition the real rows, so
        # one reduction over independent loads finds it; padding rows, and S = 0, match no span. The first span begins
        # at the first row whatever query_start_loc[0] says, as a search over the ends has it.
        seq = tl.arange(0, NUM_SEQS_POW2)
        begin = tl.load(query_start_loc_ptr + seq, mask=(seq > 0) & (seq < num_seqs), other=0)
        end = tl.load(query_start_loc_ptr + 1 + seq, mask=seq < num_seqs, other=0)
        length = tl.load(seq_lens_ptr + seq, mask=seq < num_seqs, other=0)
        spans = (begin <= row) & (end > row) & (length != 0)
        live = tl.max(spans.to(tl.int32), axis=0)
        lse = tl.where(live > 0, lse, float("-inf"))
    elif MASK == "row":
        empty = tl.load(row_mask_ptr + row).to(tl.int32)
        lse = tl.where(empty > 0, float("-inf"), lse)

    target = send_ptr + ((rank.to(tl.int64) * num_rows + row) * HEADS + head) * (D + LSE_SLOTS)
    tl.store(target[:, None] + dim[None, :], payload, mask=present[:, None])

    words = lse.to(tl.int32, bitcast=True)
    slots = words[:, None] >> (16 * slot[None, :])
    if LSE_SLOTS == 2:
        slots = slots.to(tl.int16)
    slots = slots.to(send_ptr.dtype.element_ty, bitcast=True)
    tl.store(target[:, None] + D + slot[None, :], slots, mask=present[:, None])


def pack(
    out: torch.Tensor,
    lse: torch.Tensor,
    send: torch.Tensor,
    seq_lens: torch.Tensor | None = None,
    query_start_loc: torch.Tensor | None = None,
    row_mask: torch.Tensor | None = None,
) -> None:
    """Pack partial outputs and LSEs into `send`: one kernel, or none where there are no rows.

    The payload of an empty row is copied as it is; only its LSE becomes -inf. `lse` itself is not changed.

    Args:
        out: ``[R, H, D]``, 16- or 32-bit, any strides, D a power of two from 2 up.
        lse: ``[R, H]``, fp16, bf16 or fp32, any strides.
        send: ``[N, R, H / N, D + P]``, contiguous, dtype of `out` (see `layout`).
        seq_lens: ``[S]`` int32: mask rows by searching the metadata inside the kernel. With `query_start_loc`.
        query_start_loc: ``[S + 1]`` int32.
        row_mask: ``[R]`` bool, True where empty: mask by this instead.

    Raises:
        ValueError: shapes, dtypes or strides that do not fit, or both kinds of mask.
    """
    arguments, constants = pack_arguments(out, lse, send, seq_lens, query_start_loc, row_mask)
    rows = out.shape[0]
    if rows == 0:
        return
    pack_kernel[(rows, constants["HEADS"], 1)](*arguments, **constants)


def pack_arguments(
    out: torch.Tensor,
    lse: torch.Tensor,
    send: torch.Tensor,
    seq_lens: torch.Tensor | None = None,
    query_start_loc: torch.Tensor | None = None,
    row_mask: torch.Tensor | None = None,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The checked positional arguments, and the constants and launch options, of `pack_kernel`; see `pack`."""
    fused = check_metadata(seq_lens, query_start_loc)
    _check_tensors(out, lse, send, row_mask)
    if fused and row_mask is not None:
        raise ValueError("give either seq_lens and query_start_loc or row_mask, not both")
    rows, _, head_dim = out.shape
    ranks, _, heads, _ = send.shape
    ranks_pow2 = triton.next_power_of_2(ranks)
    num_seqs = seq_lens.numel() if seq_lens is not None else 0
    stride_row, stride_head, stride_dim = out.stride()
    vector = _vector(out)
    arguments = (
        *(out, lse, send, seq_lens, query_start_loc, row_mask),
        *(rows, num_seqs, stride_row // vector, stride_head // vector, stride_dim),
        *lse.stride(),
    )
    constants = {
        "N": ranks,
        "N_POW2": ranks_pow2,
        "D": head_dim,
        "HEADS": heads,
        "LSE_SLOTS": pack_dim(out.dtype),
        "MASK": "fused" if fused else "row" if row_mask is not None else "none",
        "NUM_SEQS_POW2": triton.next_power_of_2(max(num_seqs, 1)),
        "OUT_VECTOR": vector,
        "DIM_CONTIGUOUS": stride_dim == 1,
        # 1024 elements a warp: 4 warps for eight heads of 512.
        "num_warps": max(1, min(8, ranks_pow2 * head_dim // 1024)),
    }
    return arguments, constants


def _vector(out: torch.Tensor) -> int:
    """How many adjacent elements of `out` one access may take: as many as make up the 4 bytes that stores can.

    Head rows of the send buffer are D + P elements apart, so 4 bytes are all that its alignment allows. Wider loads
    would have to be exchanged between threads before the store.
    """
    stride_row, stride_head, stride_dim = out.stride()
    vector = 4 // out.itemsize
    aligned = stride_dim == 1 and stride_row % vector == 0 and stride_head % vector == 0
    return vector if aligned else 1


def _check_tensors(out: torch.Tensor, lse: torch.Tensor, send: torch.Tensor, row_mask: torch.Tensor | None) -> None:
    if out.dim() != 3 or send.dim() != 4:
        raise ValueError(f"out must be [R, H, D] and send [N, R, h, D + P]; they are {out.dim()}-D and {send.dim()}-D")
    rows, num_heads, head_dim = out.shape
    if head_dim < 2 or head_dim & (head_dim - 1):
        raise ValueError(f"the head dimension must be a power of two from 2 up, not {head_dim}")
    if lse.shape != (rows, num_heads):
        raise ValueError(f"lse is {list(lse.shape)}; for this out it must be [{rows}, {num_heads}]")
    expected = buffer_shape(send.shape[0], rows, num_heads, head_dim, out.dtype)
    if send.shape != expected or send.dtype != out.dtype or not send.is_contiguous():
        raise ValueError(
            f"send must be {list(expected)}, {out.dtype} and contiguous; it is {list(send.shape)}, {send.dtype}"
        )
    if row_mask is not None and (row_mask.shape != (rows,) or row_mask.dtype != torch.bool or row_mask.stride(0) != 1):
        raise ValueError(
            f"row_mask must be [{rows}], bool and contiguous; it is {list(row_mask.shape)}, {row_mask.dtype}"
        )
