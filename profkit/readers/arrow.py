"""Tables of trace files as typed columns: SQLite databases and directories of Parquet files alike, by way of Arrow.

A column is asked for as `Integers` or as texts. What it may hold is known here alone: 64-bit ids without a sign wrap,
NULL has a default or is an error, texts may be cut in the middle of a character. An error names file, table, row and
value. Only the columns that are asked for are read, in batches. SQLite goes through ADBC: one million rows of eight
integers take about 0.7 s, through Python's sqlite3 about 3 s.
"""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Timer
from types import TracebackType
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from profkit.errors import ProfkitError
from profkit.model.trace import NONE
from profkit.readers import SQLITE_MAGIC
from profkit.readers.files import unpacked
from profkit.readers.rows import Texts

#: Rows in one Arrow batch: large enough that per-batch costs vanish, small enough to stay in cache.
BATCH_ROWS = 1 << 16
#: Tables from this size are read by two threads; below, starting them costs more than it saves.
SPLIT_ROWS = 200_000
#: Values in one SQL statement, which may have a million characters.
_CHUNK = 20_000

_INTEGER = re.compile(rb"-?[0-9]{1,19}")
#: Below it every integer is a float.
_EXACT_FLOATS = float(1 << 53)

#: What is done in SQL may take this long, and longer the more there is to read.
_SECONDS, _BYTES_PER_SECOND = 30, 1e6
#: Bytes of SQLite's file header and of its write-ahead log's.
_HEADER_BYTES, _LOG_HEADER = 100, 32
PARQUET_MAGIC = b"PAR1"
_VIRTUAL = re.compile(r"\s*CREATE\s+VIRTUAL\b", re.IGNORECASE)
_AGAIN = "Copy or export it again."

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Integers:
    """A column of integers.

    Args:
        sources: columns of the table, of which it may have some: the value is that of the first which is not NULL.
            Without any it is `default`.
        default: stands for NULL; where it is None, a NULL is an error.
        optional: whether the table may have none of `sources`.
        dtype: of the result; a value beyond it is an error.
        zero_is_null: whether a 0 means "none" too.
    """

    sources: tuple[str, ...]
    default: int | None = None
    dtype: str = "int64"
    optional: bool = False
    zero_is_null: bool = False

    def within(self, columns: Set[str]) -> Integers:
        """The same of the sources that are among `columns`."""
        return replace(self, sources=tuple(source for source in self.sources if source in columns))


#: What rows of other tables refer to.
ID = Integers(("id",))


@dataclass(frozen=True)
class Coded:
    """A column of texts: each row's index into `labels`, `NONE` for NULL. Two labels may be equal."""

    codes: npt.NDArray[np.int32]
    labels: list[str]

    def tolist(self) -> list[str | None]:
        """One text a row."""
        texts = [*self.labels, None]
        return [texts[code] for code in self.codes.tolist()]

    def mapped(self, value: Callable[[str], Any], of_null: Any) -> npt.NDArray[Any]:
        """What `value` makes of each row's text; `of_null` for NULL."""
        return np.array([*map(value, self.labels), of_null])[self.codes]

    def codes_in(self, texts: Texts, rename: Callable[[str], str] = str) -> npt.NDArray[np.int32]:
        """The codes in `texts` of what `rename` makes of each row's text; of "" for NULL."""
        null = [""] if (self.codes == NONE).any() else []
        return texts.codes([*map(rename, self.labels), *null])[self.codes]


@dataclass(frozen=True)
class OneOf:
    """Rows whose integer `column` is one of `values`."""

    column: str
    values: Sequence[int]


@dataclass(frozen=True)
class Like:
    """Rows whose text in `column` begins and ends so."""

    column: str
    begins: str = ""
    ends: str = ""


@dataclass(frozen=True)
class Origin:
    """Where rows come from, for messages.

    Args:
        place: file and table.
        row: the number of the first row, from 1.
        unit: what is numbered.
    """

    place: str
    row: int = 1
    unit: str = "row"

    def misfit(self, index: int, name: str, found: str, expected: str) -> ProfkitError:
        """That row `index` from here holds `found`."""
        where = f"{self.place}, {self.unit} {self.row + index}"
        return ProfkitError(f"{where}: {name} is {found}, expected {expected}. Export or record it again.")


