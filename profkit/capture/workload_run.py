"""`profkit capture WORKLOAD`: the profiled process, the untraced one, and the run directory that holds both results."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profkit import run_dir
from profkit.capture import dispatch_file, nsys, process, record, torch_profiler
from profkit.capture.job import Job, make_job, read_result, write_job
from profkit.capture.plan import Options, Plan, check_options, resolve_shapes, resolve_variant
from profkit.errors import ProfkitError


@dataclass(frozen=True)
class Finished:
    """A capture that is complete.

    Args:
        path: the run directory.
        record: run.json's content.
        why: why its profiler was used.
    """

    path: Path
    record: Mapping[str, Any]
    why: str


def plan(options: Options) -> tuple[Plan, nsys.Nsys | None]:
    """Check `options` and choose the profiler; nsys is None unless it was chosen.

    A shipped workload's variant and shapes are checked here too, before anything is started.

    Raises:
        ProfkitError: see `profkit.capture.plan`; or the profiler asked for is not here.
    """
    from profkit import kernels

    check_options(options)
    is_file = ":" in options.workload
    if not is_file:
        workload = kernels.load(options.workload)
        resolve_variant(workload, options.variant)
        resolve_shapes(workload, options.shapes)
    profiler, why, found = _choose_profiler(options)
    return Plan(
        spec=options.workload,
        name=Path(options.workload).name,
        source="file" if is_file else "shipped",
        variant=options.variant,
        shapes=options.shapes,
        profiler=profiler,
        why=why,
        replays=1 if profiler == "dispatch" else options.replays,
        warmup=options.warmup,
        seed=options.seed,
        run_bodies=options.run_bodies,
    ), found


def _choose_profiler(options: Options) -> tuple[str, str, nsys.Nsys | None]:
    if options.profiler == "nsys":
        return "nsys", "as asked", nsys.find()
    if options.profiler != "auto":
        return options.profiler, "as asked", None
    if options.run_bodies:
        return "dispatch", "--run-bodies asks for it", None
    from profkit.capture.probe import probe_torch

    torch = probe_torch()
    if torch.problem is not None:
        raise ProfkitError(f"No profiler can run a workload here: {torch.problem}")
    if not torch.cuda:
        return "dispatch", "there is no CUDA device; launches are counted, not timed", None
    try:
        return "nsys", "it is here and names the layer of every launch exactly", nsys.find()
    except ProfkitError as error:
        return "torch", f"nsys cannot be used: {error}", None


def capture(options: Options, output: Path, *, force: bool) -> Finished:
    """Run a workload under a profiler and leave the run directory `output`, complete or not at all.

    Raises:
        ProfkitError: bad options, a profiler that is not here, a workload that fails, an output that exists.
    """
    with process.terminable(), run_dir.new(output, force=force) as directory:
        planned, found = plan(options)
        with tempfile.TemporaryDirectory(prefix="work.", dir=directory) as work:
            capturing = _Capture(planned, found, directory, Path(work), output)
            content = capturing.run()
        run_dir.write_record(directory, content)
    return Finished(output, content, planned.why)


@dataclass(frozen=True)
class _Capture:
    """One capture under way; `directory` becomes the run directory, `work` is removed."""

    plan: Plan
    nsys: nsys.Nsys | None
    directory: Path
    work: Path
    output: Path

    def run(self) -> dict[str, Any]:
        """Run the workers; returns run.json's content."""
        if self.plan.profiler == "dispatch":
            traced = self._worker(make_job(self.plan, "dispatch", self.work, trace=dispatch_file.TRACE_FILE))
            trace, untraced = dispatch_file.TRACE_FILE, None
        elif self.nsys is not None:
            job = make_job(self.plan, "nsys", self.work, nvtx=self.nsys.nvtx_api)
            traced = self._worker(job)
            nsys.export(self.nsys, self.work, self._log(job))
            (self.work / nsys.REPORT_FILE).rename(self.directory / nsys.REPORT_FILE)
            trace, untraced = nsys.TRACE_FILE, self._worker(make_job(self.plan, "untraced", self.work))
        else:
            traced = self._worker(make_job(self.plan, "torch", self.work, trace=torch_profiler.TRACE_FILE))
            trace, untraced = torch_profiler.TRACE_FILE, self._worker(make_job(self.plan, "untraced", self.work))
        (self.work / trace).rename(self.directory / trace)
        files = sorted(path.name for path in self.directory.iterdir() if path.is_file())
        return record.workload_record(self.plan, self.nsys, traced, untraced, trace=trace, files=files)

    def _log(self, job: Job) -> Path:
        return self.work / f"{job.recorder}.log"

    def _worker(self, job: Job) -> dict[str, Any]:
        path = self.work / f"{job.recorder}.job.json"
        write_job(job, path)
        command = [sys.executable, "-m", "profkit.capture.worker", str(path)]
        env = None
        if job.recorder == "nsys" and self.nsys is not None:
            command = nsys.profile_command(self.nsys, self.work / "trace", command, window=True)
        if job.recorder == "dispatch":
            env = dispatch_file.environment(run_bodies=job.run_bodies)
        log = self._log(job)
        status = process.run(command, log, env=env, pid_file=job.pid_file)
        result = read_result(job)
        if result is not None and "error" in result:
            raise ProfkitError(result["error"])
        if result is not None and "crash" in result:
            raise ProfkitError(
                f"The workload failed: {process.without_directories(result['crash'])}. {self._keep_log(log)}"
            )
        if result is None:
            ended = process.describe_status(status)
            raise ProfkitError(
                f"The {job.recorder} process ended ({ended}) without a result: {process.tail(log)}. "
                f"{self._keep_log(log)}"
            )
        return result

    def _keep_log(self, log: Path) -> str:
        kept = self.output.with_name(self.output.name + ".log")
        shutil.copyfile(log, kept)
        return f"Full log: {kept}"
