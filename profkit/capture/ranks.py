"""Several processes that run one workload together, a rank each: what they are told, and the results of all or none."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.capture.job import Job, read_result
from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.capture.workers import Worker, Workers

_POLL_S = 0.05


def free_port() -> int:
    """A TCP port of this host that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def environment(job: Job, base: Mapping[str, str]) -> dict[str, str]:
    """The environment of a rank, as torchrun would set it; what a torchrun around us has set is left out."""
    kept = {name: value for name, value in base.items() if not name.startswith("TORCHELASTIC_")}
    size = str(job.world_size)
    # All ranks are on this host, and its name need not resolve.
    kept.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return kept | {
        "RANK": str(job.rank),
        "LOCAL_RANK": str(job.rank),
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(job.master_port),
    }


def under_torchrun() -> tuple[int, int] | None:
    """This process's rank and their number where torchrun started it; None elsewhere, or for one process alone.

    Raises:
        ProfkitError: torchrun runs on several hosts.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    values = [os.environ.get(name, "") for name in names]
    if "TORCHELASTIC_RUN_ID" not in os.environ or not all(value.isdigit() for value in values):
        return None
    rank, size, local = map(int, values)
    if size != local:
        raise ProfkitError(f"torchrun started {size} ranks, {local} of them here. profkit captures ranks of one host.")
    return None if size == 1 else (rank, size)


def record_and_time(
    crew: Sequence[Workers], traced: Sequence[Job], timed: Sequence[Job]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """For each rank the results of its profiled job, exported, and of the untraced one after it.

    The untraced workers import torch while the profiled ones run, and are released when those have ended: no two jobs
    ever use a GPU at once. The exports, which need no GPU, run beside them.

    Args:
        crew: each rank's workers.
        timed: held jobs.
    """
    with ExitStack() as stack:
        waiting = [stack.enter_context(own.started(job)) for own, job in zip(crew, timed, strict=True)]
        recorded = run(crew, traced)
        for worker in waiting:
            worker.release()
        crew[0].profiler.export([own.recording(job) for own, job in zip(crew, traced, strict=True)])
        return list(zip(recorded, _results(waiting), strict=True))


def run(crew: Sequence[Workers], jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Run one job a rank from start to end, together; the results of all of them.

    Raises:
        ProfkitError: one of them failed, or they did not end in time; the others are ended.
    """
    with ExitStack() as stack:
        return _results([stack.enter_context(own.started(job)) for own, job in zip(crew, jobs, strict=True)])


def _results(workers: Sequence[Worker]) -> list[dict[str, Any]]:
    """What the workers found, once all have ended; see `run`."""
    if workers[0].job.world_size:
        _wait(workers)
    return [worker.result() for worker in workers]


def _wait(workers: Sequence[Worker]) -> None:
    """Wait until every rank has ended well.

    Raises:
        ProfkitError: the first failure; or their time is over, with what each of them was doing.
    """
    limit_s = workers[0].job.timeout_s
    deadline = time.monotonic() + limit_s
    running = list(workers)
    while running:
        failed = [worker for worker in running if worker.has_failed()]
        if failed:
            # A rank that fails takes others along, which lose their connection to it: the first one is the cause.
            _raise(min(failed, key=_failed_at), len(workers))
        running = [worker for worker in running if not worker.has_ended()]
        if running and time.monotonic() > deadline:
            doing = "; ".join(f"rank {worker.job.rank} {_stage(worker)}" for worker in running)
            raise ProfkitError(
                f"{len(running)} of {len(workers)} ranks did not end within {limit_s:g} s: {doing}. A collective that "
                "not all of them call hangs; --rank-timeout allows more time."
            )
        time.sleep(_POLL_S)


def _failed_at(worker: Worker) -> float:
    """When a failed rank wrote its result; one that wrote none has just been seen to be gone."""
    if read_result(worker.job) is None:
        return time.time() - 2 * _POLL_S
    return Path(worker.job.result).stat().st_mtime


def _raise(worker: Worker, ranks: int) -> None:
    try:
        worker.result(wait=False)
    except ProfkitError as error:
        if ranks == 1:
            raise
        raise ProfkitError(f"Rank {worker.job.rank} of {ranks}: {error}", error.exit_code) from error


def _stage(worker: Worker) -> str:
    path = worker.job.stage_file
    return f"is {path.read_text(encoding='utf-8')}" if path.exists() else "has not begun"
