"""Nsight Systems exports of any version, SQLite or a directory of Parquet files (``-t parquetdir``) → Trace.

Exports differ by version in tables and columns, and tables without rows are left out; so everything is probed and
nothing is decided by the product version. Facts and their sources: docs/formats.md. Only strings that an op, a launch
or a range refers to are read: the string table of an export also holds the recorded process's environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.errors import ProfkitError
from profkit.model.trace import (
    LAUNCHES,
    NODES,
    NONE,
    OP_DETAIL,
    OP_KINDS,
    OPS,
    RANGES,
    Diagnostic,
    Info,
    Process,
    Trace,
    categorical,
    table,
)
from profkit.model.wording import are, counted, have, were
from profkit.readers.arrow import PARQUET_MAGIC, Arrays, Coded, Database, Integers, Like, OneOf, ParquetTables, Tables
from profkit.readers.files import begins
from profkit.readers.rows import (
    broken_rows,
    call_name,
    launch_api,
    module_path,
    set_aside_note,
    sorted_ranges,
    streams_of_contexts,
)

KERNELS, COPIES, SETS = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
RUNTIME, GRAPHS, NVTX = "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "NVTX_EVENTS"
#: Where node-creation events live: the first name until 2023.4 and the second since, told apart by their columns.
NODE_TABLES = ("CUDA_GRAPH_NODE_EVENTS", "CUDA_GRAPH_EVENTS")
META_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")
STRINGS = "StringIds"

#: NVTX_EVENTS.eventType: push/pop range, start/end range, domain creation.
PUSH_POP, START_END, DOMAIN = 59, 60, 75
#: `end` of a range that was never closed.
_OPEN = int(np.iinfo(np.int64).min)
#: Ranges that are never closed lie inside one another. So many are deeper than any program's; more are pushes whose pop
#: is missing, and a thread of thousands would take the square of their number.
_MOST_OPEN = 100
#: globalPid and globalTid hold vm id, pid and tid; the low 24 bits are the thread.
_THREAD_BITS = 0xFFFFFF
#: DIAGNOSTIC_EVENT.severity from which the user should hear of it: 1 is information, 2 a warning, 3 an error.
_WARNING = 2
#: CUpti_ActivityMemcpyKind, for exports without ENUM_CUDA_MEMCPY_OPER.
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH"}
_COPY_KINDS |= {10: "PtoP", 11: "UVM HtoD", 12: "UVM DtoH", 13: "UVM DtoD"}
_DETAIL = {
    result: Integers(sources, NONE, "int32", optional=True, summed=len(sources) > 1)
    for result, sources in {
        **{f"grid_{axis}": (f"grid{axis.upper()}",) for axis in "xyz"},
        **{f"block_{axis}": (f"block{axis.upper()}",) for axis in "xyz"},
        "registers": ("registersPerThread",),
        "shared_memory": ("staticSharedMemory", "dynamicSharedMemory"),
    }.items()
}
#: The names of an export's tables, which must be no views.
_READ = re.compile(rf"[A-Z][A-Z0-9_]+|{STRINGS}")


def sniff(head: bytes, path: Path) -> bool:
    """Whether `path` is an export: an SQLite file, a directory of Parquet files, or one of these."""
    if path.is_dir() or head.startswith(PARQUET_MAGIC):
        return is_nsys(ParquetTables(path if path.is_dir() else path.parent).tables)
    with Database(path) as database:
        return is_nsys(database.tables | database.computed)


def is_nsys(tables: Set[str]) -> bool:
    """Whether these tables are those of an nsys export."""
    return bool(tables & {KERNELS, RUNTIME, NVTX, *META_TABLES}) and STRINGS in tables


def read(path: Path, *, detail: bool = False) -> Trace:
    """Read the export at `path`.

    Args:
        path: an SQLite file, the directory of Parquet files, or any of these.
        detail: also read `OP_DETAIL` (grid, block, registers, shared memory).

    Raises:
        ProfkitError: not an nsys export, damaged, or a table lacks a column that is needed.
    """
    if path.is_dir() or begins(path, len(PARQUET_MAGIC)) == PARQUET_MAGIC:
        return _trace(ParquetTables(path if path.is_dir() else path.parent), "nsys parquet", detail=detail)
    with Database(path) as database:
        database.refuse_computed(_READ)
        return _trace(database, "nsys sqlite", detail=detail)


def _trace(tables: Tables, format_name: str, *, detail: bool) -> Trace:
    if not is_nsys(tables.tables):
        raise ProfkitError(f"{tables.path} is no nsys export: it has no table {KERNELS} and no {NVTX}.")
    export = _Export(tables)
    ops, set_aside = _split_broken(export.ops(detail=detail))
    launches, broken_launches = export.launches()
    nodes = export.nodes()
    last_ns = max((int(t["end"].max()) for t in (ops, launches) if len(t)), default=0)
    ranges, broken_ranges, diagnostics = export.ranges(last_ns)
    diagnostics += set_aside_note(len(set_aside), broken_launches + broken_ranges, len(ops) + len(set_aside))
    diagnostics += export.profiler_warnings()
    info = Info(
        source=str(tables.path),
        format=format_name,
        vendor="nvidia",
        profiler=f"Nsight Systems {export.version}",
        devices=export.devices(set(pd.unique(ops["device"]).tolist())),
        processes=export.processes,
        graph_trace=export.graph_trace(ops, nodes),
        diagnostics=tuple(diagnostics),
    )
    return Trace(ops, launches, ranges, nodes, info, set_aside)


def _split_broken(ops: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The sound ops by process and start, and the broken ones."""
    broken = broken_rows(ops["start"].to_numpy(), ops["end"].to_numpy())
    set_aside = ops[broken].reset_index(drop=True) if broken.any() else ops.iloc[:0]
    if broken.any():
        ops = ops[~broken].reset_index(drop=True)
    process, start = ops["process"].to_numpy(), ops["start"].to_numpy()
    later = (process[1:] > process[:-1]) | ((process[1:] == process[:-1]) & (start[1:] >= start[:-1]))
    if later.all():
        return ops, set_aside
    # Kernels and copies of one process are sorted runs already, which a stable sort merges.
    one = (process == process[0]).all()
    order = np.argsort(start, kind="stable") if one else np.lexsort((start, process))
    return ops.iloc[order].reset_index(drop=True), set_aside


