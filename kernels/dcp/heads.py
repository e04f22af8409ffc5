"""How kernels read adjacent heads of a partial output ``[R, H, D]`` of any strides, as wide as these allow."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def head_elements(
    out_ptr: tl.tensor,
    row: tl.tensor,
    head: tl.tensor,
    stride_row: tl.tensor,
    stride_head: tl.tensor,
    stride_dim: tl.tensor,
    D: tl.constexpr,
    OUT_VECTOR: tl.constexpr,
    DIM_CONTIGUOUS: tl.constexpr,
) -> tl.tensor:
    """Pointers ``[heads, D]`` to some heads of one row.

    stride_row and stride_head count in units of OUT_VECTOR elements, which tells the compiler their alignment.
    """
    dim = tl.arange(0, D)
    first = out_ptr + row * (stride_row * OUT_VECTOR) + head.to(tl.int64) * (stride_head * OUT_VECTOR)
    if DIM_CONTIGUOUS:
        return first[:, None] + dim[None, :]
    else:
        return first[:, None] + dim[None, :].to(tl.int64) * stride_dim


def access_width(out: torch.Tensor, store: int) -> int:
    """How many adjacent elements of `out` one load may take, at most the `store` that one store may.

    Wider loads than stores would have to be exchanged between threads before the store.

    Args:
        out: ``[R, H, D]``.
        store: a power of two.
    """
    stride_row, stride_head, stride_dim = out.stride()
    if stride_dim != 1:
        return 1
    vector = store
    while stride_row % vector or stride_head % vector:
        vector //= 2
    return vector
