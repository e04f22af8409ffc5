"""Small nsys SQLite exports, written inline: rows that a test lists one by one, in the schema of one generation of the
exporter. `recording.py` lists such rows for a simulated process."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

#: nsys puts a machine id above pid and tid.
_MACHINE = 1 << 48
PUSH_POP, START_END, DOMAIN, MARK = 59, 60, 75, 34
COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8}

#: Columns of the activity tables by generation. ``minimal`` is what derived files keep: no graph columns at all.
_KERNEL_COLUMNS = {
    "2023": "start end deviceId contextId streamId correlationId globalPid demangledName shortName graphNodeId",
    "2025": "start end deviceId contextId streamId correlationId globalPid demangledName shortName graphNodeId graphId",
    "minimal": "start end deviceId streamId correlationId globalPid shortName gridX gridY gridZ blockX blockY blockZ",
}


@dataclass(frozen=True)
class Kernel:
    """A row of the kernel, memcpy (`name` is a key of `COPY_KINDS`) or memset table."""

    name: str
    start: int
    end: int
    correlation: int | None = None
    node: int | None = None
    graph: int | None = None
    stream: int = 7
    device: int = 0
    pid: int = 100
    kind: str = "kernel"


@dataclass(frozen=True)
class Range:
    """A row of NVTX_EVENTS; `registered` texts live in StringIds, as the `nvtx` package and NCCL write them."""

    text: str | None
    start: int
    end: int | None
    tid: int = 100
    pid: int = 100
    style: int = PUSH_POP
    domain: int = 0
    registered: bool = False


@dataclass(frozen=True)
class Node:
    """A node-creation event; `origin` None means stream capture."""

    node: int
    created: int
    origin: int | None = None
    tid: int = 100
    pid: int = 100


@dataclass(frozen=True)
class Launch:
    """A row of the runtime table."""

    name: str
    start: int
    correlation: int | None
    tid: int = 100
    pid: int = 100
    duration: int = 10


@dataclass
class Rows:
    """Everything that goes into one export."""

    kernels: list[Kernel] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)

    def __add__(self, other: Rows) -> Rows:
        return Rows(
            self.kernels + other.kernels,
            self.ranges + other.ranges,
            self.nodes + other.nodes,
            self.launches + other.launches,
        )

    def shifted(self, ns: int) -> Rows:
        """The same, `ns` later."""
        return Rows(
            [replace(k, start=k.start + ns, end=k.end + ns) for k in self.kernels],
            [replace(r, start=r.start + ns, end=None if r.end is None else r.end + ns) for r in self.ranges],
            [replace(n, created=n.created + ns) for n in self.nodes],
            [replace(call, start=call.start + ns) for call in self.launches],
        )


def global_id(pid: int, tid: int = 0) -> int:
    """nsys's globalTid; with `tid` 0 its globalPid."""
    return _MACHINE | (pid << 24) | tid


