"""`profkit capture WORKLOAD`: the profiled process, the untraced one, and the run directory that holds both results."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profkit import run_dir
from profkit.capture import dispatch_file, graph_level, nsys, process, record, rocprofv3, torch_profiler
from profkit.capture.floor import Floor
from profkit.capture.graph_level import GraphLevel
from profkit.capture.job import make_job
from profkit.capture.plan import Options, Plan, check_options, resolve_shapes, resolve_variant
from profkit.capture.workers import Workers
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
    if options.graph_level and found is None:
        raise ProfkitError(
            f"--graph-level needs nsys, and {profiler} would record ({why}). Leave it out, or see `profkit doctor`."
        )
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
        rocprof=rocprofv3.find() if profiler == "rocprofv3" else None,
        graph_level=options.graph_level,
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
    if torch.cuda_version is None:
        try:
            return "rocprofv3", f"it is here ({rocprofv3.find().version}) and the GPU is AMD's", None
        except ProfkitError as error:
            return "torch", f"rocprofv3 cannot be used: {error}", None
    try:
        return "nsys", "it is here and names the layer of every launch exactly", nsys.find()
    except ProfkitError as error:
        return "torch", f"nsys cannot be used: {error}", None


@dataclass(frozen=True)
class Session:
    """What every run of one `profkit capture` shares.

    Args:
        plan: what runs.
        nsys: the profiler's binary, None unless it was chosen.
        floor: the dispatch floor, the same for all of them.
        keep_report: keep nsys's own report beside its export.
    """

    plan: Plan
    nsys: nsys.Nsys | None
    floor: Floor
    keep_report: bool


def capture(
    options: Options, output: Path, *, force: bool, keep_report: bool = True, with_floor: bool = True
) -> Finished:
    """Run a workload under a profiler and leave the run directory `output`, complete or not at all.

    Raises:
        ProfkitError: bad options, a profiler that is not here, a workload that fails, an output that exists.
    """
    with process.terminable(), run_dir.new(output, force=force) as directory:
        planned, found = plan(options)
        session = Session(planned, found, Floor(planned.profiler, found, with_floor), keep_report)
        content = record_into(session, directory, crash_log=output.with_name(output.name + ".log"))
    return Finished(output, content, planned.why)


def record_into(
    session: Session, directory: Path, *, crash_log: Path, repetition: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Run the workload once and fill `directory`, run.json last.

    Args:
        directory: empty; becomes the run directory.
        crash_log: where the output of a worker that fails is kept.
        repetition: the `repetition` field of run.json.

    Returns:
        run.json's content.
    """
    with tempfile.TemporaryDirectory(prefix="work.", dir=directory) as name:
        work = Path(name)
        workers = Workers(work, session.nsys, crash_log, session.plan.rocprof)
        traced, untraced, trace = _run(session, workers, directory)
        step = GraphLevel()
        if session.plan.graph_level and session.nsys is not None:
            (work / "graph-level").mkdir()
            step = graph_level.measure(session.plan, session.nsys, work / "graph-level")
    files = sorted(path.name for path in directory.iterdir())
    content = record.workload_record(
        session.plan,
        session.nsys,
        traced,
        untraced,
        session.floor,
        step,
        trace=trace,
        files=files,
        repetition=repetition,
    )
    run_dir.write_record(directory, content)
    return content


def _run(session: Session, workers: Workers, directory: Path) -> tuple[dict[str, Any], dict[str, Any] | None, str]:
    """Run the workers and move the recording to `directory`.

    Returns:
        The results of the profiled and of the untraced worker (None for dispatch), and the trace's file name.
    """
    planned, work = session.plan, workers.work
    if planned.profiler == "dispatch":
        traced = workers.run(make_job(planned, "dispatch", work, trace=dispatch_file.TRACE_FILE))
        return traced, None, _keep(work, directory, dispatch_file.TRACE_FILE)
    timed = make_job(planned, "untraced", work, held=True)
    if planned.profiler == "rocprofv3":
        results = workers.record_and_time(make_job(planned, "rocprofv3", work), timed)
        return *results, rocprofv3.gather(work / rocprofv3.DIRECTORY, directory).trace
    if session.nsys is not None:
        results = workers.record_and_time(make_job(planned, "nsys", work, nvtx=session.nsys.nvtx_api), timed)
        if session.keep_report:
            _keep(work, directory, nsys.REPORT_FILE)
        return *results, _keep(work, directory, nsys.TRACE_FILE)
    results = workers.record_and_time(make_job(planned, "torch", work, trace=torch_profiler.TRACE_FILE), timed)
    return *results, _keep(work, directory, torch_profiler.TRACE_FILE)


def _keep(work: Path, directory: Path, name: str) -> str:
    (work / name).rename(directory / name)
    return name
