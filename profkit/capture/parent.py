"""A worker's end where the profkit that started it is gone: killed, it could not end what it started."""

from __future__ import annotations

import os
import select
import signal
import threading


def end_with(pid: int) -> None:
    """From now on end this process and its group when process `pid` does; at once where that is gone already.

    For processes that `profkit.capture.process.started` has started, whose group is their own. A thread waits in one
    system call, so that nothing is disturbed while something is timed. It does not matter who is between the two: a
    profiler that starts the worker lives on without profkit. Kernels before Linux 5.3 have no such call; there the
    worker is not ended.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        _end()
        return
    except OSError:
        return
    threading.Thread(target=_watch, args=(descriptor,), daemon=True).start()


def _watch(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll()
    _end()


def _end() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)
