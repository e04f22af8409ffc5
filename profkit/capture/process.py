"""Child processes that never outlive the capture: each in a session of its own, all of it ended on every way out.

Where profkit itself is killed it cannot end what it started; its children call `end_with`.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import FrameType

import psutil

from profkit.errors import ProfkitError, Terminated

#: How long a child may take to end itself after SIGTERM before SIGKILL; nsys needs a moment to close its agent.
GRACE_S = 3.0
POLL_S = 0.05
#: How much of a failed child's log an error message may carry.
_TAIL_BYTES = 20_000

#: As `signal.signal` takes it.
Handler = Callable[[int, FrameType | None], None] | signal.Handlers


@contextmanager
def started(
    argv: Sequence[str],
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    pid_file: Path | None = None,
    held: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """`argv` running beside the block, at whose end everything that it started is ended.

    Args:
        argv: the command; run in the current directory, in a new session.
        log: takes stdout and stderr.
        env: the child's environment; the parent's where None.
        pid_file: a file in which a descendant writes its process id; that process is ended too, even where it has left
            the session.
        held: its stdin is a pipe from us, for `tell`; else it is empty.

    Raises:
        ProfkitError: the program cannot be started.
    """
    with log.open("ab") as output:
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if held else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=env,
                start_new_session=True,
            )
        except OSError as error:
            raise ProfkitError(f"Cannot start {Path(argv[0]).name}: {error.strerror}.") from None
        try:
            yield child
        finally:
            _end(child, pid_file)
            if child.stdin is not None:
                with suppress(BrokenPipeError):
                    child.stdin.close()


def tell(child: subprocess.Popen[bytes], line: str) -> None:
    """Give a held child a line, for which it waits. Nothing where it has ended already; its status tells."""
    if child.stdin is not None:
        with suppress(BrokenPipeError):
            child.stdin.write(f"{line}\n".encode())
            child.stdin.flush()


def wait(child: subprocess.Popen[bytes], pid_file: Path | None = None) -> int:
    """The exit status of `child`, negative for a signal, once it and the process that `pid_file` names have ended."""
    status = child.wait()
    while not has_ended(child, pid_file):
        time.sleep(POLL_S)
    return status


def has_ended(child: subprocess.Popen[bytes], pid_file: Path | None = None) -> bool:
    """Whether `child` has ended, and the process that `pid_file` names."""
    return child.poll() is not None and (read_pid(pid_file) is None or is_gone(pid_file))


def is_gone(pid_file: Path | None) -> bool:
    """Whether the process that `pid_file` names has begun and ended; a profiler around it may still run."""
    pid = read_pid(pid_file)
    try:
        return pid is not None and psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _end(child: subprocess.Popen[bytes], pid_file: Path | None) -> None:
    """End `child` and everything it started: SIGTERM, and SIGKILL after `GRACE_S`.

    A profiler starts the program in a session of its own, so the sessions of all descendants are followed, and that
    of the process which `pid_file` names.
    """
    deadline = time.monotonic() + GRACE_S
    sessions = {child.pid}
    # A second Ctrl-C does not cut this short.
    with handled(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM):
        while alive := _survivors({child.pid, read_pid(pid_file) or child.pid}, sessions):
            for pid in alive:
                send(pid, signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL)
            # Reaps the child itself; the others are reaped by init.
            child.poll()
            time.sleep(POLL_S)
        child.poll()


def _survivors(below: set[int], sessions: set[int]) -> set[int]:
    """The living processes among and below `below`, and those of `sessions`; sessions of the former are added there."""
    living: dict[int, tuple[int, int]] = {}
    for process in psutil.process_iter(["ppid", "status"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE:
            with suppress(ProcessLookupError):
                living[process.pid] = process.info["ppid"], os.getsid(process.pid)
    while more := {pid for pid, (parent, _) in living.items() if parent in below} - below:
        below = below | more
    sessions |= {session for pid, (_, session) in living.items() if pid in below} - {os.getsid(0)}
    return {pid for pid, (_, session) in living.items() if pid in below or session in sessions}


def read_pid(pid_file: Path | None) -> int | None:
    """The process id in a file, None where there is none yet."""
    text = pid_file.read_text(encoding="utf-8") if pid_file is not None and pid_file.exists() else ""
    return int(text) if text else None


def send(pid: int, number: int, *, group: bool = False) -> None:
    """Send a signal; nothing where the process is gone.

    Args:
        group: to the process group that `pid` leads, to `pid` alone where it leads none.
    """
    with suppress(ProcessLookupError):
        os.kill(-pid if group and os.getpgid(pid) == pid else pid, number)


@contextmanager
def handled(handler: Handler, *numbers: signal.Signals) -> Iterator[None]:
    """A block in which `handler` has these signals; afterwards those have them that had them before."""
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


def terminable() -> AbstractContextManager[None]:
    """A block in which SIGTERM and SIGHUP unwind like Ctrl-C does, so that what was begun is removed."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise Terminated(128 + number)

    return handled(leave, signal.SIGTERM, signal.SIGHUP)


def describe_status(status: int) -> str:
    """An exit status in words: ``exit status 1`` or ``SIGKILL``."""
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"


def tail(log: Path, lines: int = 3) -> str:
    """The last non-empty lines of a log, for an error message; absolute directories are cut from paths."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        text = file.read().decode("utf-8", errors="replace")
    kept = [line.strip() for line in text.splitlines() if line.strip()][-lines:]
    return " | ".join(without_directories(line) for line in kept)


def without_directories(text: str) -> str:
    """`text` with every absolute path cut to its last part."""
    return re.sub(r"(?<![\w.])/(?:[^\s/'\":,]+/)+", "", text)


def end_with(pid: int) -> None:
    """From now on end this process and its group when process `pid` does; at once where that is gone already.

    For processes that `started` has started, whose group is their own. A thread waits in one
    system call, so that nothing is disturbed while something is timed. It does not matter who is between the two: a
    profiler that starts the worker lives on without profkit. Kernels before Linux 5.3 have no such call; there the
    worker is not ended.
    """

    def end_after(descriptor: int) -> None:
        select.select([descriptor], [], [])
        os.killpg(0, signal.SIGKILL)

    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        os.killpg(0, signal.SIGKILL)
    except OSError:
        return
    else:
        threading.Thread(target=end_after, args=(descriptor,), daemon=True).start()
