"""`profkit scrub`: a trace or run directory that can be handed to others."""

from __future__ import annotations

import tempfile
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.model import outputs
from profkit.runs import run_dir
from profkit.scrub import scrub_trace, trace_name
from profkit.scrub.documents import scrub_record
from profkit.scrub.fields import kept_text


def scrub(source: Path, target: Path, *, force: bool) -> str:
    """Write `source` without environment, host names, paths and process lists to `target`, whole or not at all.

    A run directory keeps the documented fields of run.json, its trace and the numbers of its outputs; the profiler's
    report stays behind.

    Returns:
        a line that says what was written.

    Raises:
        ProfkitError: `target` exists or cannot be written, or the format cannot be scrubbed.
    """
    if target.exists() and target.resolve() == source.resolve():
        raise ProfkitError(f"{target} is the source itself. Choose another name for the scrubbed copy.")
    if source.is_dir():
        return _scrub_directory(source, target, force=force)
    if target.is_dir():
        raise ProfkitError(
            f"{target} is a directory, and {source} is a file. Name the file to write: {target / 'NAME'}"
        )
    if target.exists() and not force:
        raise ProfkitError(f"{target} exists and will not be overwritten. Choose another name, or add --force.")
    try:
        temporary = tempfile.TemporaryDirectory(prefix=".scrub.", dir=target.parent)
    except OSError as error:
        raise ProfkitError(f"Cannot write to {target.parent}: {error.strerror}.") from None
    with temporary as name:
        part = Path(name) / "part"
        scrub_trace(source, part)
        part.replace(target)
    return f"{target}: scrubbed"


def _scrub_directory(source: Path, target: Path, *, force: bool) -> str:
    found = run_dir.find(source)
    if target.is_file():
        raise ProfkitError(f"{target} is a file, and {source} is a run directory. Choose another name.")
    if source.resolve() in target.resolve().parents:
        raise ProfkitError(f"{target} lies inside {source}. Choose a place outside it.")
    if not found:
        raise ProfkitError(
            f"{source} holds no run.json (looked three levels deep). Give a run directory, or its traces one by one."
        )
    if found[0].path == source:
        with run_dir.new(target, force=force) as directory:
            name = _scrub_run(found[0], directory)
        return f"{target}: run.json and {name}, scrubbed"
    with run_dir.new(target, force=force) as directory:
        for run in found:
            below = directory / run.path.relative_to(source)
            below.mkdir(parents=True)
            _scrub_run(run, below)
    return f"{target}: {len(found)} runs, scrubbed"


def _scrub_run(run: run_dir.Run, directory: Path) -> str:
    replaced = run_dir.replaced_trace(run.path, run.record)
    if replaced is not None:
        raise ProfkitError(f"{run.path}: {replaced} A scrubbed copy would hide that.")
    name = trace_name(run.trace_path)
    scrub_trace(run.trace_path, directory / name)
    numbers = run.outputs()
    files = [name, *([outputs.OUTPUTS_FILE] if numbers else [])]
    if numbers:
        outputs.write(directory / outputs.OUTPUTS_FILE, {kept_text(output): own for output, own in numbers.items()})
    run_dir.write_record(directory, scrub_record(run.record, name, run_dir.trace_digests(directory, name, files)))
    return name
