"""Kineto traces, small and inline: one claim a test."""

from __future__ import annotations

import gzip
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from builders import annotation, call, kineto_trace, op, us
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.errors import ProfkitError
from profkit.model.trace import LAUNCHES, NONE, OP_DETAIL, OPS, RANGES, Process, Trace
from profkit.readers import kineto

BASE_NS = 1790857026000000000


def read(tmp_path: Path, events: list[Any], *, detail: bool = False, **header: Any) -> Trace:
    return kineto.read(kineto_trace(tmp_path / "trace.json", events, **header), detail=detail)


def codes(trace: Trace) -> list[str]:
    return [d.code for d in trace.info.diagnostics]


def test_an_op_arrives_whole(tmp_path: Path) -> None:
    kernel = op("k", 5103758998909095, 1023, device=2, stream=17, correlation=41)

    trace = read(tmp_path, [kernel, call("cudaLaunchKernel", 5103758998900000, correlation=41)])

    row = {"start": 5103758998909095, "end": 5103758998910118, "kind": "kernel", "name": "k", "process": 0, "device": 2}
    row |= {"stream": 17, "correlation": 41, "graph": NONE, "node": NONE}
    assert trace.ops.to_dict("records") == [row]


def test_tables_have_the_model_s_columns_and_dtypes(tmp_path: Path) -> None:
    trace = read(tmp_path, [op("k", 1, 2), call("cudaLaunchKernel", 0), annotation("r", 0, 9)], detail=True)

    assert trace.ops.dtypes.astype(str).to_dict() == {**OPS, **OP_DETAIL}
    assert trace.launches.dtypes.astype(str).to_dict() == LAUNCHES
    assert trace.ranges.dtypes.astype(str).to_dict() == RANGES


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 10**16), st.integers(1, 10**12)), min_size=1, max_size=8), st.booleans())
def test_no_nanosecond_is_lost(tmp_path_factory: Any, times_ns: list[tuple[int, int]], with_base: bool) -> None:
    path = tmp_path_factory.mktemp("kineto") / "trace.json"
    header = {"baseTimeNanoseconds": BASE_NS} if with_base else {}
    kineto_trace(path, [op("k", start, duration) for start, duration in times_ns], **header)

    ops = kineto.read(path).ops

    base = BASE_NS if with_base else 0
    expected = sorted((start + base, start + duration + base) for start, duration in times_ns)
    assert list(zip(ops["start"].tolist(), ops["end"].tolist(), strict=True)) == expected


def test_order_of_events_does_not_matter(tmp_path: Path) -> None:
    events = [op(f"k{i % 3}", 1000 + 10 * i, 7, correlation=i) for i in range(20)]
    events += [call("cudaLaunchKernel", 10 * i, 5, correlation=i) for i in range(20)]
    events += [annotation(f"layers.{i}", 100 * i, 90) for i in range(2)] + [annotation("outer", 0, 500)]
    shuffled = random.Random(7).sample(events, len(events))

    one, other = read(tmp_path, events), read(tmp_path, shuffled)

    for table in ("ops", "launches", "ranges"):
        assert getattr(one, table).astype(str).equals(getattr(other, table).astype(str)), table


@pytest.mark.parametrize(
    ("category", "kind"),
    [("kernel", "kernel"), ("gpu_memcpy", "memcpy"), ("gpu_memset", "memset"),
     ("Kernel", "kernel"), ("Memcpy", "memcpy"), ("Memset", "memset")],
)  # fmt: skip
def test_new_and_old_categories(tmp_path: Path, category: str, kind: str) -> None:
    assert read(tmp_path, [op("x", 1, 2, cat=category)]).ops["kind"].tolist() == [kind]


def test_projections_flows_and_overhead_are_no_ops(tmp_path: Path) -> None:
    flow = {"ph": "f", "id": 1, "pid": 0, "tid": 7, "ts": us(1), "cat": "ac2g", "name": "ac2g"}
    events = [op("k", 1, 2), op("r", 1, 2, cat="gpu_user_annotation"), op("o", 1, 2, cat="overhead"), flow, {}]

    trace = read(tmp_path, events)

    assert trace.ops["name"].tolist() == ["k"]
    assert not len(trace.ranges)


