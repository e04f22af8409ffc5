"""Reader for the dispatch profiler's file (schema ``profkit.dispatch/1``): launches without times.

The recording's clock gives an order and no durations. Each launch becomes an op of one synthetic graph launch whose
node was "created" at the launch's tick, so that attribution by lineage finds the ranges that were open there; the
ops themselves start and end at order numbers after the last tick.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from profkit.errors import ProfkitError
from profkit.model.trace import LAUNCHES, NODES, OP_DETAIL, OPS, RANGES, Diagnostic, Info, Process, Trace, table
from profkit.readers.dispatch_file import SCHEMA

#: The synthetic identities: one thread, one graph, one launch of it.
_THREAD = 1
_GRAPH = 1
_CORRELATION = 1


def sniff(head: bytes, path: Path) -> bool:
    """Whether a file that begins with `head` is a dispatch recording; `path` is not looked at."""
    del path
    return head.lstrip().startswith(b"{") and f'"{SCHEMA}"'.encode() in head[:200]


def read(path: Path, *, detail: bool = False) -> Trace:
    """Read a dispatch recording.

    Args:
        path: the file, as `profkit capture --profiler dispatch` left it.
        detail: add the launch shape columns; only grids of Triton launches are known.

    Returns:
        A trace with `info.timed` false: every duration is 0 and only order and counts mean something.

    Raises:
        ProfkitError: not JSON, another schema, or a field that is missing.
    """
    content = _load(path)
    try:
        return _trace(content, path, detail)
    except (KeyError, TypeError) as error:
        raise ProfkitError(f"{path} is not a whole {SCHEMA} recording: {error!r}. Capture the run again.") from None


def _load(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfkitError(f"Cannot read {path}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise ProfkitError(f"{path} is not valid JSON ({error}). Capture the run again.") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = content.get("schema") if isinstance(content, dict) else type(content).__name__
        raise ProfkitError(f"{path}: schema is {found!r}, expected {SCHEMA!r}. Capture the run with this profkit.")
    return content


def _trace(content: dict[str, Any], path: Path, detail: bool) -> Trace:
    ops, ranges = content["ops"], content["ranges"]
    count = len(ops)
    ticks = [op["order"] for op in ops]
    launched = max([*ticks, *(r["end"] for r in ranges)], default=0) + 1
    starts = np.arange(launched + 2, launched + 2 + count, dtype=np.int64)
    nodes = np.arange(1, count + 1, dtype=np.int64)
    columns: dict[str, Any] = {
        "start": starts,
        "end": starts,
        "kind": [op["kind"] for op in ops],
        "name": [op["name"] for op in ops],
        "process": 0,
        "device": 0,
        "stream": 0,
        "correlation": _CORRELATION,
        "graph": _GRAPH,
        "node": nodes,
    }
    schema = {**OPS, **OP_DETAIL} if detail else dict(OPS)
    if detail:
        grids = np.array([op["grid"] or [-1, -1, -1] for op in ops], dtype=np.int32).reshape(count, 3)
        columns |= {f"grid_{axis}": grids[:, index] for index, axis in enumerate("xyz")}
    return Trace(
        ops=table(schema, columns),
        launches=table(
            LAUNCHES,
            {
                "start": [launched],
                "end": [launched + 1],
                "process": 0,
                "thread": _THREAD,
                "correlation": _CORRELATION,
                "api": ["graph"],
                "name": ["profkit dispatch"],
            },
        ),
        ranges=table(
            RANGES,
            {
                "start": [r["start"] for r in ranges],
                "end": [r["end"] for r in ranges],
                "process": 0,
                "thread": _THREAD,
                "text": [r["text"] for r in ranges],
                "nested": True,
            },
        ),
        nodes=table(NODES, {"process": np.zeros(count, dtype=np.int32), "node": nodes, "created": ticks, "thread": 1}),
        info=Info(
            source=path.name,
            format="profkit dispatch",
            vendor="none",
            profiler=f"torch {content['torch']} dispatch",
            devices={},
            processes=(Process(pid=0),),
            graph_trace="node",
            timed=False,
            diagnostics=(
                Diagnostic("not-timed", "Launches were counted on the CPU and not timed; one operator is one launch."),
            ),
        ),
        set_aside=table(schema),
    )
