"""The child process of a capture: ``python -m profkit.capture.worker JOB``.

Builds the workload, records it as the job says and writes one result file. Its standard output belongs to the
workload and is never read.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from profkit.capture import process, profilers
from profkit.capture.options import FLOOR_WORKLOAD, Job, read_job
from profkit.errors import ProfkitError
from profkit.model.workload import (
    BuildContext,
    ShapeValue,
    Step,
    Workload,
    resolve_shapes,
    resolve_variant,
)


def build(job: Job, workload: Workload, shapes: Mapping[str, ShapeValue], variant: str, device: str) -> Step:
    """The job's step on `device`.

    Raises:
        ProfkitError: the step has no layers, or two of one number.
    """
    job.at("building the workload")
    context = BuildContext(variant, shapes, device, job.options.seed, job.rank, max(job.world_size, 1))
    step = workload.build(context)
    numbers = [layer.number for layer in step.layers]
    if not numbers or len(set(numbers)) != len(numbers):
        raise ProfkitError(f"{workload.name}: a step needs layers with distinct numbers, found {numbers}.")
    return step


def run(job: Job) -> dict[str, Any]:
    """Do the job; returns what its recorder does (see there) with the ``variant`` and ``shapes`` that ran.

    Raises:
        ProfkitError: the workload cannot be loaded, has no such variant or shape, or cannot run here.
    """
    from profkit import kernels

    options = job.options
    if options.workload == FLOOR_WORKLOAD:
        from profkit.capture.floor_kernels import FLOOR

        workload = FLOOR
    else:
        workload = kernels.load(options.workload)
    variant = resolve_variant(workload, options.variant)
    shapes = resolve_shapes(workload, options.shapes, max(job.world_size, 1))
    result = _record(job, partial(build, job, workload, shapes, variant))
    return {**result, "variant": variant, "shapes": shapes}


def _record(job: Job, build_on: Callable[[str], Step]) -> dict[str, Any]:
    profiler = None if job.recorder in ("untraced", "floor") else profilers.get(job.recorder)
    if profiler is not None and not profiler.needs_gpu:
        _join(job, gpu=False)
        return profiler.record(job, build_on)
    import torch

    if not torch.cuda.is_available():
        raise ProfkitError(
            f"torch {torch.__version__} finds no CUDA device here. Use --profiler dispatch to count launches "
            "without a GPU; `profkit doctor` says what is missing."
        )
    if job.recorder == "floor":
        from profkit.capture.floor_kernels import time_per_node

        return time_per_node(job.replays)
    _join(job, gpu=True)
    with torch.no_grad():
        if profiler is not None:
            return profiler.record(job, build_on)
        from profkit.capture.graph import time_untraced

        return time_untraced(job, partial(build_on, "cuda"))


def _join(job: Job, *, gpu: bool) -> None:
    if job.world_size:
        from profkit.capture.graph import join

        join(job, gpu=gpu)


def write_result(job: Job, result: Mapping[str, Any]) -> None:
    """Write the result; a reader sees all of it or no file."""
    partial_file = job.result.with_suffix(".part")
    partial_file.write_text(json.dumps(result, default=msgspec.to_builtins, allow_nan=False), encoding="utf-8")
    partial_file.replace(job.result)


def _report_crash(job: Job) -> None:
    """Make an exception that nothing handles leave its one line in the result file, beside its traceback in the log."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        traceback.print_exception(kind, error, trace)
        text = str(error).strip()
        first_line = f": {text.splitlines()[0]}" if text else ""
        write_result(job, {"crash": f"{kind.__name__}{first_line}"})

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
    job = read_job(Path(path))
    job.pid_file.write_text(str(os.getpid()), encoding="utf-8")
    process.end_with(job.parent_pid)
    _report_crash(job)
    if job.held and not _go_ahead():
        return 2
    try:
        result = run(job)
    except ProfkitError as error:
        write_result(job, {"error": str(error)})
        return 2
    except SystemExit as error:
        # A workload that leaves has left no result, whatever its status; no hook sees this exception.
        sys.excepthook(type(error), error, error.__traceback__)
        return 2
    write_result(job, result)
    if job.world_size:
        from profkit.capture.graph import leave

        job.at("leaving the process group")
        leave()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