def test_old_rows_name_device_and_stream_as_pid_and_tid(tmp_path: Path) -> None:
    old = {"ph": "X", "cat": "Kernel", "name": "k", "pid": 3, "tid": "21", "ts": 5, "dur": 2}

    ops = read(tmp_path, [old]).ops

    assert ops[["device", "stream", "start", "end"]].to_numpy().tolist() == [[3, 21, 5000, 7000]]


def test_string_timestamps(tmp_path: Path) -> None:
    kernel = op("k", 0, 0) | {"ts": "5103758998909.095", "dur": "1.5"}

    assert read(tmp_path, [kernel]).ops[["start", "end"]].to_numpy().tolist() == [[5103758998909095, 5103758998910595]]


def test_launch_shape_is_read_when_asked_for(tmp_path: Path) -> None:
    shape = {"grid": [8, 14, 2], "block": [384, 1, 1], "registers per thread": 168, "shared memory": 164308}
    # A HIP graph's kernels have no shape.
    events = [op("k", 1, 2, **shape), op("in graph", 5, 2, kind="Dispatch Task")]

    ops = read(tmp_path, events, detail=True).ops

    assert ops[list(OP_DETAIL)].to_numpy().tolist() == [[8, 14, 2, 384, 1, 1, 168, 164308, NONE], [NONE] * 9]
    assert list(read(tmp_path, events).ops.columns) == list(OPS)


def test_graph_ids_where_present_and_not_zero(tmp_path: Path) -> None:
    node = {"graph id": 5, "graph node id": (5 << 32) | 3}
    ops = read(tmp_path, [op("a", 1, 2, **node), op("b", 4, 2, **{"graph id": 0, "graph node id": 0})]).ops

    assert ops[["graph", "node"]].to_numpy().tolist() == [[5, (5 << 32) | 3], [NONE, NONE]]


@pytest.mark.parametrize(
    ("name", "api", "stripped"),
    [
        ("cudaGraphLaunch_v10000", "graph", "cudaGraphLaunch"),
        ("cuGraphLaunch", "graph", "cuGraphLaunch"),
        ("hipGraphLaunch", "graph", "hipGraphLaunch"),
        ("cudaLaunchKernelExC_v11060", "kernel", "cudaLaunchKernelExC"),
        ("cudaLaunchKernel_ptsz_v7000", "kernel", "cudaLaunchKernel"),
        ("hipExtModuleLaunchKernel", "kernel", "hipExtModuleLaunchKernel"),
        ("cudaMemcpyAsync", "memcpy", "cudaMemcpyAsync"),
        ("hipMemsetAsync", "memset", "hipMemsetAsync"),
    ],
)
def test_launch_calls(tmp_path: Path, name: str, api: str, stripped: str) -> None:
    other = ["cudaStreamIsCapturing", "cudaLaunchHostFunc", "cudaGraphAddMemcpyNode", "hipGetDeviceProperties"]
    events = [call(name, 1500, 250, correlation=9, cat="cuda_driver"), *[call(o, 1) for o in other]]

    launches = read(tmp_path, [op("k", 2000, 1), *events]).launches

    row = {"start": 1500, "end": 1750, "process": 0, "thread": 10, "correlation": 9}
    assert launches.to_dict("records") == [{**row, "api": api, "name": stripped, "kernel": ""}]


def test_rocm_calls_carry_the_kernel_s_name(tmp_path: Path) -> None:
    # HIP calls also have a stream pointer as text where GPU rows have a number.
    trace = read(tmp_path, [call("hipModuleLaunchKernel", 5, kernel="triton_poi_fused_0", stream="0x7f00")])

    assert trace.launches["kernel"].tolist() == ["triton_poi_fused_0"]
    assert trace.info.vendor == "amd"


def test_a_driver_call_inside_a_runtime_call_is_no_second_launch(tmp_path: Path) -> None:
    inner = call("cuLaunchKernelEx", 12, 5, cat="cuda_driver", correlation=4)
    events = [inner, call("cudaLaunchKernelExC", 10, 20, correlation=4), call("cudaLaunchKernel", 50, correlation=5)]

    assert read(tmp_path, events).launches["name"].tolist() == ["cudaLaunchKernelExC", "cudaLaunchKernel"]


