"""`profkit capture`: a workload's profiled and untraced processes, or any command, and the run directory they leave.

A command is run with the terminal, signals and exit status that it has alone.
"""

from __future__ import annotations

import dataclasses
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import msgspec

from profkit.capture import process, profilers, record
from profkit.capture.device import driver_version
from profkit.capture.floor import Floor, Measured, graph_level
from profkit.capture.options import Options, Result
from profkit.capture.profilers import Profiler, Recording
from profkit.capture.workers import Workers, recording
from profkit.errors import ProfkitError
from profkit.model.run import (
    CommandRecord,
    DigestsRecord,
    MessageRecord,
    RankRecord,
    RepetitionRecord,
    RunRecord,
    StepTimesRecord,
    VersionsRecord,
    WorkloadRecord,
)
from profkit.model.workload import resolve_shapes, resolve_variant
from profkit.runs import run_dir


@dataclass(frozen=True)
class Finished:
    """A capture that is complete.

    Args:
        path: the run directory.
        records: run.json of every rank.
        why: why its profiler was used; "" for a command.
        exit_code: a command's own; 128 + n where signal n ended it.
    """

    path: Path
    records: Sequence[RunRecord]
    why: str = ""
    exit_code: int = 0


@dataclass(frozen=True)
class Session:
    """What every run of one `profkit capture` shares.

    Args:
        options: the user's, with the profiler that was chosen.
        profiler: what records.
        why: why it does, one clause for the user.
        floor: the dispatch floor, the same for all of them.
    """

    options: Options
    profiler: Profiler
    why: str
    floor: Floor


def begin(options: Options) -> Session:
    """Check `options` and choose the profiler.

    A shipped workload's variant and shapes are checked here too, before anything is started.

    Raises:
        ProfkitError: options that cannot be, or the profiler asked for is not here.
    """
    from profkit import kernels

    profilers.check(options)
    if not options.is_file:
        workload = kernels.load(options.workload)
        resolve_variant(workload, options.variant)
        resolve_shapes(workload, options.shapes, options.nproc or 1)
    profiler, why = profilers.choose(options)
    replays = options.replays if profiler.timed else 1
    chosen = dataclasses.replace(options, profiler=profiler.name, replays=replays)
    return Session(chosen, profiler, why, Floor(profiler, options.with_floor))


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
        wholes: Sequence[Measured[StepTimesRecord]] = [Measured()] * len(targets)
        if session.options.graph_level:
            directories = _directories(Path(name) / "graph-level", len(targets))
            wholes = graph_level(session.options, session.profiler, directories)
    job = secrets.token_hex(8)
    records: list[RunRecord] = []
    for rank, (target, (traced, untraced, trace), whole) in enumerate(zip(targets, recorded, wholes, strict=True)):
        content = _record(session, record.begin(target, trace), traced, untraced, whole)
        if nproc is not None:
            of_job = RankRecord(rank=rank, world_size=nproc, job=job, backend=traced.backend)
            content = msgspec.structs.replace(content, ranks=of_job)
        records.append(msgspec.structs.replace(content, repetition=repetition))
        run_dir.write_record(target, records[-1])
    return records


def _record(
    session: Session, begun: RunRecord, traced: Result, untraced: Result | None, whole: Measured[StepTimesRecord]
) -> RunRecord:
    """run.json of one process, but for what it is among others.

    Args:
        begun: see `profkit.capture.record.begin`.
        traced, untraced: the workers' results; no untraced one without times.
        whole: the step at graph level, if it was asked for.
    """
    options, profiler, floor = session.options, session.profiler, session.floor.measured
    digests, equal = None, None
    if traced.digests is not None:
        digests = DigestsRecord(
            inputs="digest",
            algorithm=record.ALGORITHM,
            outputs=traced.digests,
            notes=traced.notes,
            references=traced.references,
        )
        equal = None if untraced is None else untraced.digests == traced.digests
    return msgspec.structs.replace(
        begun,
        workload=WorkloadRecord(
            name=options.name,
            variant=traced.variant,
            shapes=traced.shapes,
            layers=traced.layers,
            source="file" if options.is_file else "shipped",
        ),
        profiler=profiler.description(traced.ranges, msgspec.structs.asdict(traced.versions)),
        timed=profiler.timed,
        device=traced.device,
        versions=msgspec.structs.replace(traced.versions, driver=driver_version() if profiler.timed else None),
        seed=options.seed,
        warmup=options.warmup if profiler.timed else 0,
        replays=options.replays,
        compiles=traced.compiles,
        digests=digests,
        untraced=None if untraced is None else untraced.untraced,
        untraced_digests_equal=equal,
        graph_level=whole.content,
        floor=floor.content,
        warnings=[*record.warnings(traced, equal), *filter(None, (floor.warning, whole.warning))],
    )


