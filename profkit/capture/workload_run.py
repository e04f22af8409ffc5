"""`profkit capture WORKLOAD`: the profiled process, the untraced one, and the run directory that holds both results."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profkit.capture import dispatch_file, graph_level, nsys, process, ranks, record, rocprofv3, torch_profiler
from profkit.capture.floor import Floor
from profkit.capture.graph_level import GraphLevel
from profkit.capture.job import Job, make_job
from profkit.capture.plan import Options, Plan, check_options, resolve_shapes, resolve_variant
from profkit.capture.workers import Workers
from profkit.errors import ProfkitError
from profkit.model.run import RankRecord, RepetitionRecord, RunRecord
from profkit.runs import run_dir


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
        resolve_shapes(workload, options.shapes, options.nproc or 1)
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
        nproc=options.nproc,
        rank_timeout_s=options.rank_timeout_s,
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
        records = record_into(session, directory, crash_log=output.with_name(output.name + ".log"))
    return Finished(output, records, planned.why)


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
    planned = session.plan
    targets = [directory]
    if planned.nproc is not None:
        targets = [directory / str(rank) for rank in range(planned.nproc)]
    with tempfile.TemporaryDirectory(prefix="work.", dir=directory) as name:
        crew: list[Workers] = []
        for rank, target in enumerate(targets):
            target.mkdir(exist_ok=True)
            work = Path(name) / str(rank)
            work.mkdir()
            crew.append(Workers(work, session.nsys, crash_log, planned.rocprof))
        recorded = _run(session, crew, targets)
        whole = _graph_level(session, Path(name) / "graph-level", len(targets))
    job = secrets.token_hex(8)
    contents: list[RunRecord] = []
    for rank, (target, (traced, untraced, trace)) in enumerate(zip(targets, recorded, strict=True)):
        described = None
        if planned.nproc is not None:
            described = RankRecord(rank=rank, world_size=planned.nproc, job=job, backend=traced["backend"])
        files = sorted(path.name for path in target.iterdir())
        content = record.workload_record(
            planned,
            session.nsys,
            traced,
            untraced,
            session.floor,
            whole[rank],
            trace=trace,
            files=files,
            trace_sha256=run_dir.trace_digests(target, trace, files),
            repetition=repetition,
            ranks=described,
        )
        run_dir.write_record(target, content)
        contents.append(content)
    return contents


def _graph_level(session: Session, work: Path, count: int) -> Sequence[GraphLevel]:
    """Each rank's step at graph level, if it was asked for; recorded in the new directory `work`."""
    planned, found = session.plan, session.nsys
    if not planned.graph_level or found is None:
        return [GraphLevel()] * count
    crew: list[Workers] = []
    for rank in range(count):
        (work / str(rank)).mkdir(parents=True)
        crew.append(Workers(work / str(rank), found, None, graph_trace="graph"))
    return graph_level.measure(found, crew, _jobs(planned, crew, "nsys", nvtx=found.nvtx_api))


_Recorded = tuple[dict[str, Any], dict[str, Any] | None, str]


def _run(session: Session, crew: Sequence[Workers], targets: Sequence[Path]) -> list[_Recorded]:
    """Run the workers and move each rank's recording to its target.

    Returns:
        For each rank the results of the profiled and of the untraced worker (None for dispatch), and the trace's name.
    """
    planned, profiler = session.plan, session.plan.profiler
    if profiler == "dispatch":
        traced = ranks.run(crew, _jobs(planned, crew, "dispatch", trace=dispatch_file.TRACE_FILE))
        kept = [_keep(own.work, target, dispatch_file.TRACE_FILE) for own, target in zip(crew, targets, strict=True)]
        return [(result, None, trace) for result, trace in zip(traced, kept, strict=True)]
    if profiler == "nsys" and session.nsys is not None:
        jobs = _jobs(planned, crew, "nsys", nvtx=session.nsys.nvtx_api)
    else:
        jobs = _jobs(planned, crew, profiler, trace=torch_profiler.TRACE_FILE if profiler == "torch" else "")
    results = ranks.record_and_time(crew, jobs, _jobs(planned, crew, "untraced", held=True))
    kept = [_gather(session, own.work, target) for own, target in zip(crew, targets, strict=True)]
    return [(traced, untraced, trace) for (traced, untraced), trace in zip(results, kept, strict=True)]


def _jobs(planned: Plan, crew: Sequence[Workers], recorder: str, **options: Any) -> list[Job]:
    """One job a rank; they meet at a port that nothing else uses."""
    port = ranks.free_port() if planned.nproc is not None else 0
    return [
        make_job(planned, recorder, own.work, rank=rank, master_port=port, **options) for rank, own in enumerate(crew)
    ]


def _gather(session: Session, work: Path, target: Path) -> str:
    """Move what one rank's profiler recorded to its run directory; the trace's file name."""
    if session.plan.profiler == "rocprofv3":
        return rocprofv3.gather(work / rocprofv3.DIRECTORY, target).trace
    if session.plan.profiler == "torch":
        return _keep(work, target, torch_profiler.TRACE_FILE)
    if session.keep_report:
        _keep(work, target, nsys.REPORT_FILE)
    return _keep(work, target, nsys.TRACE_FILE)


def _keep(work: Path, directory: Path, name: str) -> str:
    (work / name).rename(directory / name)
    return name
