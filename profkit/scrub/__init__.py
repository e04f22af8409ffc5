"""The registry of traces that can be scrubbed, and `scrub_trace`, which checks each copy by reading it too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pandas as pd

from profkit import readers
from profkit.errors import ProfkitError
from profkit.model.trace import Trace
from profkit.readers import DISPATCH_FILE
from profkit.scrub.fields import kept_text


@dataclass(frozen=True)
class Scrubber:
    """How traces of one format are scrubbed.

    Args:
        format: `Info.format` of its traces.
        module: has ``scrub(source, target)``, which writes the copy and raises ProfkitError; imported when it is used.
        export: ending of the file beside the trace that is scrubbed in its place; None for the trace itself.
    """

    format: str
    module: str
    export: str | None = None


SCRUBBERS = [
    Scrubber("nsys sqlite", "profkit.scrub.nsys"),
    Scrubber("nsys report", "profkit.scrub.nsys", export=".sqlite"),
    Scrubber("kineto", "profkit.scrub.kineto"),
    Scrubber("profkit dispatch", "profkit.scrub.documents"),
]
#: What a copy's name may say of its form; a report becomes its export.
_SUFFIXES = (".sqlite", ".kineto.json.gz", ".kineto.json", ".json.gz", ".json")


def scrub_trace(source: Path, target: Path) -> None:
    """Write the scrubbed copy of `source` to the new file `target`; of a report, that of its SQLite export.

    Raises:
        ProfkitError: the format cannot be scrubbed, or the copy would not be read as the same trace.
    """
    before = readers.read(source, detail=True)
    name = before.info.format
    entry = next((entry for entry in SCRUBBERS if entry.format == name), None)
    if entry is None:
        these = ", ".join(entry.format for entry in SCRUBBERS)
        raise ProfkitError(f"{source} is of format {name}, which cannot be scrubbed; these can: {these}.")
    scrub = cast(Callable[[Path, Path], None], import_module(entry.module).scrub)
    scrub(source if entry.export is None else _export(source, entry.export), target)
    check(before, readers.read(target, detail=True))


def trace_name(source: Path) -> str:
    """A name for the scrubbed copy of a run's trace that says its form alone."""
    if source.name == DISPATCH_FILE:
        return source.name
    return "trace" + next((suffix for suffix in _SUFFIXES if source.name.endswith(suffix)), _SUFFIXES[0])


def _export(report: Path, suffix: str) -> Path:
    """The export that the reader left beside `report`."""
    export = report.with_name(report.stem + suffix)
    if not export.is_file():
        raise ProfkitError(
            f"{report} was opened through a temporary export, since none can be written beside it. Copy the report to "
            "a directory that can be written and scrub it there."
        )
    return export


_TABLES = ("ops", "set_aside", "launches", "ranges", "nodes")
_FACTS = ("vendor", "graph_trace", "timed", "processes")


def check(before: Trace, after: Trace) -> None:
    """Whether the copy is read as the original is: every value of every table, but for what the filter takes of texts.

    Raises:
        ProfkitError: something else differs; says in which table and column.
    """
    unlike = [f"{name}.{column}" for name in _TABLES for column in _unlike(getattr(before, name), getattr(after, name))]
    unlike += [name for name in _FACTS if getattr(before.info, name) != getattr(after.info, name)]
    if {i: kept_text(n) for i, n in before.info.devices.items()} != dict(after.info.devices):
        unlike.append("devices")
    if unlike:
        raise ProfkitError(
            f"{before.info.source}: scrubbing would change {', '.join(unlike)}; nothing was written. Report this trace."
        )


def _unlike(before: pd.DataFrame, after: pd.DataFrame) -> list[str]:
    """Columns that differ; "rows" where the tables have other lengths or columns."""
    if len(before) != len(after) or list(before.columns) != list(after.columns):
        return ["rows"]
    return [str(c) for c in before.columns if not _same(before[c], after[c])]


def _same(before: pd.Series[Any], after: pd.Series[Any]) -> bool:
    if not isinstance(before.dtype, pd.CategoricalDtype):
        return before.equals(after)
    labels = {label: kept_text(str(label)) for label in before.cat.categories}
    return bool((before.astype(object).map(labels) == after.astype(object)).all())
