"""`profkit capture -- CMD…`: any program under a profiler, with the terminal, signals and exit status it has alone."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import msgspec

from profkit.capture import process, profilers, record
from profkit.capture.device import driver_version
from profkit.capture.options import Options
from profkit.capture.profilers import Recording
from profkit.errors import ProfkitError
from profkit.model.run import CommandRecord, MessageRecord, RunRecord, VersionsRecord
from profkit.runs import run_dir


@dataclass(frozen=True)
class Finished:
    """A command that ran, and its run directory.

    Args:
        path: the run directory.
        record: run.json.
        exit_code: the command's own; 128 + n where signal n ended it.
    """

    path: Path
    record: RunRecord
    exit_code: int


def capture(command: Sequence[str], options: Options, output: Path, *, force: bool) -> Finished:
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
            exit_code = _run(recorder.command(announced(command, pid_file), work, window=False), pid_file)
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
    return Finished(output, content, exit_code)


def _run(argv: Sequence[str], pid_file: Path) -> int:
    """Run the profiler with our own stdin, stdout and stderr; returns its exit status as a shell has it.

    Args:
        argv: its command line, which makes the program write its process id to `pid_file`.
    """
    # A session of its own: Ctrl-C on the terminal reaches only us, and we hand it to the program, not to nsys, which
    # would stop at once and lose the program's exit status.
    child = subprocess.Popen(argv, start_new_session=True)
    with _forwarded(child, pid_file):
        status = child.wait()
    return 128 - status if status < 0 else status


def announced(command: Sequence[str], pid_file: Path) -> list[str]:
    """`command`, started so that it first writes its process id to `pid_file`; it keeps that id."""
    return ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(pid_file), *command]


def _forwarded(child: subprocess.Popen[bytes], pid_file: Path) -> AbstractContextManager[None]:
    """Hand SIGINT, SIGTERM and SIGHUP on to the program's process group, to the profiler before the program starts."""

    def forward(number: int, _frame: FrameType | None) -> None:
        program = process.read_pid(pid_file)
        if program is None:
            process.send(child.pid, number)
        else:
            process.send_group(program, number)

    return process.handled(forward, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
