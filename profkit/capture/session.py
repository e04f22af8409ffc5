"""`profkit capture`: a workload's profiled and untraced processes, or any command, and the run directory they leave.

A command is run with the terminal, signals and exit status that it has alone.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import msgspec

from profkit.capture import floor, outputs, process, profilers
from profkit.capture import record as record_fields
from profkit.capture.device import driver_version
from profkit.capture.options import Options, Recording
from profkit.capture.profilers import Profiler
from profkit.capture.workers import Recorded, Workers
from profkit.errors import ProfkitError, Terminated
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
    """A capture that is complete: run.json of every rank, and why its profiler was used ("" for a command).

    Args:
        exit_code: a command's own; 128 + n where signal n ended it.
    """

    path: Path
    records: Sequence[RunRecord]
    why: str = ""
    exit_code: int = 0


def begin(options: Options) -> Workers:
    """Check `options` and choose the profiler.

    A shipped workload's variants and shapes are checked here too, before anything is started.

    Raises:
        ProfkitError: options that cannot be, or the profiler asked for is not here.
    """
    from profkit import kernels

    if not options.is_file:
        workload = kernels.load(options.workload)
        against = None if options.against is None else resolve_variant(workload, options.against)
        options = dataclasses.replace(options, variant=resolve_variant(workload, options.variant), against=against)
        resolve_shapes(workload, options.shapes, options.nproc or 1)
    profiler, why = profilers.choose(options)
    options = dataclasses.replace(options, profiler=profiler.name)
    if not profiler.timed:
        options = dataclasses.replace(options, replays=1, warmup=0)
    return Workers(options, profiler, why)


def capture(options: Options, output: Path, *, force: bool) -> Finished:
    """Run a workload under a profiler and leave the run directory `output`, complete or not at all."""
    with process.terminable(), run_dir.new(output, force=force) as directory:
        workers = dataclasses.replace(begin(options), crash_log=output.with_name(output.name + ".log"))
        records = record_into(workers, directory)
    return Finished(output, records, workers.why)


def record_into(workers: Workers, directory: Path, repetition: RepetitionRecord | None = None) -> list[RunRecord]:
    """Run the workload once and fill `directory`, each run.json last; returns run.json of every rank.

    `directory` is empty; it becomes the run directory, or with ``--nproc`` the parent of the ranks' ``0``, ``1``…
    """
    options, profiler, nproc = workers.options, workers.profiler, workers.options.nproc
    job_name = secrets.token_hex(8)
    kept: list[tuple[Path, str, RunRecord]] = []
    with tempfile.TemporaryDirectory(prefix="work.", dir=directory) as name:
        recorded = workers.record(Path(name), "untraced" if profiler.timed else None)
        wholes: Sequence[StepTimesRecord | MessageRecord | None] = [None] * len(recorded)
        if options.graph_level:
            wholes = floor.graph_level(workers, Path(name) / "graph-level")
        for own, whole in zip(recorded, wholes, strict=True):
            target = directory if nproc is None else directory / str(own.job.rank)
            target.mkdir(exist_ok=True)
            trace = profiler.keep(own.recording, target, keep_report=options.keep_report).trace
            if (own.job.directory / OUTPUTS_FILE).exists():
                (own.job.directory / OUTPUTS_FILE).rename(target / OUTPUTS_FILE)
            if not _holds_gpu_work(target / trace):
                raise ProfkitError(f"{profiler.name} recorded no launch of the workload. Try `profkit doctor`.")
            record = _record(workers, own, whole)
            if nproc is not None:
                of_job = RankRecord(rank=own.job.rank, world_size=nproc, job=job_name, backend=own.traced.backend)
                record = msgspec.structs.replace(record, ranks=of_job)
            kept.append((target, trace, msgspec.structs.replace(record, repetition=repetition)))
    return [record_fields.finish(record, target, trace) for target, trace, record in kept]


def _record(workers: Workers, own: Recorded, whole: StepTimesRecord | MessageRecord | None) -> RunRecord:
    """run.json of one process, but for its files and what it is among others.

    `whole` is the step at graph level, or why there is none.
    """
    profiler, empty = workers.profiler, floor.beside(workers)
    traced, held = own.traced.record, own.held.record if own.held else None
    warnings = [*(traced.warnings or ()), *(one for one in (empty, whole) if isinstance(one, MessageRecord))]
    equal, digests = None, traced.digests
    if digests is not None:
        unsteady = set(digests.nondeterministic or ())
        if held is not None and held.digests is not None:
            others, outputs_here = held.digests.outputs or {}, digests.outputs or {}
            equal = others == outputs_here
            unsteady |= {name for name, digest in outputs_here.items() if others.get(name) != digest}
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
        untraced=held.untraced if held else None,
        untraced_digests_equal=equal,
        graph_level=whole if isinstance(whole, StepTimesRecord) else None,
        floor=empty if isinstance(empty, FloorRecord) else None,
        warnings=warnings,
    )


def capture_command(command: Sequence[str], options: Options, output: Path, *, force: bool) -> Finished:
    """Run `command` under a profiler and leave the run directory `output`, also where the command fails.

    Its stdin, stdout and stderr are the caller's own; of `options` the profiler and `profiler_args` count.

    Raises:
        ProfkitError: no such profiler here, flags that profkit sets itself, a program that is not there, or no trace.
    """
    if not command:
        raise ProfkitError("Nothing to run after `--`. Give a command: profkit capture -o DIR -- python app.py")
    if shutil.which(command[0]) is None:
        raise ProfkitError(f"{command[0]} is not a program that can be run: not found, or not executable.")
    recorder, _ = profilers.choose(options, profilers.COMMAND)
    program, warnings, digests = Path(command[0]).name, list[MessageRecord](), None
    with process.terminable(), run_dir.new(output, force=force) as directory:
        with tempfile.TemporaryDirectory(prefix="work.", dir=directory) as name:
            work, log, folder = Path(name), Path(name) / "log", (Path(name) / "outputs").resolve()
            log.touch()
            folder.mkdir()
            status = _forwarding(recorder, command, work, {**os.environ, outputs.VARIABLE: str(folder)})
            exit_code = 128 - status if status < 0 else status
            recording = Recording(work, log, process.describe_status(status))
            recorder.export([recording])
            kept = recorder.keep(recording, directory, keep_report=True)
            warnings += kept.warnings
            try:
                left = outputs.of_folder(folder)
                digests = record_fields.keep_outputs(directory, left) if left else None
            except ProfkitError as error:
                warnings.append(MessageRecord(code="outputs-not-read", message=str(error)))
        if not _holds_gpu_work(directory / kept.trace):
            why = (
                "The trace holds no kernel and no copy: the command launched none while it was recorded, or the "
                "process that did was killed before the profiler had saved them. Let a server's processes end."
            )
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
        record = record_fields.finish(record, directory, kept.trace)
    return Finished(output, [record], exit_code=exit_code)


def _holds_gpu_work(trace: Path) -> bool:
    """Whether a trace, which must be readable, holds GPU work."""
    from profkit import readers

    return len(readers.read(trace).ops) > 0


def _forwarding(recorder: Profiler, command: Sequence[str], work: Path, environment: Mapping[str, str]) -> int:
    """Run the profiler around `command` with our own stdin, stdout and stderr; returns its exit status.

    SIGINT, SIGTERM and SIGHUP are handed on to the command's process group. Where nothing of that runs, before it has
    started or when only the profiler is left, they end the capture.

    Raises:
        ProfkitError: the profiler was ended by a signal, or did not start the command.
    """
    pid_file = work / "pid"
    # It writes its process id first, and keeps that id.
    announced = ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(pid_file), *command]

    def forward(number: int, _frame: FrameType | None) -> None:
        program = process.read_pid(pid_file)
        if program is None or not process.hand_on(program, number):
            raise Terminated(128 + number)

    # A session of its own: Ctrl-C on the terminal reaches only us, and we hand it to the program, not to nsys, which
    # would stop at once and lose the program's exit status.
    with (
        process.started(recorder.command(announced, work, window=False), None, env=environment) as child,
        process.handled(forward, signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
    ):
        status = child.wait()
    begun = process.read_pid(pid_file)
    # A profiler that turns into the command by exec has its process id, and the command's exit status.
    if begun is None or (status < 0 and begun != child.pid):
        when = "before the command began" if begun is None else "and not with the command, so nothing is kept"
        raise ProfkitError(
            f"{recorder.name} ended with {process.describe_status(status)}, {when}. See the messages above; "
            "`profkit doctor` checks it."
        )
    return status
