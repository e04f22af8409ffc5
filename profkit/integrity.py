"""Whether a trace can answer questions about layers at all, and if not, what to record instead."""

from __future__ import annotations

from dataclasses import dataclass

from profkit.attribution.ledger import Attribution
from profkit.steps import Steps
from profkit.trace import Trace


@dataclass(frozen=True)
class Refusal:
    """Why there is no per-layer answer: a stable code, and a message that ends in what to do."""

    code: str
    message: str


def refuse(trace: Trace, attribution: Attribution, steps: Steps) -> Refusal | None:
    """The first reason for which `trace` cannot tell layers; None where it can."""
    launches = trace.launches
    graphs = (launches["api"] == "graph").to_numpy()
    launched = int(graphs.sum())
    silent = int((graphs & ~attribution.joined.used).sum())
    if launched and not attribution.joined.by_graph.any():
        if len(trace.nodes):
            return Refusal(
                "under-recorded",
                f"The trace has {launched} graph launches and their nodes' creation, and no op of any of them. Record "
                "again: the profiler lost the graphs' ops (check the end of its log, and that the process exits "
                "normally).",
            )
        return Refusal("graph-level", _graph_level_advice(trace, launched))
    if trace.info.graph_trace == "graph" and not attribution.joined.by_graph.any():
        return Refusal("graph-level", _graph_level_advice(trace, launched))
    if steps.under_recorded:
        return Refusal(
            "under-recorded",
            f"{silent} of {launched} graph launches have no ops, and {steps.incomplete} of "
            f"{len(steps.kind) + steps.incomplete} recorded steps lost some of theirs. Record again, with fewer "
            "replays or a longer flush interval.",
        )
    if not len(trace.ops):
        return Refusal("empty", "The trace holds no kernel, copy or memset. Check that the profiled range was reached.")
    return None


def _graph_level_advice(trace: Trace, launched: int) -> str:
    if trace.info.format.startswith("nsys"):
        seen = f"{launched} graph launches" if launched else "whole graphs"
        return (
            f"The trace has {seen} and no record of the kernels inside: it was recorded at graph "
            "level. Record again with nsys profile --cuda-graph-trace=node (profkit capture does so)."
        )
    return (
        f"The trace has {launched} graph launches and no record of the kernels inside. Record again with a profiler "
        "that traces graph nodes."
    )
