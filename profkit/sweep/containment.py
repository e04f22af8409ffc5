"""Around the code of a workload: what it does to this process's output and end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import NoReturn


@contextmanager
def contained() -> Iterator[None]:
    """Keep standard output for the report, and this process's exit status for its answer.

    What the block prints goes to standard error, as text or by the descriptor, and it may close what it finds there.
    Its ``os._exit`` raises SystemExit: it could end the process with status 1, which means refuted.
    """
    sys.stdout.flush()
    stdout, stderr, end = sys.stdout, sys.stderr, os._exit
    kept = {number: os.dup(number) for number in (1, 2)}
    owner = os.getpid()

    def end_or_raise(status: int) -> NoReturn:
        # A child that was forked from here ends as it likes.
        if os.getpid() != owner:
            end(status)
        raise SystemExit(f"os._exit({status})")

    os.dup2(2, 1)
    sys.stdout = _opened(1)
    os._exit = end_or_raise
    try:
        yield
    finally:
        os._exit = end
        # It is the workload's, which may have closed it or put something else there.
        with suppress(ValueError, OSError, AttributeError):
            sys.stdout.flush()
        sys.stdout = stdout
        for number, descriptor in kept.items():
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.stderr = _opened(2) if stderr.closed else stderr


def _opened(descriptor: int) -> TextIOWrapper:
    return open(descriptor, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False)
