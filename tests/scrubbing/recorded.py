"""The recordings that these tests scrub, and the reading of what comes out."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from profkit.runs.run_dir import trace_digests

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "traces"
#: The files that came with the project's brief, beside the repository.
SHARED = ROOT.parent / "shared"


def shared(*names: str) -> Path:
    """A file of `SHARED`; skips the test where it is absent."""
    path = SHARED.joinpath(*names)
    if not path.exists():
        pytest.skip(f"{'/'.join(names)} is not beside this repository")
    return path


def copy_of_run(name: str, target: Path) -> Path:
    """A copy of a shipped run that a test may change."""
    return Path(shutil.copytree(TRACES / name, target))


def all_bytes(path: Path) -> bytes:
    """The decompressed content of a file, or of all files below a directory, with their names."""
    if path.is_dir():
        return b"".join(
            str(f.relative_to(path)).encode() + all_bytes(f) for f in sorted(path.rglob("*")) if f.is_file()
        )
    data = path.read_bytes()
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def execute(path: Path, *statements: str) -> None:
    """Run SQL on the database at `path`; a run.json beside it tells of the result, as if that was captured."""
    database = sqlite3.connect(path)
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()
    as_captured(path)


def as_captured(path: Path) -> None:
    """Make the digest in a run.json beside the changed trace `path` that of the trace."""
    file = path.parent / "run.json"
    if file.is_file():
        content = json.loads(file.read_text())
        file.write_text(json.dumps({**content, "trace_sha256": trace_digests(path.parent, path.name, [path.name])}))


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    """The rows of a query."""
    database = sqlite3.connect(path)
    found = database.execute(sql).fetchall()
    database.close()
    return found
