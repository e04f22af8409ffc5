"""Inputs that broke other tools, through every reader: identity, broken rows, missing rows, size, privacy.

F8, F12 and F15 of AMD's formats are in test_rocpd.py and test_rocprof_csv.py; F17's pairing of names, in
tests/analysis.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from adbc_driver_sqlite import dbapi
from recordings import FORMATS, SECRET, Kernel, Launch, Range, Recording, nsys_sqlite

from profkit import readers
from profkit.cli import main
from profkit.commands.scrub import scrub
from profkit.counting.count import take_census
from profkit.errors import ProfkitError
from profkit.model.selection import Selection
from profkit.model.trace import NONE, Trace

Write = Callable[[Path, Recording], Path]
every_format = pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS.keys())


def codes(trace: Trace) -> list[str]:
    return [d.code for d in trace.info.diagnostics]


def pid_of_each(trace: Trace, table: pd.DataFrame, column: str) -> dict[object, int]:
    pids = [trace.info.processes[i].pid for i in table["process"]]
    return dict(zip(table[column].tolist(), pids, strict=True))


# -- F4: identity -----------------------------------------------------------------------------------------------------


@every_format
def test_f4_one_correlation_id_in_two_processes(tmp_path: Path, write: Write) -> None:
    # GIVEN two processes that number their launches alike, and a kernel whose launch was not recorded
    kernels = [Kernel("a", 20, 30, pid=10), Kernel("b", 21, 31, pid=20), Kernel("orphan", 40, 41, 99, pid=20)]
    launches = [Launch(5, pid=10), Launch(6, pid=20)]

    trace = readers.read(write(tmp_path, Recording(kernels, launches)))

    # THEN each kernel belongs to its process's launch, and the orphan is counted and not guessed
    if trace.info.format == "kineto":
        # Kineto writes no process beside an op: an id that is not unique tells none.
        assert set(pid_of_each(trace, trace.ops, "name").values()) == {NONE}
        assert "ambiguous-process" in codes(trace)
    else:
        assert pid_of_each(trace, trace.ops, "name") == {"a": 10, "b": 20, "orphan": 20}
        joined = trace.ops.merge(trace.launches, on=["process", "correlation"], suffixes=("", "_call"))
        assert dict(zip(joined["name"], joined["start_call"], strict=True)) == {"a": 5, "b": 6}
        assert take_census(trace, Selection()).ledger.unattributed == 1


@every_format
def test_f4_every_kernel_without_its_launch_is_unattributed(tmp_path: Path, write: Write) -> None:
    kernels = [Kernel("k", 10 * i, 10 * i + 5, i) for i in range(1, 8)]

    trace = readers.read(write(tmp_path, Recording(kernels, [Launch(1, correlation=3)])))

    assert take_census(trace, Selection()).ledger.unattributed == 6


# -- F6: rows without valid times -------------------------------------------------------------------------------------


@every_format
@pytest.mark.parametrize(
    ("start", "end"),
    [(0, 0), (50, 40), (50, 9 * 10**18), (50, 50 + 24 * 3600 * 10**9 + 1)],
    ids=["zeros", "ends before it starts", "no time", "longer than a day"],
)
def test_f6_rows_without_times_are_set_aside(tmp_path: Path, write: Write, start: int, end: int) -> None:
    kernels = [Kernel("good", 20, 30), Kernel("broken", start, end), Kernel("empty", 35, 35)]

    trace = readers.read(write(tmp_path, Recording(kernels, [Launch(5)])))

    assert trace.ops["name"].tolist() == ["good", "empty"]
    assert trace.set_aside["name"].tolist() == ["broken"]
    (note,) = [d for d in trace.info.diagnostics if d.code == "set-aside"]
    assert note.message.startswith("1 of 3 ops")


# -- F8: other schemas ------------------------------------------------------------------------------------------------

NEEDED = {
    "CUPTI_ACTIVITY_KIND_KERNEL": ["start", "end", "demangledName"],
    "CUPTI_ACTIVITY_KIND_RUNTIME": ["start", "end", "globalTid", "correlationId", "nameId"],
    "NVTX_EVENTS": ["start", "end", "eventType", "globalTid"],
}


@pytest.mark.parametrize(("table", "column"), [(t, c) for t, columns in NEEDED.items() for c in columns])
def test_f8_a_column_that_is_absent_is_named_with_its_table_and_version(
    tmp_path: Path, table: str, column: str
) -> None:
    path = nsys_sqlite(tmp_path, Recording([Kernel("k", 1, 2)], [Launch(0)], [Range("layers.0", 0, 9)]))
    alter(path, f'ALTER TABLE {table} DROP COLUMN "{column}"')

    with pytest.raises(ProfkitError) as caught:
        readers.read(path)

    assert f"table {table} has no column {column} (export by nsys 2025.3.1.90)" in str(caught.value)
    assert "nsys export -t sqlite" in str(caught.value)


@pytest.mark.parametrize("column", ["deviceId", "streamId", "correlationId", "globalPid", "graphNodeId"])
def test_f8_a_column_that_can_be_missed_makes_a_smaller_answer(tmp_path: Path, column: str) -> None:
    path = nsys_sqlite(tmp_path, Recording([Kernel("k", 1, 2)], [Launch(0)]))
    alter(path, f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN {column}")

    ops = readers.read(path).ops

    assert ops[["name", "start", "end"]].to_numpy().tolist() == [["k", 1, 2]]


@pytest.mark.parametrize("table", ["CUDA_GRAPH_EVENTS", "CUDA_GRAPH_NODE_EVENTS"])
def test_f8_node_events_under_either_name_are_found_by_their_columns(tmp_path: Path, table: str) -> None:
    # GIVEN the names of 2023.4 and of later versions, where the old name holds events of whole graphs
    path = nsys_sqlite(tmp_path, Recording([Kernel("k", 1, 2)]))
    alter(path, f"CREATE TABLE {table} (start, end, globalTid, graphNodeId, originalGraphNodeId)")
    alter(path, f"INSERT INTO {table} VALUES (5, 6, {1 << 48 | 10 << 24 | 11}, 77, NULL)")
    if table != "CUDA_GRAPH_EVENTS":
        alter(path, "CREATE TABLE CUDA_GRAPH_EVENTS (start, end, globalTid, graphId, graphExecId)")

    nodes = readers.read(path).nodes

    assert nodes[["node", "origin", "created", "thread"]].to_numpy().tolist() == [[77, NONE, 5, 11]]


# -- F9, F15: ranges that do not close --------------------------------------------------------------------------------

MARK, PUSH_POP, START_END, DOMAIN = 34, 59, 60, 75


def nvtx(path: Path, *rows: tuple[int, int | None, int, str, int]) -> Path:
    """Add rows of (start, end, event type, text, thread) in domain 0."""
    for start, end, style, text, thread in rows:
        stop = "NULL" if end is None else end
        values = f"{start}, {stop}, {style}, '{text}', {1 << 48 | 10 << 24 | thread}"
        alter(path, f"INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES ({values})")
    return path


def alter(path: Path, sql: str) -> None:
    database = sqlite3.connect(path)
    database.execute(sql)
    database.commit()
    database.close()


def nsys_step(folder: Path) -> Path:
    """A kernel launched at 20 on thread 10 within layers.0, ending at 90."""
    return nsys_sqlite(folder, Recording([Kernel("k", 80, 90)], [Launch(20)], [Range("layers.0", 10, 30)]))


def test_f9_rows_without_an_end(tmp_path: Path) -> None:
    rows = [(0, None, DOMAIN, "a domain", 10), (1, None, MARK, "a mark", 10), (15, None, PUSH_POP, "mla", 10)]

    trace = readers.read(nvtx(nsys_step(tmp_path), *rows))

    # THEN the unclosed range lasts to the end of the recording, which is said; a creation and a mark are no ranges
    ranges = trace.ranges[["text", "end", "clipped"]].to_numpy().tolist()
    assert ranges == [["layers.0", 30, False], ["mla", 90, True]]
    (note,) = [d for d in trace.info.diagnostics if d.code == "unclosed-range"]
    assert note.message.startswith("1 range was never closed and is taken")
    assert take_census(trace, Selection()).ledger.in_layers == 1


def test_f15_start_end_ranges_stay_out_of_the_stack(tmp_path: Path) -> None:
    # GIVEN requests that begin on one thread, end on another, and mostly never
    requests = [(2 * i, None if i % 5 else 200, START_END, f"layers.{i}.request", 10 + i % 3) for i in range(1, 50)]

    trace = readers.read(nvtx(nsys_step(tmp_path), *requests))

    assert trace.ranges.groupby("nested").size().to_dict() == {False: 49, True: 1}
    assert int(trace.ranges["clipped"].sum()) == 40
    census = take_census(trace, Selection())
    assert census.ledger.in_layers == 1
    assert census.chosen.layers["scope"].tolist() == ["layers.0"]


@every_format
@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("{'Module': 'model.layers.3.self_attn', 'Inputs': [[2, 7168]]}", "model.layers.3.self_attn"),
        ("model.layers.3.mlp in=[2,7168]", "model.layers.3.mlp"),
        ("layers.3", "layers.3"),
    ],
)
def test_hook_texts_are_reduced_to_the_module(tmp_path: Path, write: Write, text: str, module: str) -> None:
    ranges = readers.read(write(tmp_path, Recording([Kernel("k", 5, 6)], [Launch(2)], [Range(text, 1, 9)]))).ranges

    assert ranges["text"].tolist() == [module]


# -- F10: names of calls ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recorded", "api"),
    [
        ("cudaGraphLaunch_v10000", "graph"),
        ("cuGraphLaunch", "graph"),
        ("cuGraphLaunch_ptsz", "graph"),
        ("cudaGraphLaunch_ptsz_v10000", "graph"),
        ("cudaLaunchKernel_v7000", "kernel"),
        ("cudaLaunchKernelExC_v11060", "kernel"),
        ("cuLaunchKernelEx", "kernel"),
        ("cudaMemcpyAsync_v3020", "memcpy"),
        ("cuMemsetD8Async", "memset"),
        ("cudaGraphInstantiate_v12000", None),
        ("cudaStreamBeginCapture_v10000", None),
        ("cudaLaunchHostFunc_v10000", None),
    ],
)
def test_f10_launches_by_either_api_and_any_abi(tmp_path: Path, recorded: str, api: str | None) -> None:
    path = nsys_sqlite(tmp_path, Recording([Kernel("k", 5, 6)], [Launch(1, name=recorded)]))

    launches = readers.read(path).launches

    assert launches["api"].tolist() == ([] if api is None else [api])
    assert not any("_v" in name or "_ptsz" in name for name in launches["name"])


# -- F11: processes that share a file or are missing ------------------------------------------------------------------


def test_f11_eight_workers_in_one_file_stay_eight(tmp_path: Path) -> None:
    kernels = [Kernel(f"of {p}", 20 + p, 30 + p, pid=p) for p in range(10, 18)]
    launches = [Launch(p, pid=p) for p in range(10, 18)]
    for name in ("nsys sqlite", "nsys parquet", "rocprofv3 csv", "rocprofv3 json", "rocpd"):
        folder = tmp_path / name
        folder.mkdir()
        trace = readers.read(FORMATS[name](folder, Recording(kernels, launches)))

        assert pid_of_each(trace, trace.ops, "name") == {f"of {p}": p for p in range(10, 18)}
        # Only CSV has to infer it, which is said.
        mixed = [d.message for d in trace.info.diagnostics if d.code == "mixed-processes"]
        assert len(mixed) == (name == "rocprofv3 csv")
        assert all("8 processes are one" in message and "%pid%" in message for message in mixed)


def test_f11_a_file_that_workers_overwrote_in_turns_is_refused_with_the_fix(tmp_path: Path) -> None:
    # GIVEN a second worker that began the file anew, behind the rows of the first
    path = FORMATS["rocprofv3 csv"](tmp_path, Recording([Kernel("k", 5, 6)]))
    path.write_text(path.read_text() * 2)

    with pytest.raises(ProfkitError, match=r"line 3: the header stands here again.* rocprofv3 -o NAME_%pid%"):
        readers.read(path)


COLLECTIVES = [
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)",
]


@every_format
@pytest.mark.parametrize("name", COLLECTIVES)
def test_f11_one_rank_of_several_is_said(tmp_path: Path, write: Write, name: str) -> None:
    trace = readers.read(write(tmp_path, Recording([Kernel("k", 5, 6), Kernel(name, 7, 9)], [Launch(1)])))

    (note,) = [d for d in trace.info.diagnostics if d.code == "one-of-several-processes"]
    assert ("%pid%" in note.message) == (trace.info.vendor == "amd")


@every_format
def test_f11_nothing_is_said_where_nothing_is_missing(tmp_path: Path, write: Write) -> None:
    alone = Recording([Kernel("nccl_like_name_of_mine", 5, 6)], [Launch(1)])
    both = Recording([Kernel(COLLECTIVES[0], 5, 6, pid=p, correlation=p) for p in (10, 20)],
                     [Launch(1, p, p) for p in (10, 20)])  # fmt: skip
    for number, recording in enumerate((alone, both)):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert "one-of-several-processes" not in codes(readers.read(write(folder, recording)))


# -- F16, F20: little or nothing --------------------------------------------------------------------------------------


@every_format
def test_f16_without_any_call_the_answer_is_smaller(tmp_path: Path, write: Write) -> None:
    trace = readers.read(write(tmp_path, Recording([Kernel("k", 5, 6)])))

    assert (len(trace.ops), len(trace.launches), len(trace.ranges)) == (1, 0, 0)
    assert {p.rank for p in trace.info.processes} <= {None}


@every_format
def test_f16_ranges_alone_open_and_say_that_nothing_ran(
    tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, Recording(ranges=[Range("layers.0", 1, 9)]))

    trace = readers.read(path)

    assert (len(trace.ops), len(trace.ranges)) == (0, 1)
    if path.is_file():
        assert run(["layers", str(path)]) in (2, 3)
        assert capsys.readouterr().err.count("\n") <= 1


@every_format
def test_f16_metadata_alone_is_one_line_and_no_answer(
    tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, Recording())
    if path.is_dir():
        path = path / "StringIds.parquet"

    assert run(["diff", str(path), str(path)]) in (2, 3)

    shown = capsys.readouterr()
    assert "Traceback" not in shown.out + shown.err
    assert shown.err.count("\n") <= 1
    assert shown.out + shown.err


@every_format
@pytest.mark.parametrize("count", [0, 1, 99])
def test_f20_few_kernels(tmp_path: Path, write: Write, count: int) -> None:
    kernels = [Kernel(f"k{i}", 10 * i, 10 * i + 5, i) for i in range(1, count + 1)]
    launches = [Launch(10 * i - 5, i) for i in range(1, count + 1)] or [Launch(1)]

    trace = readers.read(write(tmp_path, Recording(kernels, launches, [Range("layers.0", 0, 2000)])))

    assert trace.ops["name"].tolist() == [k.name for k in kernels]
    assert int((trace.ops["end"] - trace.ops["start"]).sum()) == 5 * count
    assert trace.ops["correlation"].isin(trace.launches["correlation"]).all()
    assert take_census(trace, Selection()).ledger.in_layers == count


# -- F17: names as they were recorded ---------------------------------------------------------------------------------


@every_format
@pytest.mark.parametrize(
    "name",
    [
        "void at::native::vectorized_elementwise_kernel<4, at::native::Fil",  # cut at 63 characters
        "_Z15addition_kernelIfEvPT_PKS0_S3_ii",
        "void addition_kernel<float>(float*, float const*, float const*, int, int)",
        "addition_kernel",
    ],
)
def test_f17_names_arrive_as_recorded(tmp_path: Path, write: Write, name: str) -> None:
    trace = readers.read(write(tmp_path, Recording([Kernel(name, 5, 6)], [Launch(1)])))

    assert trace.ops["name"].tolist() == [name]


# -- F23: size --------------------------------------------------------------------------------------------------------

#: Ranges of the large export, and the bytes of memory that reading may take for each: the trace itself holds 33,
#: sorting it needs a second copy, and the batches a third.
RANGES, BYTES_PER_RANGE = 1_000_000, 200
FILL = f"""
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {RANGES} - 1)
INSERT INTO NVTX_EVENTS SELECT 10 * i, 10 * i + 5, 59, 'model.layers.' || (i % 64), {1 << 48 | 10 << 24 | 10} FROM n
"""
PEAK = """
import resource, sys, pathlib
import adbc_driver_sqlite.dbapi, pandas, pyarrow.compute, pyarrow.parquet
from profkit import readers
from profkit.readers import nsys, refused
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ranges = readers.read(pathlib.Path(sys.argv[1])).ranges
print(len(ranges), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.parametrize("name", ["nsys sqlite", "nsys parquet"])
def test_f23_memory_is_bounded_by_the_ranges_kept(tmp_path: Path, name: str) -> None:
    path = nsys_sqlite(tmp_path, Recording([Kernel("k", 5, 6)], [Launch(1)], [Range("layers.0", 0, 9)]))
    alter(path, FILL)
    if name == "nsys parquet":
        path = large_parquet(tmp_path, path)

    done = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True)

    count, peak = map(int, done.stdout.split())
    assert count == RANGES + 1
    assert peak < RANGES * BYTES_PER_RANGE


