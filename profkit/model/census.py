"""The census of a trace: launches and time per layer and per kernel, with everything outside layers in rows of its own.

Data only; `profkit.counting.count.take_census` makes it. Counts and nanoseconds are integers summed over the steps of a
kind; "per layer per step" is such a sum over (layers × steps). Every op of the trace is in exactly one place, and
`Ledger` says in which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.errors import CannotTellError
from profkit.model.selection import Phase, Selection
from profkit.model.steps import StepKind
from profkit.model.trace import Diagnostic, Info

Ints = npt.NDArray[np.int64]

#: `where` of an op that no range covers.
IN_GRAPH = "(in the graph, outside every range)"
EAGER = "(outside graphs and ranges)"
UNATTRIBUTED = "(unattributed)"
WARM_UP = "(warm-up: layer ranges outside every step)"


#: Columns that say how a launch ran: blocks and threads as ``64x1x1``, registers a thread, bytes of shared memory.
#: Empty and `NONE` where the recording does not say; `VARIES` and `NONE` where its ops are not alike.
SHAPE = ("grid", "block", "registers", "shared_memory", "bytes")
#: Those by which a launch of the same name is another one; the others change with a compiler.
EXTENT = ("grid", "block", "bytes")
VARIES = "varies"
#: Columns of launches outside layers: all that the ops of one row have in a column of `SHAPE`, and how often a step.
EXTENTS = {"grids": "grid", "sizes": "bytes"}


@dataclass(frozen=True)
class SilentNodes:
    """Nodes of replayed graphs that no replay ran: host and empty nodes, or ops that the recording lost every time.

    Args:
        count: all of them.
        layer_scopes: how many of them were captured in each scope of a layer: path down to the layer, path inside it.
    """

    count: int
    layer_scopes: Mapping[str, int] = field(default_factory=dict)

    @property
    def in_layers(self) -> int:
        """Those that were captured in a layer's range."""
        return sum(self.layer_scopes.values())


@dataclass(frozen=True)
class Ledger:
    """A partition of all ops: the first line is the sum of the next five. Counts, and nanoseconds beside them.

    `in_ranges` holds, among others, `warm_up` ops: in a layer's range, in no step. `set_aside` rows are in no sum.
    """

    ops: int
    in_layers: int
    in_ranges: int
    in_graph_outside_layers: int
    outside_graphs: int
    unattributed: int
    warm_up: int
    set_aside: int
    ns: Mapping[str, int]


@dataclass(frozen=True)
class KindCensus:
    """The census of one kind of step.

    Args:
        kind: which.
        layers: one row a layer: rank (of those that the census holds, from 0), stack, number, module (its path, ``#``
            for the number), scope, kind (layers of one stack with the same launches share one, numbered from 0),
            exception (it differs from its kind by a few launches), selected, launches, kernel_ns, busy_ns, span_ns
            (sums over the steps).
        slots: one row a launch slot of a layer, in order: layer (row of `layers`), inside, name, canonical, op_kind,
            occurrence, stream (of its first op), launches, ns, `SHAPE`, in_layers (`Selection.layers` matches),
            selected (`Selection.scope` too).
        slot_ns: the same slots by step: nanoseconds, shape [slots, steps].
        outside: one row a kernel outside layers: where, name, canonical, op_kind, launches, ns, `EXTENTS`.
        outside_ns: shape [outside rows, steps].
        step_span_ns: first start to last end of each step, shape [steps]; under a profiler, so longer than it runs.
        job_of_step: which of several independent jobs each step comes from, shape [steps].
        step_weight: what the by-step times of each step were multiplied by, so that every job counts once.
        between: what runs eagerly behind nearly every one of these steps and before the next, in no step itself:
            canonical name and kind of op, and how often; and how long all of it lasts.
        ranks: how many ranks' layers, slots and outside rows stand side by side; a step is a step of all of them.
    """

    kind: StepKind
    layers: pd.DataFrame
    slots: pd.DataFrame
    slot_ns: Ints
    outside: pd.DataFrame
    outside_ns: Ints
    step_span_ns: Ints
    job_of_step: Ints
    step_weight: npt.NDArray[np.float64]
    between: Mapping[tuple[str, str], int] = field(default_factory=dict)
    between_ns: int = 0
    ranks: int = 1

    @cached_property
    def selected_slots(self) -> pd.DataFrame:
        """The slots that the selection asks about."""
        return self.slots[self.slots["selected"]]

    @property
    def passes(self) -> int:
        """Steps of single ranks: what sums are divided by for a number a step."""
        return self.kind.steps * self.ranks

    @cached_property
    def per_step(self) -> Counter[tuple[str, str]]:
        """What one of these steps launches: canonical names and kinds of op, of one rank."""
        found: Counter[tuple[str, str]] = Counter()
        for table in (self.slots, self.outside):
            launches = zip(table["canonical"], table["op_kind"], table["launches"], strict=True)
            for canonical, op_kind, number in launches:
                found[canonical, op_kind] += round(number / self.passes)
        return found

    def likeness(self, other: KindCensus) -> float:
        """Shared launches of a step over all launches of both, by name."""
        union = (self.per_step | other.per_step).total()
        return (self.per_step & other.per_step).total() / union if union else 0.0

    @property
    def selected_layers(self) -> int:
        """How many layers the selection asks about."""
        return int(self.layers["selected"].sum())


