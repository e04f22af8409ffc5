"""The nsys reader on every generation of the schema, and on columns that are absent, empty or odd (F6, F8, F9, F10)."""

from __future__ import annotations

import pytest
from bench import Bench
from nsys_builder import DOMAIN, Kernel, Launch, Node, Range, Rows
from recording import step_recording

from profkit.errors import ProfkitError
from profkit.model.trace import LAUNCHES, NODES, NONE, OPS, RANGES
from profkit.readers import nsys

GENERATIONS = pytest.mark.parametrize("generation", ["2023", "2025", "minimal"])


def rows() -> Rows:
    """Two layers of a kernel, a copy and a set, replayed twice."""
    return step_recording(["gemm +DtoD 0zero"] * 2, replays=2).rows


@GENERATIONS
def test_tables_have_the_columns_and_dtypes_of_the_model(bench: Bench, generation: str) -> None:
    trace = bench.trace(rows(), generation=generation)
    for table, schema in ((trace.ops, OPS), (trace.launches, LAUNCHES), (trace.ranges, RANGES), (trace.nodes, NODES)):
        assert {c: str(t) for c, t in table.dtypes.items()} == dict(schema)


@GENERATIONS
def test_ops_of_every_generation(bench: Bench, generation: str) -> None:
    ops = bench.trace(rows(), generation=generation).ops
    assert ops["name"].tolist() == ["gemm", "memcpy DtoD", "memset"] * 4
    assert ops["start"].is_monotonic_increasing
    assert (ops["node"] == NONE).all() == (generation == "minimal")


def test_both_node_tables_are_told_apart_by_their_columns(bench: Bench) -> None:
    # GIVEN CUDA_GRAPH_EVENTS holds node events until 2023.4, and events of whole graphs since
    old, new = (bench.trace(rows(), generation=g).nodes for g in ("2023", "2025"))
    assert old.equals(new)
    assert len(new) == 12


@pytest.mark.parametrize(
    "table", ["CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS",
              "CUDA_GRAPH_NODE_EVENTS", "TARGET_INFO_GPU", "META_DATA_EXPORT", "CUPTI_ACTIVITY_KIND_KERNEL"],
)  # fmt: skip
def test_a_missing_table_means_no_rows(bench: Bench, table: str) -> None:
    trace = bench.trace(rows(), extra_sql=[f"DROP TABLE {table}"])
    lost = {"CUPTI_ACTIVITY_KIND_MEMCPY": 4, "CUPTI_ACTIVITY_KIND_MEMSET": 4, "CUPTI_ACTIVITY_KIND_KERNEL": 4}
    assert len(trace.ops) == 12 - lost.get(table, 0)
    assert (len(trace.launches) == 0) == (table == "CUPTI_ACTIVITY_KIND_RUNTIME")
    assert (len(trace.ranges) == 0) == (table == "NVTX_EVENTS")
    assert (len(trace.nodes) == 0) == (table == "CUDA_GRAPH_NODE_EVENTS")


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("CUPTI_ACTIVITY_KIND_KERNEL", "start"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId"),
        ("NVTX_EVENTS", "globalTid"),
        ("CUDA_GRAPH_NODE_EVENTS", "globalTid"),
    ],
)
def test_a_missing_column_is_an_error_that_names_table_column_and_version(
    bench: Bench, table: str, column: str
) -> None:
    with pytest.raises(ProfkitError, match=rf"{table}.*{column}.*2025\.1\.1"):
        bench.trace(rows(), extra_sql=[f"ALTER TABLE {table} DROP COLUMN {column}"])


@pytest.mark.parametrize(
    ("table", "column"),
    [("CUPTI_ACTIVITY_KIND_KERNEL", c) for c in ("demangledName", "graphId", "graphNodeId", "streamId", "globalPid")]
    + [("NVTX_EVENTS", "text"), ("NVTX_EVENTS", "textId"), ("NVTX_EVENTS", "domainId")],
)
def test_a_column_that_can_be_done_without_may_be_missing(bench: Bench, table: str, column: str) -> None:
    trace = bench.trace(rows(), extra_sql=[f"ALTER TABLE {table} DROP COLUMN {column}"])
    assert len(trace.ops) == 12


