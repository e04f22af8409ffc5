"""Whether a trace can answer questions about layers at all, and if not, what to record instead."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.attribution import METHODS, Attribution
from profkit.attribution.lineage import trace_nodes
from profkit.attribution.scopes import ScopeTable
from profkit.model.census import Census, SilentNodes
from profkit.model.scope import place
from profkit.model.steps import UNDER_RECORDED_SHARE, WHOLE_RECORDING, Steps
from profkit.model.trace import NONE, OPS, Diagnostic, Trace, joint_key, table
from profkit.model.wording import counted, have, listed
from profkit.readers import format_of


def refuse(trace: Trace, attribution: Attribution, steps: Steps) -> Diagnostic | None:
    """The first reason for which `trace` cannot tell layers; None where it can."""
    launches = trace.launches
    graphs = (launches["api"] == "graph").to_numpy()
    launched = int(graphs.sum())
    silent = int((graphs & ~attribution.joined.used).sum())
    nameless = (trace.ops["correlation"] == NONE).to_numpy()
    adrift = int((nameless & (trace.ops["node"] != NONE).to_numpy()).sum())
    if silent and adrift > UNDER_RECORDED_SHARE / 10 * max(int(attribution.joined.by_graph.sum()), 1):
        return Diagnostic(
            "under-recorded",
            f"{counted(adrift, 'op')} of graphs {have(adrift)} the correlation id 0, so they belong to no replay: nsys "
            "writes that where the graph was instantiated before the recording began. Record from before then.",
        )
    lost, eager = _eager_launches_without_ops(trace, attribution)
    if nameless.any() and lost + silent > UNDER_RECORDED_SHARE * max(eager + launched, 1) and trace.info.timed:
        without = int(nameless.sum())
        return Diagnostic(
            "under-recorded",
            f"{without} of {counted(len(trace.ops), 'op')} name no launch (no correlation id, or 0), and "
            f"{lost + silent} of {counted(eager + launched, 'launch')} {have(lost + silent)} no op: the ops are there, "
            "and which launch each is of was not recorded. Record with another version of the profiler, or from before "
            "graphs are made.",
        )
    if launched and not attribution.joined.by_graph.any():
        if len(trace.nodes):
            return Diagnostic(
                "under-recorded",
                f"The trace has {launched} graph launches and their nodes' creation, and no op of any of them. Record "
                "again: the profiler lost the graphs' ops (check the end of its log, and that the process exits "
                "normally).",
            )
        return Diagnostic("graph-level", _graph_level_advice(trace, launched))
    if trace.info.graph_trace == "graph" and not attribution.joined.by_graph.any():
        return Diagnostic("graph-level", _graph_level_advice(trace, launched))
    if steps.under_recorded:
        return Diagnostic(
            "under-recorded",
            f"{silent} of {counted(launched, 'graph launch')} {have(silent)} no ops, and {steps.incomplete} of "
            f"{len(steps.kind) + steps.incomplete} recorded steps lost some of theirs. Record again, with fewer "
            "replays or a longer flush interval.",
        )
    if not len(trace.ops):
        return Diagnostic(
            "empty", "The trace holds no kernel, copy or memset. Check that the profiled range was reached."
        )
    if lost > UNDER_RECORDED_SHARE * max(eager, 1):
        return Diagnostic(
            "under-recorded",
            f"{lost} of {counted(eager, 'kernel launch')} {have(lost)} no kernel in the recording, and no graph "
            "launch ran it. Record again; if this is the recording of a graph's capture alone, give it as "
            "--capture-trace.",
        )
    if adrift > UNDER_RECORDED_SHARE / 10 * max(int(attribution.joined.by_graph.sum()), 1):
        return Diagnostic(
            "under-recorded",
            f"{adrift} ops of graphs name no launch, so they belong to no replay. Export the report again.",
        )
    return None


def _graph_level_advice(trace: Trace, launched: int) -> str:
    if format_of(trace.info.format).whole_graphs:
        seen = f"{launched} graph launches" if launched else "whole graphs"
        return (
            f"The trace has {seen} and no record of the kernels inside: it was recorded at graph "
            "level. Record again with nsys profile --cuda-graph-trace=node (profkit capture does so)."
        )
    return (
        f"The trace has {launched} graph launches and no record of the kernels inside. Record again with a profiler "
        "that traces graph nodes."
    )


def eager_launches_without_ops(trace: Trace, attribution: Attribution) -> list[Diagnostic]:
    """Says how many launches outside graphs have no op, where that can be told: in a process without graphs, or whose
    graphs' nodes are known. There each launch ran something, or made a node of a graph that was being captured."""
    launches, used = trace.launches, attribution.joined.used
    unknown = np.setdiff1d(
        launches["process"][(launches["api"] == "graph").to_numpy()].unique(), trace.nodes["process"].unique()
    )
    eager = (launches["api"] != "graph").to_numpy() & ~np.isin(launches["process"].to_numpy(), unknown)
    lost = int((eager & ~used & ~_made_a_node(trace)).sum())
    if not lost or not trace.info.timed or trace.info.graph_trace == "graph":
        return []
    message = (
        f"{lost} of {int((eager & used).sum()) + lost} launches outside graphs {have(lost)} no op: the recording lost "
        "it, the launch had nothing to do, or a graph captured it that the recording does not show."
    )
    return [Diagnostic("eager-launches-without-ops", message)]


