"""`profkit capture`: a workload's profiled and untraced processes, or any command, and the run directory they leave.

A command is run with the terminal, signals and exit status that it has alone.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import msgspec

from profkit.capture import floor, outputs, process, profilers
from profkit.capture import record as record_fields
from profkit.capture.device import driver_version
from profkit.capture.options import Options, Recording, Result
from profkit.capture.profilers import Profiler
from profkit.capture.workers import Workers
from profkit.errors import ProfkitError
from profkit.model.outputs import OUTPUTS_FILE
from profkit.model.run import (
    CommandRecord,
    FloorRecord,
    MessageRecord,
    RankRecord,
    RepetitionRecord,
    RunRecord,
    StepTimesRecord,
    VersionsRecord,
)
from profkit.model.workload import resolve_shapes, resolve_variant
from profkit.runs import run_dir

#: The warning of a command that used no GPU.
NO_GPU_WORK = "no-gpu-work"


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
    """

    options: Options
    profiler: Profiler
    why: str

    @property
    def has_floor(self) -> bool:
        """Whether the dispatch floor is wanted, and can have times."""
        return self.options.with_floor and self.profiler.timed

    @property
    def floor(self) -> FloorRecord | MessageRecord | None:
        """The dispatch floor, measured when it is first asked for, or why it could not be."""
        return floor.beside(self.profiler) if self.has_floor else None


def begin(options: Options) -> Session:
    """Check `options` and choose the profiler.

    A shipped workload's variant and shapes are checked here too, before anything is started.

    Raises:
        ProfkitError: options that cannot be, or the profiler asked for is not here.
    """
    from profkit import kernels

    if not options.is_file:
        workload = kernels.load(options.workload)
        resolve_variant(workload, options.variant)
        resolve_shapes(workload, options.shapes, options.nproc or 1)
    profiler, why = profilers.choose(options)
    chosen = dataclasses.replace(options, profiler=profiler.name)
    if not profiler.timed:
        chosen = dataclasses.replace(chosen, replays=1, warmup=0)
    return Session(chosen, profiler, why)


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
    options, profiler, nproc = session.options, session.profiler, session.options.nproc
    job_name = secrets.token_hex(8)
    records: list[RunRecord] = []
    with tempfile.TemporaryDirectory(prefix="work.", dir=directory) as name:
        work = Path(name)
        workers = Workers(options, profiler, crash_log)
        jobs = workers.jobs(_directories(work, nproc))
        results: Sequence[tuple[Result, Result | None]]
        if profiler.timed:
            results = workers.record_and_time(jobs)
        else:
            results = [(result, None) for result in workers.record(jobs)]
        wholes: Sequence[StepTimesRecord | MessageRecord | None] = [None] * len(jobs)
        if options.graph_level:
            wholes = floor.graph_level(options, profiler, _directories(work / "graph-level", nproc))
        kept: list[tuple[Path, str]] = []
        for job in jobs:
            target = directory if nproc is None else directory / str(job.rank)
            target.mkdir(exist_ok=True)
            trace = profiler.keep(job.recording, target, keep_report=options.keep_report).trace
            kept.append((target, trace))
            if (job.directory / OUTPUTS_FILE).exists():
                (job.directory / OUTPUTS_FILE).rename(target / OUTPUTS_FILE)
            if not _holds_gpu_work(target / trace):
                raise ProfkitError(f"{profiler.name} recorded no launch of the workload. Try `profkit doctor`.")
    for rank, ((target, trace), (traced, untraced), whole) in enumerate(zip(kept, results, wholes, strict=True)):
        record = record_fields.complete(_record(session, traced.record, untraced, whole), target, trace)
        if nproc is not None:
            of_job = RankRecord(rank=rank, world_size=nproc, job=job_name, backend=traced.backend)
            record = msgspec.structs.replace(record, ranks=of_job)
        records.append(msgspec.structs.replace(record, repetition=repetition))
        run_dir.write_record(target, records[-1])
    return records


def _record(
    session: Session, traced: RunRecord, untraced: Result | None, whole: StepTimesRecord | MessageRecord | None
) -> RunRecord:
    """run.json of one process, but for its files and what it is among others.

    Args:
        traced: as the worker that was recorded left it.
        untraced: the other worker's result; None without times.
        whole: the step at graph level, or why there is none; None where it was not asked for.
    """
    profiler, empty = session.profiler, session.floor
    warnings = [*(traced.warnings or ()), *(one for one in (empty, whole) if isinstance(one, MessageRecord))]
    equal, digests = None, traced.digests
    if digests is not None:
        unsteady = set(digests.nondeterministic or ())
        if untraced is not None and untraced.record.digests is not None:
            others, own = untraced.record.digests.outputs or {}, digests.outputs or {}
            equal = others == own
            unsteady |= {name for name in own if others.get(name) != own[name]}
        if unsteady:
            digests = msgspec.structs.replace(digests, nondeterministic=sorted(unsteady))
            why = (
                f"{len(unsteady)} of {len(digests.outputs or {})} outputs had other bits when the same step ran again, "
                f"e.g. {min(unsteady)}: their digests say nothing about whether work was kept."
            )
            warnings.append(MessageRecord(code="digests-not-repeatable", message=why))
    versions = traced.versions or VersionsRecord()
    return msgspec.structs.replace(
        traced,
        profiler=profiler.description(traced),
        timed=profiler.timed,
        digests=digests,
        versions=msgspec.structs.replace(versions, driver=driver_version() if profiler.timed else None),
        untraced=None if untraced is None else untraced.record.untraced,
        untraced_digests_equal=equal,
        graph_level=whole if isinstance(whole, StepTimesRecord) else None,
        floor=empty if isinstance(empty, FloorRecord) else None,
        warnings=warnings,
    )


