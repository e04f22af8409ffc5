"""Run directories: what a capture leaves behind, complete or not at all, and whether a trace is the one captured.

A run directory holds ``run.json`` (schema ``profkit.run/1``, see docs/run-directory.md) beside the profiler's own
files. Several arms, pairs and ranks nest as ``arm/pair/rank``; a single run needs no nesting.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from profkit.errors import ProfkitError
from profkit.model import outputs
from profkit.model.outputs import OutputNumbers
from profkit.model.run import SCHEMA, RunRecord
from profkit.runs.whole_files import write_json

RUN_FILE = "run.json"
#: The code of a trace that is another than the one captured.
REPLACED = "trace-replaced"
#: Kept beside its export, which is what the readers open.
_REPORT = ".nsys-rep"


@dataclass(frozen=True)
class Run:
    """One finished run on disk.

    Args:
        path: the directory that holds run.json.
        record: run.json.
    """

    path: Path
    record: RunRecord

    @property
    def trace_path(self) -> Path:
        """The file that the readers open."""
        return self.path / self.record.trace

    def outputs(self) -> dict[str, OutputNumbers]:
        """The numbers of its outputs by name, read now; empty where it keeps none.

        Raises:
            ProfkitError: their file is missing, damaged, or of other outputs than run.json.
        """
        digests = self.record.digests
        if digests is None or digests.numbers is None:
            return {}
        found = outputs.read(self.path / digests.numbers)
        if {name: own.digest for name, own in found.items()} != digests.outputs:
            raise ProfkitError(f"{self.path / digests.numbers} is of other outputs than run.json. Capture again.")
        return found


def is_run(path: Path) -> bool:
    """Whether `path` is a directory with a run.json in it."""
    return (path / RUN_FILE).is_file()


def load(path: Path) -> Run:
    """Read the run in directory `path`.

    Raises:
        ProfkitError: no run.json, not JSON, another schema, or the trace that it names is missing.
    """
    file = path / RUN_FILE
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ProfkitError(f"{path} is not a run directory: it holds no {RUN_FILE}.") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProfkitError(f"{file} is not valid JSON ({error}). Capture the run again.") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = content.get("schema") if isinstance(content, dict) else type(content).__name__
        raise ProfkitError(
            f"{file}: schema is {found!r}, expected {SCHEMA!r}. Capture the run again with this profkit."
        )
    try:
        record = msgspec.convert(content, RunRecord)
    except msgspec.ValidationError as error:
        raise ProfkitError(f"{file} is not as profkit writes it: {error}. Capture the run again.") from None
    trace = record.trace
    numbers = [record.digests.numbers] if record.digests and record.digests.numbers else []
    names = {"trace": [trace], "trace_sha256": record.trace_sha256 or (), "digests.numbers": numbers}
    for field, name in ((field, name) for field, given in names.items() for name in given):
        if Path(name).name != name or name in ("", ".."):
            raise ProfkitError(f"{file}: {field!r} must name a file in the same directory, found {name!r}.")
    run = Run(path, record)
    if not run.trace_path.exists():
        raise ProfkitError(f"{file} names the trace {trace}, which is missing from {path}. Capture the run again.")
    return run


def find(path: Path) -> list[Run]:
    """Every run at `path` or at most three levels below it (arm/pair/rank), in order of path; empty for none.

    Raises:
        ProfkitError: one of them is broken.
    """
    if is_run(path):
        return [load(path)]
    found = sorted(f.parent for depth in ("*", "*/*", "*/*/*") for f in path.glob(f"{depth}/{RUN_FILE}") if f.is_file())
    return [load(p) for p in found]


@contextmanager
def new(path: Path, *, force: bool = False) -> Iterator[Path]:
    """Make the run directory `path` whole or not at all.

    Yields a temporary directory beside `path`; it is renamed to `path` when the block ends without an exception and
    removed when it does not. What a killed process has left of one is removed first.

    Args:
        force: replace what is at `path`, if that is a run and nothing else.

    Raises:
        ProfkitError: `path` exists and may not be replaced, also where it has appeared meanwhile (what was made stays
            beside it, under a name that is said); or its parent cannot be written.
    """
    _check_free(path, force)
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
                # Another user's is theirs to remove.
                with suppress(PermissionError), held(left) as is_ours:
                    if is_ours and is_part(left):
                        shutil.rmtree(left, ignore_errors=True)
            is_ours = False
            while not is_ours:
                temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
                temporary.mkdir()
                # Until it is held, another process may take it for a killed one's, and remove it.
                is_ours = stack.enter_context(held(temporary))
        except OSError as error:
            raise ProfkitError(f"Cannot write to {path.parent}: {error.strerror}.") from None
        try:
            yield temporary
            try:
                _put_in_place(temporary, path, force)
            except ProfkitError as error:
                made = temporary.rename(path.with_name(temporary.name[1:].removesuffix(".part")))
                raise ProfkitError(f"{error} It appeared meanwhile; what was made is in {made}.") from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _put_in_place(temporary: Path, path: Path, force: bool) -> None:
    """Rename `temporary` to `path`; what `force` may replace there goes.

    Raises:
        ProfkitError: `path` may not be replaced, or another process has been quicker.
    """
    _check_free(path, force)
    old = temporary.with_suffix(".old")
    try:
        if force and path.exists():
            path.rename(old)
        # Onto a directory that has appeared since, unless that is empty, this is an error.
        temporary.rename(path)
    except OSError as error:
        if old.exists() and not path.exists():
            old.rename(path)
        raise ProfkitError(f"{path} cannot be put in place: {error.strerror}.") from None
    shutil.rmtree(old, ignore_errors=True)


def is_part(path: Path) -> bool:
    """Whether `path` has the name of what `new` fills."""
    return re.fullmatch(r"\..+\.[0-9a-f]{8}\.part", path.name) is not None


def refuse_link(path: Path) -> None:
    """A directory that is made is no link of anybody's.

    Raises:
        ProfkitError: `path` is a link, wherever it leads.
    """
    if path.is_symlink():
        raise ProfkitError(f"{path} is a link, which would be replaced and not followed. Name the directory itself.")


def _check_free(path: Path, force: bool) -> None:
    refuse_link(path)
    if path.name in ("", ".."):
        raise ProfkitError(f"{path} is no name of a directory to make. Choose another -o.")
    if path.exists() and not force:
        raise ProfkitError(f"{path} exists and will not be overwritten. Choose another -o, or add --force.")
    if path.exists() and not is_replaceable(path):
        raise ProfkitError(
            f"{path} exists and is not a run directory, so --force will not replace it. Choose another -o."
        )


def is_replaceable(path: Path) -> bool:
    """Whether `path` is an empty directory, or holds one run, or those of a job's ranks, and nothing else."""
    if not path.is_dir():
        return False
    entries = list(path.iterdir())
    if not is_run(path):
        return all(entry.name.isdigit() and is_run(entry) and is_replaceable(entry) for entry in entries)
    try:
        record = load(path).record
    except ProfkitError:
        return False
    return {entry.name for entry in entries} <= {RUN_FILE, *(record.files or [record.trace])}


