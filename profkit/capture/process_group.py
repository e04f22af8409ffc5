"""A rank's side of a capture by several processes: the process group, and lining up with the other ranks."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from profkit.capture.options import Job
from profkit.errors import ProfkitError

#: torch.cuda is only partly annotated; through this name strict type checking leaves its calls alone.
_cuda: Any = torch.cuda

#: How long leaving the group may take: NCCL waits there for graphs that captured its kernels to be gone.
_LEAVE_S = 20.0


def join(job: Job, *, gpu: bool) -> None:
    """Make the default process group of this job's ranks.

    Args:
        gpu: over NCCL, with the GPU of the rank's number; else over gloo.

    Raises:
        ProfkitError: there is no GPU of that number.
    """
    job.at("joining the process group")
    if gpu and job.rank >= torch.cuda.device_count():
        raise ProfkitError(
            f"--nproc {job.world_size} needs a GPU a rank, and torch finds {torch.cuda.device_count()} here. "
            "Check CUDA_VISIBLE_DEVICES, or ask for fewer."
        )
    device = None
    if gpu:
        torch.cuda.set_device(job.rank)
        # Named, so that the communicator is made now and not inside the recorded window.
        device = torch.device("cuda", job.rank)
    dist.init_process_group(
        "nccl" if gpu else "gloo",
        rank=job.rank,
        world_size=job.world_size,
        timeout=timedelta(seconds=job.options.rank_timeout_s),
        device_id=device,
    )


def joined() -> bool:
    """Whether this process is in a process group."""
    return dist.is_available() and dist.is_initialized()


def backend() -> str | None:
    """What the process group runs over, e.g. ``nccl 2.28.9``; None where there is none."""
    if not joined():
        return None
    name = str(dist.get_backend())
    return f"nccl {'.'.join(map(str, _cuda.nccl.version()))}" if name == "nccl" else name


def aligner(spin_cycles: int) -> Callable[[], None]:
    """What to call before a replay so that it starts on all ranks at once; does nothing without a process group.

    It enqueues a kernel that spins and an all-reduce behind it: the ranks' GPUs leave the all-reduce together, and what
    the host enqueues meanwhile follows at once. A barrier of the processes would leave the GPUs apart by what these
    differ in launching a graph. Call it outside what is counted.
    """
    if not joined():
        return lambda: None
    token = torch.zeros(1, device="cuda")

    def line_up() -> None:
        _cuda._sleep(spin_cycles)
        dist.all_reduce(token)

    # The first one connects the ranks.
    line_up()
    torch.cuda.synchronize()
    return line_up


def leave() -> None:
    """Leave the process group, once the result is written. A group that cannot be left ends with the process."""
    device = torch.cuda.current_device() if dist.get_backend() == "nccl" else None

    def destroy() -> None:
        if device is not None:
            # A thread begins with the first GPU, which is another rank's.
            torch.cuda.set_device(device)
        dist.destroy_process_group()

    leaving = threading.Thread(target=destroy, daemon=True)
    leaving.start()
    leaving.join(_LEAVE_S)
    if leaving.is_alive():
        sys.stderr.write("the process group was not left in time\n")
        sys.stderr.flush()
        os._exit(0)
