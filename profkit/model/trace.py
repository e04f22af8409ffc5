"""The model that every reader fills: what ran on the GPU, who launched it, and which ranges were open.

A `Trace` holds four pandas tables with fixed columns and dtypes, and an `Info`. Times are integer nanoseconds on one
clock per trace, may be negative, and are never floats. Identity is qualified: a correlation id, a node and a thread
belong to a process, a stream belongs to a device. `process` is a small index into `Info.processes`, the same in all
tables. Absent integers are `NONE` (-1), not NaN, so that the columns stay integer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

#: Stands for "the format does not say" in integer columns.
NONE = -1

OP_KINDS = ("kernel", "memcpy", "memset")
LAUNCH_APIS = ("graph", "kernel", "memcpy", "memset")

#: One row an op: one GPU activity. `graph` and `node` are `NONE` for eager ops and for formats without them.
#: `correlation` is `NONE` where the op names no launch.
OPS: Mapping[str, str] = {
    "start": "int64",
    "end": "int64",
    "kind": "category",
    "name": "category",
    "process": "int32",
    "device": "int32",
    "stream": "int64",
    "correlation": "int64",
    "graph": "int64",
    "node": "int64",
}

#: Launch shape, present where the format has it and the reader was asked for it (`detail=True`): blocks, threads,
#: registers a thread, bytes of shared memory; of copies and sets the bytes that they move.
OP_DETAIL: Mapping[str, str] = {
    "grid_x": "int32",
    "grid_y": "int32",
    "grid_z": "int32",
    "block_x": "int32",
    "block_y": "int32",
    "block_z": "int32",
    "registers": "int32",
    "shared_memory": "int32",
    "bytes": "int64",
}

#: A column of ops, present where the recording names what a graph's ops are of: a path, parts joined by ``/``; "" for
#: ops that it does not name.
ANNOTATION = "annotation"

#: One row a host call that launches GPU work. `api` is one of `LAUNCH_APIS`; `name` is the recorded call without its
#: ABI suffix; `kernel` is the kernel's name where the call carries one (ROCm), else "".
LAUNCHES: Mapping[str, str] = {
    "start": "int64",
    "end": "int64",
    "process": "int32",
    "thread": "int64",
    "correlation": "int64",
    "api": "category",
    "name": "category",
    "kernel": "category",
}

#: One row a user range. `nested` is true for push/pop ranges, which nest on their thread; start/end ranges may cross
#: threads and never enter a thread's stack. `clipped` marks a range that was still open at the end of the recording.
RANGES: Mapping[str, str] = {
    "start": "int64",
    "end": "int64",
    "process": "int32",
    "thread": "int64",
    "text": "category",
    "domain": "category",
    "nested": "bool",
    "clipped": "bool",
}

#: One row a graph-node creation event. `origin` is the node that this one was cloned from, `NONE` where the node was
#: made by stream capture or by hand.
NODES: Mapping[str, str] = {
    "process": "int32",
    "node": "int64",
    "origin": "int64",
    "created": "int64",
    "thread": "int64",
}


@dataclass(frozen=True)
class Process:
    """A process in the trace. `rank` is None where nothing says it."""

    pid: int
    rank: int | None = None


@dataclass(frozen=True)
class Diagnostic:
    """Something about the recording that the user should know, from the profiler or from the reader.

    Args:
        code: a stable identifier, e.g. ``set-aside`` or ``profiler-warning``.
        message: one sentence.
    """

    code: str
    message: str


@dataclass(frozen=True)
class Info:
    """Where a trace comes from. Holds no environment, host name, user or path of the recorded machine.

    Args:
        source: the file's name as the user gave it.
        format: e.g. ``nsys sqlite``, ``kineto``, ``rocprofv3 csv``, ``profkit dispatch``.
        vendor: ``nvidia``, ``amd`` or ``none`` (counts without a GPU).
        profiler: name and version, e.g. ``Nsight Systems 2025.3.2``.
        devices: device index to name; empty where the trace does not say.
        processes: `ops.process` and its like index this.
        graph_trace: ``node`` (each graph node is an op), ``graph`` (whole graphs only), ``unknown``.
        timed: false where the recorder counts launches without running them; times are then 0 and mean nothing.
        diagnostics: see `Diagnostic`.
    """

    source: str
    format: str
    vendor: str
    profiler: str
    devices: Mapping[int, str]
    processes: Sequence[Process]
    graph_trace: str = "unknown"
    timed: bool = True
    diagnostics: Sequence[Diagnostic] = field(default_factory=tuple)


@dataclass(frozen=True, repr=False)
class Trace:
    """One recording. Column meanings and dtypes: `OPS`, `LAUNCHES`, `RANGES`, `NODES`.

    Args:
        ops: sound rows only, sorted by (process, start).
        launches, ranges, nodes: may be empty.
        info: provenance.
        set_aside: rows that the recording broke (start = end = 0, or end before start), same columns as `ops`.
    """

    ops: pd.DataFrame
    launches: pd.DataFrame
    ranges: pd.DataFrame
    nodes: pd.DataFrame
    info: Info
    set_aside: pd.DataFrame

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(getattr(self, name)):,} {name}" for name in ("ops", "launches", "ranges", "nodes"))
        return f"Trace({self.info.source}, {self.info.profiler}: {sizes})"


def table(schema: Mapping[str, str], columns: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """A table of `schema` from whole columns; a column that is not given holds `NONE`, "" or False.

    Args:
        schema: `OPS` or its like.
        columns: name to array, list or scalar; all of one length.

    Raises:
        KeyError: a column that the schema does not have.
    """
    columns = columns or {}
    unknown = set(columns) - set(schema)
    if unknown:
        raise KeyError(f"not in the schema: {sorted(unknown)}")
    length = next((len(c) for c in columns.values() if hasattr(c, "__len__") and not isinstance(c, str)), 0)
    defaults: dict[str, Any] = {"category": "", "bool": False}
    data: dict[str, Any] = {}
    for name, dtype in schema.items():
        values = columns.get(name, defaults.get(dtype, NONE))
        if not hasattr(values, "__len__") or isinstance(values, str):
            if dtype == "category":
                data[name] = categorical(np.zeros(length, dtype=np.int8), [str(values)])
                continue
            data[name] = np.full(length, values, dtype=dtype)
        elif isinstance(values, pd.Categorical):
            data[name] = values
        else:
            data[name] = pd.Series(values, dtype=dtype) if dtype != "category" else pd.Categorical(values)
    return pd.DataFrame(data, copy=False)


def categorical(codes: npt.NDArray[Any], labels: Sequence[str]) -> pd.Categorical[str]:
    """A text column from `codes` into `labels`; a label may occur twice, codes must be in range."""
    unique: dict[str, int] = {}
    lookup = np.array([unique.setdefault(label, len(unique)) for label in labels], dtype=np.int32)
    whole = lookup[codes] if len(codes) else np.empty(0, np.int32)
    categories: pd.Index[str] = pd.Index(list(unique), dtype=object)
    return pd.Categorical.from_codes(whole, categories=categories)


def joint_key(process: npt.NDArray[np.int32], ident: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """One int64 for each (process, id) pair, for ids within ±2^47; equal keys mean equal pairs.

    Correlation ids fit on every format seen (32 bits); graph nodes are 64-bit and need factorising first.
    """
    return (process.astype(np.int64) << 48) ^ (ident & ((1 << 48) - 1))
