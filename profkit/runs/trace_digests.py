"""Whether a run's trace is the one that its run.json was written for: SHA-256 of the files, as they are stored."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from profkit.model.run import RunRecord

#: The code of a trace that is another than the one captured.
REPLACED = "trace-replaced"
#: Kept beside its export, which is what the readers open.
_REPORT = ".nsys-rep"


def digests(directory: Path, trace: str, files: Sequence[str]) -> dict[str, str]:
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


def replaced(directory: Path, record: RunRecord) -> str | None:
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
