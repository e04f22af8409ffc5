"""The ops of an nsys export: kernels, copies and sets, from one activity table each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.model.trace import NONE, OP_DETAIL, OP_KINDS, OPS, categorical, table
from profkit.readers.nsys_export import Export
from profkit.readers.nsys_tables import COPIES, KERNELS, SETS, Arrays, Column, OneOf, Tables

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


@dataclass(frozen=True)
class _Source:
    """One activity table, its kind of op, and the columns that name an op, best first."""

    table: str
    kind: str
    names: tuple[str, ...]


def read_ops(export: Export, *, detail: bool) -> pd.DataFrame:
    """All ops, one activity table after the other, in file order.

    Args:
        detail: also read `OP_DETAIL`.
    """
    whole = [(source.kind, _whole(export, source, detail=detail)) for source in _sources(export.tables)]
    parts = [(kind, columns) for kind, columns in whole if len(columns["start"])]
    return _ops_table(export.tables, parts, detail=detail)


def batches(export: Export) -> Iterator[pd.DataFrame]:
    """The same in tables of bounded size, without `OP_DETAIL`; names are not categories shared between them."""
    for source in _sources(export.tables):
        for columns in export.tables.integer_batches(source.table, _columns(export, source, detail=False)):
            yield _ops_table(export.tables, [(source.kind, export.with_process(columns))], detail=False)


def _sources(tables: Tables) -> list[_Source]:
    """The activity tables that the export has."""
    have = tables.columns(KERNELS)
    names = tuple(c for c in ("demangledName", "shortName", "mangledName") if c in have)
    candidates = [
        _Source(KERNELS, "kernel", names or ("demangledName",)),
        _Source(COPIES, "memcpy", ("copyKind",)),
        _Source(SETS, "memset", ()),
    ]
    return [s for s in candidates if s.table in tables.tables]


def _whole(export: Export, source: _Source, *, detail: bool) -> Arrays:
    return export.with_process(export.tables.integers(source.table, _columns(export, source, detail=detail)))


def _columns(export: Export, source: _Source, *, detail: bool) -> dict[str, Column]:
    have = export.tables.columns(source.table)
    export.require(source.table, ["start", "end", *source.names])

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


def _ops_table(tables: Tables, parts: list[tuple[str, Arrays]], *, detail: bool) -> pd.DataFrame:
    """One ops table from the columns of several activity tables."""
    codes: list[npt.NDArray[np.int32]] = []
    names: dict[str, int] = {}
    for kind, columns in parts:
        codes.append(_name_codes(tables, kind, columns.pop("name"), names))
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


def _name_codes(tables: Tables, kind: str, ids: npt.NDArray[np.int64], names: dict[str, int]) -> npt.NDArray[np.int32]:
    """Codes of `ids` into `names`, which grows. Two string ids may hold one text."""
    codes, unique = pd.factorize(ids)
    if kind == "kernel":
        texts = _strings(tables, unique.tolist())
        labels = [texts.get(int(i), f"kernel with unknown name {i}") for i in unique]
    elif kind == "memcpy":
        kinds = _copy_kinds(tables)
        labels = [f"memcpy {kinds.get(int(i), f'kind {i}')}" for i in unique]
    else:
        labels = ["memset" for _ in unique]
    lookup = np.array([names.setdefault(label, len(names)) for label in labels], dtype=np.int32)
    return lookup[codes] if len(codes) else np.empty(0, np.int32)


def _strings(tables: Tables, ids: list[int]) -> dict[int, str]:
    return dict(tables.rows("StringIds", ["id", "value"], OneOf("id", ids)))


def _copy_kinds(tables: Tables) -> dict[int, str]:
    if {"id", "label"} <= tables.columns("ENUM_CUDA_MEMCPY_OPER"):
        rows = tables.rows("ENUM_CUDA_MEMCPY_OPER", ["id", "label"])
        return {int(i): _COPY_KINDS.get(int(i), str(label)) for i, label in rows}
    return _COPY_KINDS


def _detail_column(columns: Mapping[str, npt.NDArray[Any]], name: str) -> npt.NDArray[Any]:
    """Copies and sets have no launch shape."""
    return columns[name] if name in columns else np.full(len(columns["start"]), NONE, np.int32)
