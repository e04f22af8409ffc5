"""What a method of attribution is given and what it gives: all that a new one needs to know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.attribution.scopes import ScopeTable
from profkit.model.selection import Hints, Phase
from profkit.model.steps import Steps
from profkit.model.trace import NONE, Diagnostic, Trace, joint_key


@dataclass(frozen=True)
class LaunchJoin:
    """The launch of every op, and what follows from it.

    Args:
        row: index into `trace.launches` for each op, -1 where the trace has no such call.
        by_graph: the op was launched by a graph launch, or carries a graph node.
        used: for each launch, whether any op names it.
    """

    row: npt.NDArray[np.int64]
    by_graph: npt.NDArray[np.bool_]
    used: npt.NDArray[np.bool_]


def join(trace: Trace) -> LaunchJoin:
    """Find the launch of every op. A correlation id means something only within its process."""
    ops, launches = trace.ops, trace.launches
    row = np.full(len(ops), -1, dtype=np.int64)
    has_node = ops["node"].to_numpy() != NONE
    if not len(launches):
        return LaunchJoin(row, has_node, np.zeros(0, np.bool_))
    key = joint_key(launches["process"].to_numpy(), launches["correlation"].to_numpy())
    order = np.argsort(key, kind="stable")
    wanted = joint_key(ops["process"].to_numpy(), ops["correlation"].to_numpy())
    position = np.minimum(np.searchsorted(key[order], wanted), len(order) - 1)
    found = order[position]
    hit = (key[found] == wanted) & (ops["correlation"].to_numpy() != NONE)
    row[hit] = found[hit]
    is_graph = (launches["api"] == "graph").to_numpy()
    used = np.zeros(len(launches), np.bool_)
    used[row[row >= 0]] = True
    return LaunchJoin(row, has_node | ((row >= 0) & is_graph[row]), used)


@dataclass(frozen=True)
class CaptureTrace:
    """A trace that shows a graph's capture, and what reports call it."""

    source: str
    trace: Trace


#: Range texts, outermost first.
Path = tuple[str, ...]


@dataclass(frozen=True)
class LentGraph:
    """A graph of a recording that knows its layers.

    Args:
        launches: canonical name and kind of each, sorted by these and then by start.
        paths: where each lies, None where that is not known exactly.
        order: the launches by stream and start, as indices.
    """

    launches: tuple[tuple[str, str], ...]
    paths: Sequence[Path | None]
    order: Sequence[int]


@dataclass(frozen=True)
class Lender:
    """A recording of the same program that knows its layers, and what reports call it."""

    source: str
    graphs: Sequence[LentGraph]


@dataclass(frozen=True)
class Context:
    """A trace, and what is known of its ops when a method's turn comes.

    Args:
        ranges: the user's ranges, from `scopes.user_ranges`.
        joined: the launch of every op.
        scopes: grows by the paths that a method finds.
        scope: index into `scopes` for each op; 0 is the empty path.
        placed: the ops that an earlier method placed.
        from_capture: those that one placed by the ranges around the graph's capture.
        overhead: the scopes of ops that replaying adds outside graphs.
        capture_traces: where the capture of the trace's graphs was recorded, if not in it.
        lenders: other recordings of the same program, which know its layers.
        hints: what the user says about layers.
        steps: the trace's steps; None for methods that run before these are known.
    """

    trace: Trace
    ranges: pd.DataFrame
    joined: LaunchJoin
    scopes: ScopeTable
    scope: npt.NDArray[np.int32]
    placed: npt.NDArray[np.bool_]
    from_capture: npt.NDArray[np.bool_]
    overhead: frozenset[int] = frozenset()
    capture_traces: Sequence[CaptureTrace] = ()
    lenders: Sequence[Lender] = ()
    hints: Hints = field(default_factory=Hints)
    steps: Steps | None = None


@dataclass(frozen=True)
class Placement:
    """What a method found. Of what earlier ones placed, it changes only the ops in `taken`.

    Args:
        placed: for each op whether the method places it.
        scope: for each op an index into `Context.scopes`; 0 also where it was placed and no range was open.
        notes: what kept ops from being placed, and what the answer rests on.
        taken: ops of which nothing holds that an earlier method said, placed here or not; None for none.
        overhead: scopes of ops that replaying adds outside graphs.
        outside: scopes that are known to lie outside layers although no range says so; with `overhead`.
        phase: where layers begin, if that is a convention of this method.
    """

    placed: npt.NDArray[np.bool_]
    scope: npt.NDArray[np.int32]
    notes: Sequence[Diagnostic] = ()
    taken: npt.NDArray[np.bool_] | None = None
    overhead: frozenset[int] = frozenset()
    outside: frozenset[int] = frozenset()
    phase: Phase | None = None

    @classmethod
    def nothing(cls, context: Context, *notes: Diagnostic) -> Placement:
        """No op is placed."""
        count = len(context.trace.ops)
        return cls(np.zeros(count, np.bool_), np.zeros(count, np.int32), notes)


@dataclass(frozen=True)
class Method:
    """An entry of the registry.

    Args:
        name: as reports print it.
        attribute: the method itself.
        exact: what it places is so by identity; otherwise it rests on order or likeness.
        in_steps: it needs to know the steps, so it runs after these are found.
        from_capture: its scopes are the ranges around the graph's capture, not those around the launch.
        by_pattern: its layers come from the order of kernels alone, which knows no scopes.
    """

    name: str
    attribute: Callable[[Context], Placement]
    exact: bool = False
    in_steps: bool = False
    from_capture: bool = False
    by_pattern: bool = False
