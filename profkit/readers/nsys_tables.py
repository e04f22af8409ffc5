"""Where the tables of an nsys export come from: what the reader asks for, and the answers of an SQLite file.

An export has the same tables and columns as an SQLite file and as a directory of Parquet files
(`profkit.readers.nsys_parquet`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from profkit.readers.rows import Texts
from profkit.readers.sqlite_columns import Database, quoted

KERNELS, COPIES, SETS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
RUNTIME, GRAPHS, NVTX = "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "NVTX_EVENTS"
#: Where node-creation events live: the first name until 2023.4 and the second since, told apart by their columns.
NODE_TABLES = ("CUDA_GRAPH_NODE_EVENTS", "CUDA_GRAPH_EVENTS")
META_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")

#: SQLite takes some 32 000 parameters; a statement of this many is short enough to quote in an error.
_CHUNK = 500

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Column:
    """An integer column of a result.

    Args:
        sources: columns of the table: the value is that of the first which is not NULL. Without any it is `default`.
        default: stands for NULL; where it is None, a NULL is an error.
        dtype: of the result.
        zero_is_null: whether a 0 means "none" too.
        summed: the value is the sum of `sources` instead.
    """

    sources: tuple[str, ...]
    default: int | None = None
    dtype: str = "int64"
    zero_is_null: bool = False
    summed: bool = False


@dataclass(frozen=True)
class OneOf:
    """Rows whose integer `column` is one of `values`."""

    column: str
    values: Sequence[int]


@dataclass(frozen=True)
class Text:
    """Rows whose text in `column` begins and ends so."""

    column: str
    begins: str = ""
    ends: str = ""


class Tables(Protocol):
    """The tables of one export. Methods raise ProfkitError where the file is damaged or a value is no integer."""

    path: Path
    tables: frozenset[str]

    @property
    def format(self) -> str:
        """`Info.format`."""
        ...

    def columns(self, table: str) -> frozenset[str]:
        """The column names of `table`; empty where there is no such table."""
        ...

    def integers(self, table: str, columns: Mapping[str, Column], where: OneOf | None = None) -> Arrays:
        """Whole columns by name, in the order of the file's rows."""
        ...

    def integer_batches(self, table: str, columns: Mapping[str, Column]) -> Iterator[Arrays]:
        """The same in pieces of bounded size."""
        ...

    def messages(
        self, table: str, columns: Mapping[str, Column], where: OneOf
    ) -> tuple[Arrays, npt.NDArray[np.int32], list[str]]:
        """Whole columns, and each row's message as a code into the texts.

        The message is the table's `text`, else what its `textId` refers to in StringIds, else "".
        """
        ...

    def rows(self, table: str, columns: Sequence[str], where: OneOf | Text | None = None) -> list[tuple[Any, ...]]:
        """Rows of a small table, or the few of a large one that `where` chooses."""
        ...


