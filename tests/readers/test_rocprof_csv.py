"""rocprofv3's CSV files, small and inline: one claim a test."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from builders import GUID, KERNEL_HEADERS, LEGACY_HEADER, csv_call, csv_kernel, rocprof_csv, write_csv
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.errors import ProfkitError
from profkit.model.trace import LAUNCHES, NONE, OP_DETAIL, OPS, RANGES, Process, Trace
from profkit.readers import rocprof_csv as reader

#: Nanoseconds that float64 cannot hold.
START_NS = 9007199254740993

#: Old names of the columns for registers and shared memory.
SHAPES = {"a": (NONE, 512), "b": (NONE, 512), "c": (8, 512), "d": (8, 512)}


def codes(trace: Trace) -> list[str]:
    return [d.code for d in trace.info.diagnostics]


@pytest.mark.parametrize("generation", KERNEL_HEADERS)
def test_every_generation_of_header(tmp_path: Path, generation: str) -> None:
    sizes = {"LDS_Block_Size": 512, "Lds_Block_Size": 512, "Group_Segment_Size": 512}
    kernel = csv_kernel("void f<a, b>(int)", START_NS, START_NS + 7, generation=generation, Grid_Size_X=1000, **sizes)

    trace = reader.read(rocprof_csv(tmp_path, generation=generation, kernels=[kernel]), detail=True)

    row = trace.ops.to_dict("records")[0]
    stream = 3 if generation in "cd" else 2
    expected = {"start": START_NS, "end": START_NS + 7, "kind": "kernel", "name": "void f<a, b>(int)", "device": 4}
    assert expected | {"stream": stream, "correlation": 1} == {k: row[k] for k in [*expected, "stream", "correlation"]}
    # 1000 work-items in groups of 64 are 16 workgroups, the last one partial.
    assert [row[c] for c in OP_DETAIL] == [16, 1, 1, 64, 1, 1, *SHAPES[generation], NONE]


def test_tables_have_the_model_s_columns_and_dtypes(tmp_path: Path) -> None:
    trace = reader.read(rocprof_csv(tmp_path, kernels=[csv_kernel("k", 1, 2)]))

    assert trace.ops.dtypes.astype(str).to_dict() == OPS
    assert trace.launches.dtypes.astype(str).to_dict() == LAUNCHES
    assert trace.ranges.dtypes.astype(str).to_dict() == RANGES


def test_the_files_of_a_run_are_found_from_any_of_them(tmp_path: Path) -> None:
    marker = csv_call("layers.3", 0, 90, domain="MARKER_CORE_API")
    copy = {"Kind": "MEMORY_COPY", "Direction": "MEMORY_COPY_HOST_TO_DEVICE", "Start_Timestamp": 50}
    copy |= {"Source_Agent_Id": "Agent 0", "Destination_Agent_Id": "Agent 4", "End_Timestamp": 60, "Correlation_Id": 2}
    rocprof_csv(tmp_path, kernels=[csv_kernel("k", 20, 30)], calls=[csv_call("hipLaunchKernel", 10, 12)],
                markers=[marker], copies=[copy])  # fmt: skip
    # Another run in the same folder stays out of it.
    rocprof_csv(tmp_path, "718", kernels=[csv_kernel("other", 1, 2)])
    write_csv(tmp_path / "717_agent_info.csv", ["Node_Id", "Logical_Node_Id", "Agent_Type", "Name", "Product_Name"], [
        {"Node_Id": 0, "Agent_Type": "CPU", "Product_Name": "a host"},
        {"Node_Id": 4, "Logical_Node_Id": 4, "Agent_Type": "GPU", "Product_Name": "AMD Instinct MI300X"},
    ])  # fmt: skip

    for name in ("kernel", "hip_api", "marker_api", "memory_copy"):
        trace = reader.read(tmp_path / f"717_{name}_trace.csv")

        assert trace.ops[["name", "kind", "device"]].to_numpy().tolist() == [["k", "kernel", 4],
                                                                            ["memcpy HtoD", "memcpy", 4]]  # fmt: skip
        assert trace.launches["name"].tolist() == ["hipLaunchKernel"]
        assert trace.ranges["text"].tolist() == ["layers.3"]
        assert trace.info.processes == (Process(717),)
        assert trace.info.devices == {4: "AMD Instinct MI300X"}
        assert (trace.info.format, trace.info.vendor) == ("rocprofv3 csv", "amd")


def test_files_without_a_prefix_are_read_alone(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "kernel_trace.csv", KERNEL_HEADERS["c"], [csv_kernel("k", 1, 2)])
    write_csv(tmp_path / "marker_api_trace.csv", ["Domain", "Function", "Start_Timestamp", "End_Timestamp"],
              [csv_call("from another run", 1, 5, domain="MARKER_CORE_API")])  # fmt: skip

    trace = reader.read(path)

    assert not len(trace.ranges)
    assert trace.info.processes == (Process(NONE),)


def test_the_process_is_that_of_the_calls_before_that_of_the_file_s_name(tmp_path: Path) -> None:
    path = rocprof_csv(tmp_path, "3", kernels=[csv_kernel("k", 20, 30)], calls=[csv_call("hipLaunchKernel", 10, 12)])

    assert reader.read(path).info.processes == (Process(717),)
    assert reader.read(rocprof_csv(tmp_path, "99", kernels=[csv_kernel("k", 1, 2)])).info.processes == (Process(99),)


def test_processes_in_one_file_are_told_apart_by_their_threads(tmp_path: Path) -> None:
    """F11: eight workers that write one file."""
    calls = [csv_call("hipLaunchKernel", 10, 12, Process_Id=p, Thread_Id=p * 10) for p in (1, 2)]
    kernels = [csv_kernel(f"of {t}", 20 + t, 30 + t, Thread_Id=t) for t in (10, 20, 99)]

    trace = reader.read(rocprof_csv(tmp_path, "all", kernels=kernels, calls=calls))

    pids = [trace.info.processes[i].pid for i in trace.ops["process"]]
    assert dict(zip(trace.ops["name"], pids, strict=True)) == {"of 10": 1, "of 20": 2, "of 99": NONE}
    assert any(d.code == "mixed-processes" and "%pid%" in d.message for d in trace.info.diagnostics)


def test_thread_numbers_of_two_containers_tell_nothing(tmp_path: Path) -> None:
    calls = [csv_call("hipLaunchKernel", 10, 12, Process_Id=p, Thread_Id=7) for p in (1, 2)]

    trace = reader.read(rocprof_csv(tmp_path, "all", kernels=[csv_kernel("k", 20, 30, Thread_Id=7)], calls=calls))

    assert trace.info.processes[trace.ops["process"].iloc[0]].pid == NONE


def test_guids_tell_processes_apart(tmp_path: Path) -> None:
    kernels = [csv_kernel("a", 1, 2, generation="d"), csv_kernel("b", 3, 4, generation="d", Guid=GUID[:-1] + "f")]
    calls = [csv_call("hipLaunchKernel", 0, 1)]

    trace = reader.read(rocprof_csv(tmp_path, "run", generation="d", kernels=kernels, calls=calls))

    assert [trace.info.processes[i].pid for i in trace.ops["process"]] == [717, NONE]


@pytest.mark.parametrize(
    ("name", "api"),
    [("hipLaunchKernel", "kernel"), ("hipModuleLaunchKernel", "kernel"), ("hipExtLaunchKernel", "kernel"),
     ("hipGraphLaunch", "graph"), ("hipMemcpyAsync", "memcpy"), ("hipMemsetAsync", "memset")],
)  # fmt: skip
def test_launches(tmp_path: Path, name: str, api: str) -> None:
    calls = [csv_call(name, 10, 12, Correlation_Id=5, Thread_Id=8), csv_call("hipMalloc", 1, 2)]
    calls += [csv_call("hsa_memory_copy", 1, 2, domain="HSA_CORE_API")]

    launches = reader.read(rocprof_csv(tmp_path, kernels=[csv_kernel("k", 20, 30)], calls=calls)).launches

    row = {"start": 10, "end": 12, "process": 0, "thread": 8, "correlation": 5, "api": api, "name": name, "kernel": ""}
    assert launches.to_dict("records") == [row]


def test_ops_of_a_graph_launch_make_it_node_level(tmp_path: Path) -> None:
    kernels = [csv_kernel("k", 20, 30, Correlation_Id=5), csv_kernel("k", 40, 50, Correlation_Id=5)]
    path = rocprof_csv(tmp_path, kernels=kernels, calls=[csv_call("hipGraphLaunch", 10, 12, Correlation_Id=5)])

    assert reader.read(path).info.graph_trace == "node"


def test_marks_names_and_controls_are_no_ranges(tmp_path: Path) -> None:
    markers = [csv_call("a mark", 5, 5, domain="MARKER_CORE_API")]
    markers += [csv_call("x", 1, 9, domain=f"MARKER_{d}_API") for d in ("NAME", "CONTROL")]
    markers += [csv_call("range", 1, 9, domain="MARKER_CORE_RANGE_API")]
    markers += [csv_call("roctxProfilerPause", 1, 9, domain="MARKER_CORE_API")]

    ranges = reader.read(rocprof_csv(tmp_path, kernels=[csv_kernel("k", 1, 2)], markers=markers)).ranges

    assert ranges[["text", "domain", "nested", "clipped"]].to_numpy().tolist() == [["range", "", True, False]]


def test_markers_that_cross_are_start_end_ranges(tmp_path: Path) -> None:
    """F15: the long one crosses its neighbours; those nest as push/pop ranges do."""
    spans = {"step": (0, 100), "layers.0": (10, 50), "layers.1": (50, 90), "mla": (12, 40), "request": (30, 160)}
    markers = [csv_call(t, s, e, domain="MARKER_CORE_API") for t, (s, e) in spans.items()]
    # Another thread's ranges cross nothing.
    markers.append(csv_call("elsewhere", 45, 150, domain="MARKER_CORE_API", Thread_Id=2))

    trace = reader.read(rocprof_csv(tmp_path, kernels=[csv_kernel("k", 1, 2)], markers=markers))

    nested = dict(zip(trace.ranges["text"], trace.ranges["nested"], strict=True))
    assert nested == {**dict.fromkeys([*spans, "elsewhere"], True), "request": False}
    assert "crossing-ranges" in codes(trace)


@st.composite
def push_pop(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Spans of a random stack discipline."""
    spans, stack, now = [], [], 0
    for push in draw(st.lists(st.booleans(), max_size=30)):
        now += draw(st.integers(1, 3))
        if push or not stack:
            stack.append(now)
        else:
            spans.append((stack.pop(), now))
    return spans + [(start, now + 1 + i) for i, start in enumerate(reversed(stack))]


