"""`profkit capture WORKLOAD`: the profiled process, the untraced one, and the run directory that holds both results."""

from __future__ import annotations

import dataclasses
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profkit.capture import dispatch_file, graph_level, nsys, process, record, rocprofv3, torch_profiler
from profkit.capture.floor import Floor
from profkit.capture.graph_level import GraphLevel
from profkit.capture.options import Job, Options
from profkit.capture.workers import Workers, make_jobs
from profkit.errors import ProfkitError
from profkit.model.run import RankRecord, RepetitionRecord, RunRecord
from profkit.model.workload import resolve_shapes, resolve_variant
from profkit.runs import run_dir, trace_digests


@dataclass(frozen=True)
class Finished:
    """A capture that is complete.

    Args:
        path: the run directory.
        records: run.json of every rank.
        why: why its profiler was used.
    """

    path: Path
    records: Sequence[RunRecord]
    why: str


@dataclass(frozen=True)
class Session:
    """What every run of one `profkit capture` shares.

    Args:
        options: the user's, with the profiler that was chosen.
        why: why that profiler, one clause for the user.
        nsys, rocprof: the profiler, None unless it was chosen.
        floor: the dispatch floor, the same for all of them.
    """

    options: Options
    why: str
    nsys: nsys.Nsys | None
    rocprof: rocprofv3.Rocprofv3 | None
    floor: Floor


def begin(options: Options) -> Session:
    """Check `options` and choose the profiler.

    A shipped workload's variant and shapes are checked here too, before anything is started.

    Raises:
        ProfkitError: see `profkit.capture.options`; or the profiler asked for is not here.
    """
    from profkit import kernels

    options.check()
    if not options.is_file:
        workload = kernels.load(options.workload)
        resolve_variant(workload, options.variant)
        resolve_shapes(workload, options.shapes, options.nproc or 1)
    profiler, why, found = _choose_profiler(options)
    if options.graph_level and found is None:
        raise ProfkitError(
            f"--graph-level needs nsys, and {profiler} would record ({why}). Leave it out, or see `profkit doctor`."
        )
    replays = 1 if profiler == "dispatch" else options.replays
    return Session(
        dataclasses.replace(options, profiler=profiler, replays=replays),
        why,
        found,
        rocprofv3.find() if profiler == "rocprofv3" else None,
        Floor(profiler, found, options.with_floor),
    )


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
    if torch.cuda_version is None and options.nproc is not None:
        return "torch", "several ranks are not recorded with rocprofv3 yet", None
    if torch.cuda_version is None:
        try:
            return "rocprofv3", f"it is here ({rocprofv3.find().version}) and the GPU is AMD's", None
        except ProfkitError as error:
            return "torch", f"rocprofv3 cannot be used: {error}", None
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
        session = begin(options)
        records = record_into(session, directory, crash_log=output.with_name(output.name + ".log"))
    return Finished(output, records, session.why)


def record_into(
    session: Session, directory: Path, *, crash_log: Path, repetition: RepetitionRecord | None = None
) -> list[RunRecord]:
    """Run the workload once and fill `directory`, each run.json last.

    Args:
        directory: empty; becomes the run directory, or with ``--nproc`` the parent of the ranks' ``0``, ``1``…
        crash_log: where the output of a worker that fails is kept.
        repetition: the `repetition` field of run.json.

    Returns:
        run.json of every rank.
    """
    nproc = session.options.nproc
    targets = [directory] if nproc is None else [directory / str(rank) for rank in range(nproc)]
    with tempfile.TemporaryDirectory(prefix="work.", dir=directory) as name:
        recorded = _run(session, Path(name), targets, crash_log)
        whole = _graph_level(session, Path(name) / "graph-level", len(targets))
    job = secrets.token_hex(8)
    contents: list[RunRecord] = []
    for rank, (target, (traced, untraced, trace)) in enumerate(zip(targets, recorded, strict=True)):
        described = None
        if nproc is not None:
            described = RankRecord(rank=rank, world_size=nproc, job=job, backend=traced["backend"])
        files = sorted(path.name for path in target.iterdir())
        content = record.workload_record(
            session.options,
            session.nsys,
            session.rocprof,
            traced,
            untraced,
            session.floor,
            whole[rank],
            trace=trace,
            files=files,
            trace_sha256=trace_digests.digests(target, trace, files),
            repetition=repetition,
            ranks=described,
        )
        run_dir.write_record(target, content)
        contents.append(content)
    return contents


def _directories(work: Path, count: int) -> list[Path]:
    """A new directory below `work` for each rank."""
    directories = [work / str(rank) for rank in range(count)]
    for directory in directories:
        directory.mkdir(parents=True)
    return directories


def _graph_level(session: Session, work: Path, count: int) -> Sequence[GraphLevel]:
    """Each rank's step at graph level, if it was asked for; recorded in the new directory `work`."""
    if not session.options.graph_level or session.nsys is None:
        return [GraphLevel()] * count
    jobs = make_jobs(session.options, "nsys", _directories(work, count), nvtx=session.nsys.nvtx_api)
    return graph_level.measure(session.nsys, jobs)


_Recorded = tuple[dict[str, Any], dict[str, Any] | None, str]


def _run(session: Session, work: Path, targets: Sequence[Path], crash_log: Path) -> list[_Recorded]:
    """Run the workers in directories below `work`, and move each rank's recording to its target, which is made.

    Returns:
        For each rank the results of the profiled and of the untraced worker (None for dispatch), and the trace's name.
    """
    options = session.options
    directories = _directories(work, len(targets))
    nvtx = "" if session.nsys is None else session.nsys.nvtx_api
    workers = Workers(session.nsys, crash_log, session.rocprof)
    jobs = make_jobs(options, options.profiler, directories, nvtx=nvtx)
    results: Sequence[tuple[dict[str, Any], dict[str, Any] | None]]
    if options.profiler == "dispatch":
        results = [(result, None) for result in workers.run(jobs)]
    else:
        results = workers.record_and_time(jobs, make_jobs(options, "untraced", directories, held=True))
    for target in targets:
        target.mkdir(exist_ok=True)
    kept = [_gather(session, job, target) for job, target in zip(jobs, targets, strict=True)]
    return [(traced, untraced, trace) for (traced, untraced), trace in zip(results, kept, strict=True)]


def _gather(session: Session, job: Job, target: Path) -> str:
    """Move what one rank's profiler recorded to its run directory; the trace's file name."""
    work, profiler = Path(job.directory), session.options.profiler
    if profiler == "rocprofv3":
        return rocprofv3.gather(work / rocprofv3.DIRECTORY, target).trace
    if profiler == "dispatch":
        return _keep(work, target, dispatch_file.TRACE_FILE)
    if profiler == "torch":
        return _keep(work, target, torch_profiler.TRACE_FILE)
    if session.options.keep_report:
        _keep(work, target, nsys.REPORT_FILE)
    return _keep(work, target, nsys.TRACE_FILE)


def _keep(work: Path, directory: Path, name: str) -> str:
    (work / name).rename(directory / name)
    return name