def test_ranges_keep_their_kind_as_domain(tmp_path: Path) -> None:
    events = [annotation("layers.3", 100, 50), annotation("aten::mm", 110, 20, cat="cpu_op"),
              annotation("nn.Module: Attention_0", 105, 40, cat="python_function")]  # fmt: skip

    ranges = read(tmp_path, events).ranges

    assert ranges[["start", "end", "text", "domain", "nested", "clipped"]].to_numpy().tolist() == [
        [100, 150, "layers.3", "", True, False],
        [105, 145, "nn.Module: Attention_0", "python_function", True, False],
        [110, 130, "aten::mm", "cpu_op", True, False],
    ]


def test_hook_texts_become_the_module_s_path(tmp_path: Path) -> None:
    text = "{'Module': 'model.layers.3.self_attn', 'TrainableParams': {}, 'Inputs': [[32, 7168]]}"

    assert read(tmp_path, [annotation(text, 1, 2)]).ranges["text"].tolist() == ["model.layers.3.self_attn"]


def test_threads_with_a_name_for_an_id_stay_apart(tmp_path: Path) -> None:
    events = [annotation("a", 1, 2, tid="main"), annotation("b", 1, 2, tid="worker"), annotation("c", 5, 2, tid="main")]

    thread = read(tmp_path, events).ranges.set_index("text")["thread"]

    assert thread["a"] == thread["c"] != thread["b"]
    assert max(thread) < NONE


def test_unfinished_ranges_are_marked(tmp_path: Path) -> None:
    open_range = annotation("r", 1, 5, cat="python_function") | {"args": {"finished": False}}

    assert read(tmp_path, [open_range, annotation("s", 1, 5)]).ranges["clipped"].tolist() == [True, False]


def test_gpu_rows_belong_to_the_process_that_launched_them(tmp_path: Path) -> None:
    """GPU rows say the device where host rows say the process; correlation ids repeat in a merged file (F4)."""
    events = [call("cudaLaunchKernel", 1, pid=100, correlation=1), call("cudaLaunchKernel", 2, pid=200, correlation=2)]
    events += [call("cudaLaunchKernel", 3, pid=100, correlation=3), call("cudaLaunchKernel", 4, pid=200, correlation=3)]
    events += [op("a", 10, 1, correlation=1), op("b", 20, 1, correlation=2), op("c", 30, 1, correlation=3)]
    events += [op("orphan", 40, 1, correlation=99)]

    trace = read(tmp_path, events)

    pid_of = [
        trace.info.processes[i].pid for i in trace.ops.set_index("name").loc[["a", "b", "c", "orphan"], "process"]
    ]
    assert pid_of == [100, 200, NONE, NONE]
    assert "ambiguous-process" in codes(trace)


def test_one_process_owns_every_op(tmp_path: Path) -> None:
    trace = read(tmp_path, [call("cudaLaunchKernel", 1, pid=100), op("orphan", 9, 1, correlation=99, device=3)])

    assert trace.info.processes == (Process(100),)
    assert trace.ops["process"].tolist() == [0]


@pytest.mark.parametrize(
    ("header", "rank", "noted"),
    [
        ({}, None, False),
        ({"distributedInfo": {"backend": "nccl"}}, None, False),
        ({"distributedInfo": {"backend": "nccl", "rank": 3}}, 3, False),
        ({"distributedInfo": {"rank": "3"}}, 3, False),
        ({"metadata": {"distributedInfo": {"rank": 3}}}, 3, False),
        ({"distributedInfo": {"rank": -1}}, None, True),
        ({"distributedInfo": {"rank": [0]}}, None, True),
        ({"distributedInfo": None}, None, False),
    ],
)
def test_rank(tmp_path: Path, header: dict[str, Any], rank: int | None, noted: bool) -> None:
    trace = read(tmp_path, [op("k", 1, 2)], **header)

    assert trace.info.processes[0].rank == rank
    assert ("rank-unreadable" in codes(trace)) is noted


