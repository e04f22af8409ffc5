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
    NODES,
    NONE,
    OP_DETAIL,
    OP_KINDS,
    OPS,
    Diagnostic,
    Info,
    Process,
    Trace,
    table,
)
from profkit.model.wording import are, counted, have, were
from profkit.readers.arrow import PARQUET_MAGIC, Arrays, Coded, Database, Integers, Like, OneOf, ParquetTables, Tables
from profkit.readers.events import EventRows
from profkit.readers.files import begins
from profkit.readers.rows import (
    api_index,
    broken_rows,
    call_name,
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
    name: Integers((source,), NONE, "int32", optional=True)
    for name, source in {
        **{f"grid_{axis}": f"grid{axis.upper()}" for axis in "xyz"},
        **{f"block_{axis}": f"block{axis.upper()}" for axis in "xyz"},
        "registers": "registersPerThread",
        "static": "staticSharedMemory",
        "dynamic": "dynamicSharedMemory",
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
    """See `profkit.readers.Reader`; `path` may be the directory of Parquet files too, or any of these."""
    if path.is_dir() or begins(path, len(PARQUET_MAGIC)) == PARQUET_MAGIC:
        return _trace(ParquetTables(path if path.is_dir() else path.parent), "nsys parquet", detail=detail)
    with Database(path) as database:
        database.refuse_computed(_READ)
        return _trace(database, "nsys sqlite", detail=detail)


def _trace(tables: Tables, format_name: str, *, detail: bool) -> Trace:
    if not is_nsys(tables.tables):
        raise ProfkitError(f"{tables.path} is no nsys export: it has no table {KERNELS} and no {NVTX}.")
    return _Export(tables, detail=detail).trace(format_name)


class _Export:
    """One export while it is read; its processes are numbered in order of first appearance."""

    def __init__(self, tables: Tables, *, detail: bool) -> None:
        self._tables = tables
        self._rows = EventRows(detail=detail)
        name = next((t for t in META_TABLES if {"name", "value"} <= tables.columns(t)), None)
        found = tables.texts(name, "value", Like("name", begins="EXPORT_PRODUCT_VERSION")) if name else []
        self._version = found[0] if found else "of unknown version"
        tables.of_columns = (
            f" (export by nsys {self._version}). Export the report again with a current nsys: nsys export -t sqlite "
            "REPORT.nsys-rep"
        )

    def trace(self, format_name: str) -> Trace:
        """The export's trace."""
        for name, kind in ((KERNELS, "kernel"), (COPIES, "memcpy"), (SETS, "memset")):
            if name in self._tables.tables:
                self._add_ops(name, kind)
        if RUNTIME in self._tables.tables:
            self._add_launches()
        nodes = self._nodes()
        if NVTX in self._tables.tables:
            self._add_ranges()
        for name in sorted(t for t in self._tables.tables if t.startswith(NVTX) and t != NVTX):
            message = (
                f"The ranges in the table {name} are left out: profkit knows {NVTX} alone. Export the report again."
            )
            self._rows.notes.append(Diagnostic("unknown-ranges", message))
        self._rows.notes += self._profiler_warnings()
        info = Info(
            source=str(self._tables.path),
            format=format_name,
            vendor="nvidia",
            profiler=f"Nsight Systems {self._version}",
            devices=self._devices(),
            processes=tuple(Process(pid=(owner >> 24) & _THREAD_BITS) for owner in self._rows.owners),
        )
        return self._rows.trace(info, nodes=nodes, graph_trace=self._graph_trace(nodes), only_outer_calls=True)

    # -- ops ----------------------------------------------------------------------------------------------------------

    def _add_ops(self, name: str, kind: str) -> None:
        columns = self._activities(name, kind)
        columns["name"] = self._op_names(kind, columns["name"])
        columns["kind"] = np.full(len(columns["start"]), OP_KINDS.index(kind), np.int8)
        # Copies and sets have no launch shape.
        absent = np.full(len(columns["start"]), NONE, np.int32)
        wanted = [*OPS, *(OP_DETAIL if self._rows.detail else ())]
        self._rows.ops.add({column: columns.get(column, absent) for column in wanted})

    def _activities(self, name: str, kind: str) -> Arrays:
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
        if self._rows.detail:
            wanted |= _DETAIL if kind == "kernel" else {"bytes": Integers(("bytes",), NONE, optional=True)}
        columns = self._with_process(self._tables.integers(name, wanted))
        if "static" in columns:
            static, dynamic = (columns[part].astype(np.int64) for part in ("static", "dynamic"))
            columns["shared_memory"] = np.where((static == NONE) | (dynamic == NONE), NONE, static + dynamic)
        columns["stream"] = streams_of_contexts(columns["device"], columns.pop("context"), columns["stream"])
        return columns

    def _op_names(self, kind: str, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        codes, unique = pd.factorize(ids)
        if kind == "kernel":
            texts = self._tables.texts_by_id(STRINGS, "value", OneOf("id", unique.tolist()))
            labels = [texts.get(i, f"kernel with unknown name {i}") for i in unique.tolist()]
        elif kind == "memcpy":
            kinds = self._copy_kinds()
            labels = [f"memcpy {kinds.get(i, f'kind {i}')}" for i in unique.tolist()]
        else:
            labels = ["memset"] * len(unique)
        return self._rows.op_names.codes(labels)[codes]

    def _copy_kinds(self) -> Mapping[int, str]:
        name = "ENUM_CUDA_MEMCPY_OPER"
        if not {"id", "label"} <= self._tables.columns(name):
            return _COPY_KINDS
        return self._tables.texts_by_id(name, "label") | _COPY_KINDS

    # -- launches and nodes -------------------------------------------------------------------------------------------

    def _add_launches(self) -> None:
        called = self._tables.texts_by_id(STRINGS, "value", Like("value", begins="cu"))
        apis = {i: api for i, text in called.items() if (api := api_index(text)) != NONE}
        if not apis:
            return
        wanted = {
            "start": Integers(("start",)),
            "end": Integers(("end",)),
            "process": Integers(("globalTid",), 0),
            "correlation": Integers(("correlationId",), NONE, zero_is_null=True),
            "call": Integers(("nameId",)),
        }
        columns = self._with_thread(self._tables.integers(RUNTIME, wanted, OneOf("nameId", list(apis))))
        codes, unique = pd.factorize(columns["call"])
        columns["name"] = self._rows.call_names.codes([call_name(called[i]) for i in unique.tolist()])[codes]
        columns["api"] = np.array([apis[i] for i in unique.tolist()], np.int8)[codes]
        self._rows.launches.add(columns)

    def _nodes(self) -> pd.DataFrame:
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

    def _add_ranges(self) -> None:
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
        if clipped.any():
            last_ns = self._last_ns(columns["start"][~broken], columns["end"][~broken])
            columns["end"] = np.where(clipped, last_ns, columns["end"])
            count = int(clipped.sum())
            message = (
                f"{counted(count, 'range')} {were(count)} never closed and {are(count)} taken to last until the "
                "recording's end."
            )
            self._rows.notes.append(Diagnostic("unclosed-range", message))
        nested = columns["style"] == PUSH_POP
        unpopped = np.flatnonzero(clipped & nested)
        rows = pd.DataFrame({n: columns[n][unpopped] for n in ("process", "thread", "start")}, index=unpopped)
        before = rows.sort_values("start", kind="stable").groupby(["process", "thread"]).cumcount()
        leaked = before.index[before >= _MOST_OPEN].to_numpy()
        if len(leaked):
            nested[leaked] = False
            message = (
                f"{counted(len(leaked), 'range')} beyond the first {_MOST_OPEN} of a thread {have(len(leaked))} no pop "
                f"and {are(len(leaked))} left out. Close each."
            )
            self._rows.notes.append(Diagnostic("unclosed-range", message))
        codes = {
            "domain": self._domains(columns["domain"], columns["process"]),
            "text": texts.codes_in(self._rows.texts),
        }
        self._rows.ranges.add(columns | codes | {"nested": nested, "clipped": clipped, "broken": broken})

    def _last_ns(self, *times: npt.NDArray[np.int64]) -> int:
        """When the recording ends: the last of `times`, and of the ops and launches."""
        rows = ((part["start"], part["end"]) for part in (self._rows.ops, self._rows.launches))
        sound = (end[~broken_rows(start, end)] for start, end in rows)
        return max((int(part.max()) for part in (*times, *sound) if len(part)), default=0)

    def _domains(self, ids: npt.NDArray[np.int64], process: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Domain names, from the creation event of the same process; the default domain is the empty name."""
        names: dict[tuple[int, int], str] = {}
        if "domainId" in self._tables.columns(NVTX):
            wanted = {"process": Integers(("globalTid",), 0), "domain": Integers(("domainId",), 0)}
            created, texts = self._messages(wanted, (DOMAIN,))
            owners = self._with_process(created)["process"].tolist()
            said = map(texts.labels.__getitem__, texts.codes.tolist())
            names |= zip(zip(owners, created["domain"].tolist(), strict=True), said, strict=True)
        pairs, inverse = np.unique(np.stack([process.astype(np.int64), ids], axis=1), axis=0, return_inverse=True)
        labels = [names.get((p, d), "" if d == 0 else f"domain {d}") for p, d in pairs.tolist()]
        return self._rows.domains.codes(labels)[inverse.reshape(-1)]

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
        strings = self._tables.texts_by_id(STRINGS, "value", OneOf("id", unique[unique != NONE].tolist()))
        message.codes[without] = len(message.labels) + place.reshape(-1)
        return columns, Coded(message.codes, message.labels + [strings.get(i, "") for i in unique.tolist()])

    # -- what the export says of itself -------------------------------------------------------------------------------

    def _devices(self) -> dict[int, str]:
        """The devices that ops ran on, index to name; a host may have others."""
        name = "TARGET_INFO_GPU"
        if not {"id", "name"} <= self._tables.columns(name):
            return {}
        named = self._tables.texts_by_id(name, "name", ident=Integers(("cuDevice", "id"), NONE))
        used = set(np.unique(self._rows.ops["device"]).tolist())
        return {i: name for i, name in named.items() if name and i in used}

    def _graph_trace(self, nodes: pd.DataFrame) -> str:
        """`Info.graph_trace`."""
        if len(nodes) or bool((self._rows.ops["node"] != NONE).any()):
            return "node"
        if "start" in self._tables.columns(GRAPHS):
            whole = self._tables.integers(GRAPHS, {"start": Integers(("start",), 0)})
            if len(whole["start"]):
                return "graph"
        if {"name", "value"} <= self._tables.columns("META_DATA_CAPTURE"):
            modes = self._tables.texts("META_DATA_CAPTURE", "value", Like("name", ends="CUDA_GRAPH_TRACE_OPTIONS:MODE"))
            # A mode alone does not say that a graph ran.
            if set(modes) == {"Node"}:
                return "node"
        return "unknown"

    def _profiler_warnings(self) -> list[Diagnostic]:
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

    def _with_thread(self, columns: Arrays) -> Arrays:
        """`columns` with process numbers and thread ids in place of the global ids in ``process``."""
        columns["thread"] = columns["process"] & _THREAD_BITS
        return self._with_process(columns)

    def _with_process(self, columns: Arrays) -> Arrays:
        """`columns` with process numbers in place of the global ids in ``process``."""
        columns["process"] = self._rows.process(columns["process"] & ~_THREAD_BITS)
        return columns