@contextmanager
def held(directory: Path) -> Iterator[bool]:
    """A block in which no other process may hold `directory`; false where one does, or it has gone. A process that
    ends lets go."""
    with ExitStack() as stack:
        try:
            handle = os.open(directory, os.O_RDONLY)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = os.path.samestat(os.fstat(handle), directory.stat())
        except (BlockingIOError, FileNotFoundError):
            is_ours = False
        yield is_ours


def write_record(directory: Path, record: RunRecord) -> None:
    """Write run.json into `directory`; the last thing that a capture does before its directory is renamed.

    Raises:
        ProfkitError: it cannot be written.
    """
    write_json(directory / RUN_FILE, msgspec.to_builtins(record))


def trace_digests(directory: Path, trace: str, files: Sequence[str]) -> dict[str, str]:
    """The `trace_sha256` field of run.json.

    Args:
        directory: holds `files`.
        trace: the file that the readers open.
        files: all files of the run. Those beside the trace may be parts of it, as rocprofv3's CSV files are.

    Returns:
        file name to SHA-256, in hexadecimal.
    """
    parts = [name for name in files if name == trace or not name.endswith(_REPORT)]
    return {name: _sha256(directory / name) for name in parts}


def replaced_trace(directory: Path, record: RunRecord) -> str | None:
    """What is to be said where a file of the trace is gone or is another one; None where all is well, or where run.json
    has no digests."""
    for name, recorded in (record.trace_sha256 or {}).items():
        path = directory / name
        found = _sha256(path) if path.is_file() else None
        if found != recorded:
            what = "is missing" if found is None else "is not the file that was captured (its SHA-256 is another)"
            return (
                f"{name} {what}, so run.json may be of another recording: its outputs, untraced times and settings "
                "need not belong to this trace. Put the captured file back, or capture again."
            )
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
