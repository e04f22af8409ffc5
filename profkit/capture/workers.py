"""Worker processes as the parent sees them, one a rank: started, held until the GPU is free, asked for results."""

from __future__ import annotations

import dataclasses
import math
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
from profkit.capture.options import Job, Options, Recording, Result
from profkit.capture.profilers import GraphTrace, Profiler
from profkit.errors import ProfkitError
from profkit.runs.whole_files import write_whole


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


def on_ranks(options: Options) -> Options | None:
    """`options` for a process that torchrun may have started; None where another process captures for it.

    The ranks of a capture are complete or absent together, so one profkit starts all of them: rank 0's, as ``--nproc``
    does. Those of the other ranks have nothing to do.

    Raises:
        ProfkitError: torchrun started another number of processes than ``--nproc`` asks for, or on several hosts.
    """
    values = [os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")]
    if "TORCHELASTIC_RUN_ID" not in os.environ or not all(value.isdigit() for value in values):
        return options
    rank, size, local = map(int, values)
    if size != local:
        raise ProfkitError(f"torchrun started {size} ranks, {local} of them here. profkit captures ranks of one host.")
    if size == 1:
        return options
    if options.nproc not in (None, size):
        raise ProfkitError(f"--nproc {options.nproc}, but torchrun started {size} processes. Leave one of them out.")
    return dataclasses.replace(options, nproc=size) if rank == 0 else None


@dataclass(frozen=True)
class Worker:
    """One running worker: its process, or that of the profiler around it; `crash_log` as in `Workers`."""

    job: Job
    child: subprocess.Popen[bytes]
    crash_log: Path | None

    def has_ended(self) -> bool:
        """Whether its process is gone, and that of the profiler around it."""
        pid = process.read_pid(self.job.file("pid"))
        return self.child.poll() is not None and (pid is None or process.is_gone(pid))

    def has_failed(self) -> bool:
        """Whether it has said so, or has ended without a result."""
        pid = process.read_pid(self.job.file("pid"))
        # A profiler outlives its program by seconds, in which the other ranks fail too.
        ended = self.has_ended() or (pid is not None and process.is_gone(pid))
        result = self.job.result()
        return ended if result is None else result.error is not None or result.crash is not None

    def failed_at(self) -> float:
        """When a failed worker wrote its result; one that wrote none has just been seen to be gone."""
        file = self.job.file("result.json")
        return file.stat().st_mtime if file.exists() else time.time() - 2 * process.POLL_S

    def stage(self) -> str:
        """What a rank is doing, in words that follow its name."""
        path = self.job.file("stage")
        return f"is {path.read_text(encoding='utf-8')}" if path.exists() else "has not begun"

    def result(self) -> Result:
        """What a worker found that has ended or failed.

        Raises:
            ProfkitError: the worker refused the job, or failed; the log of a failure is kept and named.
        """
        result = self.job.result()
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
        text = self.job.file("log").read_text(encoding="utf-8", errors="replace")
        if self.crash_log is None or not text:
            return ""
        try:
            write_whole(self.crash_log, process.without_directories(text))
        except ProfkitError as error:
            return f" Its log is not kept: {error}"
        return f" Full log: {self.crash_log}"


@dataclass(frozen=True)
class Recorded:
    """What a rank's workers have left: of the profiled one, whose recording is exported, and of the held one."""

    job: Job
    recording: Recording
    traced: Result
    held: Result | None


@dataclass(frozen=True)
class Workers:
    """Starts the workers of one capture, all ranks of a job together.

    Args:
        options: the user's, with the profiler that was chosen.
        why: why it was, one clause for the user.
        crash_log: where the log of a worker that fails is kept; None keeps none.
    """

    options: Options
    profiler: Profiler
    why: str = ""
    crash_log: Path | None = None
    graph_trace: GraphTrace = "node"

    def jobs(self, work: Path, recorder: str | None = None) -> list[Job]:
        """One job a rank, each with a directory of its own below `work`; the ranks meet at a port that nothing uses.

        They are the profiler's, or those of another `recorder`.
        """
        port = free_port() if self.options.nproc is not None else 0
        name, api = recorder or self.profiler.name, "" if recorder else self.profiler.ranges_api
        jobs = [Job(self.options, name, work / str(rank), api, rank, port) for rank in range(self.options.nproc or 1)]
        for job in jobs:
            job.directory.mkdir(parents=True, exist_ok=True)
        return jobs

    @contextmanager
    def started(self, job: Job) -> Iterator[Worker]:
        """A worker that runs beside the block; at the block's end it is ended if it has not ended by itself."""
        command = [sys.executable, "-X", "faulthandler", "-m", "profkit.capture.worker", str(job.write())]
        environment: Mapping[str, str] = os.environ
        if job.recorder == self.profiler.name:
            command = self.profiler.command(command, job.directory, window=True, graph_trace=self.graph_trace)
            environment = {**environment, **self.profiler.environment}
        if job.world_size:
            environment = rank_environment(job.rank, job.world_size, job.master_port, environment)
        with process.started(command, job.file("log"), env=environment, held=job.held) as child:
            yield Worker(job, child, self.crash_log)

    def record(self, work: Path, then: str | None = None) -> list[Recorded]:
        """Run the profiler's jobs below `work`, all ranks together, and export what its tool left.

        Held workers of the recorder `then` import torch while the profiled ones run, and are released when those have
        ended: no two jobs ever use a GPU at once. The exports, which need no GPU, run beside them.

        Raises:
            ProfkitError: a worker failed, or they did not end in time; the others are ended.
        """
        with ExitStack() as stack:
            waiting = [stack.enter_context(self.started(job)) for job in self.jobs(work, then)] if then else []
            with ExitStack() as recording:
                workers = [recording.enter_context(self.started(job)) for job in self.jobs(work)]
                traced = _results(workers)
            for worker in waiting:
                process.tell(worker.child, "go")
            recordings = [
                Recording(own.job.directory, own.job.file("log"), process.describe_status(own.child.returncode))
                for own in workers
            ]
            self.profiler.export(recordings)
            held = _results(waiting) if waiting else [None] * len(workers)
            jobs = [worker.job for worker in workers]
            return [Recorded(*own) for own in zip(jobs, recordings, traced, held, strict=True)]


def _results(workers: Sequence[Worker]) -> list[Result]:
    """What the workers found, once all have ended well.

    Raises:
        ProfkitError: the first failure; or the time of several is over, with what each of them was doing.
    """
    first, limit_s = workers[0], math.inf
    if first.job.world_size:
        limit_s = first.job.options.rank_timeout_s
    else:
        # In one system call: nothing of ours runs while something is timed.
        first.child.wait()
    deadline = time.monotonic() + limit_s
    running = list(workers)
    while running:
        if failed := [worker for worker in running if worker.has_failed()]:
            # A rank that fails takes others along, which lose their connection to it: the first one is the cause.
            cause = min(failed, key=Worker.failed_at)
            try:
                cause.result()
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
        if running:
            time.sleep(process.POLL_S)
    return [worker.result() for worker in workers]
