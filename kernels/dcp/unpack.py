"""The combine kernel: the ranks' partial outputs, weighted by their LSEs, into attention over the whole KV cache."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from profkit.kernels.dcp.layout import Layout, buffer_shape, check_buffer, check_floats, check_layout, pack_dim
from profkit.kernels.dcp.weights import total_lse, usable, weight


@triton.jit(do_not_specialize=["num_rows"])  # type: ignore[untyped-decorator]
def unpack_kernel(
    recv_ptr: tl.tensor,
    result_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    num_rows: tl.tensor,
    N: tl.constexpr,
    D: tl.constexpr,
    HEADS: tl.constexpr,
    LSE_SLOTS: tl.constexpr,
    CHUNK_WIDTH: tl.constexpr,
    HEAD_STRIDE: tl.constexpr,
    LSE_PLANE: tl.constexpr,
    BASE_2: tl.constexpr,
    WRITE_LSE: tl.constexpr,
) -> None:
    """One (row, local head): read what all N ranks sent for it, write their combination.

    The ranks are summed in their order, whatever the layout and the launch, so that these do not change the result.
    CHUNK_WIDTH, HEAD_STRIDE and LSE_PLANE are the buffer's `Layout`.
    """
    index = tl.program_id(0).to(tl.int64) * HEADS + tl.program_id(1)
    dim = tl.arange(0, D)
    chunk = num_rows.to(tl.int64) * (HEADS * CHUNK_WIDTH)
    words_ptr = recv_ptr.to(tl.pointer_type(tl.float32), bitcast=True)
    if LSE_PLANE:
        words_ptr += num_rows.to(tl.int64) * (HEADS * D // LSE_SLOTS) + index
    else:
        words_ptr += index * (HEAD_STRIDE // LSE_SLOTS) + D // LSE_SLOTS
    chunk_words = chunk // LSE_SLOTS
    first = recv_ptr + index * HEAD_STRIDE + dim

    # The tuples hold what is in flight: all of it is asked for before the first value is waited for. The barrier keeps
    # the compiler from moving the payload's loads behind the arithmetic on the LSEs; it waits for no load.
    payloads = ()
    lses = ()
    for n in tl.static_range(N):
        payloads += (tl.load(first + n * chunk),)  # type: ignore[assignment]
    tl.debug_barrier()
    for n in tl.static_range(N):
        lses += (usable(tl.load(words_ptr + n * chunk_words)),)  # type: ignore[assignment]

    total = total_lse(lses, N, BASE_2)
    combined = tl.zeros([D], dtype=tl.float32)
    for n in tl.static_range(N):
        share = weight(lses[n], total, BASE_2)
        # An empty shard's payload may be NaN, which a weight of zero would not cancel.
        combined += tl.where(share == 0.0, 0.0, payloads[n].to(tl.float32)) * share
    tl.store(result_ptr + index * D + dim, combined.to(result_ptr.dtype.element_ty))
    if WRITE_LSE:
        tl.store(lse_ptr + index, total)


def unpack_combine(
    recv: torch.Tensor,
    result: torch.Tensor,
    lse: torch.Tensor | None = None,
    *,
    base_2: bool = False,
    layout: Layout = Layout.INTERLEAVED,
    warps: int | None = None,
) -> None:
    """Combine the ranks' partial outputs: one kernel, or none where there are no rows.

    LSEs that are NaN or +inf count as -inf. Payload of a rank whose weight is zero is ignored, even NaN. Where every
    rank is empty the result is 0 and the LSE -inf. All arithmetic is in fp32.

    Args:
        recv: ``[N, R, h, W]``, contiguous (see `layout.buffer_shape`).
        result: ``[R, h, D]``, contiguous, fp16, bf16 or fp32 like `recv`, D a power of two from 2 up; written.
        lse: ``[R, h]`` fp32, contiguous, or None; the combined LSE, written.
        base_2: the LSEs are base-2 logarithms (else natural ones).
        layout: of `recv`.
        warps: of a program, of which there is one a row and head; None for as many as give a thread 8 elements a rank.

    Raises:
        ValueError: shapes, dtypes, strides or alignment that do not fit.
    """
    _check_tensors(recv, result, lse, layout)
    rows, heads, head_dim = result.shape
    if rows == 0:
        return
    unpack_kernel[(rows, heads, 1)](
        recv,
        result,
        lse,
        rows,
        N=recv.shape[0],
        D=head_dim,
        HEADS=heads,
        LSE_SLOTS=pack_dim(recv.dtype),
        CHUNK_WIDTH=layout.chunk_width(head_dim, recv.dtype),
        HEAD_STRIDE=layout.head_stride(head_dim, recv.dtype),
        LSE_PLANE=layout is Layout.PLANAR,
        BASE_2=base_2,
        WRITE_LSE=lse is not None,
        num_warps=warps or max(1, min(8, head_dim // 256)),
    )


def _check_tensors(recv: torch.Tensor, result: torch.Tensor, lse: torch.Tensor | None, layout: Layout) -> None:
    if recv.dim() != 4 or result.dim() != 3 or not result.is_contiguous():
        raise ValueError(
            f"recv must be [N, R, h, W] and result [R, h, D] and contiguous; "
            f"they are {recv.dim()}-D and {list(result.shape)}"
        )
    check_layout(layout)
    check_floats(result, "result")
    rows, heads, head_dim = result.shape
    if head_dim < 2 or head_dim & (head_dim - 1):
        raise ValueError(f"the head dimension must be a power of two from 2 up, not {head_dim}")
    ranks = recv.shape[0]
    check_buffer(recv, "recv", buffer_shape(ranks, rows, ranks * heads, head_dim, result.dtype, layout), result.dtype)
    if lse is not None and (lse.shape != (rows, heads) or lse.dtype != torch.float32 or not lse.is_contiguous()):
        raise ValueError(f"lse must be [{rows}, {heads}], fp32 and contiguous; it is {list(lse.shape)}, {lse.dtype}")