@pytest.mark.parametrize(
    ("recorded", "name", "api"),
    [
        ("cudaGraphLaunch_v10000", "cudaGraphLaunch", "graph"),
        ("cuGraphLaunch", "cuGraphLaunch", "graph"),
        ("cudaGraphLaunch_ptsz_v10000", "cudaGraphLaunch", "graph"),
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel", "kernel"),
        ("cudaLaunchKernelExC_v11060", "cudaLaunchKernelExC", "kernel"),
        ("cuLaunchKernelEx", "cuLaunchKernelEx", "kernel"),
        ("cudaMemcpyAsync_v3020", "cudaMemcpyAsync", "memcpy"),
        ("cuMemcpyHtoDAsync_v2_ptsz", "cuMemcpyHtoDAsync", "memcpy"),
        ("cudaMemsetAsync_ptsz", "cudaMemsetAsync", "memset"),
    ],
)
def test_names_of_launches_lose_their_abi_suffix(bench: Bench, recorded: str, name: str, api: str) -> None:
    launches = bench.trace(Rows(launches=[Launch(recorded, 1, 1)])).launches
    assert launches[["name", "api"]].to_numpy().tolist() == [[name, api]]


@pytest.mark.parametrize("recorded", ["cudaStreamSynchronize_v3020", "cudaGraphInstantiate_v10000", "cudaMalloc_v3020",
                                      "cudaLaunchHostFunc_v10000", "cudaGraphicsMapResources"])  # fmt: skip
def test_other_calls_are_no_launches(bench: Bench, recorded: str) -> None:
    assert len(bench.trace(Rows(launches=[Launch(recorded, 1, 1)])).launches) == 0


def test_a_driver_call_under_a_runtime_call_is_one_launch(bench: Bench) -> None:
    calls = [Launch("cudaGraphLaunch_v10000", 10, 1, duration=50), Launch("cuGraphLaunch", 20, 1, duration=20)]
    assert bench.trace(Rows(launches=calls)).launches["name"].tolist() == ["cudaGraphLaunch"]


def test_an_eager_op_may_have_node_0_or_null(bench: Bench) -> None:
    ops = bench.trace(Rows([Kernel("k", 1, 2, 1, 0, 0), Kernel("k", 3, 4, 2)])).ops
    assert ops["node"].tolist() == ops["graph"].tolist() == [NONE, NONE]


def test_times_may_be_negative_and_large(bench: Bench) -> None:
    ops = bench.trace(Rows([Kernel("late", 2**60, 2**60 + 1), Kernel("early", -(10**12), -5)])).ops
    assert ops[["name", "start", "end"]].to_numpy().tolist() == [["early", -(10**12), -5], ["late", 2**60, 2**60 + 1]]


def test_a_machine_id_with_its_top_bit_set_is_only_an_id(bench: Bench) -> None:
    shift = [f"UPDATE {t} SET {c} = {c} | (1 << 63)" for t, c in (("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid"),
             ("CUPTI_ACTIVITY_KIND_MEMCPY", "globalPid"), ("CUPTI_ACTIVITY_KIND_MEMSET", "globalPid"),
             ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid"), ("NVTX_EVENTS", "globalTid"),
             ("CUDA_GRAPH_NODE_EVENTS", "globalTid"))]  # fmt: skip
    plain, shifted = bench.count(rows()), bench.count(rows(), extra_sql=shift)
    assert plain.ledger == shifted.ledger
    assert [p.pid for p in shifted.info.processes] == [100]


def test_broken_rows_are_set_aside(bench: Bench) -> None:
    trace = bench.trace(Rows([Kernel("sound", 5, 9), Kernel("zero", 0, 0), Kernel("backwards", 9, 5)]))
    assert trace.ops["name"].tolist() == ["sound"]
    assert sorted(trace.set_aside["name"]) == ["backwards", "zero"]
    assert [d.code for d in trace.info.diagnostics] == ["set-aside"]


def test_broken_host_rows_are_left_out_and_counted(bench: Bench) -> None:
    day = 24 * 3600 * 10**9
    calls = [Launch("cuLaunchKernel", 5, 1), Launch("cuLaunchKernel", 6, 2, duration=day + 1)]
    ranges = [Range("sound", 5, 9), Range("endless", 5, 9 * 10**18), Range("open", 6, None)]
    trace = bench.trace(Rows(launches=calls, ranges=ranges))
    assert trace.launches["correlation"].tolist() == [1]
    # An open range ends with the last sound row, not with a broken one.
    assert dict(zip(trace.ranges["text"], trace.ranges["end"], strict=True)) == {"sound": 9, "open": 15}
    assert [d.message for d in trace.info.diagnostics if d.code == "set-aside"] == [
        "2 host rows have no valid times and are left out."
    ]


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = NULL WHERE rowid = 2", id="NULL time"),
        pytest.param("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = start + 0.5", id="fractional time"),
        pytest.param("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET streamId = 'seven'", id="text for a number"),
    ],
)
def test_values_that_cannot_be_are_an_error_that_names_table_and_column(bench: Bench, statement: str) -> None:
    with pytest.raises(ProfkitError, match=r"CUPTI_ACTIVITY_KIND_KERNEL.*(end|start|stream)") as error:
        bench.trace(rows(), extra_sql=[statement])
    assert "holds int64, expected integers" not in str(error.value)