class SqliteTables:
    """`Tables` of an SQLite export."""

    format = "nsys sqlite"

    def __init__(self, database: Database) -> None:
        self._db = database
        self.path, self.tables = database.path, database.tables

    def columns(self, table: str) -> frozenset[str]:
        """See `Tables`."""
        return self._db.columns(table)

    def integers(self, table: str, columns: Mapping[str, Column], where: OneOf | None = None) -> Arrays:
        """See `Tables`."""
        sql = f"SELECT {_selected(columns)} FROM {quoted(table)}{_condition(where)}"
        dtypes = {name: column.dtype for name, column in columns.items()}
        return self._db.integers(sql, dtypes, split=None if where else table)

    def integer_batches(self, table: str, columns: Mapping[str, Column]) -> Iterator[Arrays]:
        """See `Tables`."""
        sql = f"SELECT {_selected(columns)} FROM {quoted(table)}"
        for batch in self._db.batches(sql):
            yield self._arrays(batch, columns, sql)

    def messages(
        self, table: str, columns: Mapping[str, Column], where: OneOf
    ) -> tuple[Arrays, npt.NDArray[np.int32], list[str]]:
        """See `Tables`."""
        sources = [f"t.{name}" for name in ("text",) if name in self.columns(table)]
        join = ""
        if "textId" in self.columns(table):
            sources.append("s.value")
            join = " LEFT JOIN StringIds s ON s.id = t.textId"
        message = f"COALESCE({', '.join([*sources, 'NULL', 'NULL'])})"
        sql = f"SELECT {_selected(columns, 't.')}, {message} FROM {quoted(table)} t{join}{_condition(where, 't.')}"
        parts: list[Arrays] = []
        codes: list[npt.NDArray[np.int32]] = []
        texts = Texts()
        for batch in self._db.batches(sql):
            parts.append(self._arrays(batch, columns, sql))
            codes.append(text_codes(batch.column(len(columns)), texts))
        return concatenated(parts, columns), np.concatenate(codes or [np.empty(0, np.int32)]), texts.labels()

    def rows(self, table: str, columns: Sequence[str], where: OneOf | Text | None = None) -> list[tuple[Any, ...]]:
        """See `Tables`."""
        sql = f"SELECT {', '.join(map(quoted, columns))} FROM {quoted(table)}"
        if isinstance(where, Text):
            pattern = _glob_literal(where.begins) + "*" + _glob_literal(where.ends)
            return self._db.rows(f"{sql} WHERE {quoted(where.column)} GLOB ?", (pattern,))
        if where is None:
            return self._db.rows(sql)
        found: list[tuple[Any, ...]] = []
        for first in range(0, len(where.values), _CHUNK):
            chunk = list(where.values[first : first + _CHUNK])
            marks = ", ".join("?" * len(chunk))
            found += self._db.rows(f"{sql} WHERE {quoted(where.column)} IN ({marks})", chunk)
        return found

    def _arrays(self, batch: Any, columns: Mapping[str, Column], sql: str) -> Arrays:
        return {
            name: self._db.integer_column(batch, index, name, column.dtype, sql)
            for index, (name, column) in enumerate(columns.items())
        }


def concatenated(parts: Sequence[Arrays], columns: Mapping[str, Column]) -> Arrays:
    """The batches `parts` one after the other; also of no batch."""
    return {
        name: np.concatenate([part[name] for part in parts] or [np.empty(0, column.dtype)])
        for name, column in columns.items()
    }


def text_codes(array: Any, texts: Texts) -> npt.NDArray[np.int32]:
    """The codes in `texts` of an Arrow text column; NULL is the empty text."""
    import pyarrow as pa

    if array.null_count == len(array):
        return np.full(len(array), texts.codes([""])[0], np.int32)
    # As bytes: texts from C may be cut in the middle of a character, which is no reason to refuse a trace.
    encoded = array.cast(pa.binary()).fill_null(b"").dictionary_encode()
    lookup = texts.codes([value.decode("utf-8", "replace") for value in encoded.dictionary.to_pylist()])
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    return lookup[codes] if len(codes) else np.empty(0, np.int32)


def _selected(columns: Mapping[str, Column], prefix: str = "") -> str:
    return ", ".join(_expression(column, prefix) for column in columns.values())


def _expression(column: Column, prefix: str) -> str:
    names = [prefix + quoted(source) for source in column.sources]
    if column.zero_is_null:
        names = [f"NULLIF({name}, 0)" for name in names]
    if column.summed:
        names = [" + ".join(names)]
    if column.default is None:
        return names[0] if len(names) == 1 else f"COALESCE({', '.join(names)})"
    return f"COALESCE({', '.join([*names, str(column.default)])})" if names else str(column.default)


def _condition(where: OneOf | None, prefix: str = "") -> str:
    if where is None:
        return ""
    return f" WHERE {prefix}{quoted(where.column)} IN ({', '.join(str(int(v)) for v in where.values)})"


def _glob_literal(text: str) -> str:
    """`text` as a GLOB pattern that matches itself alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in text)
