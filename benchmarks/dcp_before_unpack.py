"""The combine kernel: the ranks' partial outputs, weighted by their LSEs, into attention over the whole KV cache."""

# ruff: noqa: N803, N806

from __future__ import annotations

import torch
import triton
import triton.language as tl

from profkit.kernels.dcp.layout import pack_dim


@triton.jit  # type: ignore[untyped-decorator]
def _usable(lse: tl.tensor) -> tl.tensor:
    """An LSE, with NaN and +inf read as an empty shard's -inf."""
    return tl.where((lse == lse) & (lse != float("inf")), lse, float("-inf"))


@triton.jit  # type: ignore[untyped-decorator]
def _power(exponent: tl.tensor, BASE_2: tl.constexpr) -> tl.tensor:
    if BASE_2:
        return tl.exp2(exponent)
    else:
        return tl.exp(exponent)


@triton.jit  # type: ignore[untyped-decorator]
def _logarithm(value: tl.tensor, BASE_2: tl.constexpr) -> tl.tensor:
    if BASE_2:
        return tl.log2(value)
    else:
        return tl.log(value)


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
    BASE_2: tl.constexpr,
    WRITE_LSE: tl.constexpr,
) -> None:
    """One (row, local head): read what all N ranks sent for it, write their combination."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    dim = tl.arange(0, D)
    # A head's row is (D + P) / P words of 32 bits, of which the last is the LSE.
    WORDS: tl.constexpr = D // LSE_SLOTS + 1
    words_ptr = recv_ptr.to(tl.pointer_type(tl.float32), bitcast=True)
    rank_stride = num_rows.to(tl.int64) * HEADS
    first = row * HEADS + head

    highest = float("-inf")
    for n in tl.static_range(N):
        highest = tl.maximum(highest, _usable(tl.load(words_ptr + (n * rank_stride + first) * WORDS + WORDS - 1)))
    highest = tl.where(highest == float("-inf"), 0.0, highest)
    total = 0.0
    for n in tl.static_range(N):
        lse = _usable(tl.load(words_ptr + (n * rank_stride + first) * WORDS + WORDS - 1))
        total += _power(lse - highest, BASE_2)
    total = _logarithm(total, BASE_2) + highest

    combined = tl.zeros([D], dtype=tl.float32)
    for n in tl.static_range(N):
        payload = tl.load(recv_ptr + (n * rank_stride + first) * (D + LSE_SLOTS) + dim)
        lse = _usable(tl.load(words_ptr + (n * rank_stride + first) * WORDS + WORDS - 1))
        weight = _power(lse - total, BASE_2)
        # -inf minus -inf, where every shard is empty.
        weight = tl.where(weight == weight, weight, 0.0)
        # An empty shard's payload may be NaN, which a weight of zero would not cancel.
        combined += tl.where(weight == 0.0, 0.0, payload.to(tl.float32)) * weight
    tl.store(result_ptr + first * D + dim, combined.to(result_ptr.dtype.element_ty))
    if WRITE_LSE:
        tl.store(lse_ptr + row * HEADS + head, total)


def unpack_combine(
    recv: torch.Tensor, result: torch.Tensor, lse: torch.Tensor | None = None, *, base_2: bool = False
) -> None:
    """Combine the ranks' partial outputs: one kernel, or none where there are no rows.

    LSEs that are NaN or +inf count as -inf. Payload of a rank whose weight is zero is ignored, even NaN. Where every
    rank is empty the result is 0 and the LSE -inf. All arithmetic is in fp32.

    Args:
        recv: ``[N, R, h, D + P]``, contiguous (see `layout`), D a power of two from 2 up.
        result: ``[R, h, D]``, contiguous, dtype of `recv`; written.
        lse: ``[R, h]`` fp32, contiguous, or None; the combined LSE, written.
        base_2: the LSEs are base-2 logarithms (else natural ones).

    Raises:
        ValueError: shapes, dtypes, strides or alignment that do not fit.
    """
    _check_tensors(recv, result, lse)
    ranks, rows, heads, width = recv.shape
    if rows == 0:
        return
    slots = pack_dim(recv.dtype)
    head_dim = width - slots
    unpack_kernel[(rows, heads, 1)](
        recv,
        result,
        lse,
        rows,
        N=ranks,
        D=head_dim,
        HEADS=heads,
        LSE_SLOTS=slots,
        BASE_2=base_2,
        WRITE_LSE=lse is not None,
        num_warps=max(1, min(8, head_dim // 128)),
    )


def _check_tensors(recv: torch.Tensor, result: torch.Tensor, lse: torch.Tensor | None) -> None:
    if recv.dim() != 4 or not recv.is_contiguous():
        raise ValueError(f"recv must be [N, R, h, D + P] and contiguous; it is {list(recv.shape)}")
    _, rows, heads, width = recv.shape
    head_dim = width - pack_dim(recv.dtype)
    if head_dim < 2 or head_dim & (head_dim - 1):
        raise ValueError(f"the head dimension must be a power of two from 2 up, not {head_dim}")
    if recv.data_ptr() % 4:
        raise ValueError("recv must start at a multiple of 4 bytes, because its LSEs are read as 32-bit words")
    if result.shape != (rows, heads, head_dim) or result.dtype != recv.dtype or not result.is_contiguous():
        raise ValueError(
            f"result must be [{rows}, {heads}, {head_dim}], {recv.dtype} and contiguous; "
            f"it is {list(result.shape)}, {result.dtype}"
        )
    if lse is not None and (lse.shape != (rows, heads) or lse.dtype != torch.float32 or not lse.is_contiguous()):
        raise ValueError(f"lse must be [{rows}, {heads}], fp32 and contiguous; it is {list(lse.shape)}, {lse.dtype}")