@settings(max_examples=60, deadline=None)
@given(push_pop())
def test_push_pop_ranges_always_nest(tmp_path_factory: Any, spans: list[tuple[int, int]]) -> None:
    markers = [csv_call("r", s, e, domain="MARKER_CORE_API") for s, e in spans]
    folder = tmp_path_factory.mktemp("csv")

    trace = reader.read(rocprof_csv(folder, kernels=[csv_kernel("k", 1, 2)], markers=markers))

    assert trace.ranges["nested"].all()
    assert len(trace.ranges) == len(spans)


#: Every text of up to four of these characters, and some that are longer. Two quotes in a row are left out: they may
#: also be one quote that another writer doubled.
SHORT = ["".join(t) for n in range(5) for t in itertools.product('",k', repeat=n)]
NAMES = [n for n in SHORT if '""' not in n]
NAMES += ['say "hi"', 'f<"a", "b">(int, int)', 'lone" quote', 'comma", quote', "µ → x", "tail \\"]


@pytest.mark.parametrize("size", [1, 7])
def test_quotes_and_commas_in_names(tmp_path: Path, size: int) -> None:
    """F12: rocprofv3 does not escape a quote inside a quoted field."""
    for first in range(0, len(NAMES), size):
        names = ["before, x", *NAMES[first : first + size], "after"]
        kernels = [csv_kernel(name, 2 * i, 2 * i + 1) for i, name in enumerate(names, 1)]

        ops = reader.read(rocprof_csv(tmp_path, kernels=kernels)).ops

        assert ops["name"].tolist() == names


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"])), min_size=1, max_size=5))
def test_any_name_survives(tmp_path_factory: Any, texts: list[str]) -> None:
    names = [text.replace('""', "") + "k" for text in texts]
    kernels = [csv_kernel(name, 10 * i, 10 * i + 1) for i, name in enumerate(names, 1)]

    ops = reader.read(rocprof_csv(tmp_path_factory.mktemp("csv"), kernels=kernels)).ops

    assert ops["name"].tolist() == names


