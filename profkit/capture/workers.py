"""Worker processes as the parent sees them, one a rank: started, held until the GPU is free, asked for results."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from profkit.capture import process
from profkit.capture.options import Job, Options, Result, read_result
from profkit.capture.profilers import GraphTrace, Profiler
from profkit.errors import ProfkitError


def free_port() -> int:
    """A TCP port of this host that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def rank_environment(rank: int, world_size: int, master_port: int, base: Mapping[str, str]) -> dict[str, str]:
    """The environment of a rank, as torchrun would set it; what a torchrun around us has set is left out."""
    kept = {name: value for name, value in base.items() if not name.startswith("TORCHELASTIC_")}
    # All ranks are on this host, and its name need not resolve.
    kept.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return kept | {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(master_port),
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


@dataclass(frozen=True)
class Worker:
    """One running worker.

    Args:
        job: what it does.
        child: its process, or that of the profiler around it.
        crash_log: where its log is kept if it fails; None keeps none.
    """

    job: Job
    child: subprocess.Popen[bytes]
    crash_log: Path | None

    def has_ended(self) -> bool:
        """Whether its process, and that of the profiler around it, are gone."""
        return process.has_ended(self.child, self.job.file("pid"))

    def has_failed(self) -> bool:
        """Whether it has said so, or has ended without a result."""
        # A profiler outlives its program by seconds, in which the other ranks fail too.
        ended = self.has_ended() or process.is_gone(self.job.file("pid"))
        result = read_result(self.job)
        return ended if result is None else result.has_failed

    def failed_at(self) -> float:
        """When a failed worker wrote its result; one that wrote none has just been seen to be gone."""
        file = self.job.file("result.json")
        return file.stat().st_mtime if file.exists() else time.time() - 2 * process.POLL_S

    def stage(self) -> str:
        """What a rank is doing, in words that follow its name."""
        path = self.job.file("stage")
        return f"is {path.read_text(encoding='utf-8')}" if path.exists() else "has not begun"

    def result(self, *, wait: bool = True) -> Result:
        """What the worker found, once it has ended.

        Args:
            wait: false for a worker that has failed and may not have ended.

        Raises:
            ProfkitError: the worker refused the job, or failed; the log of a failure is kept and named.
        """
        if wait:
            process.wait(self.child, self.job.file("pid"))
        result = read_result(self.job)
        if result is None:
            how = ""
            # A process of several threads is a zombie a little before its status can be had.
            with suppress(subprocess.TimeoutExpired):
                how = f" ({process.describe_status(self.child.wait(timeout=1.0))})"
            said = process.tail(self.job.file("log"))
            raise ProfkitError(
                f"The {self.job.recorder} process ended{how} without a result"
                + (f": {said}.{self._keep_log()}" if said else ", and printed nothing.")
            )
        if result.error is not None:
            raise ProfkitError(result.error)
        if result.crash is not None:
            crash = process.without_directories(result.crash)
            raise ProfkitError(f"The workload failed: {crash}.{self._keep_log()}")
        return result

    def _keep_log(self) -> str:
        """Keep the log without the directories of this machine; a sentence that names it."""
        if self.crash_log is None:
            return ""
        text = self.job.file("log").read_text(encoding="utf-8", errors="replace")
        self.crash_log.write_text(process.without_directories(text), encoding="utf-8")
        return f" Full log: {self.crash_log}"


@dataclass(frozen=True)
class Workers:
    """Starts the workers of one capture, all ranks of a job together.

    Args:
        options: of the capture.
        profiler: what jobs whose recorder it is run under.
        crash_log: see `Worker`.
        graph_trace: what it records of graphs.
    """

    options: Options
    profiler: Profiler
    crash_log: Path | None = None
    graph_trace: GraphTrace = "node"

    def jobs(self, directories: Sequence[Path], recorder: str | None = None) -> list[Job]:
        """One job a rank, each with a directory of its own; the ranks meet at a port that nothing else uses.

        Args:
            recorder: ``untraced`` or ``floor``; else they are the profiler's.
        """
        port = free_port() if self.options.nproc is not None else 0
        name, api = recorder or self.profiler.name, "" if recorder else self.profiler.ranges_api
        return [Job(self.options, name, directory, api, rank, port) for rank, directory in enumerate(directories)]

    @contextmanager
    def started(self, job: Job) -> Iterator[Worker]:
        """A worker that runs beside the block; at the block's end it is ended if it has not ended by itself."""
        command = [sys.executable, "-m", "profkit.capture.worker", str(job.write())]
        environment: Mapping[str, str] = os.environ
        if job.recorder == self.profiler.name:
            command = self.profiler.command(command, job.directory, window=True, graph_trace=self.graph_trace)
            environment = {**environment, **self.profiler.environment}
        if job.world_size:
            environment = rank_environment(job.rank, job.world_size, job.master_port, environment)
        with process.started(
            command, job.file("log"), env=environment, pid_file=job.file("pid"), held=job.held
        ) as child:
            yield Worker(job, child, self.crash_log)

    def record(self, jobs: Sequence[Job]) -> list[Result]:
        """Run the profiler's jobs from start to end, all ranks together, and make what its tool left into traces.

        Raises:
            ProfkitError: one of them failed, or they did not end in time; the others are ended.
        """
        with ExitStack() as stack:
            results = _results([stack.enter_context(self.started(job)) for job in jobs])
        self.profiler.export([job.recording for job in jobs])
        return results

    def record_and_time(self, jobs: Sequence[Job], recorder: str = "untraced") -> list[tuple[Result, Result]]:
        """For each rank the results of its profiled job, exported, and of the held one of `recorder` after it.

        The held workers import torch while the profiled ones run, and are released when those have ended: no two
        jobs ever use a GPU at once. The exports, which need no GPU, run beside them.
        """
        with ExitStack() as stack:
            held = self.jobs([job.directory for job in jobs], recorder)
            waiting = [stack.enter_context(self.started(job)) for job in held]
            with ExitStack() as recording:
                recorded = _results([recording.enter_context(self.started(job)) for job in jobs])
            for worker in waiting:
                process.tell(worker.child, "go")
            self.profiler.export([job.recording for job in jobs])
            return list(zip(recorded, _results(waiting), strict=True))


def _results(workers: Sequence[Worker]) -> list[Result]:
    """What the workers found, once all have ended; see `Workers.record`."""
    if workers[0].job.world_size:
        _wait(workers)
    return [worker.result() for worker in workers]


def _wait(workers: Sequence[Worker]) -> None:
    """Wait until every rank has ended well.

    Raises:
        ProfkitError: the first failure; or their time is over, with what each of them was doing.
    """
    limit_s = workers[0].job.options.rank_timeout_s
    deadline = time.monotonic() + limit_s
    running = list(workers)
    while running:
        if failed := [worker for worker in running if worker.has_failed()]:
            # A rank that fails takes others along, which lose their connection to it: the first one is the cause.
            cause = min(failed, key=Worker.failed_at)
            try:
                cause.result(wait=False)
            except ProfkitError as error:
                whose = f"Rank {cause.job.rank} of {len(workers)}: " if len(workers) > 1 else ""
                raise ProfkitError(f"{whose}{error}", error.exit_code) from error
        running = [worker for worker in running if not worker.has_ended()]
        if running and time.monotonic() > deadline:
            doing = "; ".join(f"rank {worker.job.rank} {worker.stage()}" for worker in running)
            raise ProfkitError(
                f"{len(running)} of {len(workers)} ranks did not end within {limit_s:g} s: {doing}. A collective that "
                "not all of them call hangs; --rank-timeout allows more time."
            )
        time.sleep(process.POLL_S)
