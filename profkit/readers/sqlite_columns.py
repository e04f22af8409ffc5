"""Read-only SQLite, whole columns at a time: what the database readers (nsys, rocpd) share.

Columns come through ADBC as Arrow batches: one million rows of eight integers take about 0.7 s, rows through Python's
sqlite3 about 3 s. The schema is probed with sqlite3, since every export version has other tables and columns.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from profkit.errors import ProfkitError

#: Rows in one Arrow batch: large enough that per-batch costs vanish, small enough to stay in cache.
BATCH_ROWS = 1 << 16
#: Tables from this size are read by two threads; below, starting them costs more than it saves.
SPLIT_ROWS = 200_000


def read_only_uri(path: Path) -> str:
    """A SQLite URI that can neither change `path` nor leave files beside it.

    A database with a pending write-ahead log must be read through it, which needs locks; all others are immutable.
    """
    log = path.with_name(path.name + "-wal")
    flags = "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
    return f"file:{quote(str(path.resolve()))}?{flags}"


class Database:
    """A SQLite file opened read-only, with its schema.

    Args:
        path: the file.

    Raises:
        ProfkitError: it is missing, unreadable or no intact SQLite database.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise ProfkitError(f"{path}: no such file.")
        self._uri = read_only_uri(path)
        try:
            self._sqlite = sqlite3.connect(self._uri, uri=True)
            # A name is no reason to refuse a trace: texts from C may be cut in the middle of a character.
            self._sqlite.text_factory = lambda raw: raw.decode("utf-8", "replace")
            names = self._sqlite.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise ProfkitError(f"{path} cannot be read as SQLite ({error}). Export or copy it again.") from None
        self.tables = frozenset(str(n) for (n,) in names)
        self._columns: dict[str, frozenset[str]] = {}

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._sqlite.close()

    def columns(self, table: str) -> frozenset[str]:
        """The column names of `table`; empty where there is no such table."""
        if table not in self.tables:
            return frozenset()
        if table not in self._columns:
            rows = self.rows(f"PRAGMA table_info({quoted(table)})")
            self._columns[table] = frozenset(str(r[1]) for r in rows)
        return self._columns[table]

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a small query (metadata, names).

        Raises:
            ProfkitError: SQLite reports an error, e.g. a damaged page.
        """
        try:
            return self._sqlite.execute(sql, parameters).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._damaged(sql, error) from None

    def batches(self, sql: str) -> Iterator[Any]:
        """The result of `sql` as Arrow record batches of at most `BATCH_ROWS` rows.

        Raises:
            ProfkitError: a damaged page, or a column that mixes text and numbers.
        """
        import adbc_driver_sqlite
        from adbc_driver_manager import Error as AdbcError
        from adbc_driver_sqlite import dbapi

        option = adbc_driver_sqlite.StatementOptions.BATCH_ROWS.value
        try:
            with (
                dbapi.connect(self._uri) as connection,
                connection.cursor(adbc_stmt_kwargs={option: str(BATCH_ROWS)}) as cursor,
            ):
                cursor.execute(sql)
                yield from cursor.fetch_record_batch()
        except (AdbcError, OSError) as error:
            raise self._damaged(sql, error) from None

    def integers(self, sql: str, dtypes: Mapping[str, str], *, split: str | None = None) -> dict[str, npt.NDArray[Any]]:
        """Integer columns of `sql`, in the order of `dtypes`, each as one array of its dtype.

        Args:
            split: a table that `sql` reads alone, without conditions: where it is large, two threads read half each.

        Raises:
            ProfkitError: see `batches`; also a value that is no integer.
        """
        queries = [sql] if split is None else self._halves(sql, split)
        if len(queries) == 1:
            parts = [self._integer_parts(sql, dtypes)]
        else:
            with ThreadPoolExecutor(len(queries)) as pool:
                parts = list(pool.map(lambda query: self._integer_parts(query, dtypes), queries))
        arrays = {name: [a for part in parts for a in part.pop(name)] for name in dtypes}
        return {name: np.concatenate(arrays.pop(name) or [np.empty(0, dtype)]) for name, dtype in dtypes.items()}

    def _integer_parts(self, sql: str, dtypes: Mapping[str, str]) -> dict[str, list[npt.NDArray[Any]]]:
        parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in dtypes}
        for batch in self.batches(sql):
            for index, (name, dtype) in enumerate(dtypes.items()):
                parts[name].append(self.integer_column(batch, index, name, dtype, sql))
        return parts

    def _halves(self, sql: str, table: str) -> list[str]:
        try:
            # Each alone is a look at one end of the table; asked for together they are a walk through all of it.
            ends = ", ".join(f"(SELECT {end}(rowid) FROM {quoted(table)})" for end in ("min", "max"))
            ((low, high),) = self._sqlite.execute(f"SELECT {ends}").fetchall()
        except sqlite3.OperationalError:  # a view, or a table WITHOUT ROWID
            return [sql]
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._damaged(sql, error) from None
        if low is None or high - low < SPLIT_ROWS:
            return [sql]
        middle = (low + high) // 2
        return [f"{sql} WHERE rowid <= {middle}", f"{sql} WHERE rowid > {middle}"]

    def integer_column(self, batch: Any, index: int, name: str, dtype: str, sql: str) -> npt.NDArray[Any]:
        """Column `index` of an Arrow batch as an array of `dtype`; NULLs must have been replaced in SQL."""
        column = batch.column(index)
        if column.null_count or str(column.type) != "int64":
            if batch.num_rows == column.null_count:
                return np.full(batch.num_rows, -1, dtype)
            found = (
                f"NULL in {column.null_count} rows" if str(column.type) == "int64" else f"values of type {column.type}"
            )
            raise ProfkitError(f"{self.path}, {_table_of(sql)}: column {name} holds {found}, expected integers.")
        return np.asarray(column.to_numpy(zero_copy_only=False).astype(dtype, copy=False))

    def dictionary(self, batches: Sequence[Any]) -> tuple[npt.NDArray[np.int32], list[str]]:
        """Text columns, one a batch, as codes into one list of distinct texts; NULL is the empty text."""
        import pyarrow as pa

        encoded = [b.cast(pa.binary()).fill_null(b"").dictionary_encode() for b in batches]
        if not encoded:
            return np.empty(0, np.int32), []
        chunked = pa.chunked_array(encoded).unify_dictionaries()
        codes = np.concatenate([c.indices.to_numpy(zero_copy_only=False) for c in chunked.chunks])
        return codes.astype(np.int32), [v.decode("utf-8", "replace") for v in chunked.chunk(0).dictionary.to_pylist()]

    def _damaged(self, sql: str, error: Exception) -> ProfkitError:
        reason = " ".join(str(error).split())
        return ProfkitError(f"{self.path}, {_table_of(sql)}: cannot be read ({reason}). Export the report again.")


def quoted(identifier: str) -> str:
    """`identifier` as a quoted SQL name."""
    return '"' + identifier.replace('"', '""') + '"'


def _table_of(sql: str) -> str:
    words = sql.split()
    lowered = [w.upper() for w in words]
    return "table " + words[lowered.index("FROM") + 1].strip('"') if "FROM" in lowered else "the database"