def nsys_trace(
    path: Path,
    kernels: Sequence[Kernel] = (),
    ranges: Sequence[Range] = (),
    nodes: Sequence[Node] = (),
    launches: Sequence[Launch] = (),
    *,
    generation: str = "2025",
    whole_graphs: Sequence[int] = (),
    gpus: Mapping[int, str] | None = None,
    strings: Sequence[str] = (),
    extra_sql: Sequence[str] = (),
) -> Path:
    """Write an export. Tables without rows are left out, as the exporter does by default.

    Args:
        generation: a key of `_KERNEL_COLUMNS`.
        whole_graphs: correlation ids of graph launches recorded as one row each.
        gpus: device index to name; one H200 if not given.
        strings: more texts for StringIds: an export holds the whole environment there.
        extra_sql: statements run at the end.
    """
    path.unlink(missing_ok=True)
    db = sqlite3.connect(path)
    ids: dict[str, int] = {}

    def text_id(text: str) -> int:
        return ids.setdefault(text, len(ids) + 1)

    def create(table: str, columns: str, rows: Sequence[Sequence[Any]], types: str = "INTEGER") -> None:
        if rows:
            names = columns.split()
            db.execute(f"CREATE TABLE {table} ({', '.join(f'{n} {types}' for n in names)})")
            db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", rows)

    for text in strings:
        text_id(text)
    columns = _KERNEL_COLUMNS[generation]
    create(
        "CUPTI_ACTIVITY_KIND_KERNEL", columns, [_kernel_row(k, columns, text_id) for k in kernels if k.kind == "kernel"]
    )
    activity = "start end deviceId streamId correlationId globalPid"
    graph_column = "" if generation == "minimal" else " graphNodeId"
    for kind, table, detail in (
        ("memcpy", "CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind"),
        ("memset", "CUPTI_ACTIVITY_KIND_MEMSET", "value"),
    ):
        rows = [
            [k.start, k.end, k.device, k.stream, k.correlation, global_id(k.pid), COPY_KINDS.get(k.name, 0)]
            + ([k.node] if graph_column else [])
            for k in kernels
            if k.kind == kind
        ]
        create(table, f"{activity} {detail}{graph_column}", rows)
    create(
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "start end eventClass globalTid correlationId nameId returnValue",
        [
            [c.start, c.start + c.duration, 0, global_id(c.pid, c.tid), c.correlation, text_id(c.name), 0]
            for c in launches
        ],
    )
    create(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        "start end deviceId streamId correlationId globalPid graphId",
        [[1, 2, 0, 7, c, global_id(100), 1] for c in whole_graphs],
    )
    _write_nodes(create, nodes, text_id, generation)
    _write_ranges(db, ranges, text_id)
    create("TARGET_INFO_GPU", "id name", [list(g) for g in (gpus or {0: "NVIDIA H200"}).items()], "")
    meta = {"EXPORT_PRODUCT_VERSION": f"{generation}.1.1", "EXPORT_SCHEMA_VERSION": "3.0.0"}
    create("META_DATA_EXPORT", "name value", [list(m) for m in meta.items()], "TEXT")
    db.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, t) for t, i in ids.items()])
    for statement in extra_sql:
        db.execute(statement)
    db.commit()
    db.close()
    return path


def write(path: Path, rows: Rows, **options: Any) -> Path:
    """`nsys_trace` of `rows`."""
    return nsys_trace(path, rows.kernels, rows.ranges, rows.nodes, rows.launches, **options)


def _kernel_row(kernel: Kernel, columns: str, text_id: Any) -> list[Any]:
    values = {
        "start": kernel.start,
        "end": kernel.end,
        "deviceId": kernel.device,
        "contextId": 1,
        "streamId": kernel.stream,
        "correlationId": kernel.correlation,
        "globalPid": global_id(kernel.pid),
        "demangledName": text_id(kernel.name),
        "shortName": text_id(kernel.name),
        "graphNodeId": kernel.node,
        "graphId": kernel.graph,
    }
    return [values.get(c, 1) for c in columns.split()]


def _write_nodes(create: Any, nodes: Sequence[Node], text_id: Any, generation: str) -> None:
    rows = [
        [n.created, n.created, 77, global_id(n.pid, n.tid), text_id("Graph Node Creation"), n.node, n.origin]
        for n in nodes
    ]
    columns = "start end eventClass globalTid nameId graphNodeId originalGraphNodeId"
    if generation == "2023":
        create("CUDA_GRAPH_EVENTS", columns, rows)
        return
    create("CUDA_GRAPH_NODE_EVENTS", columns, rows)
    # Since 2024 the old name holds events of whole graphs.
    whole = [[n.created, n.created, 78, global_id(n.pid, n.tid), text_id("Graph Creation"), 1, None, 2] for n in nodes]
    create("CUDA_GRAPH_EVENTS", "start end eventClass globalTid nameId graphId originalGraphId graphExecId", whole[:1])


def _write_ranges(db: sqlite3.Connection, ranges: Sequence[Range], text_id: Any) -> None:
    if not ranges:
        return
    db.execute(
        "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, "
        "textId INTEGER, domainId INTEGER)"
    )
    rows = []
    for r in ranges:
        registered = text_id(r.text) if r.registered and r.text is not None else None
        rows.append(
            [r.start, r.end, r.style, None if r.registered else r.text, global_id(r.pid, r.tid), registered, r.domain]
        )
    db.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
