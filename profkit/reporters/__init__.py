"""The reports, by the name that ``--format`` takes, and what they are made of.

A report is one module here with a function ``write(answer)``, and one line in `REPORTS`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from profkit.errors import OutputClosedError, ProfkitError, without_controls

if TYPE_CHECKING:
    from profkit.reporters.blocks import Block, Records

Command = Literal["layers", "diff", "sweep"]


@dataclass(frozen=True)
class Answer:
    """What a command has to say, in each form that a report may be made of; made when a report asks for it.

    Args:
        blocks: for people.
        document: all of it, for programs: what `msgspec.to_builtins` takes.
        records: rows for programs.
        notes: what the blocks say, and neither the document nor the rows.
    """

    blocks: Callable[[], Iterable[Block]]
    document: Callable[[], object]
    records: Callable[[], Records]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Report:
    """A report.

    Args:
        name: what ``--format`` takes.
        module: the module of this package that writes it.
        of: whose answers it can render.
    """

    name: str
    module: str
    of: Sequence[Command]

    def write(self, answer: Answer) -> None:
        """Write it to standard output."""
        importlib.import_module(f"{__name__}.{self.module}").write(answer)


REPORTS: tuple[Report, ...] = (
    Report("text", "terminal", ("layers", "diff", "sweep")),
    Report("json", "json_text", ("layers", "diff", "sweep")),
    Report("csv", "csv_text", ("layers", "diff", "sweep")),
    Report("md", "markdown", ("layers", "diff")),
)


def formats(command: Command) -> list[str]:
    """The names of the reports of `command`."""
    return [report.name for report in REPORTS if command in report.of]


def find(name: str, command: Command) -> Report:
    """The report `name` of `command`; ask before any work is done.

    Raises:
        ProfkitError: there is none.
    """
    for report in REPORTS:
        if report.name == name and command in report.of:
            return report
    raise ProfkitError(f"--format {name!r} is unknown. There are: {', '.join(formats(command))}.")


def send(text: str) -> None:
    """Write `text` to standard output as UTF-8, whatever the locale: names and µs are no ASCII."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", errors="replace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise OutputClosedError from None


def tell(notes: Iterable[str]) -> None:
    """Write `notes` to standard error, a line each."""
    for note in notes:
        sys.stderr.write(without_controls(note) + "\n")
        sys.stderr.flush()