def _place_on_thread(
    process: npt.NDArray[Any], thread: npt.NDArray[Any], start: npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    """How many of the rows started before each on its thread."""
    order = np.lexsort((start, thread, process))
    first = np.ones(len(order), np.bool_)
    first[1:] = (process[order][1:] != process[order][:-1]) | (thread[order][1:] != thread[order][:-1])
    at = np.arange(len(order))
    place = np.empty(len(order), np.int64)
    place[order] = at - np.maximum.accumulate(np.where(first, at, 0))
    return place


class _Export:
    """One export while it is read; its processes are numbered in order of first appearance."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._pids: dict[int, int] = {}
        self.version = self._version()
        tables.of_columns = (
            f" (export by nsys {self.version}). Export the report again with a current nsys: nsys export -t sqlite "
            "REPORT.nsys-rep"
        )

    @property
    def processes(self) -> tuple[Process, ...]:
        """Those met so far, in the order of their numbers."""
        return tuple(Process(pid=(p >> 24) & _THREAD_BITS) for p in self._pids)

    # -- ops ----------------------------------------------------------------------------------------------------------

    def ops(self, *, detail: bool) -> pd.DataFrame:
        """All ops, one activity table after the other, in file order."""
        parts: list[tuple[str, Arrays, Coded]] = []
        for name, kind in ((KERNELS, "kernel"), (COPIES, "memcpy"), (SETS, "memset")):
            if name in self._tables.tables:
                columns = self._activities(name, kind, detail=detail)
                if len(columns["start"]):
                    parts.append((kind, columns, self._op_names(kind, columns.pop("name"))))
        schema = {**OPS, **(OP_DETAIL if detail else {})}
        whole: dict[str, Any] = {}
        for column, dtype in schema.items():
            if dtype != "category":
                # Copies and sets have no launch shape.
                arrays = [c.pop(column) if column in c else np.full(len(n.codes), NONE, dtype) for _, c, n in parts]
                whole[column] = np.concatenate(arrays or [np.empty(0, dtype)])
        labels: list[str] = []
        codes = [np.empty(0, np.int32)]
        for _, _, names in parts:
            codes.append(names.codes + np.int32(len(labels)))
            labels += names.labels
        kinds = [np.full(len(names.codes), OP_KINDS.index(kind), np.int8) for kind, _, names in parts]
        whole["kind"] = categorical(np.concatenate([np.empty(0, np.int8), *kinds]), OP_KINDS)
        whole["name"] = categorical(np.concatenate(codes), labels)
        return table(schema, whole)

    def _activities(self, name: str, kind: str, *, detail: bool) -> Arrays:
        named = {
            "kernel": Integers(("demangledName", "shortName", "mangledName"), NONE),
            "memcpy": Integers(("copyKind",)),
            "memset": Integers((), NONE),
        }
        wanted = {
            "start": Integers(("start",)),
            "end": Integers(("end",)),
            "name": named[kind],
            "process": Integers(("globalPid",), 0, optional=True),
            "device": Integers(("deviceId",), 0, "int32", optional=True),
            "stream": Integers(("streamId",), 0, optional=True),
            "context": Integers(("contextId",), 0, optional=True),
            # 0 where the graph was instantiated before the recording began.
            "correlation": Integers(("correlationId",), NONE, optional=True, zero_is_null=True),
            "graph": Integers(("graphId",), NONE, optional=True, zero_is_null=True),
            # An eager op has graphNodeId NULL in new exports and 0 in old ones.
            "node": Integers(("graphNodeId",), NONE, optional=True, zero_is_null=True),
        }
        if detail:
            wanted |= _DETAIL if kind == "kernel" else {"bytes": Integers(("bytes",), NONE, optional=True)}
        columns = self._with_process(self._tables.integers(name, wanted))
        columns["stream"] = streams_of_contexts(columns["device"], columns.pop("context"), columns["stream"])
        return columns

    def _op_names(self, kind: str, ids: npt.NDArray[np.int64]) -> Coded:
        codes, unique = pd.factorize(ids)
        if kind == "kernel":
            texts = self._strings(OneOf("id", unique.tolist()))
            labels = [texts.get(i, f"kernel with unknown name {i}") for i in unique.tolist()]
        elif kind == "memcpy":
            kinds = self._copy_kinds()
            labels = [f"memcpy {kinds.get(i, f'kind {i}')}" for i in unique.tolist()]
        else:
            labels = ["memset"] * len(unique)
        return Coded(codes.astype(np.int32), labels)

    def _copy_kinds(self) -> Mapping[int, str]:
        name = "ENUM_CUDA_MEMCPY_OPER"
        if not {"id", "label"} <= self._tables.columns(name):
            return _COPY_KINDS
        rows, texts = self._tables.read(name, {"id": Integers(("id",))}, ["label"])
        labels = zip(rows["id"].tolist(), texts["label"].tolist(), strict=True)
        return {i: _COPY_KINDS.get(i, str(label)) for i, label in labels}

    # -- launches and nodes -------------------------------------------------------------------------------------------

    def launches(self) -> tuple[pd.DataFrame, int]:
        """`Trace.launches`, and how many more had no valid times."""
        if RUNTIME not in self._tables.tables:
            return table(LAUNCHES), 0
        called = self._strings(Like("value", begins="cu"))
        calls = {i: (call_name(text), api) for i, text in called.items() if (api := launch_api(text)) is not None}
        if not calls:
            return table(LAUNCHES), 0
        wanted = {
            "start": Integers(("start",)),
            "end": Integers(("end",)),
            "process": Integers(("globalTid",), 0),
            "correlation": Integers(("correlationId",), NONE, zero_is_null=True),
            "call": Integers(("nameId",)),
        }
        columns = self._with_thread(self._tables.integers(RUNTIME, wanted, OneOf("nameId", list(calls))))
        codes, unique = pd.factorize(columns.pop("call"))
        names, apis = ([calls[i][place] for i in unique.tolist()] for place in (0, 1))
        whole = {**columns, "name": categorical(codes, names), "api": categorical(codes, apis)}
        broken = broken_rows(columns["start"], columns["end"])
        launches = table(LAUNCHES, whole)[~broken].sort_values(["process", "start"], kind="stable", ignore_index=True)
        # A runtime call and the driver call under it may share a correlation id: the outer one is the launch.
        inner = launches.duplicated(["process", "correlation"]) & (launches["correlation"] != NONE)
        return launches[~inner].reset_index(drop=True), int(broken.sum())

    def nodes(self) -> pd.DataFrame:
        """`Trace.nodes`."""
        name = next((t for t in NODE_TABLES if "graphNodeId" in self._tables.columns(t)), None)
        if name is None:
            return table(NODES)
        wanted = {
            "created": Integers(("start",)),
            "process": Integers(("globalTid",), 0),
            "node": Integers(("graphNodeId",)),
            "origin": Integers(("originalGraphNodeId",), NONE, optional=True, zero_is_null=True),
        }
        return table(NODES, self._with_thread(self._tables.integers(name, wanted)))

    # -- ranges -------------------------------------------------------------------------------------------------------

    def ranges(self, last_ns: int) -> tuple[pd.DataFrame, int, list[Diagnostic]]:
        """`Trace.ranges`, how many more had no valid times, and what to say of those that were never closed.

        Args:
            last_ns: when the last op or launch ends.
        """
        if NVTX not in self._tables.tables:
            return table(RANGES), 0, []
        wanted = {
            "start": Integers(("start",)),
            "end": Integers(("end",), _OPEN),
            "style": Integers(("eventType",)),
            "process": Integers(("globalTid",), 0),
            "domain": Integers(("domainId",), 0, optional=True),
        }
        columns, texts = self._messages(wanted, (PUSH_POP, START_END))
        columns = self._with_thread(columns)
        clipped = columns["end"] == _OPEN
        broken = ~clipped & broken_rows(columns["start"], columns["end"])
        unclosed: list[Diagnostic] = []
        if clipped.any():
            end = max(last_ns, *(int(columns[name][~broken].max()) for name in ("start", "end")))
            columns["end"] = np.where(clipped, end, columns["end"])
            count = int(clipped.sum())
            message = (
                f"{counted(count, 'range')} {were(count)} never closed and {are(count)} taken to last until the "
                "recording's end."
            )
            unclosed.append(Diagnostic("unclosed-range", message))
        nested = columns.pop("style") == PUSH_POP
        leaked = np.flatnonzero(clipped & nested)
        leaked = leaked[_place_on_thread(*(columns[n][leaked] for n in ("process", "thread", "start"))) >= _MOST_OPEN]
        if len(leaked):
            nested[leaked] = False
            message = (
                f"{counted(len(leaked), 'range')} beyond the first {_MOST_OPEN} of a thread {have(len(leaked))} no pop "
                f"and {are(len(leaked))} left out. Close each."
            )
            unclosed.append(Diagnostic("unclosed-range", message))
        whole = {
            "nested": nested,
            "domain": self._domains(columns.pop("domain"), columns["process"]),
            "text": categorical(texts.codes, [module_path(text) for text in texts.labels]),
            "clipped": clipped,
            **columns,
        }
        return sorted_ranges(table(RANGES, whole)[~broken]), int(broken.sum()), unclosed

    def _domains(self, ids: npt.NDArray[np.int64], process: npt.NDArray[Any]) -> pd.Categorical[str]:
        """Domain names, from the creation event of the same process; the default domain is the empty name."""
        names: dict[tuple[int, int], str] = {}
        if "domainId" in self._tables.columns(NVTX):
            wanted = {"process": Integers(("globalTid",), 0), "domain": Integers(("domainId",), 0)}
            created, texts = self._messages(wanted, (DOMAIN,))
            for tid, domain, code in zip(created["process"], created["domain"], texts.codes, strict=True):
                names[self._process_index(int(tid)), int(domain)] = texts.labels[code]
        pairs, inverse = np.unique(np.stack([process.astype(np.int64), ids], axis=1), axis=0, return_inverse=True)
        labels = [names.get((p, d), "" if d == 0 else f"domain {d}") for p, d in pairs.tolist()]
        return categorical(inverse.reshape(-1), labels)

    def _messages(self, wanted: Mapping[str, Integers], event_types: Sequence[int]) -> tuple[Arrays, Coded]:
        """Columns of the ranges or domains of `event_types`, and the message of each.

        That is its `text`, else what its `textId` refers to, else "".
        """
        own = ["text"] if "text" in self._tables.columns(NVTX) else []
        referred = {"textId": Integers(("textId",), NONE, optional=True)}
        columns, texts = self._tables.read(NVTX, {**wanted, **referred}, own, OneOf("eventType", event_types))
        ids = columns.pop("textId")
        message = texts["text"] if own else Coded(np.full(len(ids), NONE, np.int32), [])
        without = message.codes == NONE
        unique, place = np.unique(ids[without], return_inverse=True)
        strings = self._strings(OneOf("id", unique[unique != NONE].tolist()))
        message.codes[without] = len(message.labels) + place.reshape(-1)
        return columns, Coded(message.codes, message.labels + [strings.get(i, "") for i in unique.tolist()])

    # -- what the export says of itself -------------------------------------------------------------------------------

    def _version(self) -> str:
        """The exporter's version, e.g. ``2025.3.1.90``."""
        name = next((t for t in META_TABLES if {"name", "value"} <= self._tables.columns(t)), None)
        found = self._texts(name, "value", Like("name", begins="EXPORT_PRODUCT_VERSION")) if name else []
        return found[0] if found else "of unknown version"

    def devices(self, used: Set[int]) -> dict[int, str]:
        """The devices that ops ran on, index to name; a host may have others."""
        name = "TARGET_INFO_GPU"
        if not {"id", "name"} <= self._tables.columns(name):
            return {}
        rows, texts = self._tables.read(name, {"index": Integers(("cuDevice", "id"), NONE)}, ["name"])
        named = zip(rows["index"].tolist(), texts["name"].tolist(), strict=True)
        return {i: name for i, name in named if name and i in used}

    def graph_trace(self, ops: pd.DataFrame, nodes: pd.DataFrame) -> str:
        """`Info.graph_trace`."""
        if len(nodes) or bool((ops["node"] != NONE).any()):
            return "node"
        if "start" in self._tables.columns(GRAPHS):
            whole = self._tables.integers(GRAPHS, {"start": Integers(("start",), 0)})
            if len(whole["start"]):
                return "graph"
        if {"name", "value"} <= self._tables.columns("META_DATA_CAPTURE"):
            modes = self._texts("META_DATA_CAPTURE", "value", Like("name", ends="CUDA_GRAPH_TRACE_OPTIONS:MODE"))
            # A mode alone does not say that a graph ran.
            if set(modes) == {"Node"}:
                return "node"
        return "unknown"

    def profiler_warnings(self) -> list[Diagnostic]:
        """Warnings and errors of the profiler, each text once."""
        name = "DIAGNOSTIC_EVENT"
        if not {"severity", "text"} <= self._tables.columns(name):
            return []
        rows, column = self._tables.read(name, {"severity": Integers(("severity",), 0)}, ["text"])
        said = zip(rows["severity"].tolist(), column["text"].tolist(), strict=True)
        texts = dict.fromkeys(" ".join(text.split()) for severity, text in said if text and severity >= _WARNING)
        # A message with a path or an assignment in it may name the recorded machine.
        return [Diagnostic("profiler-warning", t) for t in texts if "/" not in t and "=" not in t and "\\" not in t]

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _texts(self, name: str, column: str, where: Like) -> list[str]:
        return [text for text in self._tables.read(name, {}, [column], where)[1][column].tolist() if text is not None]

    def _strings(self, where: OneOf | Like) -> dict[int, str]:
        rows, texts = self._tables.read(STRINGS, {"id": Integers(("id",))}, ["value"], where)
        values = zip(rows["id"].tolist(), texts["value"].tolist(), strict=True)
        return {ident: text for ident, text in values if text is not None}

    def _process_index(self, global_id: int) -> int:
        """The number of the process that a globalPid or globalTid belongs to."""
        return self._pids.setdefault(global_id & ~_THREAD_BITS, len(self._pids))

    def _with_thread(self, columns: Arrays) -> Arrays:
        """`columns` with process numbers and thread ids in place of the global ids in ``process``."""
        columns["thread"] = columns["process"] & _THREAD_BITS
        return self._with_process(columns)

    def _with_process(self, columns: Arrays) -> Arrays:
        """`columns` with process numbers in place of the global ids in ``process``."""
        codes, unique = pd.factorize(columns["process"])
        lookup = np.array([self._process_index(i) for i in unique.tolist()], dtype=np.int32)
        columns["process"] = lookup[codes] if len(codes) else np.empty(0, np.int32)
        return columns
