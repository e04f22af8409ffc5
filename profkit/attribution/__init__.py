"""The methods of attribution, and the ledger: runs them, best first, and records for every op which one placed it.

A new method is a module with a function `Context` → `Placement` (see `method`) and a line in `METHODS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.attribution import annotation, borrowed, cut, launch_range, lineage, sequence
from profkit.attribution.method import CaptureTrace, Context, LaunchJoin, Lender, Method, join
from profkit.attribution.scopes import ScopeTable, user_ranges
from profkit.model.selection import Hints, Phase
from profkit.model.steps import Steps
from profkit.model.trace import Diagnostic, Trace

#: Best first.
METHODS: Sequence[Method] = (
    Method("lineage", lineage.attribute, exact=True, from_capture=True),
    Method("annotation", annotation.attribute, exact=True, from_capture=True),
    Method("launch range", launch_range.attribute, exact=True),
    Method("borrowed", borrowed.attribute, from_capture=True),
    Method("sequence", sequence.attribute, from_capture=True),
    Method("cut", cut.attribute, in_steps=True, by_pattern=True),
)


@dataclass(frozen=True)
class Attribution:
    """Where every op of a trace belongs.

    Args:
        context: the trace, and the scope of every op.
        method: for each op the number of the method that placed it, counted from 1 in `METHODS`; 0 for none.
        problems: what kept ops from being placed, and what the weaker methods rest on.
        outside: the scopes of ops that are known to lie outside layers although no range says so.
        phase: where layers begin, if a method found them by a convention.
    """

    context: Context
    method: npt.NDArray[np.int8]
    problems: Sequence[Diagnostic] = ()
    outside: frozenset[int] = frozenset()
    phase: Phase | None = None

    @property
    def scope(self) -> npt.NDArray[np.int32]:
        """Index into `paths`, one an op; 0 is the empty path."""
        return self.context.scope

    @property
    def paths(self) -> Sequence[tuple[str, ...]]:
        """Scope index to the range texts, outermost first."""
        return self.context.scopes.paths

    @property
    def joined(self) -> LaunchJoin:
        """The launch of every op."""
        return self.context.joined

    @property
    def ranges(self) -> pd.DataFrame:
        """The user's ranges, from which the paths come."""
        return self.context.ranges

    def counts(self) -> Mapping[str, int]:
        """Ops placed by each method, the ones that placed none left out."""
        counts = np.bincount(self.method, minlength=len(METHODS) + 1)
        return {m.name: int(c) for m, c in zip(METHODS, counts[1:], strict=True) if c}


def attribute(trace: Trace, capture_traces: Sequence[CaptureTrace] = (), lenders: Sequence[Lender] = ()) -> Attribution:
    """Place the ops of `trace`, each by the best method that needs no steps and fits; others stay unplaced.

    Args:
        capture_traces: where the capture of the trace's graphs was recorded, if not in it.
        lenders: other recordings of the same program, from `lender`.
    """
    count = len(trace.ops)
    context = Context(
        trace=trace,
        ranges=user_ranges(trace.ranges),
        joined=join(trace),
        scopes=ScopeTable(),
        scope=np.zeros(count, dtype=np.int32),
        placed=np.zeros(count, dtype=np.bool_),
        from_capture=np.zeros(count, dtype=np.bool_),
        capture_traces=capture_traces,
        lenders=lenders,
    )
    first = Attribution(context, np.zeros(count, dtype=np.int8))
    return _run(first, ((number, m) for number, m in enumerate(METHODS, start=1) if not m.in_steps))


def lender(source: str, trace: Trace) -> Lender:
    """What `trace` knows by identity of the layers of its graphs, to be lent to another recording."""
    attribution = attribute(trace)
    exact = [number for number, method in enumerate(METHODS, start=1) if method.exact]
    return borrowed.lend(source, attribution.context, np.isin(attribution.method, exact))


def attribute_in_steps(attribution: Attribution, steps: Steps, hints: Hints) -> Attribution:
    """`attribution` with what the methods add that need to know the steps.

    Raises:
        ProfkitError: an anchor is no regular expression or names no kernel of a step.
    """
    known = replace(attribution, context=replace(attribution.context, steps=steps, hints=hints))
    return _run(known, ((number, m) for number, m in enumerate(METHODS, start=1) if m.in_steps))


def _run(attribution: Attribution, methods: Iterable[tuple[int, Method]]) -> Attribution:
    for number, method in methods:
        context = attribution.context
        found = method.attribute(context)
        by, scope = attribution.method.copy(), context.scope.copy()
        if found.taken is not None:
            by[found.taken], scope[found.taken] = 0, 0
        chosen = found.placed & (by == 0)
        by[chosen], scope[chosen] = number, found.scope[chosen]
        from_capture = [n for n, m in enumerate(METHODS, start=1) if m.from_capture]
        said = {problem.code for problem in attribution.problems}
        attribution = Attribution(
            context=replace(
                context,
                scope=scope,
                placed=by > 0,
                from_capture=np.isin(by, from_capture),
                overhead=context.overhead | found.overhead,
            ),
            method=by,
            problems=(*attribution.problems, *(note for note in found.notes if note.code not in said)),
            outside=attribution.outside | found.outside | found.overhead,
            phase=attribution.phase or found.phase,
        )
    return attribution
