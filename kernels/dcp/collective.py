"""The exchanges between ranks: over torch.distributed, or the stand-ins of one GPU.

All work on contiguous tensors, on the current stream, and can be captured into a CUDA graph once the process group has
run one (`profkit capture` runs the step eagerly before it captures it).
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from profkit.errors import ProfkitError
from profkit.kernels.dcp.ag_rs_combine import LOCAL, Collectives
from profkit.kernels.dcp.combine import Collective, local_copy
from profkit.kernels.dcp.exchange import DISTRIBUTED
from profkit.model.workload import BuildContext


def is_distributed(context: BuildContext) -> bool:
    """Whether the context asks for the exchange between processes.

    Raises:
        ProfkitError: it does, and there is no process group.
    """
    if context.shapes.get("exchange") != DISTRIBUTED:
        return False
    if not (dist.is_available() and dist.is_initialized()):
        raise ProfkitError(
            f"--shape exchange={DISTRIBUTED} needs a process group. Add --nproc with the number of GPUs, 1 for this "
            "process alone."
        )
    return True


def all_to_all_for(context: BuildContext) -> Collective:
    """The all-to-all that the context asks for: `all_to_all`, or the copy on the device.

    Raises:
        ProfkitError: see `is_distributed`.
    """
    return all_to_all if is_distributed(context) else local_copy


def ag_rs_for(context: BuildContext) -> Collectives:
    """The all-gather and the reduce-scatter that the context asks for: `all_gather` and `reduce_scatter`, or stand-ins.

    Raises:
        ProfkitError: see `is_distributed`.
    """
    return Collectives(all_gather, reduce_scatter) if is_distributed(context) else LOCAL


def all_to_all(send: torch.Tensor, recv: torch.Tensor) -> None:
    """``recv[n]`` becomes what rank n sent here: its ``send[rank]``.

    Args:
        send, recv: ``[N, ...]``, of one shape and dtype.
    """
    # As bytes: gloo knows fewer dtypes, and nothing is computed on the way.
    dist.all_to_all_single(recv.view(-1).view(torch.uint8), send.view(-1).view(torch.uint8))


def all_gather(source: torch.Tensor, target: torch.Tensor) -> None:
    """``target[n]`` becomes rank n's source.

    Args:
        source: ``[...]``.
        target: ``[N, ...]``, of the same dtype.
    """
    dist.all_gather_into_tensor(target.view(-1).view(torch.uint8), source.view(-1).view(torch.uint8))


def reduce_scatter(source: torch.Tensor, target: torch.Tensor) -> None:
    """`target` becomes the sum over all ranks of their ``source[rank]``, in the tensors' dtype.

    Args:
        source: ``[N, ...]``.
        target: ``[...]``, of the same dtype.
    """
    dist.reduce_scatter_tensor(target.view(-1), source.view(-1))