def large_parquet(folder: Path, database: Path) -> Path:
    """The export at `database` with its ranges, as Parquet."""
    path = FORMATS["nsys parquet"](folder, Recording([Kernel("k", 5, 6)], [Launch(1)]))
    with dbapi.connect(f"file:{database}?mode=ro") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM NVTX_EVENTS")
        reader = cursor.fetch_record_batch()
        with pq.ParquetWriter(path / "NVTX_EVENTS.parquet", reader.schema) as writer:
            for batch in reader:
                writer.write_table(pa.Table.from_batches([batch]))
    return path


# -- F24: privacy -----------------------------------------------------------------------------------------------------


def run(arguments: list[str]) -> int:
    """The exit status of the command line."""
    try:
        main(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    return 0


def private(folder: Path, write: Write) -> Path:
    """A recording whose environment and paths hold a secret, with two replays of a layer."""
    kernels = [Kernel("decode", 100 * i, 100 * i + 50, i) for i in (1, 2)]
    launches = [Launch(100 * i - 20, i) for i in (1, 2)]
    ranges = [Range("layers.0", 100 * i - 30, 100 * i - 10) for i in (1, 2)]
    return write(folder, Recording(kernels, launches, ranges))


@every_format
def test_f24_a_trace_holds_nothing_of_the_environment(tmp_path: Path, write: Write) -> None:
    path = private(tmp_path, write)
    files = path.iterdir() if path.is_dir() else [path]
    trace = readers.read(path)

    held = repr(trace.info) + "".join(
        repr(list(table[column].cat.categories))
        for table in (trace.ops, trace.launches, trace.ranges, trace.nodes, trace.set_aside)
        for column in table.select_dtypes("category")
    )
    if trace.info.format != "rocprofv3 csv":  # which holds no environment
        assert any(b"hunter2" in f.read_bytes() or b"SECRET" in f.read_bytes() for f in files)
    assert "hunter2" not in held
    assert "SECRET" not in held
    assert SECRET.partition("=")[0] not in held


@every_format
@pytest.mark.parametrize("output", ["text", "json", "csv", "md"])
def test_f24_no_output_shows_the_environment(
    tmp_path: Path, write: Write, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = private(tmp_path, write)
    if path.is_dir():
        path = path / "StringIds.parquet"

    assert run(["layers", str(path), "--format", output]) == 0
    shown = capsys.readouterr()
    assert "decode" in shown.out
    assert run(["diff", str(path), str(path), "--format", output if output != "csv" else "json"]) == 0
    shown_too = capsys.readouterr()
    for text in (shown.out, shown.err, shown_too.out, shown_too.err):
        assert "hunter2" not in text
        assert "SECRET" not in text
        assert "/home/" not in text


# -- integers of another type -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nsys sqlite", "rocpd"])
@pytest.mark.parametrize("kind", ["TEXT", "REAL"])
def test_integers_that_stand_as_texts_or_floats_are_read(tmp_path: Path, name: str, kind: str) -> None:
    kernels = [Kernel(f"k{i}", 100 * i, 100 * i + 5, i) for i in range(1, 4)]
    launches, ranges = [Launch(100 * i - 50, i) for i in range(1, 4)], [Range("layers.0", 10, 400)]
    path = FORMATS[name](tmp_path, Recording(kernels, launches, ranges))
    expected = readers.read(path)
    # GIVEN the same database, in which no column has a type, and each integer below 2^53 is another's
    database = sqlite3.connect(path)
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
        changed = (
            f'iif(typeof("{c}") = \'integer\' AND "{c}" < 1 << 53, CAST("{c}" AS {kind}), "{c}")' for c in columns
        )
        selected = ", ".join(f'{value} AS "{c}"' for value, c in zip(changed, columns, strict=True))
        database.execute(f'CREATE TABLE changed AS SELECT {selected} FROM "{table}"')
        database.execute(f'DROP TABLE "{table}"')
        database.execute(f'ALTER TABLE changed RENAME TO "{table}"')
    database.commit()
    database.close()

    found = readers.read(path)

    for part in ("ops", "launches", "ranges"):
        pd.testing.assert_frame_equal(getattr(found, part), getattr(expected, part))
    if name == "nsys sqlite":
        scrub(path, tmp_path / "scrubbed", force=False)
        pd.testing.assert_frame_equal(readers.read(tmp_path / "scrubbed").ops, expected.ops)
