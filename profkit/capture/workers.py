"""Worker processes as the parent sees them: started, held until the GPU is free, and asked for their result."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profkit.capture import process, ranks
from profkit.capture.job import Job, read_result, write_job
from profkit.capture.profilers import GraphTrace, Profiler, Recording
from profkit.errors import ProfkitError


@dataclass(frozen=True)
class Worker:
    """One running worker.

    Args:
        job: what it does.
        child: its process, or that of the profiler around it.
        log: its output.
        crash_log: where the log is kept if it fails; None keeps none.
    """

    job: Job
    child: subprocess.Popen[bytes]
    log: Path
    crash_log: Path | None

    def release(self) -> None:
        """Let a held worker use the GPU."""
        process.release(self.child)

    def has_ended(self) -> bool:
        """Whether its process, and that of the profiler around it, are gone."""
        return process.has_ended(self.child, self.job.pid_file)

    def has_failed(self) -> bool:
        """Whether it has said so, or has ended without a result."""
        # A profiler outlives its program by seconds, in which the other ranks fail too.
        ended = self.has_ended() or process.is_gone(self.job.pid_file)
        result = read_result(self.job)
        return ended if result is None else "error" in result or "crash" in result

    def result(self, *, wait: bool = True) -> dict[str, Any]:
        """What the worker found, once it has ended.

        Args:
            wait: false for a worker that has failed and may not have ended.

        Raises:
            ProfkitError: the worker refused the job, or failed; the log of a failure is kept and named.
        """
        if wait:
            process.wait(self.child, self.job.pid_file)
        result = read_result(self.job)
        if result is not None and "error" in result:
            raise ProfkitError(result["error"])
        if result is not None and "crash" in result:
            crash = process.without_directories(result["crash"])
            raise ProfkitError(f"The workload failed: {crash}.{self._keep_log()}")
        if result is None:
            status = process.status_soon(self.child)
            how = "" if status is None else f" ({process.describe_status(status)})"
            said = process.tail(self.log)
            raise ProfkitError(
                f"The {self.job.recorder} process ended{how} without a result"
                + (f": {said}.{self._keep_log()}" if said else ", and printed nothing.")
            )
        return result

    def _keep_log(self) -> str:
        """Keep the log without the directories of this machine; a sentence that names it."""
        if self.crash_log is None:
            return ""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        self.crash_log.write_text(process.without_directories(text), encoding="utf-8")
        return f" Full log: {self.crash_log}"


@dataclass(frozen=True)
class Workers:
    """Starts the workers of one capture, or of one rank of it.

    Args:
        work: a directory for their jobs, logs and results.
        profiler: what jobs whose recorder it is run under.
        crash_log: see `Worker`.
        graph_trace: what it records of graphs.
    """

    work: Path
    profiler: Profiler
    crash_log: Path | None
    graph_trace: GraphTrace = "node"

    def log(self, job: Job) -> Path:
        """Where a job's output goes."""
        return self.work / f"{job.recorder}.log"

    def recording(self, job: Job) -> Recording:
        """What a job's profiler left."""
        return Recording(self.work, self.log(job))

    @contextmanager
    def started(self, job: Job) -> Iterator[Worker]:
        """A worker that runs beside the block; at the block's end it is ended if it has not ended by itself."""
        path = self.work / f"{job.recorder}.job.json"
        write_job(job, path)
        log = self.log(job)
        with process.started(
            self._command(job, path), log, env=self._environment(job), pid_file=job.pid_file, held=job.held
        ) as child:
            yield Worker(job, child, log, self.crash_log)

    def run(self, job: Job) -> dict[str, Any]:
        """Run a job from start to end; see `Worker.result`."""
        with self.started(job) as worker:
            return worker.result()

    def record_and_time(self, traced: Job, timed: Job) -> tuple[dict[str, Any], dict[str, Any]]:
        """The results of a profiled job, exported, and of the untraced job that follows it.

        See `profkit.capture.ranks.record_and_time`.

        Args:
            timed: a held job.
        """
        (results,) = ranks.record_and_time([self], [traced], [timed])
        return results

    def _command(self, job: Job, path: Path) -> list[str]:
        command = [sys.executable, "-m", "profkit.capture.worker", str(path)]
        if job.recorder != self.profiler.name:
            return command
        return self.profiler.command(command, self.work, window=True, graph_trace=self.graph_trace)

    def _environment(self, job: Job) -> Mapping[str, str] | None:
        more = self.profiler.environment if job.recorder == self.profiler.name else {}
        chosen = {**os.environ, **more} if more else None
        return ranks.environment(job, chosen or os.environ) if job.world_size else chosen