def test_a_kernel_whose_name_is_not_in_the_string_table_keeps_its_launch(bench: Bench) -> None:
    ops = bench.trace(rows(), extra_sql=["DELETE FROM StringIds WHERE value = 'gemm'"]).ops
    assert len(ops) == 12
    assert "unknown name" in str(ops["name"].iat[0])


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE NVTX_EVENTS SET text = CAST(X'FF41' AS TEXT) WHERE text = 'replay'",
        "UPDATE StringIds SET value = CAST(X'FF41' AS TEXT) WHERE value = 'gemm'",
    ],
)
def test_a_name_that_is_no_utf8_is_no_reason_to_refuse_a_trace(bench: Bench, statement: str) -> None:
    assert bench.count(rows(), extra_sql=[statement]).ledger.in_layers == 12


def test_two_string_ids_of_one_text_are_one_name(bench: Bench) -> None:
    # GIVEN two kernels, the second one's name changed to the first's text under an id of its own
    trace = bench.trace(
        Rows([Kernel("a", 1, 2), Kernel("b", 3, 4)]), extra_sql=["UPDATE StringIds SET value = 'a' WHERE value = 'b'"]
    )
    assert trace.ops["name"].tolist() == ["a", "a"]
    assert trace.ops["name"].cat.categories.is_unique


def test_domains_are_named_by_their_process(bench: Bench) -> None:
    ranges = [
        Range("NCCL", 0, None, style=DOMAIN, domain=3, registered=True),
        Range("mine", 0, None, style=DOMAIN, domain=3, registered=True, pid=200, tid=200),
        Range("x", 1, 2, domain=3),
        Range("y", 1, 2, domain=3, pid=200, tid=200),
        Range("z", 1, 2),
        Range("w", 5, 6, domain=9),
    ]
    found = bench.trace(Rows(ranges=ranges)).ranges
    assert dict(zip(found["text"], found["domain"], strict=True)) == {
        "x": "NCCL",
        "y": "mine",
        "z": "",
        "w": "domain 9",
    }


@pytest.mark.parametrize(
    ("content", "whole_graphs", "expected"),
    [
        (Rows([Kernel("k", 1, 2, 1, 1 << 32)]), [], "node"),
        (Rows(nodes=[Node(1 << 32, 5)]), [], "node"),
        (Rows([Kernel("k", 1, 2, 1)]), [4], "graph"),
        (Rows([Kernel("k", 1, 2, 1)]), [], "unknown"),
    ],
)
def test_how_graphs_were_traced(bench: Bench, content: Rows, whole_graphs: list[int], expected: str) -> None:
    assert bench.trace(content, whole_graphs=whole_graphs).info.graph_trace == expected


def test_warnings_of_the_profiler_are_quoted_unless_they_hold_paths_or_values(bench: Bench) -> None:
    statements = ["CREATE TABLE DIAGNOSTIC_EVENT (severity INTEGER, text TEXT)"] + [
        f"INSERT INTO DIAGNOSTIC_EVENT VALUES ({severity}, '{text}')"
        for severity, text in ((1, "info"), (2, "Legacy tracing is used"), (3, "/root/x"), (3, "A=b"), (3, "C:\\x"))
    ]
    diagnostics = bench.trace(rows(), extra_sql=statements).info.diagnostics
    assert [(d.code, d.message) for d in diagnostics] == [("profiler-warning", "Legacy tracing is used")]


def test_launch_shapes_are_read_on_request(bench: Bench) -> None:
    path = bench.path(Rows([Kernel("k", 1, 2)]), generation="minimal")
    assert "grid_x" not in nsys.read(path).ops
    detail = nsys.read(path, detail=True).ops.iloc[0]
    assert (detail["grid_x"], detail["block_z"], detail["registers"]) == (1, 1, NONE)


def test_reading_leaves_the_file_and_its_directory_as_they_were(bench: Bench) -> None:
    path = bench.path(rows())
    before = path.read_bytes()
    nsys.read(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
