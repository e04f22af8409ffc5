"""The launch calls of an nsys export, and the creation of graphs' nodes."""

from __future__ import annotations

import pandas as pd

from profkit.model.trace import LAUNCHES, NODES, NONE, categorical, table
from profkit.readers.nsys_export import THREAD_BITS, Export
from profkit.readers.nsys_tables import NODE_TABLES, RUNTIME, Column, OneOf, Text
from profkit.readers.rows import broken_rows, call_name, launch_api


def read_launches(export: Export) -> tuple[pd.DataFrame, int]:
    """`Trace.launches`, and how many more had no valid times."""
    if RUNTIME not in export.tables.tables:
        return table(LAUNCHES), 0
    export.require(RUNTIME, ["start", "end", "globalTid", "correlationId", "nameId"])
    candidates = export.tables.rows("StringIds", ["id", "value"], Text("value", begins="cu"))
    calls: dict[int, tuple[str, str]] = {}
    for ident, value in candidates:
        api = launch_api(str(value))
        if api is not None:
            calls[int(ident)] = (call_name(str(value)), api)
    if not calls:
        return table(LAUNCHES), 0
    wanted = {
        "start": Column(("start",)),
        "end": Column(("end",)),
        "process": Column(("globalTid",), 0),
        "correlation": Column(("correlationId",), NONE),
        "call": Column(("nameId",)),
    }
    columns = export.tables.integers(RUNTIME, wanted, OneOf("nameId", list(calls)))
    columns["thread"] = columns["process"] & THREAD_BITS
    columns = export.with_process(columns)
    codes, unique = pd.factorize(columns.pop("call"))
    names = [calls[int(i)][0] for i in unique]
    apis = [calls[int(i)][1] for i in unique]
    whole = {**columns, "name": categorical(codes, names), "api": categorical(codes, apis)}
    broken = broken_rows(columns["start"], columns["end"])
    launches = table(LAUNCHES, whole)[~broken].sort_values(["process", "start"], kind="stable", ignore_index=True)
    # A runtime call and the driver call under it may share a correlation id: the outer one is the launch.
    return launches.drop_duplicates(["process", "correlation"], ignore_index=True), int(broken.sum())


def read_nodes(export: Export) -> pd.DataFrame:
    """`Trace.nodes`."""
    name = next((t for t in NODE_TABLES if "graphNodeId" in export.tables.columns(t)), None)
    if name is None:
        return table(NODES)
    export.require(name, ["start", "globalTid", "graphNodeId"])
    origin = ("originalGraphNodeId",) if "originalGraphNodeId" in export.tables.columns(name) else ()
    wanted = {
        "node": Column(("graphNodeId",)),
        "origin": Column(origin, NONE, zero_is_null=True),
        "created": Column(("start",)),
        "process": Column(("globalTid",), 0),
    }
    columns = export.tables.integers(name, wanted)
    columns["thread"] = columns["process"] & THREAD_BITS
    return table(NODES, export.with_process(columns))
