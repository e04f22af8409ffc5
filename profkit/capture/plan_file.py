"""A directory that fills up over several sittings: its plan, as a file, and the lock that one process holds on it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError
from profkit.runs.whole_files import write_whole


def source_digest(spec: str) -> str | None:
    """SHA-256 of the file in ``path/file.py:name``, so that a change between sittings is seen; None if it is shipped.

    Raises:
        ProfkitError: there is no such file.
    """
    path, separator, _ = spec.rpartition(":")
    if not separator:
        return None
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise ProfkitError(f"{path} cannot be read: {error.strerror}. Check the path before the colon.") from None


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Write `content` into `file`, whole or not at all.

    Raises:
        ProfkitError: see `write_whole`.
    """
    write_whole(file, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def check_same(output: Path, what: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on with what was begun otherwise.

    Args:
        what: is begun in `output`, with its article.

    Raises:
        ProfkitError: the plans differ; names every difference.
    """
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if names:
        differences = "; ".join(_difference(name, before.get(name), now.get(name)) for name in names)
        raise ProfkitError(
            f"{output} holds {what} with other options: {differences}. Give the same ones to resume it, "
            "choose another -o, or add --force to start over."
        )


def _difference(name: str, before: Any, now: Any) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        # What both have alike may be long.
        before, now = (
            {key: value for key, value in one.items() if key not in other or other[key] != value}
            for one, other in ((before, now), (now, before))
        )
    return f"{name} was {_shown(before)}, now {_shown(now)}"


def _shown(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(entry, dict) and "name" in entry for entry in value):
        return " and ".join(str(entry["name"]) for entry in value)
    return json.dumps(value, ensure_ascii=False)


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """`output`, made if it is not there, and held by this process alone.

    Raises:
        ProfkitError: it cannot be made, or another process is recording into it.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        handle = os.open(output, os.O_RDONLY)
    except OSError as error:
        raise ProfkitError(f"Cannot write to {output}: {error.strerror}.") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ProfkitError(f"Another profkit is recording into {output}. Wait for it, or end it.") from None
        yield
    finally:
        os.close(handle)
