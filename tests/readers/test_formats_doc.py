"""The support matrix of docs/formats.md says what the readers do: every cell is checked against a recording."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import (
    LEGACY_HEADER,
    SHARED,
    annotation,
    call,
    csv_call,
    csv_kernel,
    json_dispatch,
    json_process,
    json_record,
    kineto_trace,
    op,
    rocpd_db,
    rocprof_csv,
    rocprof_json,
    write_csv,
)
from test_nsys_parquet import parquetdir

from profkit.model.trace import NONE, Trace
from profkit.readers import read

DOC = Path(__file__).parents[2] / "docs" / "formats.md"
H200 = SHARED / "h200"
CUDA = {"deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "cupti_version": 130001}
ROCM = {"deviceProperties": [{"id": 0, "name": "AMD Instinct MI300X"}], "roctracer_version": 4.1}
SHAPE = {"grid": [1, 1, 1], "block": [64, 1, 1]}


def nsys(name: str) -> Callable[[Path], Path]:
    def sample(folder: Path) -> Path:
        if not H200.is_dir():
            pytest.skip("no h200 recordings beside the repository")
        return H200 / name

    return sample


def parquet(name: str) -> Callable[[Path], Path]:
    return lambda folder: parquetdir(nsys(name)(folder), folder / "x_pqtdir")


def kineto(header: dict[str, object], launch: str, **args: object) -> Callable[[Path], Path]:
    events = [call(launch, 1), annotation("layers.0", 0, 90), op("k", 10, 5, **args)]
    return lambda folder: kineto_trace(folder / "x", events, **header)


def csv_run(generation: str) -> Callable[[Path], Path]:
    def sample(folder: Path) -> Path:
        header = ["Node_Id", "Logical_Node_Id", "Agent_Type", "Name", "Product_Name"]
        gpu = {"Node_Id": 4, "Logical_Node_Id": 4, "Agent_Type": "GPU", "Product_Name": "AMD Instinct MI300X"}
        write_csv(folder / "717_agent_info.csv", header, [gpu])
        return rocprof_csv(
            folder,
            generation=generation,
            kernels=[csv_kernel("k", 10, 15, generation=generation)],
            calls=[csv_call("hipLaunchKernel", 1, 2)],
            markers=[csv_call("layers.0", 0, 90, domain="MARKER_CORE_API")],
        )

    return sample


def json_run(**graph: int) -> Callable[[Path], Path]:
    process = json_process(
        symbols={1: "k"},
        messages={9: "layers.0"},
        kernel_dispatch=[json_dispatch(1, 10, 15, **graph)],
        hip_api=[json_record(1, 2, kind=1, operation=2)],
        marker_api=[json_record(0, 90, kind=2, operation=1, correlation=9)],
    )
    return lambda folder: rocprof_json(folder / "x", process)


def rocpd(schema: str) -> Callable[[Path], Path]:
    regions = [
        {"name": "hipGraphLaunch", "category": "HIP_RUNTIME_API_EXT", "start": 1, "end": 2, "stack": 5},
        {"name": "roctxRangePushA", "category": "MARKER_CORE_API", "start": 0, "end": 90, "message": "layers.0"},
    ]
    kernels = [{"start": 10, "end": 15, "stack": 5, "graph": 7, "node": 3}]
    return lambda folder: rocpd_db(folder / "x", schema=schema, kernels=kernels, regions=regions)


def legacy(folder: Path) -> Path:
    row = {"KernelName": "k", "pid": 20, "grd": 64, "wgr": 64, "BeginNs": 10, "EndNs": 15}
    return write_csv(folder / "x", LEGACY_HEADER, [row])


NODE = {"graph id": 5, "graph node id": (5 << 32) | 3}
SAMPLES: dict[tuple[str, str], list[Callable[[Path], Path]]] = {
    ("nsys SQLite, node trace", "2023.4"): [nsys("toy_eager.nsys2023.sqlite")],
    ("nsys SQLite, node trace", "2025.3"): [nsys("toy_eager.nsys2025.sqlite")],
    ("nsys Parquet, node trace", "2023.4"): [parquet("toy_eager.nsys2023.sqlite")],
    ("nsys Parquet, node trace", "2025.3"): [parquet("toy_eager.nsys2025.sqlite")],
    ("torch.profiler, CUDA", "graph ids in the arguments"): [kineto(CUDA, "cudaGraphLaunch", **SHAPE, **NODE)],
    ("torch.profiler, CUDA", "without graph ids"): [kineto(CUDA, "cudaGraphLaunch", **SHAPE)],
    ("torch.profiler, ROCm", "eager"): [kineto(ROCM, "hipLaunchKernel", **SHAPE)],
    ("torch.profiler, ROCm", "graph replay"): [kineto(ROCM, "hipGraphLaunch")],
    ("torch.profiler, CPU only", "any"): [lambda folder: kineto_trace(folder / "x", [annotation("layers.0", 0, 9)])],
    ("rocprofv3 CSV", "ROCm 6.1"): [csv_run("a")],
    ("rocprofv3 CSV", "ROCm 6.2"): [csv_run("b")],
    ("rocprofv3 CSV", "ROCm 7.0"): [csv_run("c")],
    ("rocprofv3 CSV", "converted from rocpd"): [csv_run("d")],
    ("rocprofv3 JSON", "before SDK 1.3"): [json_run()],
    ("rocprofv3 JSON", "SDK 1.3"): [json_run(graph_exec_id=7, graph_node_id=3)],
    ("rocpd", "schema 3.0.0, 3.0.1"): [rocpd("3.0.0"), rocpd("3.0.1")],
    ("rocpd", "schema 3.0.2, 3.0.3"): [rocpd("3.0.2"), rocpd("3.0.3")],
    ("rocprof results.csv", "v1"): [legacy],
}


def matrix() -> dict[tuple[str, str], dict[str, str]]:
    """The table whose header begins with "format", by format and version."""
    lines = [line for line in DOC.read_text().splitlines() if line.startswith("|")]
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines]
    first = next(i for i, row in enumerate(cells) if row[:2] == ["format", "version"])
    found = {}
    for row in cells[first + 2 :]:
        if len(row) != len(cells[first]):
            break
        found[row[0], row[1]] = dict(zip(cells[first][2:], row[2:], strict=True))
    return found


def told(trace: Trace) -> dict[str, bool]:
    """What a recording tells, by the matrix's columns."""
    pids = {trace.info.processes[i].pid for i in trace.ops["process"].unique()}
    return {
        "ops": len(trace.ops) > 0,
        "launches": len(trace.launches) > 0,
        "ranges": len(trace.ranges) > 0,
        "op → launch": bool((trace.ops["correlation"] != NONE).any()),
        "graph node": bool((trace.ops["node"] != NONE).any()),
        "node → range": len(trace.nodes) > 0,
        "shape": bool((trace.ops["grid_x"] != NONE).any()),
        "device": bool(set(trace.info.devices) & set(trace.ops["device"])),
        "process": bool(pids) and NONE not in pids,
    }


def test_the_matrix_lists_the_formats_that_are_tested() -> None:
    assert set(matrix()) == set(SAMPLES)


@pytest.mark.parametrize("key", SAMPLES, ids=[" ".join(key) for key in SAMPLES])
def test_the_matrix_says_what_a_recording_tells(tmp_path: Path, key: tuple[str, str]) -> None:
    for number, sample in enumerate(SAMPLES[key]):
        folder = tmp_path / str(number)
        folder.mkdir()

        facts = told(read(sample(folder), detail=True))

        assert matrix()[key] == {name: "yes" if fact else "no" for name, fact in facts.items()}


def test_diagnostic_codes_of_the_readers_are_explained() -> None:
    """A code that a reader reports stands in the page, and the other way round."""
    readers = Path(__file__).parents[2] / "profkit" / "readers"
    source = "".join(p.read_text() for p in sorted(readers.glob("*.py")))
    reported = set(re.findall(r'Diagnostic\(\s*"([a-z0-9-]+)"', source))
    explained = set(re.findall(r"\(`([a-z0-9-]+)`\)", DOC.read_text()))
    assert explained == reported