def test_escaped_quotes_of_other_writers(tmp_path: Path) -> None:
    path = rocprof_csv(tmp_path, kernels=[csv_kernel("NAME", 1, 2)])
    path.write_text(path.read_text().replace("NAME", 'say ""hi"" x'))

    trace = reader.read(path)

    assert trace.ops["name"].tolist() == ['say "hi" x']
    assert "mended-quotes" not in codes(trace)


def test_mended_rows_are_counted(tmp_path: Path) -> None:
    trace = reader.read(rocprof_csv(tmp_path, kernels=[csv_kernel('a "b" c', 1, 2), csv_kernel("d", 3, 4)]))

    assert [d.message for d in trace.info.diagnostics if d.code == "mended-quotes"] == [
        "1 row has quotes inside a name and was mended."
    ]


@pytest.mark.parametrize("broken", ['two\nlines with a " quote', "x"])
def test_rows_that_do_not_fit_name_file_and_line(tmp_path: Path, broken: str) -> None:
    path = rocprof_csv(tmp_path, kernels=[csv_kernel("fine", 1, 2), csv_kernel(broken, 3, 4)])
    if broken == "x":
        path.write_text(path.read_text().rsplit(",", 5)[0])

    with pytest.raises(ProfkitError, match=r"717_kernel_trace\.csv, line 3: the row has \d+ fields, the header has 22"):
        reader.read(path)


