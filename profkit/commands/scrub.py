"""`profkit scrub`: a trace or run directory that can be handed to others."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from profkit import run_dir
from profkit.errors import ProfkitError
from profkit.readers import detect
from profkit.scrubbing import kineto, nsys


def scrub(source: Path, target: Path, *, force: bool) -> str:
    """Write `source` without environment, host names, paths and process lists to `target`.

    A run directory keeps run.json (which holds none of these) and its trace; the profiler's report stays behind.

    Returns:
        a line that says what was written.

    Raises:
        ProfkitError: `target` exists, or the format cannot be scrubbed.
    """
    if source.is_dir():
        found = run_dir.find(source)
        if found[0].path == source:
            with run_dir.new(target, force=force) as directory:
                _scrub_run(found[0], directory)
            return f"{target}: run.json and {found[0].trace_path.name}, scrubbed"
        for run in found:
            with run_dir.new(target / run.path.relative_to(source), force=force) as directory:
                _scrub_run(run, directory)
        return f"{target}: {len(found)} runs, scrubbed"
    if target.exists() and not force:
        raise ProfkitError(f"{target} exists and will not be overwritten. Choose another name, or add --force.")
    with tempfile.TemporaryDirectory(prefix=".scrub.", dir=target.parent) as directory_name:
        part = Path(directory_name) / "part"
        _scrub_file(source, part)
        part.replace(target)
    return f"{target}: scrubbed"


def _scrub_run(run: run_dir.Run, directory: Path) -> None:
    _scrub_file(run.trace_path, directory / run.trace_path.name)
    record = {k: v for k, v in run.record.items() if k != "schema"}
    run_dir.write_record(directory, {**record, "files": [run.trace_path.name]})


def _scrub_file(source: Path, target: Path) -> None:
    trace_format = detect.read(source).info.format
    scrubbers: dict[str, Callable[[Path, Path], object]] = {
        "nsys sqlite": nsys.scrub,
        "kineto": kineto.scrub,
        "profkit dispatch": shutil.copyfile,
    }
    if trace_format not in scrubbers:
        shown = ", ".join(scrubbers)
        raise ProfkitError(f"{source} is of format {trace_format}, which cannot be scrubbed; these can: {shown}.")
    scrubbers[trace_format](source, target)
    before, after = detect.read(source), detect.read(target)
    unlike = [
        f.name
        for f in dataclasses.fields(before)
        if f.name not in ("info",) and len(getattr(before, f.name)) != len(getattr(after, f.name))
    ]
    if unlike:
        raise ProfkitError(
            f"{source}: scrubbing would lose {', '.join(unlike)}; nothing was written. Report this trace."
        )