def test_devices_of_rocm_are_named_although_numbered_otherwise(tmp_path: Path) -> None:
    header = {
        "deviceProperties": [{"id": i, "name": "AMD Instinct MI300X"} for i in range(8)],
        "roctracer_version": 4.1,
    }

    info = read(tmp_path, [op("k", 1, 2, device=9)], **header).info

    assert (info.devices, info.vendor) == ({9: "AMD Instinct MI300X"}, "amd")
    assert info.profiler == "torch.profiler (roctracer 4.1)"


def test_names_of_mixed_devices_are_not_guessed(tmp_path: Path) -> None:
    devices = [{"id": 0, "name": "NVIDIA H200"}, {"id": 1, "name": "NVIDIA L4"}]

    assert read(tmp_path, [op("k", 1, 2, device=1)], deviceProperties=devices).info.devices == {1: "NVIDIA L4"}
    assert read(tmp_path, [op("k", 1, 2, device=5)], deviceProperties=devices).info.devices == {}


def test_no_path_or_user_is_kept(tmp_path: Path) -> None:
    header = {"username": "someone", "traceName": "/home/someone/trace.json", "host_name": "secret-host"}

    info = read(tmp_path, [op("k", 1, 2)], **header).info

    assert "someone" not in repr(info).replace(str(tmp_path), "")
    assert "secret" not in repr(info)


def test_broken_rows_are_set_aside_and_counted(tmp_path: Path) -> None:
    """F6: no times, negative durations, durations that are missing or no number."""
    broken = [op("zero", 0, 0), op("negative", 10, -5), op("nan", 1, 1) | {"dur": None}]
    missing = op("missing", 10, 1)
    del missing["dur"]
    events = [op("sound", 10, 5), op("instant", 20, 0), *broken, missing, annotation("r", 5, -1), annotation("s", 5, 1)]

    trace = read(tmp_path, events, baseTimeNanoseconds=BASE_NS)

    assert trace.ops["name"].tolist() == ["sound", "instant"]
    assert sorted(trace.set_aside["name"]) == ["missing", "nan", "negative", "zero"]
    assert trace.ranges["text"].tolist() == ["s"]
    messages = [d.message for d in trace.info.diagnostics if d.code == "set-aside"]
    assert messages == ["4 of 6 ops have no valid times and are set aside.",
                        "1 host row has no valid times and is left out."]  # fmt: skip


def test_times_past_int64_are_set_aside(tmp_path: Path) -> None:
    huge = op("huge", 1, 1) | {"dur": us(2**63 - 10)}

    trace = read(tmp_path, [huge, op("k", 5, 1)], baseTimeNanoseconds=BASE_NS)

    assert (trace.ops["name"].tolist(), trace.set_aside["name"].tolist()) == (["k"], ["huge"])


@pytest.mark.parametrize("count", [0, 1, 99])
def test_traces_of_few_kernels(tmp_path: Path, count: int) -> None:
    """F20."""
    trace = read(tmp_path, [call("cudaLaunchKernel", 1), *[op("k", 10 + i, 1) for i in range(count)]])

    assert len(trace.ops) == count
    assert ("no-gpu-activity" in codes(trace)) is (count == 0)


def test_zero_kernel_inside_another_is_kept(tmp_path: Path) -> None:
    """F7: union of times is for the census; the reader keeps both rows."""
    trace = read(tmp_path, [op("long", 10, 100), op("empty", 50, 0), op("next", 60, 100)])

    assert trace.ops["name"].tolist() == ["long", "empty", "next"]


def test_graph_launches_with_their_ops_are_node_level(tmp_path: Path) -> None:
    launch = call("cudaGraphLaunch", 1, correlation=7)

    replayed = read(tmp_path, [launch, op("a", 10, 1, correlation=7), op("b", 20, 1, correlation=7)])
    assert replayed.info.graph_trace == "node"
    assert read(tmp_path, [launch, op("a", 10, 1, correlation=8)]).info.graph_trace == "unknown"


