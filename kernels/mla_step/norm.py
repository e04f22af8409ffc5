"""Root-mean-square normalisation of rows, without a learned scale: one kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

EPSILON = 1e-6


@triton.jit  # type: ignore[untyped-decorator]
def rms_norm_kernel(
    source_ptr: tl.tensor,
    target_ptr: tl.tensor,
    source_stride: tl.tensor,
    WIDTH: tl.constexpr,
    WIDTH_POW2: tl.constexpr,
    EPS: tl.constexpr,
) -> None:
    """One row, in fp32."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH_POW2)
    present = column < WIDTH
    values = tl.load(source_ptr + row * source_stride + column, mask=present, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(values * values, axis=0) / WIDTH + EPS)
    tl.store(target_ptr + row * WIDTH + column, (values * scale).to(target_ptr.dtype.element_ty), mask=present)


def rms_norm(source: torch.Tensor, target: torch.Tensor) -> None:
    """Scale each row to a root mean square of 1.

    Args:
        source: ``[R, W]``, the last dimension contiguous.
        target: ``[R, W]``, contiguous; written.

    Raises:
        ValueError: shapes or strides that do not fit.
    """
    if source.dim() != 2 or source.shape != target.shape or source.stride(1) != 1 or not target.is_contiguous():
        raise ValueError(f"rows of {list(source.shape)} cannot be normalised into {list(target.shape)}")
    rows, width = source.shape
    width_pow2 = triton.next_power_of_2(width)
    rms_norm_kernel[(rows,)](
        source,
        target,
        source.stride(0),
        WIDTH=width,
        WIDTH_POW2=width_pow2,
        EPS=EPSILON,
        num_warps=max(1, min(8, width_pow2 // 512)),
    )
