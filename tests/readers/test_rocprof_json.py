"""rocprofv3's JSON, small and inline."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import json_dispatch, json_process, json_record, rocprof_json

from profkit.errors import ProfkitError
from profkit.model.trace import LAUNCHES, NONE, OP_DETAIL, OPS, RANGES, Process
from profkit.readers import rocprof_json as reader

START_NS = 9007199254740993


def test_kernels_copies_launches_and_markers(tmp_path: Path) -> None:
    copy = json_record(
        70, 80, kind=3, operation=2, correlation=6, src_agent_id={"handle": 104}, dst_agent_id={"handle": 100}
    )
    process = json_process(
        symbols={10: "void f<a, b>(int)"},
        messages={3: "layers.3"},
        kernel_dispatch=[json_dispatch(10, START_NS, START_NS + 7, correlation=5)],
        memory_copy=[copy],
        hip_api=[json_record(10, 12, kind=1, operation=1, correlation=5), json_record(1, 2, kind=1, operation=0)],
        marker_api=[json_record(5, 90, kind=2, operation=1, correlation=3), json_record(6, 6, kind=2, operation=0)],
    )

    trace = reader.read(rocprof_json(tmp_path / "results.json", process), detail=True)

    columns = ["start", "end", "kind", "name", "device", "stream", "correlation", "graph", "node"]
    assert trace.ops[columns].to_numpy().tolist() == [
        [70, 80, "memcpy", "memcpy DtoH", 1, NONE, 6, NONE, NONE],
        [START_NS, START_NS + 7, "kernel", "void f<a, b>(int)", 1, 3, 5, NONE, NONE],
    ]
    assert trace.ops[list(OP_DETAIL)].iloc[1].tolist() == [16, 1, 1, 64, 1, 1, 8, 512, NONE]
    row = {"start": 10, "end": 12, "process": 0, "thread": 717, "correlation": 5, "api": "kernel"}
    assert trace.launches.to_dict("records") == [row | {"name": "hipLaunchKernel", "kernel": ""}]
    assert trace.ranges[["start", "end", "text", "nested"]].to_numpy().tolist() == [[5, 90, "layers.3", True]]
    assert trace.info.processes == (Process(717),)
    assert trace.info.devices == {1: "AMD Instinct MI300X"}
    assert "SECRET" not in repr(trace.info)


def test_tables_have_the_model_s_columns_and_dtypes(tmp_path: Path) -> None:
    process = json_process(symbols={1: "k"}, kernel_dispatch=[json_dispatch(1, 1, 2)])

    trace = reader.read(rocprof_json(tmp_path / "r.json", process))

    assert trace.ops.dtypes.astype(str).to_dict() == OPS
    assert trace.launches.dtypes.astype(str).to_dict() == LAUNCHES
    assert trace.ranges.dtypes.astype(str).to_dict() == RANGES


@pytest.mark.parametrize("graph", [7, {"handle": 7}])
def test_graph_ids_as_numbers_and_as_handles(tmp_path: Path, graph: object) -> None:
    dispatches = [json_dispatch(1, 1, 2, graph_exec_id=graph, graph_node_id=4), json_dispatch(1, 5, 6, graph_exec_id=0)]

    trace = reader.read(rocprof_json(tmp_path / "r.json", json_process(symbols={1: "k"}, kernel_dispatch=dispatches)))

    assert trace.ops[["graph", "node"]].to_numpy().tolist() == [[7, 4], [NONE, NONE]]
    assert trace.info.graph_trace == "node"


def test_start_end_ranges_do_not_nest(tmp_path: Path) -> None:
    markers = [
        json_record(1, 9, kind=2, operation=2, correlation=1),
        json_record(2, 3, kind=2, operation=1, correlation=2),
    ]
    process = json_process(symbols={}, messages={1: "request", 2: "layers.0"}, marker_api=markers)

    ranges = reader.read(rocprof_json(tmp_path / "r.json", process)).ranges

    assert dict(zip(ranges["text"], ranges["nested"], strict=True)) == {"request": False, "layers.0": True}


def test_processes_stay_apart_even_with_one_pid(tmp_path: Path) -> None:
    """F4: containers number their processes alike."""
    processes = [json_process(22, symbols={1: "k"}, kernel_dispatch=[json_dispatch(1, 1, 2)]) for _ in range(2)]

    trace = reader.read(rocprof_json(tmp_path / "r.json", *processes))

    assert trace.info.processes == (Process(22), Process(22))
    assert trace.ops["process"].tolist() == [0, 1]


def test_kernels_without_a_symbol_keep_a_name(tmp_path: Path) -> None:
    process = json_process(symbols={}, kernel_dispatch=[json_dispatch(9, 1, 2)])

    assert reader.read(rocprof_json(tmp_path / "r.json", process)).ops["name"].tolist() == ["kernel 9"]


def test_broken_rows_are_set_aside(tmp_path: Path) -> None:
    """F6."""
    dispatches = [json_dispatch(1, 0, 0), json_dispatch(1, 9, 3), json_dispatch(1, 4, 5)]

    trace = reader.read(rocprof_json(tmp_path / "r.json", json_process(symbols={1: "k"}, kernel_dispatch=dispatches)))

    assert (len(trace.ops), len(trace.set_aside)) == (1, 2)
    assert [d.code for d in trace.info.diagnostics] == ["set-aside"]


def test_a_cut_file_is_named(tmp_path: Path) -> None:
    path = rocprof_json(tmp_path / "r.json", json_process(symbols={1: "k"}, kernel_dispatch=[json_dispatch(1, 1, 2)]))
    path.write_bytes(path.read_bytes()[:-30])

    with pytest.raises(ProfkitError, match=r"r\.json: damaged or cut off within its \d+ bytes"):
        reader.read(path)


def test_nothing_recorded(tmp_path: Path) -> None:
    with pytest.raises(ProfkitError, match="--kernel-trace --hip-trace --marker-trace"):
        reader.read(rocprof_json(tmp_path / "r.json", json_process(symbols={})))


def test_another_form_is_named(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text('{"rocprofiler-sdk-tool": [{"metadata": {"pid": "x"}}]}')

    with pytest.raises(ProfkitError, match="not the JSON that rocprofv3 writes"):
        reader.read(path)