@dataclass(frozen=True, repr=False)
class Census:
    """What a trace holds, counted. `default` indexes `kinds`.

    Args:
        info: the trace's provenance.
        selection: the question.
        methods: ops placed by each attribution method.
        ledger: where every op went.
        kinds: one a kind of step, most GPU time first.
        beyond_steps: ops in no step: where, name, canonical, op_kind, launches, ns (whole recording).
        step_method: how steps were found.
        diagnostics: what the reader, the attribution and the steps have to say.
        refusal: why the trace cannot answer per-layer questions, and what to do; None where it can.
        phase: where layers begin, if cut found them.
    """

    info: Info
    selection: Selection
    methods: Mapping[str, int]
    ledger: Ledger
    kinds: Sequence[KindCensus]
    default: int
    beyond_steps: pd.DataFrame
    step_method: str
    diagnostics: Sequence[Diagnostic]
    refusal: Diagnostic | None = None
    silent_nodes: SilentNodes = field(default=SilentNodes(0))
    phase: Phase | None = None

    @property
    def chosen(self) -> KindCensus:
        """The kind of step that the selection asks about.

        Raises:
            CannotTellError: the trace has no step.
        """
        if not self.kinds:
            raise CannotTellError("no-steps", f"{self.info.source} has no step: {self.info.profiler} recorded no ops.")
        return self.kinds[self.default]

    def __repr__(self) -> str:
        found = (
            f"{len(self.chosen.layers)} layers in {self.chosen.kind.steps} × {self.chosen.kind.name}, "
            if self.kinds
            else ""
        )
        return f"Census({self.info.source}: {found}{self.ledger.ops:,} ops, {self.ledger.unattributed:,} unattributed)"

    def _repr_html_(self) -> str:
        """What a notebook shows: the launches of each layer."""
        table = self.to_pandas().to_html(max_rows=40, index=False) if self.kinds else ""
        return f"<p>{escape(repr(self))}</p>{table}"

    def to_pandas(self) -> pd.DataFrame:
        """One row a launch slot of the chosen kind of step, launches and microseconds per step.

        Columns: layer, module, kind, scope, inside, name, op_kind, launches, us (NaN where the recorder did not time).
        """
        chosen = self.chosen
        layers = chosen.layers.iloc[chosen.slots["layer"].to_numpy()]
        steps = chosen.kind.steps
        us = chosen.slots["ns"] / steps / 1e3 if self.info.timed else np.nan
        return pd.DataFrame(
            {
                "layer": layers["number"].to_numpy(),
                "module": layers["module"].to_numpy(),
                "kind": layers["kind"].to_numpy(),
                "scope": layers["scope"].to_numpy(),
                "inside": chosen.slots["inside"],
                "name": chosen.slots["name"],
                "op_kind": chosen.slots["op_kind"],
                "launches": chosen.slots["launches"] / steps,
                "us": us,
            }
        )


def held_by_layer(slots: pd.DataFrame, layers: int, *columns: str) -> list[Counter[tuple[str, ...]]]:
    """What each of so many layers holds: launches over the steps, by these columns of its slots."""
    found: list[Counter[tuple[str, ...]]] = [Counter() for _ in range(layers)]
    keys = zip(*(slots[name].tolist() for name in columns), strict=True)
    for layer, key, launches in zip(slots["layer"].tolist(), keys, slots["launches"].tolist(), strict=True):
        found[layer][key] += launches
    return found
