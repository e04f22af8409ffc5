"""Nsight Systems exports of any version, SQLite or Parquet → Trace.

Exports differ by version in tables and columns, and tables without rows are left out; so everything is probed and
nothing is decided by the product version. Facts and their sources: docs/formats.md. Only strings that an op, a launch
or a range refers to are read: the string table of an export also holds the recorded process's environment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.errors import ProfkitError
from profkit.readers import nsys_provenance
from profkit.readers.columns import broken_rows
from profkit.readers.hook_text import module_path
from profkit.readers.launch_calls import call_name, launch_api
from profkit.readers.nsys_tables import (
    COPIES,
    GRAPHS,
    KERNELS,
    META_TABLES,
    NODE_TABLES,
    NVTX,
    RUNTIME,
    SETS,
    Arrays,
    Column,
    OneOf,
    SqliteTables,
    Tables,
    Text,
)
from profkit.readers.sqlite_columns import Database
from profkit.trace import (
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

#: Table names come along for the modules that edit exports.
__all__ = [
    "COPIES",
    "GRAPHS",
    "KERNELS",
    "META_TABLES",
    "NODE_TABLES",
    "NVTX",
    "RUNTIME",
    "SETS",
    "is_nsys",
    "op_batches",
    "read",
    "read_tables",
]

#: globalPid and globalTid hold vm id, pid and tid; the low 24 bits are the thread.
THREAD_BITS = 0xFFFFFF

#: NVTX_EVENTS.eventType: push/pop range, start/end range, domain creation.
PUSH_POP, START_END, DOMAIN = 59, 60, 75

#: CUpti_ActivityMemcpyKind, for exports without ENUM_CUDA_MEMCPY_OPER.
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH"}
_COPY_KINDS |= {10: "PtoP", 11: "UVM HtoD", 12: "UVM DtoH", 13: "UVM DtoD"}

_DETAIL = {
    "grid_x": ("gridX",),
    "grid_y": ("gridY",),
    "grid_z": ("gridZ",),
    "block_x": ("blockX",),
    "block_y": ("blockY",),
    "block_z": ("blockZ",),
    "registers": ("registersPerThread",),
    "shared_memory": ("staticSharedMemory", "dynamicSharedMemory"),
}
#: `end` of a range that was never closed.
_OPEN = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class _Source:
    """One activity table, its kind of op, and the columns that name an op, best first."""

    table: str
    kind: str
    names: tuple[str, ...]


def is_nsys(tables: Set[str]) -> bool:
    """Whether these tables are those of an nsys export."""
    return bool(tables & {KERNELS, RUNTIME, NVTX, *META_TABLES}) and "StringIds" in tables


def read(path: Path, *, detail: bool = False) -> Trace:
    """Read the SQLite export at `path`.

    Args:
        path: an SQLite file.
        detail: also read `OP_DETAIL` (grid, block, registers, shared memory).

    Raises:
        ProfkitError: not an nsys export, damaged, or a table lacks a column that is needed.
    """
    with Database(path) as database:
        return read_tables(SqliteTables(database), detail=detail)


def read_tables(tables: Tables, *, detail: bool = False) -> Trace:
    """Read an export of either form; arguments and errors as for `read`."""
    if not is_nsys(tables.tables):
        raise ProfkitError(f"{tables.path} is no nsys export: it has no table {KERNELS} and no {NVTX}.")
    return _Reader(tables).trace(detail=detail)


def op_batches(path: Path) -> Iterator[pd.DataFrame]:
    """The ops of the SQLite export at `path` in tables of bounded size, in file order: for traces beyond memory.

    Names are not categories shared between batches. Broken rows are included.
    """
    with Database(path) as database:
        reader = _Reader(SqliteTables(database))
        for source in reader.sources():
            for columns in reader.source_batches(source):
                yield reader.ops_table([(source.kind, columns)], detail=False)


class _Reader:
    def __init__(self, tables: Tables) -> None:
        self.db = tables
        self.version = nsys_provenance.version(tables)
        self.diagnostics: list[Diagnostic] = []
        self._pids: dict[int, int] = {}

    def trace(self, *, detail: bool) -> Trace:
        parts = [(s.kind, c) for s in self.sources() for c in [self._whole(s, detail=detail)] if len(c["start"])]
        ops = self.ops_table(parts, detail=detail)
        ops, set_aside = _split_broken(ops)
        ops = _sorted_by_start(ops)
        launches = self._launches()
        nodes = self._nodes()
        ranges = self._ranges(_last_time(ops, launches))
        if len(set_aside):
            message = f"{len(set_aside)} of {len(ops) + len(set_aside)} ops have no valid times and are set aside."
            self.diagnostics.append(Diagnostic("set-aside", message))
        self.diagnostics += nsys_provenance.profiler_warnings(self.db)
        info = Info(
            source=str(self.db.path),
            format=self.db.format,
            vendor="nvidia",
            profiler=f"Nsight Systems {self.version}",
            devices=nsys_provenance.devices(self.db, ops),
            processes=tuple(Process(pid=(p >> 24) & THREAD_BITS) for p in self._pids),
            graph_trace=nsys_provenance.graph_trace(self.db, ops, nodes),
            diagnostics=tuple(self.diagnostics),
        )
        return Trace(ops, launches, ranges, nodes, info, set_aside)

    # -- ops ----------------------------------------------------------------------------------------------------------

    def sources(self) -> list[_Source]:
        """The activity tables that the export has."""
        have = self.db.columns(KERNELS)
        names = tuple(c for c in ("demangledName", "shortName", "mangledName") if c in have)
        candidates = [
            _Source(KERNELS, "kernel", names or ("demangledName",)),
            _Source(COPIES, "memcpy", ("copyKind",)),
            _Source(SETS, "memset", ()),
        ]
        return [s for s in candidates if s.table in self.db.tables]

    def source_batches(self, source: _Source) -> Iterator[Arrays]:
        """The columns of one activity table, batch by batch."""
        for columns in self.db.integer_batches(source.table, self._columns(source, detail=False)):
            yield self._with_process(columns)

    def _whole(self, source: _Source, *, detail: bool) -> Arrays:
        return self._with_process(self.db.integers(source.table, self._columns(source, detail=detail)))

    def _columns(self, source: _Source, *, detail: bool) -> dict[str, Column]:
        have = self.db.columns(source.table)
        self._require(source.table, ["start", "end", *source.names])

        def optional(column: str, default: int = NONE, **options: Any) -> Column:
            return Column((column,) if column in have else (), default, **options)

        names = Column(source.names, None if source.kind == "memcpy" else NONE)
        columns = {
            "start": Column(("start",)),
            "end": Column(("end",)),
            "name": names,
            "process": optional("globalPid", 0),
            "device": optional("deviceId", 0, dtype="int32"),
            "stream": optional("streamId", 0),
            "correlation": optional("correlationId"),
            "graph": optional("graphId", zero_is_null=True),
            # An eager op has graphNodeId NULL in new exports and 0 in old ones.
            "node": optional("graphNodeId", zero_is_null=True),
        }
        if detail and source.kind == "kernel":
            for name, parts in _DETAIL.items():
                known = parts if set(parts) <= have else ()
                columns[name] = Column(known, NONE, "int32", summed=len(known) > 1)
        return columns

    def ops_table(self, parts: list[tuple[str, Arrays]], *, detail: bool) -> pd.DataFrame:
        """One ops table from the columns of several activity tables."""
        codes: list[npt.NDArray[np.int32]] = []
        names: dict[str, int] = {}
        for kind, columns in parts:
            codes.append(self._name_codes(kind, columns.pop("name"), names))
        kinds = [np.full(len(c["start"]), OP_KINDS.index(k), np.int8) for k, c in parts]
        schema = {**OPS, **(OP_DETAIL if detail else {})}
        whole: dict[str, Any] = {}
        for column in schema:
            if column not in ("kind", "name"):
                arrays = [_detail_column(c, column) for _, c in parts]
                whole[column] = np.concatenate(arrays) if arrays else np.empty(0, schema[column])
        whole["kind"] = categorical(np.concatenate(kinds) if kinds else np.empty(0, np.int8), OP_KINDS)
        whole["name"] = categorical(np.concatenate(codes) if codes else np.empty(0, np.int32), list(names))
        return table(schema, whole)

    def _name_codes(self, kind: str, ids: npt.NDArray[np.int64], names: dict[str, int]) -> npt.NDArray[np.int32]:
        """Codes of `ids` into `names`, which grows. Two string ids may hold one text."""
        codes, unique = pd.factorize(ids)
        if kind == "kernel":
            texts = self._strings(unique.tolist())
            labels = [texts.get(int(i), f"kernel with unknown name {i}") for i in unique]
        elif kind == "memcpy":
            kinds = self._copy_kinds()
            labels = [f"memcpy {kinds.get(int(i), f'kind {i}')}" for i in unique]
        else:
            labels = ["memset" for _ in unique]
        lookup = np.array([names.setdefault(label, len(names)) for label in labels], dtype=np.int32)
        return lookup[codes] if len(codes) else np.empty(0, np.int32)

    def _copy_kinds(self) -> dict[int, str]:
        if {"id", "label"} <= self.db.columns("ENUM_CUDA_MEMCPY_OPER"):
            rows = self.db.rows("ENUM_CUDA_MEMCPY_OPER", ["id", "label"])
            return {int(i): _COPY_KINDS.get(int(i), str(label)) for i, label in rows}
        return _COPY_KINDS

    # -- launches, nodes, ranges --------------------------------------------------------------------------------------

    def _launches(self) -> pd.DataFrame:
        if RUNTIME not in self.db.tables:
            return table(LAUNCHES)
        self._require(RUNTIME, ["start", "end", "globalTid", "correlationId", "nameId"])
        candidates = self.db.rows("StringIds", ["id", "value"], Text("value", begins="cu"))
        calls: dict[int, tuple[str, str]] = {}
        for ident, value in candidates:
            api = launch_api(str(value))
            if api is not None:
                calls[int(ident)] = (call_name(str(value)), api)
        if not calls:
            return table(LAUNCHES)
        wanted = {
            "start": Column(("start",)),
            "end": Column(("end",)),
            "process": Column(("globalTid",), 0),
            "correlation": Column(("correlationId",), NONE),
            "call": Column(("nameId",)),
        }
        columns = self.db.integers(RUNTIME, wanted, OneOf("nameId", list(calls)))
        columns["thread"] = columns["process"] & THREAD_BITS
        columns = self._with_process(columns)
        codes, unique = pd.factorize(columns.pop("call"))
        names = [calls[int(i)][0] for i in unique]
        apis = [calls[int(i)][1] for i in unique]
        whole = {**columns, "name": categorical(codes, names), "api": categorical(codes, apis)}
        launches = table(LAUNCHES, whole).sort_values(["process", "start"], kind="stable", ignore_index=True)
        # A runtime call and the driver call under it may share a correlation id: the outer one is the launch.
        return launches.drop_duplicates(["process", "correlation"], ignore_index=True)

    def _nodes(self) -> pd.DataFrame:
        name = next((t for t in NODE_TABLES if "graphNodeId" in self.db.columns(t)), None)
        if name is None:
            return table(NODES)
        self._require(name, ["start", "globalTid", "graphNodeId"])
        origin = ("originalGraphNodeId",) if "originalGraphNodeId" in self.db.columns(name) else ()
        wanted = {
            "node": Column(("graphNodeId",)),
            "origin": Column(origin, NONE, zero_is_null=True),
            "created": Column(("start",)),
            "process": Column(("globalTid",), 0),
        }
        columns = self.db.integers(name, wanted)
        columns["thread"] = columns["process"] & THREAD_BITS
        return table(NODES, self._with_process(columns))

    def _ranges(self, last_ns: int) -> pd.DataFrame:
        have = self.db.columns(NVTX)
        if not have:
            return table(RANGES)
        self._require(NVTX, ["start", "end", "eventType", "globalTid"])
        wanted = {
            "start": Column(("start",)),
            "end": Column(("end",), _OPEN),
            "style": Column(("eventType",)),
            "process": Column(("globalTid",), 0),
            "domain": Column(("domainId",) if "domainId" in have else (), 0),
        }
        columns, codes, texts = self.db.messages(NVTX, wanted, OneOf("eventType", (PUSH_POP, START_END)))
        columns["thread"] = columns["process"] & THREAD_BITS
        columns = self._with_process(columns)
        clipped = columns["end"] == _OPEN
        if clipped.any():
            end = max(last_ns, int(columns["start"].max()), int(columns["end"].max()))
            columns["end"] = np.where(clipped, end, columns["end"])
            message = f"{int(clipped.sum())} ranges were never closed and are taken to last until the recording's end."
            self.diagnostics.append(Diagnostic("unclosed-range", message))
        nested = columns.pop("style") == PUSH_POP
        domains = self._domains(columns.pop("domain"), columns["process"])
        whole = {
            **columns,
            "text": categorical(codes, [module_path(t) for t in texts]),
            "domain": domains,
            "nested": nested,
        }
        ranges = table(RANGES, {**whole, "clipped": clipped})
        order = ["process", "thread", "start", "end"]
        return ranges.sort_values(order, ascending=[True, True, True, False], ignore_index=True)

    def _domains(self, ids: npt.NDArray[np.int64], process: npt.NDArray[Any]) -> pd.Categorical[str]:
        """Domain names, from the creation event of the same process; the default domain is the empty name."""
        names: dict[tuple[int, int], str] = {}
        if "domainId" in self.db.columns(NVTX):
            wanted = {"process": Column(("globalTid",), 0), "domain": Column(("domainId",), 0)}
            created, codes, texts = self.db.messages(NVTX, wanted, OneOf("eventType", (DOMAIN,)))
            for tid, domain, code in zip(created["process"], created["domain"], codes, strict=True):
                names[self._process_index(int(tid)), int(domain)] = texts[code]
        pairs, inverse = np.unique(np.stack([process.astype(np.int64), ids], axis=1), axis=0, return_inverse=True)
        labels = [names.get((int(p), int(d)), "" if d == 0 else f"domain {d}") for p, d in pairs]
        return categorical(inverse.reshape(-1), labels)

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _require(self, name: str, columns: Iterable[str]) -> None:
        missing = [c for c in columns if c not in self.db.columns(name)]
        if missing:
            raise ProfkitError(
                f"{self.db.path}: table {name} has no column {', '.join(missing)} (export by nsys {self.version}). "
                "Export the report again with a current nsys: nsys export -t sqlite REPORT.nsys-rep"
            )

    def _strings(self, ids: list[int]) -> dict[int, str]:
        return dict(self.db.rows("StringIds", ["id", "value"], OneOf("id", ids)))

    def _process_index(self, global_id: int) -> int:
        return self._pids.setdefault(global_id & ~THREAD_BITS, len(self._pids))

    def _with_process(self, columns: Arrays) -> Arrays:
        codes, unique = pd.factorize(columns["process"])
        lookup = np.array([self._process_index(int(u)) for u in unique], dtype=np.int32)
        columns["process"] = lookup[codes] if len(codes) else np.empty(0, np.int32)
        return columns


def _detail_column(columns: Mapping[str, npt.NDArray[Any]], name: str) -> npt.NDArray[Any]:
    """Copies and sets have no launch shape."""
    return columns[name] if name in columns else np.full(len(columns["start"]), NONE, np.int32)


def _split_broken(ops: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    start, end = ops["start"].to_numpy(), ops["end"].to_numpy()
    broken = broken_rows(start, end)
    if not broken.any():
        return ops, ops.iloc[:0]
    return ops[~broken].reset_index(drop=True), ops[broken].reset_index(drop=True)


def _sorted_by_start(ops: pd.DataFrame) -> pd.DataFrame:
    process, start = ops["process"].to_numpy(), ops["start"].to_numpy()
    later = (process[1:] > process[:-1]) | ((process[1:] == process[:-1]) & (start[1:] >= start[:-1]))
    if later.all():
        return ops
    # Kernels and copies of one process are sorted runs already, which a stable sort merges.
    one = (process == process[0]).all()
    order = np.argsort(start, kind="stable") if one else np.lexsort((start, process))
    return ops.iloc[order].reset_index(drop=True)


def _last_time(ops: pd.DataFrame, launches: pd.DataFrame) -> int:
    return max((int(t["end"].max()) for t in (ops, launches) if len(t)), default=0)
