"""What a RUN on the command line stands for: run directories, trace files, or a glob of per-rank files."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from profkit import readers
from profkit.attribution import capture_traces
from profkit.counting.count import take_census
from profkit.errors import ProfkitError
from profkit.model.census import Census
from profkit.model.run import RunRecord
from profkit.model.selection import Selection
from profkit.model.trace import Diagnostic, Trace
from profkit.runs import run_dir


@dataclass(frozen=True)
class RunFile:
    """One trace on disk.

    Args:
        label: how reports call it.
        trace: the trace file.
        record: run.json, None for a bare trace file.
    """

    label: str
    trace: Path
    record: RunRecord | None


def find(spec: str) -> list[RunFile]:
    """The runs that `spec` names: a run directory (nested ones included), a directory of rocprofv3's CSV files, a trace
    file, or a glob of any of these.

    Raises:
        ProfkitError: it names nothing.
    """
    path = Path(spec)
    if path.exists():
        paths = [path]
    else:
        paths = [Path(p) for p in sorted(glob.glob(spec))]  # noqa: PTH207 - Path.glob takes no absolute pattern
        if not paths:
            hint = "matches nothing" if glob.has_magic(spec) else "no such file or directory"
            raise ProfkitError(f"{spec}: {hint}. Give a run directory, a trace file, or a glob of per-rank files.")
    found: list[RunFile] = []
    for entry in readers.without_companions(paths):
        recorded = readers.parts_in(entry) if entry.is_dir() and not run_dir.is_run(entry) else []
        if recorded:
            found += [RunFile(f"{entry.name}/{path.name}", path, None) for path in readers.without_companions(recorded)]
        elif entry.is_dir() and not readers.is_whole_directory(entry):
            found += [_of_run(run, entry) for run in run_dir.find(entry)]
        else:
            found.append(RunFile(entry.name, entry, None))
    return found


def _of_run(run: run_dir.Run, base: Path) -> RunFile:
    workload = run.record.workload
    label = run.path.relative_to(base).as_posix()
    if label == ".":
        label = (workload.variant if workload else None) or run.path.resolve().name
    return RunFile(label, run.trace_path, run.record)


def one(spec: str, option: str) -> RunFile:
    """The single run that `spec` names.

    Raises:
        ProfkitError: it names none or several.
    """
    found = find(spec)
    if len(found) != 1:
        shown = ", ".join(f.label for f in found[:6])
        raise ProfkitError(f"{option}: {spec} names {len(found)} runs ({shown}). Name one.")
    return found[0]


def census_of(run: RunFile, selection: Selection) -> Census:
    """Read and count one run."""
    return count(readers.read(run.trace), selection)


def noted(census: Census, run: RunFile) -> Census:
    """`census` of the trace of `run`, with a diagnostic where that is not the trace that run.json was written for."""
    replaced = None if run.record is None else run_dir.replaced_trace(run.trace.parent, run.record)
    if replaced is None:
        return census
    said = Diagnostic(run_dir.REPLACED, replaced)
    return dataclasses.replace(census, diagnostics=(*census.diagnostics, said))


def count(trace: Trace, selection: Selection) -> Census:
    """Count `trace`, with the capture traces that `selection` names.

    Raises:
        ProfkitError: the selection matches nothing, or names no capture trace.
    """
    if selection.capture_trace is None:
        return take_census(trace, selection)
    captures, notes = capture_traces.read(selection.capture_trace, trace)
    census = take_census(trace, selection, captures)
    return dataclasses.replace(census, diagnostics=(*census.diagnostics, *notes))


def identities(runs: Sequence[RunFile]) -> list[str]:
    """A text for each run, equal for equal traces: by path, and by content where the sizes agree."""
    sizes = [-1 - index if run.trace.is_dir() else run.trace.stat().st_size for index, run in enumerate(runs)]
    names: list[str] = []
    for run, size in zip(runs, sizes, strict=True):
        if sizes.count(size) > 1:
            with run.trace.open("rb") as file:
                names.append(hashlib.file_digest(file, "sha256").hexdigest())
        else:
            names.append(str(run.trace.resolve()))
    return names
