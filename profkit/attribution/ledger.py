"""Runs the methods, best first, and records for every op which one placed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.attribution import launch_range, lineage, overhead, sequence
from profkit.attribution.launches import LaunchJoin, join
from profkit.attribution.scopes import ScopeTable, user_ranges
from profkit.attribution.sequence import CaptureTrace
from profkit.model.trace import Diagnostic, Trace

#: Index 0 means that no method placed the op.
METHODS = ("none", "lineage", "launch range", "sequence", "anchor", "period")


@dataclass(frozen=True)
class Attribution:
    """Where every op of a trace belongs.

    Args:
        scope: index into `paths`, one an op; 0 is the empty path.
        method: index into `METHODS`, one an op.
        paths: scope index to the range texts, outermost first.
        joined: the launch of every op.
        ranges: the user's ranges, from which the paths come.
        problems: what kept ops from being placed, and what the weaker methods rest on.
        overhead: the scope of ops that replaying adds outside graphs; empty where there are none.
        outside: the scopes of ops that are known to lie outside layers although no range says so; with `overhead`.
    """

    scope: npt.NDArray[np.int32]
    method: npt.NDArray[np.int8]
    paths: Sequence[tuple[str, ...]]
    joined: LaunchJoin
    ranges: pd.DataFrame
    problems: Sequence[Diagnostic]
    overhead: frozenset[int] = frozenset()
    outside: frozenset[int] = frozenset()

    def counts(self) -> Mapping[str, int]:
        """Ops placed by each method, the ones that placed none left out."""
        counts = np.bincount(self.method, minlength=len(METHODS))
        return {m: int(c) for m, c in zip(METHODS[1:], counts[1:], strict=True) if c}


_LINEAGE_PROBLEMS = {
    "cyclic-origin": "graph nodes name each other as origin",
    "conflicting-origins": "graph nodes name more than one origin",
    "node-created-twice": "graph node ids were created more than once",
    "origin-not-recorded": "graph nodes lead to an origin whose creation was not recorded",
}


def attribute(trace: Trace, capture_traces: Sequence[CaptureTrace] = ()) -> Attribution:
    """Place every op of `trace`, each by the best method that fits; ops that none fits stay unplaced.

    Anchor and period, which need to know the steps, come after this: `by_repetition.add_layers`.

    Args:
        capture_traces: where the capture of the trace's graphs was recorded, if not in it.
    """
    scopes = ScopeTable()
    ranges = user_ranges(trace.ranges)
    joined = join(trace)
    problems: list[Diagnostic] = []
    method = np.zeros(len(trace.ops), dtype=np.int8)
    scope = np.zeros(len(trace.ops), dtype=np.int32)

    by_lineage = lineage.attribute(trace, ranges, scopes)
    for code, count in by_lineage.problems.items():
        problems.append(Diagnostic(code, f"{count} {_LINEAGE_PROBLEMS[code]}; their ops are unattributed."))
    lineage_places = by_lineage.placed
    if lineage_places.any() and not by_lineage.scope.any():
        # The nodes' creation is known and no range is: the capture ran before ranges were recorded.
        lineage_places = np.zeros_like(lineage_places)
        message = "The graph was captured while no range was recorded, so its nodes lead to no layer."
        problems.append(Diagnostic("capture-without-ranges", message))
    by_range, range_scope = launch_range.attribute(trace, joined, ranges, scopes)
    for index, placed, found in ((1, lineage_places, by_lineage.scope), (2, by_range, range_scope)):
        chosen = placed & (method == 0)
        method[chosen] = index
        scope[chosen] = found[chosen]
    added = overhead.find(trace, joined)
    overhead_scope = frozenset([scopes.intern((overhead.SCOPE,))]) if added.any() else frozenset()
    scope[added] = max(overhead_scope, default=0)

    by_sequence = sequence.attribute(trace, joined, scopes, method == 0, capture_traces)
    method[by_sequence.placed] = METHODS.index("sequence")
    scope[by_sequence.placed] = by_sequence.scope[by_sequence.placed]
    return Attribution(
        scope,
        method,
        scopes.paths,
        joined,
        ranges,
        (*problems, *(note for note in by_sequence.notes if note.code not in {p.code for p in problems})),
        overhead=overhead_scope,
        outside=overhead_scope,
    )