def _directories(work: Path, count: int) -> list[Path]:
    """A new directory below `work` for each rank."""
    directories = [work / str(rank) for rank in range(count)]
    for directory in directories:
        directory.mkdir(parents=True)
    return directories


def _run(
    session: Session, work: Path, targets: Sequence[Path], crash_log: Path
) -> list[tuple[Result, Result | None, str]]:
    """Run the workers in directories below `work`, and move each rank's recording to its target, which is made.

    Returns:
        For each rank the results of the profiled and of the untraced worker (None without times), and the trace's name.
    """
    directories, profiler = _directories(work, len(targets)), session.profiler
    workers = Workers(session.options, profiler, crash_log)
    jobs = workers.jobs(directories)
    results: Sequence[tuple[Result, Result | None]]
    if profiler.timed:
        results = workers.record_and_time(jobs, workers.jobs(directories, "untraced"))
    else:
        results = [(result, None) for result in workers.record(jobs)]
    recorded: list[tuple[Result, Result | None, str]] = []
    for (traced, untraced), job, target in zip(results, jobs, targets, strict=True):
        target.mkdir(exist_ok=True)
        kept = profiler.keep(recording(job), target, keep_report=session.options.keep_report)
        recorded.append((traced, untraced, kept.trace))
    return recorded


def capture_command(command: Sequence[str], options: Options, output: Path, *, force: bool) -> Finished:
    """Run `command` under a profiler and leave the run directory `output`, also where the command fails.

    Args:
        command: program and arguments; stdin, stdout and stderr are the caller's own.
        options: its profiler and ``--nsys-args`` count.

    Raises:
        ProfkitError: no such profiler here, flags that profkit sets itself, a program that is not there, or no trace.
    """
    if shutil.which(command[0]) is None:
        raise ProfkitError(f"{command[0]} is not a program that can be run: not found, or not executable.")
    recorder = profilers.choose_for_command(options)
    with process.terminable(), run_dir.new(output, force=force) as directory:
        with tempfile.TemporaryDirectory(prefix="work.", dir=directory) as name:
            work = Path(name)
            pid_file = work / "pid"
            # It writes its process id first, and keeps that id.
            announced = ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(pid_file), *command]
            exit_code = _forwarding(recorder.command(announced, work, window=False), pid_file)
            program, log = Path(command[0]).name, work / "log"
            log.touch()
            recording = Recording(work, log, f"{program} ended with exit status {exit_code}")
            recorder.export([recording])
            kept = recorder.keep(recording, directory, keep_report=True)
        warnings = list(kept.warnings)
        if exit_code != 0:
            why = f"The command ended with exit status {exit_code}."
            warnings.append(MessageRecord(code="command-failed", message=why))
        content = msgspec.structs.replace(
            record.begin(directory, kept.trace),
            # The text of its arguments may hold secrets and is not kept.
            command=CommandRecord(program=program, arguments=len(command) - 1),
            exit_code=exit_code,
            profiler=recorder.description(None, {}),
            timed=True,
            versions=VersionsRecord(driver=driver_version()),
            warnings=warnings,
        )
        run_dir.write_record(directory, content)
    return Finished(output, [content], exit_code=exit_code)


def _forwarding(argv: Sequence[str], pid_file: Path) -> int:
    """Run the profiler with our own stdin, stdout and stderr; returns its exit status as a shell has it.

    SIGINT, SIGTERM and SIGHUP are handed on to the program's process group, to the profiler before the program starts.

    Args:
        argv: its command line, which makes the program write its process id to `pid_file`.
    """
    # A session of its own: Ctrl-C on the terminal reaches only us, and we hand it to the program, not to nsys, which
    # would stop at once and lose the program's exit status.
    child = subprocess.Popen(argv, start_new_session=True)

    def forward(number: int, _frame: FrameType | None) -> None:
        program = process.read_pid(pid_file)
        if program is None:
            process.send(child.pid, number)
        else:
            process.send_group(program, number)

    with process.handled(forward, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        status = child.wait()
    return 128 - status if status < 0 else status
