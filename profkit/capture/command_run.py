"""`profkit capture -- CMD…`: any program under nsys, as if it ran alone: its terminal, its signals, its exit status."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from profkit import run_dir
from profkit.capture import nsys, process, record
from profkit.errors import ProfkitError

#: Flags of `nsys profile` that decide where its files go; profkit sets them.
_RESERVED = ("-o", "--output", "--export")
#: A range that ends by shutting the program down (nsys's default) would kill a server; this leaves it running.
_KEEP_RUNNING = "--capture-range-end=stop"


@dataclass(frozen=True)
class Finished:
    """A command that ran, and its run directory.

    Args:
        path: the run directory.
        record: run.json's content.
        exit_code: the command's own; 128 + n where signal n ended it.
    """

    path: Path
    record: Mapping[str, Any]
    exit_code: int


def capture(command: Sequence[str], nsys_args: str, output: Path, *, force: bool) -> Finished:
    """Run `command` under nsys and leave the run directory `output`, also where the command fails.

    Args:
        command: program and arguments; stdin, stdout and stderr are the caller's own.
        nsys_args: more flags for ``nsys profile``, quoted as in a shell.

    Raises:
        ProfkitError: no nsys, flags that profkit sets itself, a program that is not there, or no trace at all.
    """
    extra = more_flags(nsys_args)
    if shutil.which(command[0]) is None:
        raise ProfkitError(f"{command[0]} is not a program that can be run: not found, or not executable.")
    found = nsys.find()
    with process.terminable(), run_dir.new(output, force=force) as directory:
        with tempfile.TemporaryDirectory(prefix="work.", dir=directory) as name:
            work = Path(name)
            pid_file = work / "pid"
            program = announced(command, pid_file)
            exit_code = _run(nsys.profile_command(found, work / "trace", program, window=False, extra=extra), pid_file)
            log = work / "export.log"
            log.touch()
            if not any(work.glob("trace*")):
                raise ProfkitError(
                    f"{Path(command[0]).name} ended with exit status {exit_code} and nsys left no trace. "
                    "See the messages above; `profkit doctor` checks nsys."
                )
            nsys.export(found, work, log)
            for file in (nsys.REPORT_FILE, nsys.TRACE_FILE):
                (work / file).rename(directory / file)
        files = sorted(path.name for path in directory.iterdir())
        content = record.command_record(
            found,
            Path(command[0]).name,
            len(command) - 1,
            exit_code,
            files=files,
            flags=nsys.recorded_arguments(extra),
        )
        run_dir.write_record(directory, content)
    return Finished(output, content, exit_code)


def more_flags(text: str) -> list[str]:
    """The user's flags for ``nsys profile``, and what they imply.

    Raises:
        ProfkitError: unbalanced quotes, or a flag that profkit sets itself.
    """
    try:
        flags = shlex.split(text)
    except ValueError as error:
        raise ProfkitError(f"--nsys-args {text!r} cannot be split into words: {error}.") from None
    for flag in flags:
        if flag.partition("=")[0] in _RESERVED:
            raise ProfkitError(f"--nsys-args may not hold {flag}: profkit writes and exports the report itself.")
    names = {flag.partition("=")[0] for flag in flags}
    if names & {"-c", "--capture-range"} and "--capture-range-end" not in names:
        flags.append(_KEEP_RUNNING)
    return flags


def _run(argv: Sequence[str], pid_file: Path) -> int:
    """Run nsys with our own stdin, stdout and stderr; returns its exit status as a shell has it.

    Args:
        argv: nsys's command line, which makes the program write its process id to `pid_file`.
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


@contextmanager
def _forwarded(child: subprocess.Popen[bytes], pid_file: Path) -> Iterator[None]:
    """Hand SIGINT, SIGTERM and SIGHUP on to the program's process group, to nsys itself before the program starts."""

    def forward(number: int, _frame: FrameType | None) -> None:
        program = process.read_pid(pid_file)
        if program is None:
            process.send(child.pid, number)
        else:
            process.send_group(program, number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.signal(number, forward) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