def _directories(work: Path, nproc: int | None) -> list[Path]:
    """A new directory below `work` for each rank."""
    directories = [work / str(rank) for rank in range(nproc or 1)]
    for directory in directories:
        directory.mkdir(parents=True)
    return directories


def capture_command(command: Sequence[str], options: Options, output: Path, *, force: bool) -> Finished:
    """Run `command` under a profiler and leave the run directory `output`, also where the command fails.

    Args:
        command: program and arguments; stdin, stdout and stderr are the caller's own.
        options: its profiler and `profiler_args` count.

    Raises:
        ProfkitError: no such profiler here, flags that profkit sets itself, a program that is not there, or no trace.
    """
    if shutil.which(command[0]) is None:
        raise ProfkitError(f"{command[0]} is not a program that can be run: not found, or not executable.")
    recorder, _ = profilers.choose(options, profilers.COMMAND)
    with process.terminable(), run_dir.new(output, force=force) as directory:
        with tempfile.TemporaryDirectory(prefix="work.", dir=directory) as name:
            work = Path(name)
            pid_file = work / "pid"
            # It writes its process id first, and keeps that id.
            announced = ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(pid_file), *command]
            folder = (work / "outputs").resolve()
            folder.mkdir()
            environment = {**os.environ, outputs.VARIABLE: str(folder)}
            exit_code = _forwarding(recorder.command(announced, work, window=False), pid_file, environment)
            program, log = Path(command[0]).name, work / "log"
            log.touch()
            recording = Recording(work, log, f"{program} ended with exit status {exit_code}")
            recorder.export([recording])
            kept = recorder.keep(recording, directory, keep_report=True)
            warnings, digests = list(kept.warnings), None
            try:
                left = outputs.of_folder(folder)
                digests = record_fields.keep_outputs(directory, left) if left else None
            except ProfkitError as error:
                warnings.append(MessageRecord(code="outputs-not-read", message=str(error)))
        if not _holds_gpu_work(directory / kept.trace):
            why = "The command launched nothing on a GPU while it was recorded: the trace holds no kernel and no copy."
            warnings.append(MessageRecord(code=NO_GPU_WORK, message=why))
        if exit_code != 0:
            why = f"The command ended with exit status {exit_code}."
            warnings.append(MessageRecord(code="command-failed", message=why))
        record = RunRecord(
            trace=kept.trace,
            # The text of its arguments may hold secrets and is not kept.
            command=CommandRecord(program=program, arguments=len(command) - 1),
            exit_code=exit_code,
            timed=True,
            versions=VersionsRecord(driver=driver_version()),
            digests=digests,
            warnings=warnings,
        )
        record = msgspec.structs.replace(record, profiler=recorder.description(record))
        record = record_fields.complete(record, directory, kept.trace)
        run_dir.write_record(directory, record)
    return Finished(output, [record], exit_code=exit_code)


def _holds_gpu_work(trace: Path) -> bool:
    """Whether a trace holds GPU work.

    Raises:
        ProfkitError: it cannot be read.
    """
    from profkit import readers

    return len(readers.read(trace).ops) > 0


def _forwarding(argv: Sequence[str], pid_file: Path, environment: Mapping[str, str]) -> int:
    """Run the profiler with our own stdin, stdout and stderr; returns its exit status as a shell has it.

    SIGINT, SIGTERM and SIGHUP are handed on to the program's process group, to the profiler before the program starts.

    Args:
        argv: its command line, which makes the program write its process id to `pid_file`.
        environment: the program's.
    """
    # A session of its own: Ctrl-C on the terminal reaches only us, and we hand it to the program, not to nsys, which
    # would stop at once and lose the program's exit status.
    child = subprocess.Popen(argv, env=environment, start_new_session=True)

    def forward(number: int, _frame: FrameType | None) -> None:
        program = process.read_pid(pid_file)
        process.send(program or child.pid, number, group=program is not None)

    with process.handled(forward, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        status = child.wait()
    return 128 - status if status < 0 else status