def test_a_name_over_two_lines(tmp_path: Path) -> None:
    markers = [csv_call("two\nlines", 1, 2, domain="MARKER_CORE_API")]

    trace = reader.read(rocprof_csv(tmp_path, kernels=[csv_kernel("k", 1, 2)], markers=markers))

    assert trace.ranges["text"].tolist() == ["two\nlines"]


def test_a_number_that_is_none_names_line_and_column(tmp_path: Path) -> None:
    kernels = [csv_kernel("k", 1, 2), csv_kernel("k", 3, 4) | {"End_Timestamp": "soon"}]

    with pytest.raises(ProfkitError, match=r"line 3: end_timestamp is 'soon', expected an integer"):
        reader.read(rocprof_csv(tmp_path, kernels=kernels))


def test_broken_rows_are_set_aside_and_counted(tmp_path: Path) -> None:
    """F6."""
    kernels = [csv_kernel("sound", 5, 9), csv_kernel("zero", 0, 0), csv_kernel("negative", 9, 5)]

    trace = reader.read(rocprof_csv(tmp_path, kernels=kernels))

    assert trace.ops["name"].tolist() == ["sound"]
    assert sorted(trace.set_aside["name"]) == ["negative", "zero"]
    assert codes(trace) == ["set-aside"]


@pytest.mark.parametrize("suffix", [" [clone .kd]", ".kd"])
def test_symbol_suffixes_are_dropped(tmp_path: Path, suffix: str) -> None:
    ops = reader.read(rocprof_csv(tmp_path, kernels=[csv_kernel(f"void f(int){suffix}", 1, 2)])).ops

    assert ops["name"].tolist() == ["void f(int)"]


def test_no_rows_at_all(tmp_path: Path) -> None:
    """F20."""
    with pytest.raises(ProfkitError, match="no kernel, copy, launch or marker in this file"):
        reader.read(rocprof_csv(tmp_path))


def test_results_of_legacy_rocprof(tmp_path: Path) -> None:
    row = {"KernelName": "void f<double>(double*, int) [clone .kd]", "gpu-id": 8, "pid": 20, "tid": 21, "grd": 1000}
    row |= {"wgr": 256, "lds": 64, "arch_vgpr": 16, "BeginNs": START_NS, "EndNs": START_NS + 5}

    trace = reader.read(write_csv(tmp_path / "results.csv", LEGACY_HEADER, [row]), detail=True)

    op = trace.ops.to_dict("records")[0]
    assert (op["name"], op["device"], op["start"], op["end"]) == (
        "void f<double>(double*, int)",
        8,
        START_NS,
        START_NS + 5,
    )
    assert [op[c] for c in OP_DETAIL] == [4, 1, 1, 256, 1, 1, 16, 64, NONE]
    assert op["correlation"] == NONE
    assert (trace.info.processes, trace.info.profiler) == ((Process(20),), "rocprof")


def test_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    kernels = [csv_kernel(f"k{i % 3}", 10 * i, 10 * i + 5, Correlation_Id=i) for i in range(1, 9)]

    one = reader.read(rocprof_csv(tmp_path, "1", kernels=kernels)).ops
    other = reader.read(rocprof_csv(tmp_path, "2", kernels=kernels[::-1])).ops

    assert one.astype(str).equals(other.astype(str))
