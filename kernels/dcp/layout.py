"""The layout of the exchange buffers: how an fp32 LSE travels beside a 16- or 32-bit payload.

A buffer is ``[N, R, h, D + P]`` in the payload's dtype, contiguous: N ranks, R rows, h = H / N heads per rank, D the
head dimension, and P slots that hold the fp32 LSE's bits (two 16-bit halves, low half first, or one 32-bit word).
"""

from __future__ import annotations

import torch

#: Integer dtypes of the same width as a payload: LSE slots are compared and coded as bits, never as numbers, because
#: the upper half of -inf is NaN in fp16.
_BITS = {2: torch.int16, 4: torch.int32}


def pack_dim(dtype: torch.dtype) -> int:
    """How many slots of `dtype` hold one fp32 LSE: 2 for 16-bit dtypes, 1 for 32-bit ones.

    Raises:
        ValueError: any other width.
    """
    if dtype.itemsize not in _BITS:
        raise ValueError(f"an fp32 LSE is packed beside 16- or 32-bit outputs, not {dtype}")
    return 4 // dtype.itemsize


def bits_dtype(dtype: torch.dtype) -> torch.dtype:
    """The signed integer dtype as wide as `dtype`, for looking at bits through ``tensor.view``."""
    pack_dim(dtype)
    return _BITS[dtype.itemsize]


def heads_per_rank(num_heads: int, ranks: int) -> int:
    """h = H / N.

    Raises:
        ValueError: the heads do not divide evenly.
    """
    if ranks < 1 or num_heads % ranks != 0:
        raise ValueError(f"{num_heads} heads cannot be divided evenly over {ranks} ranks")
    return num_heads // ranks


def buffer_shape(ranks: int, rows: int, num_heads: int, head_dim: int, dtype: torch.dtype) -> tuple[int, int, int, int]:
    """The shape ``[N, R, h, D + P]`` of a send or receive buffer."""
    return (ranks, rows, heads_per_rank(num_heads, ranks), head_dim + pack_dim(dtype))


def encode_lse(lse: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The LSE slots of a buffer.

    Args:
        lse: any shape, any float dtype; taken as fp32.
        dtype: the payload's dtype.

    Returns:
        ``[*lse.shape, P]`` in the integer dtype of the payload's width.
    """
    words = lse.float().contiguous().unsqueeze(-1)
    return words.view(bits_dtype(dtype))


def decode_lse(slots: torch.Tensor) -> torch.Tensor:
    """The fp32 LSE in the last P entries of a buffer's rows: the inverse of `encode_lse`.

    Args:
        slots: ``[..., P]`` in a 16- or 32-bit dtype, float or integer.

    Returns:
        ``[...]`` fp32.
    """
    return slots.contiguous().view(torch.float32).squeeze(-1)
