"""Child processes that never outlive the capture: each in a session of its own, all of it ended on every way out.

Where profkit itself is killed it cannot end what it started; its children call `end_with`.
"""

from __future__ import annotations

import os
import re
import secrets
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType

import psutil

from profkit.errors import ProfkitError, Terminated

#: How long a child may take to end itself after SIGTERM before SIGKILL; nsys needs a moment to close its agent.
GRACE_S = 3.0
POLL_S = 0.05
#: How much of a failed child's log an error message may carry.
_TAIL_BYTES = 20_000
#: In the environment of a child and of all that it starts, with a value of its own: what has left the child's session
#: and lost its parent is found by it.
_MARK = "PROFKIT_STARTED"
#: What a disk must still take for a process to have had room for its last words.
_LAST_WORDS = bytes(1 << 16)


@contextmanager
def started(
    argv: Sequence[str], log: Path | None, *, env: Mapping[str, str] | None = None, held: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """`argv` running beside the block in a new session; at the block's end all that it started is ended.

    Args:
        log: takes stdout and stderr; None leaves the child ours, and our stdin.
        env: ours where None.
        held: its stdin is a pipe from us, for `tell`; else, with a log, it is empty.

    Raises:
        ProfkitError: the program cannot be started.
    """
    mark = secrets.token_hex(8)
    stdin = None if log is None else subprocess.PIPE if held else subprocess.DEVNULL
    with ExitStack() as stack:
        output = None if log is None else stack.enter_context(log.open("ab"))
        environment = {**(os.environ if env is None else env), _MARK: mark}
        try:
            child = subprocess.Popen(
                argv, stdin=stdin, stdout=output, stderr=output, env=environment, start_new_session=True
            )
        except OSError as error:
            raise ProfkitError(f"Cannot start {Path(argv[0]).name}: {error.strerror}.") from None
        stack.callback(_end, child, mark)
        yield child


def tell(child: subprocess.Popen[bytes], line: str) -> None:
    """Give a held child a line, for which it waits. Nothing where it has ended already; its status tells."""
    if child.stdin is not None:
        with suppress(BrokenPipeError):
            child.stdin.write(f"{line}\n".encode())
            child.stdin.flush()


def read_pid(pid_file: Path) -> int | None:
    """The process id in a file, None where there is none yet."""
    text = pid_file.read_text(encoding="utf-8") if pid_file.exists() else ""
    return int(text) if text else None


def is_gone(pid: int) -> bool:
    """Whether a process has ended, also where nobody has asked for its status yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _end(child: subprocess.Popen[bytes], mark: str) -> None:
    """End `child` and everything it started: SIGTERM, and SIGKILL after `GRACE_S`.

    What even that does not end within as long again (a program of another user, a driver that does not return) is left.
    """
    killing = time.monotonic() + GRACE_S
    known, asked = set[int](), set[int]()
    # A second Ctrl-C does not cut this short.
    with handled(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        while (alive := _living(known, mark, child)) and time.monotonic() < killing + GRACE_S:
            known |= alive
            late = time.monotonic() >= killing
            for pid in alive if late else alive - asked:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
            asked |= alive
            # Reaps the child itself; the others are reaped by init.
            child.poll()
            time.sleep(POLL_S)
        child.poll()
    if child.stdin is not None:
        with suppress(BrokenPipeError):
            child.stdin.close()


def _living(known: set[int], mark: str, child: subprocess.Popen[bytes]) -> set[int]:
    """The living among `child`, the `known` and those that carry `mark`, what is below them, and what is in sessions
    of any of these: a profiler starts the program in a session of its own."""
    parents: dict[int, int] = {}
    sessions: dict[int, int] = {}
    # Once its status has been asked for, another process may have its number.
    found = known | {child.pid} if child.poll() is None else known - {child.pid}
    for process in psutil.process_iter(["ppid", "status", "environ"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE:
            with suppress(ProcessLookupError):
                parents[process.pid], sessions[process.pid] = process.info["ppid"], os.getsid(process.pid)
                if (process.info["environ"] or {}).get(_MARK) == mark:
                    found.add(process.pid)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    theirs = {session for pid, session in sessions.items() if pid in found} - {os.getsid(0)}
    # No process gets the number of a session that has members.
    if child.pid not in sessions:
        theirs.add(child.pid)
    return {pid for pid, session in sessions.items() if pid in found or session in theirs}


def hand_on(pid: int, number: int) -> bool:
    """Send a signal to the process group that `pid` leads, or led, to `pid` alone where it leads none; false where
    nothing of these is alive."""
    alive, group = False, False
    for process in psutil.process_iter(["status"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE:
            with suppress(ProcessLookupError):
                in_group = os.getpgid(process.pid) == pid
                alive, group = alive or in_group or process.pid == pid, group or in_group
    with suppress(ProcessLookupError):
        if alive:
            os.kill(-pid if group else pid, number)
    return alive


@contextmanager
def handled(
    handler: Callable[[int, FrameType | None], None] | signal.Handlers, *numbers: signal.Signals
) -> Iterator[None]:
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
    if status >= 0:
        return f"exit status {status}"
    return next((known.name for known in signal.Signals if known == -status), f"signal {-status}")


def tail(log: Path, lines: int = 3) -> str:
    """Why a process failed, as its log tells, for an error message: that the log's disk takes no more, or its last
    lines that are not empty, with absolute directories cut from paths. Empty where it holds none."""
    probe = log.with_name(f"{log.name}.probe")
    try:
        probe.write_bytes(_LAST_WORDS)
        probe.unlink()
    except OSError as error:
        probe.unlink(missing_ok=True)
        return f"{log.parent} cannot be written to any more: {error.strerror}"
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        text = file.read().decode("utf-8", errors="replace")
    kept = [line.strip() for line in text.splitlines() if line.strip()][-lines:]
    return " | ".join(without_directories(line) for line in kept)


def without_directories(text: str) -> str:
    """`text` with every absolute path cut to its last part."""
    return re.sub(r"(?<![\w.])/(?:[^\s/'\":,]+/)+", "", text)


def end_with(pid: int) -> None:
    """From now on end this process and its group, its own, when process `pid` does; at once where that is gone already.

    A thread waits in one system call, so that nothing is disturbed while something is timed. It does not matter who is
    between the two: a profiler that starts the worker lives on without profkit. Kernels before Linux 5.3 have no such
    call; there the worker is not ended.
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