def _made_a_node(trace: Trace) -> npt.NDArray[np.bool_]:
    """For each launch whether a node was captured on its thread after it began and before the next launch there."""
    launches = trace.launches
    made = np.zeros(len(launches), dtype=np.bool_)
    captured = trace.nodes[(trace.nodes["origin"] == NONE).to_numpy()]
    if not len(captured):
        return made
    rows = {key: np.sort(index) for key, index in launches.groupby(["process", "thread"], sort=False).indices.items()}
    for key, group in captured.groupby(["process", "thread"], sort=False):
        mine = rows.get(key)
        if mine is None:
            continue
        mine = mine[np.argsort(launches["start"].to_numpy()[mine], kind="stable")]
        at = np.searchsorted(launches["start"].to_numpy()[mine], group["created"].to_numpy(), side="right") - 1
        made[mine[at[at >= 0]]] = True
    return made


def _eager_launches_without_ops(trace: Trace, attribution: Attribution) -> tuple[int, int]:
    """Kernel launches that no op names, and all of them, in processes without graphs: where a graph is captured,
    launches become nodes instead."""
    launches = trace.launches
    graphs = launches["process"][(launches["api"] == "graph").to_numpy()].unique()
    with_graphs = np.union1d(graphs, trace.nodes["process"].unique())
    eager = (launches["api"] == "kernel").to_numpy() & ~np.isin(launches["process"].to_numpy(), with_graphs)
    return int((eager & ~attribution.joined.used).sum()), int(eager.sum())


def silent_nodes(trace: Trace, attribution: Attribution) -> SilentNodes:
    """Find them; known only where the creation of the graphs' nodes was recorded."""
    ops, nodes = trace.ops, trace.nodes
    cloned = nodes.loc[(nodes["origin"] != NONE).to_numpy(), ["process", "node"]].drop_duplicates()
    ran = _nodes_that_ran(ops)
    if not len(cloned) or not len(ran):
        return SilentNodes(0)
    graphs = pd.unique(joint_key(ran["process"].to_numpy(), ran["node"].to_numpy() >> 32))
    mine = np.isin(joint_key(cloned["process"].to_numpy(), cloned["node"].to_numpy() >> 32), graphs)
    left = cloned[mine].merge(ran, how="left", on=["process", "node"], indicator=True)
    left = left[(left["_merge"] == "left_only").to_numpy()]
    if not len(left):
        return SilentNodes(0)
    # The nodes as ops that never ran: the same lineage leads to the range in which each was captured.
    columns = {name: left[name].to_numpy() for name in ("process", "node")}
    unseen = dataclasses.replace(trace, ops=table(OPS, columns))
    scopes = ScopeTable()
    found = trace_nodes(unseen, attribution.ranges, scopes)
    places = [place(path) for path in scopes.paths]
    counts = np.bincount(found.scope, minlength=len(places)).tolist()
    layered = {
        "/".join(part for part in (where.path, where.inside) if part): count
        for where, count in zip(places, counts, strict=True)
        if count and where.layer is not None
    }
    return SilentNodes(len(left), layered)


def _nodes_that_ran(ops: pd.DataFrame) -> pd.DataFrame:
    """Distinct (process, node) pairs, process by process: each is a hash over one column of integers."""
    process, node = ops["process"].to_numpy(), ops["node"].to_numpy()
    parts = []
    for p in pd.unique(process):
        seen = pd.unique(node[process == p])
        parts.append(pd.DataFrame({"process": np.full(len(seen), p, process.dtype), "node": seen}))
    ran = pd.concat(parts, ignore_index=True) if parts else ops[["process", "node"]]
    return ran[(ran["node"] != NONE).to_numpy()]


