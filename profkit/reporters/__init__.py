"""The reports, by the name that ``--format`` takes, and what they are made of.

A report is one module here with a function ``write(answer)``, and one line in `REPORTS`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from profkit.errors import OutputClosedError, ProfkitError, without_controls

if TYPE_CHECKING:
    from profkit.reporters.blocks import Block, Records
    from profkit.reporters.figures import Figure

Command = Literal["layers", "diff", "sweep"]


@dataclass(frozen=True)
class Answer:
    """What a command has to say, in each form that a report may be made of; made when a report asks for it.

    Args:
        blocks: for people.
        document: all of it, for programs: what `msgspec.to_builtins` takes.
        records: rows for programs.
        notes: what the blocks say, and neither the document nor the rows.
        details: a screen is to show all there is.
        figures: what a page draws.
        next_steps: what the exit status means, and what to run next.
    """

    blocks: Callable[[], Iterable[Block]]
    document: Callable[[], object]
    records: Callable[[], Records]
    notes: Sequence[str] = ()
    details: bool = False
    figures: Callable[[], Iterable[Figure]] = tuple
    next_steps: Sequence[str] = ()


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
    Report("brief", "brief", ("layers", "diff")),
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


def check_page(file: Path, package: str, *, force: bool = False) -> None:
    """Refuse a file for ``--html`` that could not be written after the work, or that is no page.

    Args:
        package: what makes the page.
        force: replace what is no page too.

    Raises:
        ProfkitError: there is something else of that name, no directory for it, or no such package.
    """
    if file.is_dir():
        raise ProfkitError(f"--html {file} is a directory. Give a file.")
    if file.exists() and not file.is_file():
        raise ProfkitError(f"--html {file} is a device or a pipe, which cannot be replaced. Give a file.")
    if not file.parent.is_dir() or not os.access(file.parent, os.W_OK | os.X_OK):
        raise ProfkitError(f"Cannot write {file}: {file.parent} is no directory that can be written to.")
    if os.path.lexists(file) and not force and not _is_page(file):
        raise ProfkitError(f"{file} exists and is no HTML page. Choose another --html.")
    if find_spec(package) is None:
        raise ProfkitError(f"--html needs {package}, which is not installed. Install it: pip install 'profkit[html]'")


def write_page(answer: Answer, file: Path | None) -> None:
    """Write the answer as an HTML page, where a file is given."""
    if file is not None:
        from profkit.reporters import html_page

        html_page.write(answer, file)


def _is_page(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(64).lstrip()[:14].lower() in (b"<!doctype html", b"")
    except OSError:
        return False


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
