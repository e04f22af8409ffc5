"""Small recordings of every format, written inline: what a test needs and nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

#: The files that came with the project's brief, beside the repository.
SHARED = Path(__file__).parents[2].parent / "shared"

Event = dict[str, Any]


def us(ns: int) -> msgspec.Raw:
    """Nanoseconds as a JSON number of microseconds, to the last digit."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return msgspec.Raw(f"{sign}{ns // 1000}.{ns % 1000:03d}".encode())


def op(name: str, start_ns: int, duration_ns: int, *, cat: str = "kernel", **args: Any) -> Event:
    """A GPU activity on device 0, stream 7."""
    args = {"device": 0, "stream": 7, "correlation": 1} | args
    times = {"ts": us(start_ns), "dur": us(duration_ns)}
    return {"ph": "X", "cat": cat, "name": name, "pid": args["device"], "tid": args["stream"], **times, "args": args}


def call(
    name: str, start_ns: int, duration_ns: int = 100, *, cat: str = "cuda_runtime", pid: int = 10, **args: Any
) -> Event:
    """An API call on a thread with the process's number."""
    times = {"ts": us(start_ns), "dur": us(duration_ns)}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": pid, **times, "args": {"correlation": 1} | args}


def annotation(
    text: str, start_ns: int, duration_ns: int, *, cat: str = "user_annotation", pid: int = 10, tid: int | str = 10
) -> Event:
    """A host range."""
    times = {"ts": us(start_ns), "dur": us(duration_ns)}
    return {"ph": "X", "cat": cat, "name": text, "pid": pid, "tid": tid, **times, "args": {}}


def kineto_trace(path: Path, events: Sequence[Any], **header: Any) -> Path:
    """Write a trace with `events`; `header` holds top-level values before them."""
    path.write_bytes(msgspec.json.encode({**header, "traceEvents": list(events)}))
    return path


# -- rocprofv3 CSV ----------------------------------------------------------------------------------------------------

_SHAPE = ["Workgroup_Size_X", "Workgroup_Size_Y", "Workgroup_Size_Z", "Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z"]
_OLD_SIZES = ["Private_Segment_Size", "Group_Segment_Size"]
_NEW_SIZES = ["LDS_Block_Size", "Scratch_Size", "VGPR_Count", "Accum_VGPR_Count", "SGPR_Count"]
_NAMED = ["Kernel_Id", "Kernel_Name", "Correlation_Id", "Start_Timestamp", "End_Timestamp"]
_NOW = ["Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", *_NAMED, *_NEW_SIZES, *_SHAPE]
#: Headers of kernel_trace.csv: ROCm 6.1, 6.2, 7.0, and rocpd converted to CSV (which writes another case).
KERNEL_HEADERS: Mapping[str, list[str]] = {
    "a": ["Kind", "Agent_Id", "Queue_Id", *_NAMED, *_OLD_SIZES, *_SHAPE],
    "b": ["Kind", "Agent_Id", "Queue_Id", "Thread_Id", "Dispatch_Id", *_NAMED, *_OLD_SIZES, *_SHAPE],
    "c": _NOW,
    "d": ["Guid", *[n.replace("LDS", "Lds").replace("VGPR", "Vgpr").replace("SGPR", "Sgpr") for n in _NOW]],
}
API_HEADER = ["Domain", "Function", "Process_Id", "Thread_Id", "Correlation_Id", "Start_Timestamp", "End_Timestamp"]
COPY_HEADER = [
    "Kind",
    "Direction",
    "Stream_Id",
    "Source_Agent_Id",
    "Destination_Agent_Id",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
]
#: Of legacy rocprof's results.csv.
LEGACY_HEADER = ["Index", "KernelName", "gpu-id", "queue-id", "queue-index", "pid", "tid", "grd", "wgr", "lds", "scr",
          "arch_vgpr", "accum_vgpr", "sgpr", "wave_size", "sig", "obj", "DispatchNs", "BeginNs", "EndNs", "CompleteNs",
          "DurationNs"]  # fmt: skip
GUID = "00000f72-9106-7106-804d-ebe920342aed"


def _csv_line(values: Sequence[Any]) -> str:
    """As rocprofv3 writes it: texts quoted, quotes in them left alone."""
    return ",".join(f'"{v}"' if isinstance(v, str) else str(v) for v in values) + "\n"


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows given by column name; a column without a value is 0."""
    lines = [_csv_line(list(header)), *[_csv_line([row.get(name, 0) for name in header]) for row in rows]]
    path.write_text("".join(lines))
    return path


def csv_kernel(name: str, start_ns: int, end_ns: int, *, generation: str = "c", **values: Any) -> dict[str, Any]:
    """A row of kernel_trace.csv: 1024 work-items in groups of 64 on agent 4."""
    agent = "Agent 4" if generation in "cd" else 4
    row = {"Kind": "KERNEL_DISPATCH", "Agent_Id": agent, "Guid": GUID, "Queue_Id": 2, "Stream_Id": 3, "Thread_Id": 717}
    row |= {"Kernel_Name": name, "Correlation_Id": 1, "Start_Timestamp": start_ns, "End_Timestamp": end_ns}
    row |= {"Workgroup_Size_X": 64, "Workgroup_Size_Y": 1, "Workgroup_Size_Z": 1, "Grid_Size_X": 1024}
    return row | {"Grid_Size_Y": 1, "Grid_Size_Z": 1, "VGPR_Count": 8, "Vgpr_Count": 8} | values


def csv_call(
    function: str, start_ns: int, end_ns: int, *, domain: str = "HIP_RUNTIME_API_EXT", **values: Any
) -> dict[str, Any]:
    """A row of an API or marker file."""
    row = {"Domain": domain, "Function": function, "Process_Id": 717, "Thread_Id": 717, "Correlation_Id": 1}
    return row | {"Start_Timestamp": start_ns, "End_Timestamp": end_ns} | values


def rocprof_csv(
    folder: Path,
    prefix: str = "717",
    *,
    generation: str = "c",
    kernels: Sequence[Mapping[str, Any]] = (),
    calls: Sequence[Mapping[str, Any]] = (),
    markers: Sequence[Mapping[str, Any]] = (),
    copies: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """One run's files; returns the kernel_trace.csv."""
    path = write_csv(folder / f"{prefix}_kernel_trace.csv", KERNEL_HEADERS[generation], kernels)
    api = ["Guid", *API_HEADER] if generation == "d" else API_HEADER
    for kind, header, rows in (
        ("hip_api", api, calls),
        ("marker_api", api, markers),
        ("memory_copy", COPY_HEADER, copies),
    ):
        if rows:
            write_csv(folder / f"{prefix}_{kind}_trace.csv", header, [{"Guid": GUID} | dict(row) for row in rows])
    return path


# -- rocprofv3 JSON ---------------------------------------------------------------------------------------------------

JSON_KINDS = [
    {"kind": "NONE", "operations": []},
    {"kind": "HIP_RUNTIME_API_EXT", "operations": ["hipFree", "hipLaunchKernel", "hipGraphLaunch", "hipMemcpyAsync"]},
    {"kind": "MARKER_CORE_API", "operations": ["roctxMarkA", "roctxRangePushA", "roctxRangeStartA"]},
    {"kind": "MEMORY_COPY", "operations": ["NONE", "MEMORY_COPY_HOST_TO_DEVICE", "MEMORY_COPY_DEVICE_TO_HOST"]},
]
_AGENTS = [
    {"id": {"handle": 100}, "type": 1, "node_id": 0, "logical_node_id": 0, "product_name": "a host"},
    {"id": {"handle": 104}, "type": 2, "node_id": 4, "logical_node_id": 1, "product_name": "AMD Instinct MI300X"},
]


def json_record(start_ns: int, end_ns: int, *, correlation: int = 1, **values: Any) -> dict[str, Any]:
    """A record of any kind, on thread 717."""
    identity = {"thread_id": 717, "correlation_id": {"internal": correlation, "external": 0}}
    return {**identity, "start_timestamp": start_ns, "end_timestamp": end_ns} | values


def json_dispatch(kernel_id: int, start_ns: int, end_ns: int, *, correlation: int = 1, **values: Any) -> dict[str, Any]:
    """A kernel of 1024 work-items in groups of 64."""
    info = {"agent_id": {"handle": 104}, "queue_id": {"handle": 2}, "kernel_id": kernel_id, "group_segment_size": 512}
    info |= {"workgroup_size": {"x": 64, "y": 1, "z": 1}, "grid_size": {"x": 1024, "y": 1, "z": 1}}
    stream = {"handle": 3}
    return json_record(start_ns, end_ns, correlation=correlation, dispatch_info=info, stream_id=stream) | values


def json_process(
    pid: int = 717, *, symbols: Mapping[int, str], messages: Mapping[int, str] | None = None, **buffers: Any
) -> dict[str, Any]:
    """One element of ``rocprofiler-sdk-tool``."""
    strings = {"buffer_records": JSON_KINDS}
    strings["marker_api"] = [{"key": k, "value": v} for k, v in (messages or {}).items()]
    names = [
        {"kernel_id": k, "kernel_name": f"{v}.kd", "formatted_kernel_name": v, "arch_vgpr_count": 8}
        for k, v in symbols.items()
    ]
    secret = {"pid": pid, "command": ["/home/someone/serve", "--token", "SECRET"]}
    return {
        "metadata": secret,
        "agents": _AGENTS,
        "strings": strings,
        "kernel_symbols": names,
        "buffer_records": buffers,
    }


def rocprof_json(path: Path, *processes: Mapping[str, Any]) -> Path:
    """Write ``results.json``."""
    path.write_bytes(msgspec.json.encode({"rocprofiler-sdk-tool": list(processes)}))
    return path


# -- rocpd ------------------------------------------------------------------------------------------------------------


def rocpd_db(
    path: Path,
    *,
    guid: str = GUID,
    schema: str = "3",
    pid: int = 22,
    names: Sequence[str] = ("k.kd",),
    kernels: Sequence[Mapping[str, Any]] = (),
    copies: Sequence[Mapping[str, Any]] = (),
    regions: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Add the tables of one guid to the database at `path`.

    Args:
        path: made if absent; a second call with another guid merges.
        names: symbol names; a kernel's `kernel` indexes them.
        kernels: `start`, `end` and optionally `kernel`, `stack`, `graph`, `node`.
        copies: `start`, `end`, `direction`, optionally `stack`.
        regions: `start`, `end`, `name`, `category`, optionally `stack`, `message`.
    """
    suffix = "_" + guid.replace("-", "_")
    graphs = schema >= "3.0.2"
    graph_columns = ", graph_exec_id, graph_node_id" if graphs else ""
    tables = {
        "metadata": "id INTEGER PRIMARY KEY, tag, value",
        "string": "id INTEGER PRIMARY KEY, guid, string",
        "info_process": "id INTEGER PRIMARY KEY, guid, pid, command, environment",
        "info_thread": "id INTEGER PRIMARY KEY, guid, pid, tid",
        "info_agent": "id INTEGER PRIMARY KEY, guid, type, absolute_index, product_name",
        "info_kernel_symbol": "id INTEGER PRIMARY KEY, guid, kernel_name, display_name, arch_vgpr_count",
        "event": "id INTEGER PRIMARY KEY, guid, category_id, stack_id, correlation_id, extdata",
        "region": 'id INTEGER PRIMARY KEY, guid, pid, tid, "start", "end", name_id, event_id',
        "kernel_dispatch": 'id INTEGER PRIMARY KEY, guid, pid, tid, agent_id, kernel_id, stream_id, "start", "end", '
        "group_segment_size, workgroup_size_x, workgroup_size_y, workgroup_size_z, grid_size_x, grid_size_y, "
        f"grid_size_z, event_id{graph_columns}",
        "memory_copy": 'id INTEGER PRIMARY KEY, guid, pid, tid, "start", "end", name_id, src_agent_id, dst_agent_id, '
        f"stream_id, event_id{graph_columns}",
    }
    database = sqlite3.connect(path)
    for name, columns in tables.items():
        database.execute(f'CREATE TABLE "rocpd_{name}{suffix}" ({columns})')

    def insert(name: str, **values: Any) -> int:
        keys = ", ".join(f'"{k}"' for k in values)
        marks = ", ".join("?" * len(values))
        sql = f'INSERT INTO "rocpd_{name}{suffix}" ({keys}) VALUES ({marks})'
        return int(database.execute(sql, list(values.values())).lastrowid or 0)

    strings: dict[str, int] = {}

    def string(text: str) -> int:
        if text not in strings:
            strings[text] = insert("string", string=text)
        return strings[text]

    insert("metadata", tag="schema_version", value=schema)
    string("PATH=/opt/secret/bin")
    process = insert("info_process", pid=pid, command="serve --token SECRET", environment='{"TOKEN": "SECRET"}')
    thread = insert("info_thread", pid=process, tid=pid + 1)
    insert("info_agent", type="CPU", absolute_index=0, product_name="a host")
    gpu = insert("info_agent", type="GPU", absolute_index=4, product_name="AMD Instinct MI300X")
    symbols = [
        insert("info_kernel_symbol", kernel_name=n, display_name=n.removesuffix(".kd"), arch_vgpr_count=12)
        for n in names
    ]
    here = {"pid": process, "tid": thread}

    def event(row: Mapping[str, Any], category: str) -> int:
        extdata = msgspec.json.encode({"message": row["message"]} if "message" in row else {}).decode()
        stack = row.get("stack", 0)
        return insert("event", category_id=string(category), stack_id=stack, correlation_id=0, extdata=extdata)

    for row in kernels:
        node = {"graph_exec_id": row.get("graph", 0), "graph_node_id": row.get("node", 0)} if graphs else {}
        shape = {"workgroup_size_x": 64, "workgroup_size_y": 1, "workgroup_size_z": 1}
        shape |= {"grid_size_x": 1000, "grid_size_y": 2, "grid_size_z": 1, "group_segment_size": 512}
        times = {"start": row["start"], "end": row["end"], "event_id": event(row, "KERNEL_DISPATCH")}
        symbol = symbols[row.get("kernel", 0)]
        insert("kernel_dispatch", **here, agent_id=gpu, kernel_id=symbol, stream_id=3, **times, **shape, **node)
    for row in copies:
        times = {"start": row["start"], "end": row["end"], "event_id": event(row, "MEMORY_COPY")}
        ends = {"src_agent_id": 1, "dst_agent_id": gpu} if "HOST_TO" in row["direction"] else {}
        insert("memory_copy", **here, name_id=string(row["direction"]), stream_id=3, **times, **ends)
    for row in regions:
        times = {"start": row["start"], "end": row["end"], "event_id": event(row, row["category"])}
        insert("region", **here, name_id=string(row["name"]), **times)
    database.commit()
    database.close()
    return path
