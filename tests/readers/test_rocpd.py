"""rocpd databases, small and inline."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from builders import GUID, rocpd_db

from profkit.errors import ProfkitError
from profkit.model.trace import LAUNCHES, NONE, OP_DETAIL, OPS, RANGES, Process
from profkit.readers import rocpd as reader

START_NS = 9007199254740993
OTHER_GUID = "00003fdc-92cb-72cb-9169-c7e541b1fcdf"
HIP, MARKER = "HIP_RUNTIME_API_EXT", "MARKER_CORE_API"


def region(name: str, start: int, end: int, category: str = HIP, **values: object) -> dict[str, object]:
    return {"name": name, "start": start, "end": end, "category": category, **values}


@pytest.mark.parametrize("schema", ["3", "3.0.0", "3.0.1", "3.0.2", "3.0.3"])
def test_kernels_copies_launches_and_markers(tmp_path: Path, schema: str) -> None:
    path = rocpd_db(
        tmp_path / "22_results.db",
        schema=schema,
        names=["void f<a, b>(int).kd"],
        kernels=[{"start": START_NS, "end": START_NS + 7, "stack": 5, "graph": 7, "node": 3}],
        copies=[{"start": 70, "end": 80, "direction": "MEMORY_COPY_HOST_TO_DEVICE", "stack": 6}],
        regions=[
            region("hipGraphLaunch", 10, 12, stack=5),
            region("hipMalloc", 1, 2),
            region("roctxRangePushA", 5, 90, MARKER, message="layers.3"),
            region("roctxMarkA", 6, 6, MARKER, message="a mark"),
        ],
    )

    trace = reader.read(path, detail=True)

    graph = [7, 3] if schema >= "3.0.2" else [NONE, NONE]
    columns = ["start", "end", "kind", "name", "device", "stream", "correlation", "graph", "node"]
    assert trace.ops[columns].to_numpy().tolist() == [
        [70, 80, "memcpy", "memcpy HtoD", 4, 3, 6, NONE, NONE],
        [START_NS, START_NS + 7, "kernel", "void f<a, b>(int)", 4, 3, 5, *graph],
    ]
    # 1000 work-items in groups of 64 are 16 workgroups, the last one partial.
    assert trace.ops[list(OP_DETAIL)].iloc[1].tolist() == [16, 2, 1, 64, 1, 1, 12, 512, NONE]
    row = {"start": 10, "end": 12, "process": 0, "thread": 23, "correlation": 5, "api": "graph"}
    assert trace.launches.to_dict("records") == [row | {"name": "hipGraphLaunch", "kernel": ""}]
    columns = ["start", "end", "thread", "text", "domain", "nested"]
    assert trace.ranges[columns].to_numpy().tolist() == [[5, 90, 23, "layers.3", "", True]]
    assert trace.info.processes == (Process(22),)
    assert trace.info.devices == {4: "AMD Instinct MI300X"}
    assert trace.info.profiler == f"rocprofv3 (rocpd schema {schema})"
    assert trace.info.graph_trace == "node"


def test_tables_have_the_model_s_columns_and_dtypes(tmp_path: Path) -> None:
    trace = reader.read(rocpd_db(tmp_path / "r.db", kernels=[{"start": 1, "end": 2}]))

    assert trace.ops.dtypes.astype(str).to_dict() == OPS
    assert trace.launches.dtypes.astype(str).to_dict() == LAUNCHES
    assert trace.ranges.dtypes.astype(str).to_dict() == RANGES


def test_merged_databases_keep_their_processes_apart(tmp_path: Path) -> None:
    """F4, F11: two containers with one pid and one correlation id, merged into one file."""
    kernels = [{"start": 5, "end": 9, "stack": 1}]
    merged = rocpd_db(tmp_path / "merged.db", kernels=kernels, names=["a"])
    rocpd_db(merged, guid=OTHER_GUID, kernels=kernels, names=["b"])

    trace = reader.read(merged)

    assert trace.info.processes == (Process(22), Process(22))
    assert trace.ops[["name", "process", "correlation"]].to_numpy().tolist() == [["a", 0, 1], ["b", 1, 1]]


def test_nothing_of_the_recorded_environment_is_kept(tmp_path: Path) -> None:
    """F24."""
    trace = reader.read(
        rocpd_db(tmp_path / "r.db", kernels=[{"start": 1, "end": 2}], regions=[region("hipFree", 1, 2)])
    )

    held = repr(trace.info) + "".join(
        str(list(frame[c].cat.categories))
        for frame in (trace.ops, trace.launches, trace.ranges)
        for c in frame.select_dtypes("category")
    )
    assert "SECRET" not in held
    assert "PATH" not in held


def test_the_file_and_its_folder_stay_as_they_are(tmp_path: Path) -> None:
    path = rocpd_db(tmp_path / "r.db", kernels=[{"start": 1, "end": 2}])
    before = path.read_bytes()
    tmp_path.chmod(0o500)
    path.chmod(0o400)

    assert len(reader.read(path).ops) == 1

    tmp_path.chmod(0o700)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["r.db"]


def test_start_end_ranges_and_messages_of_older_files(tmp_path: Path) -> None:
    regions = [region("roctxRangeStartA", 1, 9, MARKER, message="request"), region("layers.0", 2, 3, MARKER)]

    ranges = reader.read(rocpd_db(tmp_path / "r.db", regions=regions)).ranges

    assert dict(zip(ranges["text"], ranges["nested"], strict=True)) == {"request": False, "layers.0": True}


def test_broken_rows_are_set_aside(tmp_path: Path) -> None:
    """F6."""
    kernels = [{"start": 0, "end": 0}, {"start": 9, "end": 4}, {"start": 4, "end": 5}]

    trace = reader.read(rocpd_db(tmp_path / "r.db", kernels=kernels))

    assert (len(trace.ops), len(trace.set_aside)) == (1, 2)
    assert [d.code for d in trace.info.diagnostics] == ["set-aside"]


@pytest.mark.parametrize("count", [0, 1, 99])
def test_few_kernels(tmp_path: Path, count: int) -> None:
    """F20."""
    kernels = [{"start": i, "end": i + 1} for i in range(1, count + 1)]
    path = rocpd_db(tmp_path / "r.db", kernels=kernels, regions=[region("hipLaunchKernel", 1, 2)])

    assert len(reader.read(path).ops) == count


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    """F8."""
    path = rocpd_db(tmp_path / "r.db", kernels=[{"start": 1, "end": 2}])
    table = "rocpd_kernel_dispatch_" + GUID.replace("-", "_")
    database = sqlite3.connect(path)
    database.execute(f'ALTER TABLE "{table}" RENAME COLUMN kernel_id TO kernel')
    database.close()

    with pytest.raises(ProfkitError, match=rf"r\.db: table {table} has no column kernel_id"):
        reader.read(path)


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    path = rocpd_db(tmp_path / "r.db", kernels=[{"start": 1, "end": 2}])
    table = "rocpd_info_kernel_symbol_" + GUID.replace("-", "_")
    database = sqlite3.connect(path)
    database.execute(f'DROP TABLE "{table}"')
    database.close()

    with pytest.raises(ProfkitError, match=rf"table {table} has no rows, since it is missing"):
        reader.read(path)


def test_other_databases_are_told(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE t (a)")
    database.close()

    assert not reader.sniff(path.read_bytes(), path)
    with pytest.raises(ProfkitError, match="no rocpd"):
        reader.read(path)
    assert reader.sniff(rocpd_db(tmp_path / "r.db").read_bytes(), tmp_path / "r.db")


def test_nothing_recorded(tmp_path: Path) -> None:
    with pytest.raises(ProfkitError, match="--output-format rocpd"):
        reader.read(rocpd_db(tmp_path / "r.db"))
