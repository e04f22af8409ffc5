"""How many times Triton would compile the pack kernel over a server's capture sizes.

A kernel is compiled once for every distinct set of argument types, argument properties (divisible by 16, equal to 1)
and constants. A server captures a graph for each of dozens of batch sizes, so a kernel that specialises on the size is
compiled dozens of times at start-up.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature

from profkit.kernels.dcp.layout import buffer_shape
from profkit.kernels.dcp.pack import pack_arguments, pack_kernel

#: The batch sizes of decode graphs up to 104 rows (52 requests of one draft token each), from 2 up.
CAPTURE_SIZES = (2, 4, *range(8, 105, 8))

#: Compute capability of the H200. Only the family decides what Triton specialises on.
_TARGET = GPUTarget("cuda", 90, 32)


def pack_keys(
    sizes: Iterable[int],
    *,
    num_heads: int,
    ranks: int,
    head_dim: int,
    dtype: torch.dtype,
    lse_heads_first: bool = False,
) -> set[Hashable]:
    """The distinct compilations of the pack kernel with fused mask, without a GPU.

    Triton itself says what it specialises on: the function that it binds a launch's arguments with is built for an
    H200 and given the very arguments that `pack` would launch with, as tensors on the CPU.

    Args:
        sizes: batch sizes; each is both the number of rows and of requests.
        lse_heads_first: the LSE is a transposed ``[H, R]`` tensor, so its strides depend on the rows.

    Raises:
        TypeError: Triton runs in interpreter mode, where nothing is specialised.
    """
    if not isinstance(pack_kernel, JITFunction):
        raise TypeError("unset TRITON_INTERPRET before triton is imported: the interpreter specialises nothing")
    bind = create_function_from_signature(pack_kernel.signature, pack_kernel.params, make_backend(_TARGET))
    keys: set[Hashable] = set()
    for size in sizes:
        _, arguments, constants = pack_arguments(
            *pack_tensors(size, num_heads, ranks, head_dim, dtype, "cpu", lse_heads_first)
        )
        _, specialization, options = bind(*arguments, **constants)
        keys.add((tuple(specialization), tuple(sorted(options.items()))))
    return keys


def pack_tensors(
    size: int,
    num_heads: int,
    ranks: int,
    head_dim: int,
    dtype: torch.dtype,
    device: str,
    lse_heads_first: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Uninitialised out and send, and zeroed lse, seq_lens and query_start_loc, for `size` rows and requests."""
    lse = (
        torch.zeros(num_heads, size, device=device).t()
        if lse_heads_first
        else torch.zeros(size, num_heads, device=device)
    )
    return (
        torch.empty(size, num_heads, head_dim, dtype=dtype, device=device),
        lse,
        torch.empty(buffer_shape(ranks, size, num_heads, head_dim, dtype), dtype=dtype, device=device),
        torch.zeros(size, dtype=torch.int32, device=device),
        torch.zeros(size + 1, dtype=torch.int32, device=device),
    )