def built(
    batches: Iterable[pa.RecordBatch], integers: Mapping[str, Integers], texts: Iterable[str], origin: Origin
) -> tuple[Arrays, dict[str, Coded]]:
    """Whole columns from record batches, which hold the sources of `integers` and the columns `texts` by name.

    Raises:
        ProfkitError: a value that is none of the kind asked for.
    """
    parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in integers}
    encoded: dict[str, list[pa.DictionaryArray]] = {name: [] for name in texts}
    for batch in batches:
        for name, column in integers.items():
            parts[name].append(_integers(batch, column, origin))
        for name, dictionaries in encoded.items():
            dictionaries.append(_dictionary(batch.column(name), name, origin))
        origin = replace(origin, row=origin.row + len(batch))
    arrays = {name: np.concatenate(parts.pop(name) or [np.empty(0, column.dtype)]) for name, column in integers.items()}
    return arrays, {name: _coded(dictionaries) for name, dictionaries in encoded.items()}


def _integers(batch: pa.RecordBatch, column: Integers, origin: Origin) -> npt.NDArray[Any]:
    if not column.sources:
        return np.full(len(batch), column.default, column.dtype)
    parts = [as_int64(batch.column(source), source, origin) for source in column.sources]
    if column.zero_is_null:
        parts = [pc.if_else(pc.equal(part, 0), pa.scalar(None, pa.int64()), part) for part in parts]
    value = pc.coalesce(*parts)
    if column.default is not None:
        value = value.fill_null(column.default)
    if value.null_count:
        raise origin.misfit(_first(value.is_null()), " or ".join(column.sources), "NULL", "an integer")
    whole = np.asarray(value.to_numpy(zero_copy_only=False))
    narrow = whole.astype(column.dtype, copy=False)
    if narrow.dtype != whole.dtype and not (narrow == whole).all():
        index = int(np.flatnonzero(narrow != whole)[0])
        bits = 8 * narrow.dtype.itemsize
        raise origin.misfit(index, " or ".join(column.sources), str(whole[index]), f"an integer of {bits} bits")
    return narrow


def as_int64(array: pa.Array, name: str, origin: Origin) -> pa.Array:
    """An Arrow column of integers as int64, with its NULLs. Ids without a sign wrap, as SQLite has them. Where one
    value is a text or a float, SQLite's driver gives them all so; those that are whole numbers are taken as such.

    Raises:
        ProfkitError: a value is no integer.
    """
    kind = array.type
    if pa.types.is_int64(kind):
        return array
    if pa.types.is_integer(kind):
        return array.cast(pa.int64(), safe=False)
    if pa.types.is_null(kind) or array.null_count == len(array):
        return pa.nulls(len(array), pa.int64())
    if _is_text(kind):
        with suppress(pa.ArrowInvalid):
            return array.cast(pa.string()).cast(pa.int64())
    elif pa.types.is_floating(kind) and bool(pc.all(pc.less(pc.abs(array), _EXACT_FLOATS)).as_py()):
        with suppress(pa.ArrowInvalid):
            return array.cast(pa.int64())
    values = array.cast(pa.binary()).to_pylist() if _is_text(kind) else [_value(value) for value in array]
    index = next(i for i, value in enumerate(values) if value is not None and not _is_integer(value))
    raise origin.misfit(index, name, _shown(values[index]), "an integer")


def _is_integer(value: Any) -> bool:
    if isinstance(value, float):
        return abs(value) < _EXACT_FLOATS and value.is_integer()
    return isinstance(value, bytes) and _INTEGER.fullmatch(value) is not None and -(1 << 63) <= int(value) < 1 << 63


def _dictionary(array: pa.Array, name: str, origin: Origin) -> pa.DictionaryArray:
    """A column of texts, dictionary-encoded as bytes: texts from C may be cut in the middle of a character."""
    kind = array.type
    if array.null_count == len(array):
        return pa.nulls(len(array), pa.binary()).dictionary_encode()
    if pa.types.is_dictionary(kind):
        return _dictionary(array.dictionary_decode(), name, origin)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        array = array.cast(pa.string())
    elif not _is_text(kind):
        index = _first(array.is_valid())
        raise origin.misfit(index, name, _shown(_value(array[index])), "a text")
    return array.cast(pa.binary()).dictionary_encode()


