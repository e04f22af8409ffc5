"""The one exception that users see, the exit codes of every command, and how names are suggested."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum


class Exit(IntEnum):
    """What a command's exit status means."""

    OK = 0
    REFUTED = 1
    ERROR = 2
    INCONCLUSIVE = 3


def without_controls(text: str) -> str:
    """`text` with all that is not printable replaced, but for line ends.

    Messages quote names from traces and workloads, which come from strangers: no control character reaches a terminal.
    """
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A sentence that names what exists, the closest name first; for the end of an error message."""
    names = list(known)
    close = difflib.get_close_matches(given, names, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return f"{hint} Known: {', '.join(names)}."


class ProfkitError(Exception):
    """Bad input or misuse: printed as one message, without a traceback, by the command line.

    The message says what is wrong, where (file, table, line) and what to do next.

    Args:
        message: one to three sentences.
        exit_code: the process's exit status; 2 unless the answer is "cannot be told" (3).
    """

    def __init__(self, message: str, exit_code: Exit = Exit.ERROR) -> None:
        super().__init__(without_controls(message))
        self.exit_code = exit_code


class NothingSelectedError(ProfkitError):
    """A selection of layers or of a part of them matches nothing in a trace."""


class CannotTellError(ProfkitError):
    """The trace is readable but cannot answer the question; exit status 3.

    Args:
        code: a stable identifier, e.g. ``graph-level``.
        message: what is missing and what to record instead.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message, Exit.INCONCLUSIVE)
        self.code = code


class Terminated(SystemExit):
    """A signal asks this process to end: never taken for a ``sys.exit`` in a workload's code."""


class OutputClosedError(Exception):
    """Whoever read standard output has gone (``profkit diff … | head``). Not an OSError, which the command-line library
    would turn into status 1, and that means refuted."""