@pytest.mark.parametrize(
    "events", [[], [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}], [{}]]
)
def test_metadata_alone_is_refused(tmp_path: Path, events: list[Any]) -> None:
    """F16."""
    with pytest.raises(ProfkitError, match=r"trace\.json: no GPU activity, API call or range") as caught:
        read(tmp_path, events)
    assert caught.value.exit_code == 2


def test_infinite_arguments_are_tolerated_and_counted(tmp_path: Path) -> None:
    path = kineto_trace(tmp_path / "trace.json", [op("k", 1, 2, bandwidth=0.5)])
    path.write_text(path.read_text().replace("0.5", "Infinity"))

    trace = kineto.read(path)

    assert len(trace.ops) == 1
    assert "not-finite" in codes(trace)


def test_a_bad_base_time_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfkitError, match="baseTimeNanoseconds is 'soon'"):
        read(tmp_path, [op("k", 1, 2)], baseTimeNanoseconds="soon")


def test_an_event_of_another_form_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfkitError, match=r"unexpected form .*\$\[1\]\.name"):
        read(tmp_path, [op("k", 1, 2), op("k", 1, 2) | {"name": 7}])


def test_sniffing_goes_by_content(tmp_path: Path) -> None:
    def sniffed(text: str) -> bool:
        path = tmp_path / "any.name"
        path.write_text(text)
        return kineto.sniff(text.encode()[: 1 << 16], path)

    assert sniffed('{"schemaVersion": 1, "deviceProperties": []')
    assert sniffed('\n[{"name": "k", "ph": "X", "ts": 1}]')
    assert not sniffed('{"rocprofiler-sdk-tool": []}')
    assert not sniffed('[{"frame": {"name": "ROOT"}, "metrics": {}, "children": []}]')
    assert not sniffed('"Kind","Agent_Id"')


def test_memory_is_bounded_by_the_piece_not_by_the_file(tmp_path: Path) -> None:
    """F23: 66 MB of JSON, most of it arguments that no table holds."""
    path = tmp_path / "trace.json.gz"
    event = (
        b'{"ph":"X","cat":"cpu_op","name":"op","pid":1,"tid":1,"ts":%d.5,"dur":1,"args":{"Call stack":"' + b"x" * 1000
    )
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'{"traceEvents": [')
        file.writelines(event % i + b'"}},\n' for i in range(60_000))
        file.write(b"{}]}")

    tracemalloc.start()
    trace = kineto.read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(trace.ranges) == 60_000
    assert peak < 48e6


@pytest.mark.parametrize("grid", [7, "7x1x1", {"x": 7}, True, None, [], ["x", "y", "z"], [[7], 1]])
def test_a_grid_that_is_no_list_of_sizes_is_unknown(tmp_path: Path, grid: object) -> None:
    path = kineto_trace(tmp_path / "t.json", [op("k", 1000, 5, grid=grid, block=[32, 1, 1])])
    row = kineto.read(path, detail=True).ops.iloc[0]
    assert (row["grid_x"], row["grid_z"], row["block_x"]) == (NONE, NONE, 32)


@pytest.mark.parametrize(
    ("ranges", "left_out"),
    [
        ([("layers.0", 1, 20), ("wrapper", 14, 24), ("layers.1", 30, 50)], ["wrapper"]),
        ([("prefetch", 1, 10), ("layers.0", 4, 30), ("attn", 12, 20)], ["prefetch"]),
        ([("a", 1, 20), ("b", 14, 24), ("c", 15, 18)], ["b"]),
        # two rounded numbers
        ([("step", 1, 20), ("layers.0", 10, 21), ("layers.1", 21, 22)], []),
        ([("layers.0", 1, 11), ("layers.1", 10, 20)], []),
    ],
)
def test_a_layers_range_is_open_whatever_crosses_it(
    tmp_path: Path, ranges: list[tuple[str, int, int]], left_out: list[str]
) -> None:
    events = [annotation(text, start * 1000, (end - start) * 1000) for text, start, end in ranges]

    trace = read(tmp_path, [*events, annotation("other thread", 15000, 90000, tid=11)])

    assert trace.ranges.loc[~trace.ranges["nested"], "text"].tolist() == left_out
    assert ("crossing-ranges" in [d.code for d in trace.info.diagnostics]) == bool(left_out)
