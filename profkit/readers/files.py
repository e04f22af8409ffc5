"""Files as the readers open them: regular files alone, unpacked where they are gzipped, within bounds, damage named."""

from __future__ import annotations

import gzip
import os
import tempfile
import zlib
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import IO

from profkit.errors import ProfkitError

GZIP_MAGIC = b"\x1f\x8b"
#: Writers on Windows put it before a text.
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: Of the environment: how many bytes a compressed file may hold.
LIMIT_VARIABLE = "PROFKIT_UNPACKED_BYTES"
#: Without it a file may hold so many, or so many times its own size: traces compress ten to forty times, and what was
#: made to fill a memory up to a thousand times.
_LIMIT, _RATIO = 256 << 20, 100
_PIECE_BYTES = 8 << 20


class Input:
    """A file that is read from its beginning, plain or gzipped (told by content), without a byte order mark.

    Args:
        path: a file.

    Raises:
        ProfkitError: no regular file, or it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        #: How much was read, unpacked.
        self.position = 0
        try:
            # A pipe would be waited for, and its data are gone when the format is known.
            if path.exists() and not path.is_file() and not path.is_dir():
                raise ProfkitError(f"{path} is a pipe or a device, and traces are read more than once. Give a file.")
            self._raw: IO[bytes] = path.open("rb")
            self.compressed = self._raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            self._raw.seek(0)
        except FileNotFoundError:
            raise ProfkitError(f"{path}: no such file.") from None
        except IsADirectoryError:
            raise ProfkitError(
                f"{path} is a directory without run.json; give a run directory or a trace file."
            ) from None
        except OSError as error:
            raise ProfkitError(f"{path} cannot be read: {error.strerror}.") from None
        self._file: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=self._raw) if self.compressed else self._raw
        self._limit = _limit(os.fstat(self._raw.fileno()).st_size) if self.compressed else None

    def __enter__(self) -> Input:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._raw.close()

    def read(self, size: int) -> bytes:
        """The next `size` bytes, fewer only at the end.

        Raises:
            ProfkitError: damaged, or more than a compressed file may hold.
        """
        try:
            data = self._file.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ProfkitError(
                f"{self._path}: the gzip data ends or is damaged after byte {self.position} of what it holds "
                f"({error}). Copy the file again, or record it again and let the profiler finish writing."
            ) from None
        except OSError as error:
            raise ProfkitError(f"{self._path} cannot be read: {error.strerror}.") from None
        first = self.position == 0
        self.position += len(data)
        if self._limit is not None and self.position > self._limit:
            raise ProfkitError(
                f"{self._path} holds more than {self._limit:,} bytes once it is unpacked, which is more than a "
                f"recording of its size can. If it is one, set {LIMIT_VARIABLE} to the bytes that it may hold."
            )
        return data.removeprefix(_BYTE_ORDER_MARK) if first else data


def _limit(size: int) -> int:
    given = os.environ.get(LIMIT_VARIABLE)
    if given is None:
        return max(_LIMIT, _RATIO * size)
    if not given.isdecimal():
        raise ProfkitError(f"{LIMIT_VARIABLE} is {given!r}, expected a number of bytes.")
    return int(given)


def begins(path: Path, size: int) -> bytes:
    """The first `size` bytes of the file at `path`; see `Input`."""
    with Input(path) as file:
        return file.read(size)


def whole(path: Path) -> bytes:
    """All of the file at `path`; see `Input`."""
    with Input(path) as file:
        return b"".join(iter(lambda: file.read(_PIECE_BYTES), b""))


def unpacked(path: Path) -> IO[bytes] | None:
    """A temporary file, which is gone when it is closed or forgotten, of what the file at `path` holds; None where that
    is not gzipped. For libraries that open files by name."""
    with Input(path) as file:
        if not file.compressed:
            return None
    status = path.stat()
    return _unpacked(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1)
def _unpacked(path: Path, size: int, changed_ns: int) -> IO[bytes]:
    """Kept, since a file is opened once for each format that it may be of."""
    del size, changed_ns
    target = tempfile.NamedTemporaryFile(prefix="profkit.")  # noqa: SIM115 - closed where the last user forgets it
    with Input(path) as file:
        for piece in iter(lambda: file.read(_PIECE_BYTES), b""):
            target.write(piece)
    target.flush()
    return target
