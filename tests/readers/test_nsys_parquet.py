"""A Parquet export reads as the SQLite export of the same recording does."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import SHARED

from profkit import readers
from profkit.errors import ProfkitError
from profkit.model.trace import OP_DETAIL, Trace
from profkit.readers import nsys

H200 = SHARED / "h200"
CORPUS = SHARED / "corpus"
TABLES = ("ops", "launches", "ranges", "nodes", "set_aside")
#: Columns that nsys writes without a sign, and with 32 bits, as an export of 2023.4 has them.
UNSIGNED = {"globalTid", "globalPid", "endGlobalTid", "domainId", "rangeId", "correlationId", "graphNodeId", "nameId"}
SHORT = {"id", "deviceId", "gridX"}


def exports() -> list[Any]:
    """The SQLite exports beside the repository, or one skipped stand-in."""
    found = sorted([*H200.glob("*.sqlite"), *CORPUS.rglob("*.sqlite")])
    if not found:
        skipped = pytest.mark.skip(reason="no nsys exports beside the repository")
        return [pytest.param(H200, marks=skipped, id="none")]
    return [pytest.param(path, id=path.name) for path in found]


def parquetdir(database: Path, folder: Path) -> Path:
    """What ``nsys export -t parquetdir`` writes of the same report."""
    folder.mkdir()
    connection = sqlite3.connect(f"file:{database}?mode=ro&immutable=1", uri=True)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    tables = [n for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        cursor = connection.execute(f'SELECT * FROM "{table}"')
        names = [d[0] for d in cursor.description]
        values = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(names)
        columns = {name: arrow(name, list(column)) for name, column in zip(names, values, strict=True)}
        pq.write_table(pa.table(columns), folder / f"{table}.parquet")
    connection.close()
    return folder


def arrow(name: str, values: list[Any]) -> pa.Array:
    if name in UNSIGNED and all(isinstance(v, int | None) for v in values):
        return pa.array([None if v is None else v % (1 << 64) for v in values], pa.uint64())
    if name in SHORT and all(isinstance(v, int | None) for v in values):
        return pa.array(values, pa.int32())
    if any(isinstance(v, str) for v in values):
        return pa.array([None if v is None else str(v) for v in values], pa.string())
    return pa.array(values)


def assert_same(left: Trace, right: Trace) -> None:
    """Equal rows, columns, dtypes and provenance; categories may be listed in another order."""
    for name in TABLES:
        pd.testing.assert_frame_equal(getattr(left, name), getattr(right, name), check_categorical=False)
    for field in ("vendor", "profiler", "devices", "processes", "graph_trace", "timed", "diagnostics"):
        assert getattr(left.info, field) == getattr(right.info, field)


@pytest.mark.parametrize("path", exports())
def test_a_whole_trace_is_the_same(tmp_path: Path, path: Path) -> None:
    expected = readers.read(path, detail=True)

    trace = readers.read(parquetdir(path, tmp_path / "x_pqtdir"), detail=True)

    assert_same(trace, expected)
    assert trace.info.format == "nsys parquet"
    assert set(OP_DETAIL) <= set(trace.ops.columns)


def write(folder: Path, **tables: dict[str, Any]) -> Path:
    """An export of these tables, each with its columns."""
    folder.mkdir(exist_ok=True)
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    return folder


def minimal(folder: Path, **kernel: Any) -> Path:
    """Two kernels in a process whose ids have the highest bit, and a registered range."""
    process = np.array([(1 << 63) | (77 << 24)] * 2, np.uint64)
    kernels = {"start": [10, 30], "end": [20, 50], "demangledName": [1, 1], "globalPid": process} | kernel
    ranges = {"start": [5, 6], "end": [60, None], "eventType": [59, 59], "text": [None, "plain"], "textId": [2, None],
              "globalTid": process | 78}  # fmt: skip
    strings = {"id": pa.array([1, 2], pa.int32()), "value": ["k", "registered"]}
    return write(folder, CUPTI_ACTIVITY_KIND_KERNEL=kernels, NVTX_EVENTS=ranges, StringIds=strings)


def test_ids_with_the_highest_bit_wrap(tmp_path: Path) -> None:
    trace = readers.read(minimal(tmp_path / "x"))

    assert [p.pid for p in trace.info.processes] == [77]
    assert set(trace.ops["process"]) == set(trace.ranges["process"]) == {0}
    assert trace.ranges["thread"].tolist() == [78, 78]


def test_registered_and_plain_texts_are_both_read(tmp_path: Path) -> None:
    ranges = readers.read(minimal(tmp_path / "x")).ranges

    assert ranges[["text", "end", "clipped"]].values.tolist() == [["registered", 60, False], ["plain", 60, True]]
    assert list(ranges["text"].cat.categories) == ["plain", "registered"]


def test_any_file_of_the_export_opens_it_whatever_its_name(tmp_path: Path) -> None:
    folder = minimal(tmp_path / "not called so")
    whole = readers.read(folder)

    assert_same(readers.read(folder / "StringIds.parquet"), whole)


@pytest.mark.parametrize("rows", [0, 1, 99])
def test_traces_of_few_kernels(tmp_path: Path, rows: int) -> None:
    """F20."""
    kernels: dict[str, Any] = {n: pa.array(range(rows), pa.int64()) for n in ("start", "demangledName")}
    kernels["end"] = pa.array(range(1, rows + 1), pa.int64())
    strings = {"id": pa.array(range(rows), pa.int32()), "value": pa.array([f"k{i}" for i in range(rows)], pa.string())}
    folder = write(tmp_path / "x", CUPTI_ACTIVITY_KIND_KERNEL=kernels, StringIds=strings)

    ops = readers.read(folder).ops

    assert ops["name"].tolist() == [f"k{i}" for i in range(rows)]


def broken(folder: Path) -> Iterator[tuple[Callable[[], object], str]]:
    kernel = folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    yield lambda: kernel.write_bytes(kernel.read_bytes()[:-20]), r"KERNEL\.parquet cannot be read \(.*export it again"
    yield lambda: minimal(folder, end=pa.array(["20", "x"])), r"KERNEL, row 2: end is 'x', expected an integer"
    yield lambda: minimal(folder, end=[20, None]), r"KERNEL, row 2: end is NULL, expected an integer"
    yield (
        lambda: write(folder, CUPTI_ACTIVITY_KIND_KERNEL={"start": [1]}),
        r"KERNEL has no column end, demangledName \(export by nsys of unknown version\)",
    )


@pytest.mark.parametrize("case", range(4))
def test_what_is_wrong_is_named(tmp_path: Path, case: int) -> None:
    """F8 for this format: table, column and version; also damaged files and values of another type."""
    spoil, message = list(broken(minimal(tmp_path / "x")))[case]
    spoil()

    with pytest.raises(ProfkitError, match=message):
        readers.read(tmp_path / "x")


def test_other_directories_and_parquet_files_are_no_export(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"a": [1]}), path)

    assert not nsys.sniff(b"", tmp_path)
    with pytest.raises(ProfkitError, match="a directory without run"):
        readers.read(tmp_path)
    with pytest.raises(ProfkitError, match="of no format that profkit knows"):
        readers.read(path)


def test_only_the_strings_that_are_referred_to_are_kept(tmp_path: Path) -> None:
    """F24: the string table holds the environment too."""
    folder = minimal(tmp_path / "x")
    strings = {"id": [1, 2, 3], "value": ["k", "registered", "TOKEN=SECRET"]}
    write(folder, StringIds=strings, META_DATA_CAPTURE={"name": ["ENVIRONMENT_VARIABLE"], "value": ["TOKEN=SECRET"]})

    trace = readers.read(folder)

    texts = [repr(trace.info), *(repr(list(t[c].cat.categories)) for t in (trace.ops, trace.ranges) for c in t
             if isinstance(t[c].dtype, pd.CategoricalDtype))]  # fmt: skip
    assert "SECRET" not in "".join(texts)
