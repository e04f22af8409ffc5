"""`profkit capture WORKLOAD`: the profiled process, the untraced one, and the run directory that holds both results."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profkit.capture import graph_level, process, profilers, ranks, record
from profkit.capture.floor import Floor
from profkit.capture.graph_level import GraphLevel
from profkit.capture.job import Job, make_job
from profkit.capture.plan import Options, Plan, check_options, resolve_shapes, resolve_variant
from profkit.capture.workers import Workers
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


def plan(options: Options) -> Plan:
    """Check `options` and choose the profiler.

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
    profiler, why = profilers.choose(options.profiler, options.asked)
    return Plan(
        spec=options.workload,
        name=Path(options.workload).name,
        source="file" if is_file else "shipped",
        variant=options.variant,
        shapes=options.shapes,
        profiler=profiler,
        why=why,
        replays=options.replays if profiler.timed else 1,
        warmup=options.warmup,
        seed=options.seed,
        run_bodies=options.run_bodies,
        graph_level=options.graph_level,
        nproc=options.nproc,
        rank_timeout_s=options.rank_timeout_s,
    )


@dataclass(frozen=True)
class Session:
    """What every run of one `profkit capture` shares.

    Args:
        plan: what runs.
        floor: the dispatch floor, the same for all of them.
        keep_report: keep nsys's own report beside its export.
    """

    plan: Plan
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
        planned = plan(options)
        session = Session(planned, Floor(planned.profiler, with_floor), keep_report)
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
            crew.append(Workers(work, planned.profiler, crash_log))
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
    planned = session.plan
    if not planned.graph_level:
        return [GraphLevel()] * count
    crew: list[Workers] = []
    for rank in range(count):
        (work / str(rank)).mkdir(parents=True)
        crew.append(Workers(work / str(rank), planned.profiler, None, graph_trace="graph"))
    return graph_level.measure(crew, _jobs(planned, crew, planned.profiler.name))


_Recorded = tuple[dict[str, Any], dict[str, Any] | None, str]


def _run(session: Session, crew: Sequence[Workers], targets: Sequence[Path]) -> list[_Recorded]:
    """Run the workers and move each rank's recording to its target.

    Returns:
        For each rank the results of the profiled and of the untraced worker (None without times), and the trace's name.
    """
    planned, profiler = session.plan, session.plan.profiler
    jobs = _jobs(planned, crew, profiler.name)
    untraced: Sequence[dict[str, Any] | None]
    if profiler.timed:
        results = ranks.record_and_time(crew, jobs, _jobs(planned, crew, "untraced", held=True))
        traced, untraced = [of for of, _ in results], [of for _, of in results]
    else:
        traced, untraced = ranks.run(crew, jobs), [None] * len(crew)
        profiler.export([own.recording(job) for own, job in zip(crew, jobs, strict=True)])
    kept = [
        profiler.keep(own.recording(job), target, keep_report=session.keep_report).trace
        for own, job, target in zip(crew, jobs, targets, strict=True)
    ]
    return list(zip(traced, untraced, kept, strict=True))


def _jobs(planned: Plan, crew: Sequence[Workers], recorder: str, **options: Any) -> list[Job]:
    """One job a rank; they meet at a port that nothing else uses."""
    port = ranks.free_port() if planned.nproc is not None else 0
    return [
        make_job(planned, recorder, own.work, rank=rank, master_port=port, **options) for rank, own in enumerate(crew)
    ]
