"""Parquet exports of Nsight Systems → Trace.

``nsys export -t parquetdir`` writes a directory with a file for each table, of the same columns as an SQLite export.
Only the columns that are asked for are read, in batches. Ids of 64 bits come without a sign here and with one from
SQLite; both are read as int64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from profkit.errors import ProfkitError
from profkit.model.trace import NONE, Trace
from profkit.readers import nsys
from profkit.readers.nsys_tables import Arrays, Column, OneOf, Text, concatenated, text_codes
from profkit.readers.rows import Texts

_SUFFIX = ".parquet"
_STRINGS = "StringIds"


def is_export(directory: Path) -> bool:
    """Whether `directory` holds the tables of an nsys export."""
    return nsys.is_nsys({path.stem for path in directory.glob(f"*{_SUFFIX}")})


def sniff(head: bytes, path: Path) -> bool:
    """Whether `path` is the directory of an export, or a file in it."""
    return is_export(path if path.is_dir() else path.parent)


def read(path: Path, *, detail: bool = False) -> Trace:
    """Read an export.

    Args:
        path: the directory, or any of its files.
        detail: also read `OP_DETAIL` (grid, block, registers, shared memory).

    Raises:
        ProfkitError: not an nsys export, damaged, or a table lacks a column that is needed.
    """
    return nsys.read_tables(ParquetTables(path if path.is_dir() else path.parent), detail=detail)


class ParquetTables:
    """`profkit.readers.nsys_tables.Tables` of a directory of Parquet files."""

    format = "nsys parquet"

    def __init__(self, directory: Path) -> None:
        self.path = directory
        self._files = {path.stem: path for path in directory.glob(f"*{_SUFFIX}")}
        self.tables = frozenset(self._files)
        self._columns: dict[str, frozenset[str]] = {}

    def columns(self, table: str) -> frozenset[str]:
        """See `Tables`."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if table not in self._files:
            return frozenset()
        if table not in self._columns:
            try:
                self._columns[table] = frozenset(pq.read_schema(self._files[table]).names)
            except (pa.ArrowException, OSError) as error:
                raise self._damaged(table, error) from None
        return self._columns[table]

    def integers(self, table: str, columns: Mapping[str, Column], where: OneOf | None = None) -> Arrays:
        """See `Tables`."""
        return concatenated(list(self._pieces(table, columns, where)), columns)

    def integer_batches(self, table: str, columns: Mapping[str, Column]) -> Iterator[Arrays]:
        """See `Tables`."""
        return self._pieces(table, columns, None)

    def messages(
        self, table: str, columns: Mapping[str, Column], where: OneOf
    ) -> tuple[Arrays, npt.NDArray[np.int32], list[str]]:
        """See `Tables`."""
        import pyarrow.compute as pc

        own = [name for name in ("text", "textId") if name in self.columns(table)]
        parts: list[Arrays] = []
        codes: list[npt.NDArray[np.int32]] = []
        ids: list[npt.NDArray[np.int64]] = []
        texts = Texts()
        for batch in self._batches(table, [*_sources(columns), *own], where):
            parts.append(self._arrays(table, batch, columns))
            empty = np.full(len(batch), texts.codes([""])[0], np.int32)
            codes.append(text_codes(batch.column("text"), texts) if "text" in own else empty)
            wanted = np.full(len(batch), NONE, np.int64)
            if "textId" in own:
                has_text = pc.is_valid(batch.column("text")) if "text" in own else np.zeros(len(batch), np.bool_)
                referred = self._integer(table, batch, Column(("textId",), NONE), "textId")
                wanted = np.where(np.asarray(has_text), NONE, referred)
            ids.append(wanted)
        code = np.concatenate(codes or [np.empty(0, np.int32)])
        ident = np.concatenate(ids or [np.empty(0, np.int64)])
        unique, place = np.unique(ident, return_inverse=True)
        strings = dict(self.rows(_STRINGS, ["id", "value"], OneOf("id", unique.tolist())))
        lookup = texts.codes([str(strings.get(i) or "") for i in unique.tolist()])
        if len(ident):
            code = np.where(ident == NONE, code, lookup[place.reshape(-1)])
        used, position = np.unique(code, return_inverse=True)
        labels = texts.labels()
        return concatenated(parts, columns), position.reshape(-1).astype(np.int32), [labels[i] for i in used.tolist()]

    def rows(self, table: str, columns: Sequence[str], where: OneOf | Text | None = None) -> list[tuple[Any, ...]]:
        """See `Tables`."""
        chosen = [where.column] if where is not None else []
        found: list[tuple[Any, ...]] = []
        for batch in self._batches(table, [*columns, *chosen], where):
            found += zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
        return found

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _pieces(self, table: str, columns: Mapping[str, Column], where: OneOf | None) -> Iterator[Arrays]:
        for batch in self._batches(table, _sources(columns), where):
            yield self._arrays(table, batch, columns)

    def _batches(self, table: str, names: Sequence[str], where: OneOf | Text | None) -> Iterator[Any]:
        """Record batches of the columns `names`, with the rows that `where` chooses."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        wanted = list(dict.fromkeys([*names, *([where.column] if where is not None else [])]))
        try:
            with pq.ParquetFile(self._files[table]) as file:
                for batch in file.iter_batches(columns=wanted):
                    yield batch if where is None else batch.filter(_chosen(batch, where))
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(table, error) from None

    def _arrays(self, table: str, batch: Any, columns: Mapping[str, Column]) -> Arrays:
        return {name: self._integer(table, batch, column, name) for name, column in columns.items()}

    def _integer(self, table: str, batch: Any, column: Column, name: str) -> npt.NDArray[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not column.sources:
            return np.full(len(batch), column.default, column.dtype)
        parts = [self._signed(table, batch.column(source), source) for source in column.sources]
        if column.zero_is_null:
            parts = [pc.if_else(pc.equal(part, 0), pa.scalar(None, pa.int64()), part) for part in parts]
        value = parts[0]
        for part in parts[1:]:
            value = pc.add(value, part) if column.summed else pc.coalesce(value, part)
        if column.default is not None:
            value = value.fill_null(column.default)
        if value.null_count:
            raise ProfkitError(
                f"{self.path}, table {table}: column {name} holds NULL in {value.null_count} rows, expected integers."
            )
        return np.asarray(value.to_numpy(zero_copy_only=False).astype(column.dtype, copy=False))

    def _signed(self, table: str, array: Any, name: str) -> Any:
        """An integer column as int64; unsigned values wrap, as SQLite has them."""
        import pyarrow as pa

        if not (pa.types.is_integer(array.type) or pa.types.is_null(array.type)):
            raise ProfkitError(
                f"{self.path}, table {table}: column {name} holds values of type {array.type}, expected integers."
            )
        return array.cast(pa.int64(), safe=False)

    def _damaged(self, table: str, error: Exception) -> ProfkitError:
        reason = " ".join(str(error).split())
        return ProfkitError(f"{self._files[table]} cannot be read ({reason}). Export the report again.")


def _sources(columns: Mapping[str, Column]) -> list[str]:
    return [source for column in columns.values() for source in column.sources]


def _chosen(batch: Any, where: OneOf | Text) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = batch.column(where.column)
    if isinstance(where, OneOf):
        return pc.is_in(column.cast(pa.int64(), safe=False), value_set=pa.array(list(where.values), pa.int64()))
    return pc.and_(pc.starts_with(column, where.begins), pc.ends_with(column, where.ends))