def overlapping_ops(trace: Trace, kernel_ns: int, busy_ns: int) -> list[Diagnostic]:
    """Says where ops of one stream overlap, which a stream does not do by itself (PDL, or broken times).

    Args:
        kernel_ns, busy_ns: sum and union of the durations in layers.
    """
    if busy_ns >= kernel_ns or not trace.info.timed or len(trace.ops[["device", "stream"]].drop_duplicates()) > 1:
        return []
    message = (
        f"Ops of one stream overlap: their durations add up to {kernel_ns / 1e3:.1f} µs in {busy_ns / 1e3:.1f} µs. "
        "Programmatic launches do that; otherwise the recording's times are broken."
    )
    return [Diagnostic("overlapping-ops", message)]


def unreached_ranges(trace: Trace, attribution: Attribution) -> list[Diagnostic]:
    """Says why ranges that name layers reach no op, where there are some and none does."""
    by_ranges = np.isin(attribution.method, [n for n, m in enumerate(METHODS, start=1) if not m.by_pattern])
    reached = pd.unique(attribution.scope[by_ranges]).tolist()
    if not len(trace.ranges) or any(place(attribution.paths[s]).layer is not None for s in reached):
        return []
    texts: list[str] = trace.ranges["text"].cat.categories.tolist()
    naming = np.array([place((text,)).layer is not None for text in texts], dtype=np.bool_)
    named = trace.ranges[naming[trace.ranges["text"].cat.codes.to_numpy()]]
    if not len(named):
        return []
    usable = named[named.index.isin(attribution.ranges.index)]
    threads = [set(zip(t["process"].tolist(), t["thread"].tolist(), strict=True)) for t in (usable, trace.launches)]
    if not len(usable):
        domains = sorted(set(named["domain"].astype(str)) - {""})
        why = (
            "they are start/end ranges, which lie on no thread's stack; push and pop them"
            if not named["nested"].any()
            else f"they lie in a domain that counts as a library's ({listed(domains)}), or have no length"
        )
    elif not len(trace.launches):
        why = "no call that launches anything is on record; record CUDA's (HIP's) API calls too"
    elif threads[0].isdisjoint(threads[1]):
        why = "the launches are on other threads than the ranges; push them on the thread that launches"
    else:
        why = "no launch, and no capture of a graph, lies inside them"
    first = str(named["text"].iloc[0])
    message = f"{counted(len(named), 'range')} {have(len(named))} a layer's name ({first}) and reach no op: {why}."
    return [Diagnostic("ranges-reach-no-op", message)]


def refusal_of(census: Census) -> Diagnostic | None:
    """Why no question about layers has an answer, and what to do; None where it has."""
    if census.refusal is not None:
        return census.refusal
    if census.kinds and census.chosen.selected_layers:
        return None
    return Diagnostic("no-layers", f"No layers can be told: {_no_layers_advice(census)}")


def _no_layers_advice(census: Census) -> str:
    unreached = next((d.message for d in census.diagnostics if d.code == "ranges-reach-no-op"), None)
    if unreached is not None:
        return unreached
    if "capture-without-ranges" in {d.code for d in census.diagnostics}:
        return (
            "the graph was captured before the recording began, so no range names its layers. Record from before the "
            "capture (profkit capture does), or give a recording that does with --layers-from."
        )
    if not census.ledger.ops:
        return "the trace holds no ops."
    if census.ledger.warm_up:
        return "its layers' ops lie in no step. Choose steps that hold them with --steps, or leave it out."
    if census.selection.anchor is not None and census.step_method == WHOLE_RECORDING:
        return (
            "--anchor divides steps, and nothing here says where a step begins. Name the ranges that are steps with "
            "--steps too."
        )
    return (
        "no range names a layer (layers.N). Push NVTX ranges named layers.N… around each layer while the graph is "
        "captured, and record with profkit capture -- CMD (on AMD: roctx ranges, rocprofv3 --marker-trace); or name a "
        "kernel that runs once a layer with --anchor (of an eager trace also its steps, with --steps), the trace of "
        "the graph's capture with --capture-trace, or a recording of the same program's start with --layers-from."
    )
