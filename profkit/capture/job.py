"""The messages between `profkit capture` and its worker processes: a job file in, a result file out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from profkit.capture.plan import Plan

#: An untraced process times at least this many replays: the quartiles of 20 are coarse and a replay costs under 1 ms.
MIN_UNTRACED_REPLAYS = 50

#: The `spec` of the workload that measures the dispatch floor; no name that a user can give.
FLOOR_SPEC = "<floor>"


@dataclass(frozen=True)
class Job:
    """One worker process's task.

    Args:
        recorder: a profiler's name, ``untraced`` (CUDA events) or ``floor`` (CUDA events around graphs of kernels that
            do nothing).
        nvtx: which API pushes ranges, see `profkit.capture.profilers.Profiler.ranges_api`; "" without a profiler.
        result: where the worker writes its result, complete or not at all.
        trace: where a profiler that records in the worker writes its trace; "" for the others.
        spec, variant, shapes, warmup, seed, run_bodies: see `profkit.capture.plan.Plan`.
        replays: how many are recorded or timed.
        held: import torch, then wait for a line on stdin before anything touches the GPU.
        rank, world_size: this process among the ranks; a world size of 0 means that there is no process group.
        master_port: where rank 0 listens while the process group is made.
        timeout_s: how long a rank waits for the others.
        parent_pid: the process that started the job; its end is the worker's. 0 for none.
    """

    recorder: str
    nvtx: str
    result: str
    trace: str
    spec: str
    variant: str | None
    shapes: Sequence[str]
    replays: int
    warmup: int
    seed: int
    run_bodies: bool
    held: bool = False
    rank: int = 0
    world_size: int = 0
    master_port: int = 0
    timeout_s: float = 0.0
    parent_pid: int = 0

    @property
    def stage_file(self) -> Path:
        """Where a rank writes what it is doing, for the message where it hangs."""
        return Path(self.result + ".stage")

    def at(self, stage: str) -> None:
        """Say what this process is doing from now on; nothing where it is the only one."""
        if self.world_size:
            self.stage_file.write_text(stage, encoding="utf-8")

    @property
    def pid_file(self) -> Path:
        """Where the worker writes its process id first, so that it can be ended whoever started it."""
        return Path(self.result + ".pid")


def make_job(
    plan: Plan,
    recorder: str,
    directory: Path,
    *,
    held: bool = False,
    rank: int = 0,
    master_port: int = 0,
) -> Job:
    """The job of `plan` for one worker; its files lie in `directory`."""
    profiler = plan.profiler if recorder == plan.profiler.name else None
    trace = "" if profiler is None else profiler.trace_file
    replays = max(plan.replays, MIN_UNTRACED_REPLAYS) if recorder in ("untraced", "floor") else plan.replays
    return Job(
        recorder=recorder,
        nvtx="" if profiler is None else profiler.ranges_api,
        result=str(directory / f"{recorder}.result.json"),
        trace=str(directory / trace) if trace else "",
        spec=plan.spec,
        variant=plan.variant,
        shapes=plan.shapes,
        replays=replays,
        warmup=plan.warmup,
        seed=plan.seed,
        run_bodies=plan.run_bodies,
        held=held,
        rank=rank,
        world_size=plan.nproc or 0,
        master_port=master_port,
        timeout_s=plan.rank_timeout_s,
        parent_pid=os.getpid(),
    )


def write_job(job: Job, path: Path) -> None:
    """Write `job` for a worker to read."""
    path.write_text(json.dumps(asdict(job)), encoding="utf-8")


def read_job(path: Path) -> Job:
    """The job in `path`, as `write_job` left it."""
    return Job(**json.loads(path.read_text(encoding="utf-8")))


def write_result(job: Job, result: Mapping[str, Any]) -> None:
    """Write a worker's result; a reader sees all of it or no file."""
    final = Path(job.result)
    partial = final.with_suffix(".part")
    partial.write_text(json.dumps(result, allow_nan=False), encoding="utf-8")
    partial.replace(final)


def read_result(job: Job) -> dict[str, Any] | None:
    """A worker's result, None where it left none."""
    path = Path(job.result)
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result
