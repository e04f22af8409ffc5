"""Picks the reader for a file by its content, never by its name."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from profkit.errors import ProfkitError
from profkit.model.trace import Trace
from profkit.readers.duplicates import without_duplicates
from profkit.readers.peers import missing_peers

#: Enough for every format's first keys; headers of Kineto files with many ranks run to tens of kilobytes.
HEAD_BYTES = 64 * 1024
_GZIP = b"\x1f\x8b"
_SQLITE = b"SQLite format 3\x00"


class Reader(Protocol):
    """What a reader module has."""

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether the file that begins with `head` (decompressed) is of this reader's format."""
        ...

    def read(self, path: Path, *, detail: bool = False) -> Trace:
        """The file's trace."""
        ...


def read(path: Path, *, detail: bool = False) -> Trace:
    """Read the trace at `path`, whatever its format.

    Args:
        path: a file; for Parquet exports of nsys also their directory.
        detail: also read launch shapes (grid, block, registers, shared memory) where the format has them.

    Raises:
        ProfkitError: no such file, an unknown format, a format that cannot carry layers, or a damaged file.
    """
    try:
        trace = without_duplicates(_read(path, detail=detail))
    except RecursionError:
        raise ProfkitError(f"{path} is nested too deeply to be a trace. Export it again.") from None
    note = missing_peers(trace)
    if note is None:
        return trace
    return replace(trace, info=replace(trace.info, diagnostics=(*trace.info.diagnostics, note)))


def _read(path: Path, *, detail: bool) -> Trace:
    if path.is_dir():
        from profkit.readers import nsys_parquet

        if nsys_parquet.is_export(path):
            return nsys_parquet.read(path, detail=detail)
    head = _head(path)
    if head.startswith(_SQLITE):
        from profkit.readers import nsys
        from profkit.readers.sqlite_columns import Database

        with Database(path) as database:
            is_nsys = nsys.is_nsys(database.tables)
        if is_nsys:
            return nsys.read(path, detail=detail)
    # Imported here, so that the commonest format does not pay for the others.
    from profkit.readers import (
        dispatch,
        kineto,
        nsys_parquet,
        nsys_report,
        refused,
        rocpd,
        rocprof_csv,
        rocprof_json,
    )

    readers: tuple[Reader, ...] = (nsys_report, nsys_parquet, dispatch, rocpd, rocprof_json, kineto, rocprof_csv)
    for reader in readers:
        if reader.sniff(head, path):
            return reader.read(path, detail=detail)
    raise refused.refuse(head, path)


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except FileNotFoundError:
        raise ProfkitError(f"{path}: no such file.") from None
    except IsADirectoryError:
        raise ProfkitError(f"{path} is a directory without run.json; give a run directory or a trace file.") from None
    except OSError as error:
        raise ProfkitError(f"{path} cannot be read: {error.strerror}.") from None
    if not head:
        raise ProfkitError(f"{path} is empty.")
    if not head.startswith(_GZIP):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
    except zlib.error as error:
        raise ProfkitError(f"{path} is damaged: its gzip data cannot be decompressed ({error}).") from None
