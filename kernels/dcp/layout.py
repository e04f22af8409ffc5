"""The layouts of the exchange buffers: how an fp32 LSE travels beside a 16- or 32-bit payload.

A buffer is contiguous, in the payload's dtype, and holds one chunk of R rows and h = H / N heads for each of N ranks.
D is the head dimension, P the slots that an fp32 LSE's bits fill (two 16-bit halves, low half first, or one word).

* interleaved, ``[N, R, h, D + P]``: every head's output is followed by its LSE. Heads start at multiples of 4 bytes.
* planar, as large: in every chunk all R * h outputs, then all R * h LSEs. Outputs start at multiples of 16 bytes where
  h is a multiple of 4.
* padded, ``[N, R, h, D + 16 bytes]``: interleaved, with what follows the LSE left unwritten. Heads start at multiples
  of 16 bytes whatever h is.
"""

from __future__ import annotations

from enum import Enum
from math import gcd, prod

import torch

#: Integer dtypes of the same width as a payload: LSE slots are compared and coded as bits, never as numbers, because
#: the upper half of -inf is NaN in fp16.
_BITS = {2: torch.int16, 4: torch.int32}
#: The widest access of a thread.
_VECTOR_BYTES = 16
#: Of partial outputs, of their combination, and of the LSEs that kernels widen to fp32.
FLOAT_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


class Layout(Enum):
    """See the module."""

    INTERLEAVED = "interleaved"
    PLANAR = "planar"
    PADDED = "padded"

    def chunk_width(self, head_dim: int, dtype: torch.dtype) -> int:
        """The elements of a chunk for each of its R * h heads."""
        if self is Layout.PADDED:
            return head_dim + _VECTOR_BYTES // dtype.itemsize
        return head_dim + pack_dim(dtype)

    def head_stride(self, head_dim: int, dtype: torch.dtype) -> int:
        """The elements from one head's output to the next one's in the same chunk."""
        return head_dim if self is Layout.PLANAR else self.chunk_width(head_dim, dtype)

    def alignment(self, heads: int, head_dim: int, dtype: torch.dtype) -> int:
        """The elements that one access to an output may take, at most 16 bytes, for any number of rows.

        Args:
            heads: h.
        """
        chunk = heads * self.chunk_width(head_dim, dtype)
        return gcd(chunk, self.head_stride(head_dim, dtype), _VECTOR_BYTES // dtype.itemsize)


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
        ValueError: the heads do not divide evenly, or there are none.
    """
    if ranks < 1 or num_heads % ranks != 0:
        raise ValueError(f"{num_heads} heads cannot be divided evenly over {ranks} ranks")
    if num_heads < 1:
        raise ValueError("there must be at least one head, not 0")
    return num_heads // ranks


def buffer_shape(
    ranks: int,
    rows: int,
    num_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    layout: Layout = Layout.INTERLEAVED,
) -> tuple[int, int, int, int]:
    """The shape ``[N, R, h, W]`` of a send or receive buffer; a planar one's last three axes are only its size."""
    return (ranks, rows, heads_per_rank(num_heads, ranks), layout.chunk_width(head_dim, dtype))


def check_layout(layout: Layout) -> None:
    """Refuse what is no layout, such as the name of one.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(layout, Layout):
        raise ValueError(f"layout must be a member of Layout, not {layout!r}")


def check_floats(tensor: torch.Tensor, name: str) -> None:
    """Refuse dtypes that the kernels' arithmetic does not take.

    Raises:
        ValueError: one that is not in `FLOAT_DTYPES`.
    """
    if tensor.dtype not in FLOAT_DTYPES:
        raise ValueError(f"{name} must be fp16, bf16 or fp32, not {tensor.dtype}")


def check_buffer(buffer: torch.Tensor, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Whether a buffer is what the kernels can write to or read from.

    Raises:
        ValueError: another shape or dtype, not contiguous, or not aligned to an LSE.
    """
    if buffer.shape != shape or buffer.dtype != dtype or not buffer.is_contiguous():
        raise ValueError(
            f"{name} must be {list(shape)}, {dtype} and contiguous; it is {list(buffer.shape)}, {buffer.dtype}"
        )
    if buffer.data_ptr() % 4:
        raise ValueError(f"{name} must start at a multiple of 4 bytes, because its LSEs are 32-bit words")


def split(buffer: torch.Tensor, head_dim: int, layout: Layout) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of a buffer's payload ``[N, R, h, D]`` and of its LSEs' slots ``[N, R, h, P]``, both in its dtype.

    Args:
        buffer: see `buffer_shape`.
        head_dim: D.
    """
    slots = pack_dim(buffer.dtype)
    if layout is not Layout.PLANAR:
        return buffer[..., :head_dim], buffer[..., head_dim : head_dim + slots]
    ranks, *chunk, _ = buffer.shape
    flat = buffer.view(ranks, -1)
    payload, lse = flat[:, : prod(chunk) * head_dim], flat[:, prod(chunk) * head_dim :]
    return payload.view(ranks, *chunk, head_dim), lse.view(ranks, *chunk, slots)


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
    """The fp32 LSE in the P slots of a buffer's heads: the inverse of `encode_lse`.

    Args:
        slots: ``[..., P]`` in a 16- or 32-bit dtype, float or integer.

    Returns:
        ``[...]`` fp32.
    """
    return slots.contiguous().view(torch.float32).squeeze(-1)
