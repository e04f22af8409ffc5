"""The kernels of the other combine: LSEs are gathered, partial outputs weighted by them and summed over the ranks.

The mask is the eager one on a contiguous LSE, or one kernel that reads the attention's LSE in whatever order it lies,
masks it and writes it contiguously, as a gather needs it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from profkit.kernels.dcp.heads import access_width, head_elements
from profkit.kernels.dcp.layout import check_floats, heads_per_rank
from profkit.kernels.dcp.live import row_is_live
from profkit.kernels.dcp.mask import check_metadata
from profkit.kernels.dcp.weights import total_lse, usable, weight

#: Heads of one row that a program of the correction takes, and elements a warp.
_CORRECT_HEADS = 8
_WARP_ELEMENTS = 512


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["num_seqs", "lse_stride_row", "lse_stride_head"],
    do_not_specialize_on_alignment=["lse_ptr", "masked_ptr", "seq_lens_ptr", "query_start_loc_ptr"],
)
def mask_copy_kernel(
    lse_ptr: tl.tensor,
    masked_ptr: tl.tensor,
    seq_lens_ptr: tl.tensor,
    query_start_loc_ptr: tl.tensor,
    num_seqs: tl.tensor,
    lse_stride_row: tl.tensor,
    lse_stride_head: tl.tensor,
    H: tl.constexpr,
    H_POW2: tl.constexpr,
    NUM_SEQS_POW2: tl.constexpr,
) -> None:
    """All heads of one row."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, H_POW2)
    present = head < H
    lse = tl.load(lse_ptr + row * lse_stride_row + head.to(tl.int64) * lse_stride_head, mask=present, other=0.0)
    live = row_is_live(row, seq_lens_ptr, query_start_loc_ptr, num_seqs, NUM_SEQS_POW2)
    # In the LSE's own dtype, so that what is not masked keeps its bits.
    empty = tl.full([H_POW2], float("-inf"), masked_ptr.dtype.element_ty)
    tl.store(masked_ptr + row * H + head, tl.where(live, lse, empty), mask=present)


