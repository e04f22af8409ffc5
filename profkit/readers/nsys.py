"""Nsight Systems exports of any version, SQLite or Parquet → Trace.

Exports differ by version in tables and columns, and tables without rows are left out; so everything is probed and
nothing is decided by the product version. Facts and their sources: docs/formats.md. Only strings that an op, a launch
or a range refers to are read: the string table of an export also holds the recorded process's environment.
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

import numpy as np
import pandas as pd

from profkit.errors import ProfkitError
from profkit.model.trace import Info, Trace
from profkit.readers import nsys_ops, nsys_provenance
from profkit.readers.nsys_export import Export
from profkit.readers.nsys_launches import read_launches, read_nodes
from profkit.readers.nsys_ranges import read_ranges
from profkit.readers.nsys_tables import KERNELS, META_TABLES, NVTX, RUNTIME, SqliteTables, Tables
from profkit.readers.rows import broken_rows, set_aside_note
from profkit.readers.sqlite_columns import Database


def is_nsys(tables: Set[str]) -> bool:
    """Whether these tables are those of an nsys export."""
    return bool(tables & {KERNELS, RUNTIME, NVTX, *META_TABLES}) and "StringIds" in tables


def sniff(head: bytes, path: Path) -> bool:
    """Whether the SQLite file at `path` is an export."""
    with Database(path) as database:
        return is_nsys(database.tables)


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
    return _trace(Export(tables), detail=detail)


def _trace(export: Export, *, detail: bool) -> Trace:
    tables = export.tables
    ops, set_aside = _split_broken(nsys_ops.read_ops(export, detail=detail))
    ops = _sorted_by_start(ops)
    launches, broken_launches = read_launches(export)
    nodes = read_nodes(export)
    ranges, broken_ranges, diagnostics = read_ranges(export, _last_time(ops, launches))
    diagnostics += set_aside_note(len(set_aside), broken_launches + broken_ranges, len(ops) + len(set_aside))
    diagnostics += nsys_provenance.profiler_warnings(tables)
    info = Info(
        source=str(tables.path),
        format=tables.format,
        vendor="nvidia",
        profiler=f"Nsight Systems {export.version}",
        devices=nsys_provenance.devices(tables, ops),
        processes=export.processes,
        graph_trace=nsys_provenance.graph_trace(tables, ops, nodes),
        diagnostics=tuple(diagnostics),
    )
    return Trace(ops, launches, ranges, nodes, info, set_aside)


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
