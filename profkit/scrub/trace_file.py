"""One trace file, of whichever format, to its scrubbed copy; checked by reading both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from profkit import readers
from profkit.capture.dispatch_file import TRACE_FILE as DISPATCH_FILE
from profkit.errors import ProfkitError
from profkit.scrub import dispatch, kineto, nsys, verify

_SCRUBBERS: dict[str, Callable[[Path, Path], None]] = {
    "nsys sqlite": nsys.scrub,
    "nsys report": nsys.scrub,
    "kineto": kineto.scrub,
    "profkit dispatch": dispatch.scrub,
}


def scrub_trace(source: Path, target: Path) -> None:
    """Write the scrubbed copy of `source` to the new file `target`; of a report, that of its SQLite export.

    Raises:
        ProfkitError: the format cannot be scrubbed, or the copy would not be read as the same trace.
    """
    before = readers.read(source, detail=True)
    name = before.info.format
    if name not in _SCRUBBERS:
        raise ProfkitError(
            f"{source} is of format {name}, which cannot be scrubbed; these can: {', '.join(_SCRUBBERS)}."
        )
    _SCRUBBERS[name](_export(source) if name == "nsys report" else source, target)
    verify.check(before, readers.read(target, detail=True))


def trace_name(source: Path) -> str:
    """A name for the scrubbed copy of a run's trace that says its form alone; a report becomes its export."""
    suffixes = (".sqlite", ".kineto.json.gz", ".kineto.json", ".json.gz", ".json")
    if source.name == DISPATCH_FILE:
        return source.name
    return "trace" + next((s for s in suffixes if source.name.endswith(s)), ".sqlite")


def _export(report: Path) -> Path:
    """The export that the reader left beside `report`."""
    export = report.with_name(report.stem + ".sqlite")
    if not export.is_file():
        raise ProfkitError(
            f"{report} was opened through a temporary export, since none can be written beside it. Copy the report to "
            "a directory that can be written and scrub it there."
        )
    return export