def mask_copy(
    lse: torch.Tensor, masked: torch.Tensor, seq_lens: torch.Tensor, query_start_loc: torch.Tensor
) -> torch.Tensor:
    """A contiguous copy of the LSE with -inf in empty rows: one kernel, or none where there are no rows.

    `lse` is not changed. With no request at all (S = 0) every row is empty.

    Args:
        lse: ``[R, H]``, any float dtype and strides.
        masked: ``[R, H]``, contiguous, dtype of `lse`; written.
        seq_lens: ``[S]`` int32.
        query_start_loc: ``[S + 1]`` int32.

    Returns:
        `masked`.

    Raises:
        ValueError: shapes or dtypes that do not fit, or a `masked` that is not contiguous.
    """
    if not check_metadata(seq_lens, query_start_loc):
        raise ValueError("there is nothing to mask by: give seq_lens and query_start_loc")
    if lse.dim() != 2 or masked.shape != lse.shape or masked.dtype != lse.dtype or not masked.is_contiguous():
        raise ValueError(
            f"lse must be [rows, heads] and masked like it and contiguous; "
            f"they are {list(lse.shape)}, {lse.dtype} and {list(masked.shape)}, {masked.dtype}"
        )
    if not lse.is_floating_point():
        raise ValueError(f"lse must be of a float dtype, which {lse.dtype} is not: empty rows get -inf")
    rows, num_heads = lse.shape
    if num_heads == 0:
        raise ValueError("there must be at least one head, not 0")
    if rows == 0:
        return masked
    mask_copy_kernel[(rows, 1, 1)](
        lse,
        masked,
        seq_lens,
        query_start_loc,
        seq_lens.numel(),
        *lse.stride(),
        H=num_heads,
        H_POW2=triton.next_power_of_2(num_heads),
        NUM_SEQS_POW2=triton.next_power_of_2(max(seq_lens.numel(), 1)),
        # One warp finds the row's request without an exchange between warps.
        num_warps=1,
    )
    return masked


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["num_rows", "out_stride_row", "out_stride_head", "out_stride_dim"],
    do_not_specialize_on_alignment=["lse_ptr", "gathered_ptr", "total_ptr"],
)
def correct_kernel(
    out_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    gathered_ptr: tl.tensor,
    corrected_ptr: tl.tensor,
    total_ptr: tl.tensor,
    num_rows: tl.tensor,
    out_stride_row: tl.tensor,
    out_stride_head: tl.tensor,
    out_stride_dim: tl.tensor,
    N: tl.constexpr,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    OUT_VECTOR: tl.constexpr,
    DIM_CONTIGUOUS: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BASE_2: tl.constexpr,
    WRITE_TOTAL: tl.constexpr,
) -> None:
    """One row and BLOCK_HEADS of its N * HEADS heads; a row's programs are adjacent. Strides: see `head_elements`."""
    BLOCKS: tl.constexpr = (N * HEADS + BLOCK_HEADS - 1) // BLOCK_HEADS
    row = (tl.program_id(0) // BLOCKS).to(tl.int64)
    head = (tl.program_id(0) % BLOCKS) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
    present = head < N * HEADS
    dim = tl.arange(0, D)

    elements = head_elements(
        out_ptr, row, head, out_stride_row, out_stride_head, out_stride_dim, D, OUT_VECTOR, DIM_CONTIGUOUS
    )
    payload = tl.load(elements, mask=present[:, None])
    # As in the unpack kernel: the payload's loads may not wait for the arithmetic on the LSEs.
    tl.debug_barrier()

    mine = usable(tl.load(lse_ptr + row * (N * HEADS) + head, mask=present, other=0.0).to(tl.float32))
    lses = ()
    for n in tl.static_range(N):
        theirs = gathered_ptr + (n * num_rows.to(tl.int64) + row) * (N * HEADS) + head
        lses += (usable(tl.load(theirs, mask=present, other=0.0).to(tl.float32)),)  # type: ignore[assignment]
    total = total_lse(lses, N, BASE_2)
    share = weight(mine, total, BASE_2)[:, None]

    # An empty shard's payload may be NaN, which a weight of zero would not cancel.
    corrected = tl.where(share == 0.0, 0.0, payload.to(tl.float32)) * share
    chunk = (head // HEADS).to(tl.int64) * (num_rows.to(tl.int64) * (HEADS * D))
    target = corrected_ptr + chunk + (row * HEADS + head % HEADS) * D
    tl.store(target[:, None] + dim[None, :], corrected.to(corrected_ptr.dtype.element_ty), mask=present[:, None])
    if WRITE_TOTAL:
        tl.store(total_ptr + row * (N * HEADS) + head, total, mask=present)


def correct(
    out: torch.Tensor,
    lse: torch.Tensor,
    gathered: torch.Tensor,
    corrected: torch.Tensor,
    total: torch.Tensor | None = None,
    *,
    base_2: bool = False,
) -> None:
    """Weigh this rank's partial output by its share of the whole: one kernel, or none where there are no rows.

    LSEs that are NaN or +inf count as -inf. Where the share is zero the result is 0, even for a payload of NaN. The sum
    of all ranks' results is the attention over the whole KV cache. All arithmetic is in fp32.

    Args:
        out: ``[R, H, D]``, fp16, bf16 or fp32, any strides, D a power of two from 2 up.
        lse: ``[R, H]``, fp16, bf16 or fp32, contiguous, this rank's own, masked.
        gathered: ``[N, R, H]``, contiguous, the masked LSEs of all ranks; dtype of `lse`.
        corrected: ``[N, R, H / N, D]``, contiguous, dtype of `out`; written. By rank, as a reduce-scatter takes it.
        total: ``[R, H]`` fp32, contiguous, or None; the combined LSE, written.
        base_2: the LSEs are base-2 logarithms (else natural ones).

    Raises:
        ValueError: shapes, dtypes or strides that do not fit.
    """
    _check_tensors(out, lse, gathered, corrected, total)
    rows, num_heads, head_dim = out.shape
    ranks, _, heads, _ = corrected.shape
    if rows == 0:
        return
    block_heads = min(_CORRECT_HEADS, triton.next_power_of_2(num_heads))
    stride_row, stride_head, stride_dim = out.stride()
    vector = access_width(out, 16 // out.itemsize)
    correct_kernel[(rows * triton.cdiv(num_heads, block_heads), 1, 1)](
        out,
        lse,
        gathered,
        corrected,
        total,
        rows,
        stride_row // vector,
        stride_head // vector,
        stride_dim,
        N=ranks,
        HEADS=heads,
        D=head_dim,
        OUT_VECTOR=vector,
        DIM_CONTIGUOUS=stride_dim == 1,
        BLOCK_HEADS=block_heads,
        BASE_2=base_2,
        WRITE_TOTAL=total is not None,
        num_warps=max(1, min(8, block_heads * head_dim // _WARP_ELEMENTS)),
    )


def _check_tensors(
    out: torch.Tensor,
    lse: torch.Tensor,
    gathered: torch.Tensor,
    corrected: torch.Tensor,
    total: torch.Tensor | None,
) -> None:
    if out.dim() != 3 or corrected.dim() != 4:
        raise ValueError(
            f"out must be [R, H, D] and corrected [N, R, h, D]; they are {out.dim()}-D and {corrected.dim()}-D"
        )
    check_floats(out, "out")
    check_floats(lse, "lse")
    rows, num_heads, head_dim = out.shape
    ranks = corrected.shape[0]
    if head_dim < 2 or head_dim & (head_dim - 1):
        raise ValueError(f"the head dimension must be a power of two from 2 up, not {head_dim}")
    expected = {
        "lse": (lse, (rows, num_heads), lse.dtype),
        "gathered": (gathered, (ranks, rows, num_heads), lse.dtype),
        "corrected": (corrected, (ranks, rows, heads_per_rank(num_heads, ranks), head_dim), out.dtype),
    }
    if total is not None:
        expected["total"] = (total, (rows, num_heads), torch.float32)
    for name, (tensor, shape, dtype) in expected.items():
        if tensor.shape != shape or tensor.dtype != dtype or not tensor.is_contiguous():
            raise ValueError(
                f"{name} must be {list(shape)}, {dtype} and contiguous; it is {list(tensor.shape)}, {tensor.dtype}"
            )
