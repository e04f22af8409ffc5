"""The child process of a capture: ``python -m profkit.capture.worker JOB``.

Builds the workload, records it as the job says and writes one result file. Its standard output belongs to the
workload and is never read.
"""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

import msgspec

from profkit.capture import process, profilers
from profkit.capture.options import FLOOR_WORKLOAD, Job, Result
from profkit.errors import ProfkitError
from profkit.model.run import WorkloadRecord
from profkit.model.workload import BuildContext, Step, resolve_shapes, resolve_variant


def run(job: Job) -> Result:
    """Do the job; returns what its recorder finds, with the variant and shapes that ran.

    Raises:
        ProfkitError: the workload cannot be loaded, has no such variant or shape, builds a step without layers or with
            two of one number, or cannot run here.
    """
    from profkit import kernels

    options, processes = job.options, max(job.world_size, 1)
    if options.workload == FLOOR_WORKLOAD:
        from profkit.capture import floor_kernels

        workload = floor_kernels.FLOOR
    else:
        workload = kernels.load(options.workload)
    variant = resolve_variant(workload, options.variant)
    shapes = resolve_shapes(workload, options.shapes, processes)

    def build_on(device: str) -> Step:
        job.at("building the workload")
        step = workload.build(BuildContext(variant, shapes, device, options.seed, job.rank, processes))
        numbers = [layer.number for layer in step.layers]
        if not numbers or len(set(numbers)) != len(numbers):
            raise ProfkitError(f"{workload.name}: a step needs layers with distinct numbers, found {numbers}.")
        return step

    profiler = None if job.held else profilers.get(job.recorder)
    gpu = profiler is None or profiler.needs_gpu
    import torch

    if gpu and not torch.cuda.is_available():
        raise ProfkitError(
            f"torch {torch.__version__} finds no CUDA device here. Use --profiler dispatch to count launches "
            "without a GPU; `profkit doctor` says what is missing."
        )
    if job.recorder == "floor":
        from profkit.capture.floor_kernels import time_per_node

        return Result(samples_us=time_per_node(job.replays))
    from profkit.capture.graph import backend, join, time_untraced

    if job.world_size:
        join(job, gpu=gpu)
    with torch.no_grad():
        record = time_untraced(job, build_on) if profiler is None else profiler.record(job, build_on)
    what = record.workload or WorkloadRecord(name=options.name)
    what = msgspec.structs.replace(what, variant=variant, shapes=shapes)
    return Result(record=msgspec.structs.replace(record, workload=what), backend=backend())


def _report_crash(job: Job) -> None:
    """Make an exception that nothing handles leave its one line in the result file, beside its traceback in the log."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        traceback.print_exception(kind, error, trace)
        first_line = "".join(f": {line}" for line in str(error).strip().splitlines()[:1])
        job.finish(Result(crash=f"{kind.__name__}{first_line}"))

    sys.excepthook = hook


def _go_ahead() -> bool:
    """Import what a recorder needs, without the GPU, and wait for the parent's line; False where the parent is gone.

    Importing torch takes seconds: a held worker spends them while another one still has the GPU.
    """
    import_module("profkit.capture.graph")
    if find_spec("triton") is not None:
        import_module("triton")
    return sys.stdin.readline() != ""


def main(path: str) -> int:
    """Run the job in file `path`; 0 when its result is written, 2 for an error that the user can mend."""
    job = Job.read(Path(path))
    job.file("pid").write_text(str(os.getpid()), encoding="utf-8")
    process.end_with(job.parent_pid)
    _report_crash(job)
    if job.held and not _go_ahead():
        return 2
    try:
        job.finish(run(job))
    except ProfkitError as error:
        job.finish(Result(error=str(error)))
        return 2
    except SystemExit as error:
        # A workload that leaves has left no result, whatever its status; no hook sees this exception.
        sys.excepthook(type(error), error, error.__traceback__)
        return 2
    if job.world_size:
        from profkit.capture.graph import leave

        job.at("leaving the process group")
        leave()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