def _coded(parts: Sequence[pa.DictionaryArray]) -> Coded:
    if not parts:
        return Coded(np.empty(0, np.int32), [])
    unified = pa.chunked_array(parts).unify_dictionaries()
    codes = [chunk.indices.fill_null(NONE).to_numpy(zero_copy_only=False) for chunk in unified.chunks]
    labels = [value.decode("utf-8", "replace") for value in unified.chunk(0).dictionary.to_pylist()]
    return Coded(np.concatenate(codes).astype(np.int32, copy=False), labels)


def _first(condition: pa.BooleanArray) -> int:
    return int(pc.index(condition, True).as_py())


def _is_text(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary))


def _value(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except ValueError:  # bytes that are no text, a time beyond Python's
        return f"a {value.type}"


def _shown(value: Any) -> str:
    """A value as messages show it, of which no more than its beginning is wanted."""
    text = repr(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)
    return text if len(text) <= 60 else f"{text[:59]}…"


class Tables(ABC):
    """The tables of one file or directory, read-only.

    Args:
        path: for messages.
        tables: their names.

    Attributes:
        of_columns: how the message ends that a column is missing: whose table it is, and what to do.
    """

    of_columns = ". Export or record it again."

    def __init__(self, path: Path, tables: Iterable[str]) -> None:
        self.path, self.tables = path, frozenset(tables)
        self._columns: dict[str, frozenset[str]] = {}

    def columns(self, table: str) -> frozenset[str]:
        """The column names of `table`; empty where there is no such table."""
        if table not in self.tables:
            return frozenset()
        if table not in self._columns:
            self._columns[table] = frozenset(self._names(table))
        return self._columns[table]

    def integers(self, table: str, integers: Mapping[str, Integers], where: OneOf | Like | None = None) -> Arrays:
        """Whole columns by name, in the order of the file's rows; see `read`."""
        return self.read(table, integers, where=where)[0]

    def read(
        self,
        table: str,
        integers: Mapping[str, Integers],
        texts: Sequence[str] = (),
        where: OneOf | Like | None = None,
    ) -> tuple[Arrays, dict[str, Coded]]:
        """Whole columns by name, in the order of the file's rows.

        Args:
            table: must be there.
            integers: name of a result to what it is made of.
            texts: columns of the table.
            where: which rows.

        Raises:
            ProfkitError: damaged, a column that is missing, or a value that is none of the kind asked for.
        """
        have = self.columns(table)
        known = {name: column.within(have) for name, column in integers.items()}
        missing = [
            column.sources[0]
            for name, column in integers.items()
            if column.sources and not known[name].sources and not column.optional
        ]
        missing += [name for name in [*texts, *([where.column] if where else [])] if name not in have]
        if missing or table not in self.tables:
            named = f"column {', '.join(dict.fromkeys(missing))}"
            what = named if table in self.tables else "rows, since it is missing"
            raise ProfkitError(f"{self.path}: table {table} has no {what}{self.of_columns}")
        numbers = list(dict.fromkeys(source for column in known.values() for source in column.sources))
        return built(self._batches(table, numbers, texts, where), known, texts, self._origin(table))

    def texts(self, table: str, text: str, where: OneOf | Like | None = None) -> list[str]:
        """The texts of a column, without NULLs; see `read`."""
        return [value for value in self.read(table, {}, [text], where)[1][text].tolist() if value is not None]

    def texts_by_id(
        self, table: str, text: str, where: OneOf | Like | None = None, ident: Integers = ID
    ) -> dict[int, str]:
        """Texts by the ids beside them, without NULLs; see `read`."""
        rows, texts = self.read(table, {"id": ident}, [text], where)
        pairs = zip(rows["id"].tolist(), texts[text].tolist(), strict=True)
        return {number: value for number, value in pairs if value is not None}

    def _place(self, table: str) -> str:
        return f"{self.path}, table {table}"

    def _origin(self, table: str) -> Origin:
        return Origin(self._place(table))

    @abstractmethod
    def _names(self, table: str) -> Iterable[str]:
        """The column names of `table`, which is there."""

    @abstractmethod
    def _batches(
        self, table: str, integers: Sequence[str], texts: Sequence[str], where: OneOf | Like | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows that `where` chooses, with the columns `integers` and `texts`."""


def quoted(identifier: str) -> str:
    """`identifier` as a quoted SQL name."""
    return '"' + identifier.replace('"', '""') + '"'


class Database(Tables):
    """A SQLite file, plain or gzipped, opened so that it can neither be changed nor get files beside it. The schema is
    probed, since every version of a format has other columns. Of what it holds only plain tables are read: a view or a
    virtual table is a program, which may give rows that nobody recorded, and without end.

    Args:
        path: the file.

    Attributes:
        uri: by which SQLite opens it.

    Raises:
        ProfkitError: it is missing, unreadable, no whole SQLite database, or one that is being written.
    """

    def __init__(self, path: Path) -> None:
        self._unpacked = unpacked(path)
        file = path if self._unpacked is None else Path(self._unpacked.name)
        _check_whole(path, file)
        self._size = file.stat().st_size
        self.uri = f"file:{quote(str(file.resolve()))}?mode=ro&immutable=1"
        self._counted: dict[str, int] = {}
        #: Table and column of those that are declared to hold integers.
        self._integral: set[tuple[str, str]] = set()
        try:
            # Another thread ends what takes too long.
            self._sqlite = sqlite3.connect(self.uri, uri=True, check_same_thread=False)
            # A name is no reason to refuse a trace: texts from C may be cut in the middle of a character.
            self._sqlite.text_factory = lambda raw: raw.decode("utf-8", "replace")
            objects = self._sqlite.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise ProfkitError(f"{path} cannot be read as SQLite ({error}). Export or copy it again.") from None
        tables = {str(name) for kind, name, sql in objects if kind == "table" and not _VIRTUAL.match(str(sql))}
        #: Views and virtual tables.
        self.computed = frozenset(str(name) for kind, name, _ in objects if kind in ("table", "view")) - tables
        super().__init__(path, tables)

    def refuse_computed(self, read: re.Pattern[str]) -> None:
        """Refuse views and virtual tables whose names are those of the tables that a reader wants.

        Raises:
            ProfkitError: there is one.
        """
        found = sorted(name for name in self.computed if read.fullmatch(name))
        if found:
            raise ProfkitError(
                f"{self.path}: {found[0]} is a view or a virtual table, and profkit reads plain tables alone. Give the "
                "file as the profiler or its exporter wrote it."
            )

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._sqlite.close()

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a small query, whose values may be of any type.

        Raises:
            ProfkitError: SQLite reports an error, e.g. a damaged page.
        """
        # Where it has too little time, SQLite says that it was interrupted.
        timer = Timer(_SECONDS + self._size / _BYTES_PER_SECOND, self._sqlite.interrupt)
        timer.daemon = True
        timer.start()
        try:
            return self._sqlite.execute(sql, parameters).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._damaged(f"{self.path}, {_table_of(sql)}", error) from None
        finally:
            timer.cancel()

    def _names(self, table: str) -> Iterable[str]:
        columns = self.rows(f"PRAGMA table_info({quoted(table)})")
        self._integral |= {(table, str(row[1])) for row in columns if "INT" in str(row[2]).upper()}
        return [str(row[1]) for row in columns]

    def _batches(
        self, table: str, integers: Sequence[str], texts: Sequence[str], where: OneOf | Like | None
    ) -> Iterator[pa.RecordBatch]:
        columns = [*map(quoted, integers), *_selected_texts({name: quoted(name) for name in texts})]
        integral = where is not None and (table, where.column) in self._integral
        conditions = _conditions(where, integral=integral) if where else self._halves(table)
        # The second half is read while the first is converted.
        with ThreadPoolExecutor(1) as pool:
            first, *others = (self._query(table, columns, condition) for condition in conditions)
            later = [pool.submit(list, batches) for batches in others]
            yield from _with_nulls(first, texts)
            for part in later:
                yield from _with_nulls(part.result(), texts)

    def _query(self, table: str, columns: Sequence[str], condition: str) -> Iterator[pa.RecordBatch]:
        import adbc_driver_sqlite
        from adbc_driver_manager import Error as AdbcError
        from adbc_driver_sqlite import dbapi

        left = self._rows_of(table)
        option = adbc_driver_sqlite.StatementOptions.BATCH_ROWS.value
        try:
            with (
                dbapi.connect(self.uri) as connection,
                connection.cursor(adbc_stmt_kwargs={option: str(BATCH_ROWS)}) as cursor,
            ):
                cursor.execute(f"SELECT {', '.join(columns)} FROM {quoted(table)} {condition}")
                for batch in cursor.fetch_record_batch():
                    left -= len(batch)
                    if left < 0:
                        raise self._damaged(self._place(table), ValueError("it has more rows than it says"))
                    yield batch
        except (AdbcError, OSError) as error:
            raise self._damaged(self._place(table), error) from None

    def _rows_of(self, table: str) -> int:
        """How many rows `table` has. Pages that refer to one another give rows without end, and the driver that reads
        them cannot be stopped; so they are counted first.

        Raises:
            ProfkitError: more than the file has room for, or counting them does not end.
        """
        if table not in self._counted:
            ((rows,),) = self.rows(f"SELECT count(*) FROM {quoted(table)}")
            if rows > self._size:
                raise ProfkitError(f"{self._place(table)}: {rows} rows are more than the file has room for. {_AGAIN}")
            self._counted[table] = rows
        return self._counted[table]

    def _halves(self, table: str) -> list[str]:
        try:
            # Each alone is a look at one end of the table; asked for together they are a walk through all of it.
            ends = ", ".join(f"(SELECT {end}(rowid) FROM {quoted(table)})" for end in ("min", "max"))
            ((low, high),) = self._sqlite.execute(f"SELECT {ends}").fetchall()
        except sqlite3.OperationalError:  # a table WITHOUT ROWID
            return [""]
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._damaged(self._place(table), error) from None
        if low is None or high - low < SPLIT_ROWS:
            return [""]
        middle = (low + high) // 2
        return [f"WHERE rowid <= {middle}", f"WHERE rowid > {middle}"]

    def _damaged(self, place: str, error: Exception) -> ProfkitError:
        return ProfkitError(f"{place}: cannot be read ({' '.join(str(error).split())}). {_AGAIN}")


def _check_whole(path: Path, file: Path) -> None:
    """Whether the database in `file` has all its pages, and none of them beside it.

    Args:
        path: for messages.

    Raises:
        ProfkitError: it is cut off, or its last write has not ended.
    """
    beside = {suffix: file.with_name(file.name + suffix) for suffix in ("-wal", "-journal")}
    lengths = {suffix: other.stat().st_size for suffix, other in beside.items() if other.is_file()}
    # A log without frames is a header alone; the header of a journal that is done with is zeroed.
    pending = lengths.get("-wal", 0) > _LOG_HEADER
    if "-journal" in lengths:
        with beside["-journal"].open("rb") as journal:
            pending |= any(journal.read(len(SQLITE_MAGIC)))
    if pending:
        raise ProfkitError(
            f"{path} is still being written, or its writer was killed: the file beside it, {' or '.join(lengths)}, "
            "holds part of it. Let the profiler end. If it has, opening the file to write mends it: sqlite3 "
            f"{shlex.quote(path.name)} 'SELECT count(*) FROM sqlite_master'"
        )
    with file.open("rb") as opened:
        head = opened.read(_HEADER_BYTES).ljust(_HEADER_BYTES, b"\0")
    if not head.startswith(SQLITE_MAGIC):
        return
    page, pages = (int.from_bytes(head[first:last], "big") for first, last in ((16, 18), (28, 32)))
    page = 1 << 16 if page == 1 else page
    # Writers before SQLite 3.7 leave the number of pages as it was; then only half a page tells.
    expected = page * pages if head[24:28] == head[92:96] else 0
    size = file.stat().st_size
    if size < expected or (page and size % page):
        wanted = f"{expected:,}" if size < expected else f"a multiple of {page:,}"
        raise ProfkitError(f"{path} is cut off: it has {size:,} bytes, and its header says {wanted}. {_AGAIN}")


class ParquetTables(Tables):
    """A directory of Parquet files, each a table."""

    def __init__(self, directory: Path) -> None:
        self._files = {path.stem: path for path in directory.glob("*.parquet") if path.is_file()}
        super().__init__(directory, self._files)
        for table, path in self._files.items():
            with path.open("rb") as file:
                head = file.read(len(PARQUET_MAGIC))
                file.seek(-min(len(PARQUET_MAGIC), path.stat().st_size), os.SEEK_END)
                if not head == file.read() == PARQUET_MAGIC:
                    raise self._damaged(table, ValueError("it is cut off, or no Parquet file"))

    def _names(self, table: str) -> Iterable[str]:
        import pyarrow.parquet as pq

        try:
            return [str(name) for name in pq.read_schema(self._files[table]).names]
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self._damaged(table, error) from None

    def _batches(
        self, table: str, integers: Sequence[str], texts: Sequence[str], where: OneOf | Like | None
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        names = list(dict.fromkeys([*integers, *texts, *([where.column] if where else [])]))
        try:
            with pq.ParquetFile(self._files[table]) as file:
                for batch in file.iter_batches(columns=names):
                    yield batch if where is None else batch.filter(self._chosen(table, batch, where))
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(table, error) from None

    def _chosen(self, table: str, batch: pa.RecordBatch, where: OneOf | Like) -> pa.BooleanArray:
        column, origin = batch.column(where.column), self._origin(table)
        if isinstance(where, OneOf):
            return pc.is_in(as_int64(column, where.column, origin), value_set=pa.array(where.values, pa.int64()))
        texts = _dictionary(column, where.column, origin).dictionary_decode()
        return pc.and_(pc.starts_with(texts, where.begins), pc.ends_with(texts, where.ends))

    def _damaged(self, table: str, error: Exception) -> ProfkitError:
        reason = " ".join(str(error).split())
        return ProfkitError(f"{self._files[table]} cannot be read ({reason}). {_AGAIN}")


def _selected_texts(texts: Mapping[str, str]) -> list[str]:
    """Texts with a column beside each that says which are NULL: the driver takes a type from the first rows, and takes
    NULLs for integers."""
    return [
        selected
        for name, sql in texts.items()
        for selected in (f"COALESCE(CAST({sql} AS TEXT), '') AS {quoted(name)}", f"({sql}) IS NULL")
    ]


def _with_nulls(batches: Iterable[pa.RecordBatch], texts: Iterable[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for name in texts:
            place = batch.schema.get_field_index(name)
            absent = pc.equal(batch.column(place + 1), 1)
            column = pc.if_else(absent, pa.scalar(None, batch.column(place).type), batch.column(place))
            batch = batch.set_column(place, name, column)
        yield batch


def _conditions(where: OneOf | Like, *, integral: bool) -> list[str]:
    """SQL conditions that choose the rows of `where`, one part after the other.

    Args:
        integral: whether its column is declared to hold integers. In another an integer may stand as a text, which
            equals no integer.
    """
    column = quoted(where.column)
    if isinstance(where, Like):
        begins, ends = (f"'{_glob_literal(text)}'" for text in (where.begins, where.ends))
        return [f"WHERE {column} GLOB {begins} || '*' || {ends}"]
    values = [str(int(value)) for value in where.values]
    chunks = [values[first : first + _CHUNK] for first in range(0, len(values), _CHUNK)] or [[]]
    number = column if integral else f"CAST({column} AS INTEGER)"
    return [f"WHERE {number} IN ({', '.join(chunk)})" for chunk in chunks]


def _glob_literal(text: str) -> str:
    """`text` as a GLOB pattern that matches itself alone, inside a quoted SQL text."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in text).replace("'", "''")


def _table_of(sql: str) -> str:
    words = sql.split()
    lowered = [w.upper() for w in words]
    return "table " + words[lowered.index("FROM") + 1].strip('"') if "FROM" in lowered else "the database"
