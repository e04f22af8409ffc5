"""What an nsys export says about itself: version, devices, how graphs were traced, what the profiler warned of."""

from __future__ import annotations

import pandas as pd

from profkit.model.trace import NONE, Diagnostic
from profkit.readers.nsys_tables import GRAPHS, META_TABLES, Column, Tables, Text

#: DIAGNOSTIC_EVENT.severity from which the user should hear of it: 1 is information, 2 a warning, 3 an error.
_WARNING = 2


def version(tables: Tables) -> str:
    """The exporter's version, e.g. ``2025.3.1.90``."""
    name = next((t for t in META_TABLES if {"name", "value"} <= tables.columns(t)), None)
    rows = tables.rows(name, ["value"], Text("name", begins="EXPORT_PRODUCT_VERSION")) if name else []
    return str(rows[0][0]) if rows else "of unknown version"


def devices(tables: Tables, ops: pd.DataFrame) -> dict[int, str]:
    """The devices that `ops` ran on, index to name; a host may have others."""
    if not {"id", "name"} <= tables.columns("TARGET_INFO_GPU"):
        return {}
    index = ["cuDevice"] if "cuDevice" in tables.columns("TARGET_INFO_GPU") else []
    rows = tables.rows("TARGET_INFO_GPU", ["name", *index, "id"])
    named = {next((int(i) for i in ids if i is not None), NONE): str(name) for name, *ids in rows if name}
    used = set(pd.unique(ops["device"]).tolist())
    return {i: name for i, name in named.items() if i in used}


def graph_trace(tables: Tables, ops: pd.DataFrame, nodes: pd.DataFrame) -> str:
    """`Info.graph_trace`."""
    if len(nodes) or bool((ops["node"] != NONE).any()):
        return "node"
    if "start" in tables.columns(GRAPHS):
        whole = tables.integers(GRAPHS, {"start": Column(("start",), 0)})
        if len(whole["start"]):
            return "graph"
    if {"name", "value"} <= tables.columns("META_DATA_CAPTURE"):
        modes = tables.rows("META_DATA_CAPTURE", ["value"], Text("name", ends="CUDA_GRAPH_TRACE_OPTIONS:MODE"))
        # A mode alone does not say that a graph ran.
        if {mode for (mode,) in modes} == {"Node"}:
            return "node"
    return "unknown"


def profiler_warnings(tables: Tables) -> list[Diagnostic]:
    """Warnings and errors of the profiler, each text once."""
    if not {"severity", "text"} <= tables.columns("DIAGNOSTIC_EVENT"):
        return []
    rows = tables.rows("DIAGNOSTIC_EVENT", ["severity", "text"])
    texts = dict.fromkeys(" ".join(str(t).split()) for severity, t in rows if (severity or 0) >= _WARNING)
    # A message with a path or an assignment in it may name the recorded machine.
    return [Diagnostic("profiler-warning", t) for t in texts if "/" not in t and "=" not in t and "\\" not in t]
