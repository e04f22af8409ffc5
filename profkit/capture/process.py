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

from profkit.errors import ProfkitError, Terminated

#: How long a child may take to end itself after SIGTERM before SIGKILL; nsys needs a moment to close its agent.
GRACE_S = 3.0
_POLL_S = 0.05
_STATUS_S = 1.0
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
        held: its stdin is a pipe from us, for `release`; else it is empty.

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
                env=None if env is None else dict(env),
                start_new_session=True,
            )
        except OSError as error:
            raise ProfkitError(f"Cannot start {Path(argv[0]).name}: {error.strerror}.") from None
        try:
            yield child
        finally:
            end_session(child, pid_file)
            if child.stdin is not None:
                with suppress(BrokenPipeError):
                    child.stdin.close()


def release(child: subprocess.Popen[bytes]) -> None:
    """Let a held child go on: it waits for one line. Nothing where it has ended already; its status tells."""
    if child.stdin is not None:
        with suppress(BrokenPipeError):
            child.stdin.write(b"go\n")
            child.stdin.flush()


def wait(child: subprocess.Popen[bytes], pid_file: Path | None = None) -> int:
    """The exit status of `child`, negative for a signal, once it and the process that `pid_file` names have ended."""
    status = child.wait()
    while not has_ended(child, pid_file):
        time.sleep(_POLL_S)
    return status


def status_soon(child: subprocess.Popen[bytes]) -> int | None:
    """The exit status of `child`, None where it does not end within a moment.

    A process of several threads is a zombie in /proc a little before its status can be had.
    """
    with suppress(subprocess.TimeoutExpired):
        return child.wait(_STATUS_S)
    return None


def is_gone(pid_file: Path) -> bool:
    """Whether the process that `pid_file` names has begun and ended; a profiler around it may still run."""
    pid = read_pid(pid_file)
    return pid is not None and not _alive(pid)


def has_ended(child: subprocess.Popen[bytes], pid_file: Path | None = None) -> bool:
    """Whether `child` has ended, and the process that `pid_file` names."""
    pid = read_pid(pid_file)
    return child.poll() is not None and (pid is None or not _alive(pid))


def end_session(child: subprocess.Popen[bytes], pid_file: Path | None = None) -> None:
    """End `child` and everything it started: SIGTERM, and SIGKILL after `GRACE_S`.

    A profiler starts the program in a session of its own, so the sessions of all descendants are followed, and that
    of the process which `pid_file` names.
    """
    deadline = time.monotonic() + GRACE_S
    sessions = {child.pid}
    # A second Ctrl-C does not cut this short.
    with handled(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM):
        while alive := _survivors(child.pid, read_pid(pid_file), sessions):
            for pid in alive:
                send(pid, signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL)
            # Reaps the child itself; the others are reaped by init.
            child.poll()
            time.sleep(_POLL_S)
        child.poll()


def _survivors(root: int, named: int | None, sessions: set[int]) -> set[int]:
    """The living processes below `root`, of `sessions` and of `named`; their sessions are added to `sessions`."""
    processes = living_processes()
    below = {root, named}
    while more := {pid for pid, (parent, _) in processes.items() if parent in below} - below:
        below |= more
    own = os.getsid(0)
    sessions |= {session for pid, (_, session) in processes.items() if pid in below and session != own}
    return {pid for pid, (_, session) in processes.items() if pid in below or session in sessions}


def living_processes() -> dict[int, tuple[int, int]]:
    """Process id to (parent, session) of every process that is not a zombie, from /proc."""
    found: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        stat = _stat(int(entry.name)) if entry.name.isdigit() else None
        if stat is not None and stat[0] != "Z":
            found[int(entry.name)] = (int(stat[1]), int(stat[3]))
    return found


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the command's name: state, ppid, pgrp, session; None where it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()


def _alive(pid: int) -> bool:
    stat = _stat(pid)
    return stat is not None and stat[0] != "Z"


def read_pid(pid_file: Path | None) -> int | None:
    """The process id in a file, None where there is none yet."""
    if pid_file is None or not pid_file.exists():
        return None
    text = pid_file.read_text(encoding="utf-8")
    return int(text) if text else None


def send(pid: int, number: int) -> None:
    """Send a signal; nothing where the process is gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def send_group(pid: int, number: int) -> None:
    """Send a signal to the process group that `pid` leads, to `pid` alone where it leads none."""
    try:
        leads = os.getpgid(pid) == pid
    except ProcessLookupError:
        return
    send(-pid if leads else pid, number)


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
    if status < 0:
        return signal.Signals(-status).name
    return f"exit status {status}"


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
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        _end_group()
        return
    except OSError:
        return
    threading.Thread(target=_end_after, args=(descriptor,), daemon=True).start()


def _end_after(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll()
    _end_group()


def _end_group() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)
