"""The split kernel compiled for the device at hand, without being launched: what it needs of the device."""

from __future__ import annotations

import torch
import triton

from profkit.kernels.qsa.operands import Operands, Partials
from profkit.kernels.qsa.split import split_arguments, split_kernel
from profkit.kernels.qsa.tables import Launch


def shared_memory_bytes(operands: Operands, launch: Launch, out: torch.Tensor, partials: Partials | None) -> int:
    """Shared memory of one program of the split kernel; compiles it, which the launch then need not.

    The arguments are those of `profkit.kernels.qsa.split.split_attention`.
    """
    arguments, constants = split_arguments(operands, launch, out, partials)
    compiled = split_kernel.warmup(*arguments, grid=(1, 1, 1), **constants)
    return int(compiled.metadata.shared)


def shared_memory_limit_bytes() -> int:
    """Shared memory that one program may have on the current device."""
    properties = triton.runtime.driver.active.utils.get_device_properties(torch.cuda.current_device())
    return int(properties["max_shared_mem"])
