"""What a comparison finds: data only, for reporters and tests."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from html import escape
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.comparison.statistics import Thresholds
from profkit.counting import ranks
from profkit.counting.floor import Floor
from profkit.counting.ranks import merge
from profkit.errors import Exit
from profkit.model.census import EXTENT, Census, KindCensus
from profkit.model.outputs import OutputNumbers
from profkit.model.run import RankRecord, RunRecord

Verdict = Literal["confirmed", "refuted", "changed", "neutral", "inconclusive"]
Work = Literal["preserved", "partly", "unknown", "lost"]
#: Canonical name and kind of a launch.
Launch = tuple[str, str]
Samples = Literal["replays", "runs"]
Status = Literal["removed", "added", "changed", "moved", "unchanged"]

EXIT_OF: Mapping[Verdict, Exit] = {
    "confirmed": Exit.OK,
    "refuted": Exit.REFUTED,
    "changed": Exit.OK,
    "neutral": Exit.OK,
    "inconclusive": Exit.INCONCLUSIVE,
}


@dataclass(frozen=True)
class Input:
    """One side of a comparison.

    Args:
        label: how reports call it: the variant, or the file's name.
        census: its trace, counted.
        record: run.json of a run directory; None for a bare trace.
        identity: names the trace's content, so that one input given twice is noticed.
        more: further runs of this side: other ranks, or repeated captures.
        own: how reports call the first run where `label` names several together; None elsewhere.
        rank: which rank of its file it is; None where the file holds one.
        numbers: what its run directory keeps of its outputs beside their digests.
    """

    label: str
    census: Census
    record: RunRecord | None = None
    identity: str | None = None
    more: Sequence[Input] = ()
    own: str | None = None
    rank: RankRecord | None = None
    numbers: Mapping[str, OutputNumbers] = field(default_factory=dict)

    @cached_property
    def runs(self) -> Sequence[Input]:
        """All runs of this side, this one first, each under its own label."""
        first = self if self.own is None else replace(self, label=self.own, more=(), own=None)
        return (first, *self.more)

    @cached_property
    def chosen(self) -> KindCensus:
        """The kind of step asked about, all runs together.

        Raises:
            CannotTellError: a run has no step.
        """
        return merge([run.census.chosen for run in self.runs], self.jobs)

    @cached_property
    def beyond_steps(self) -> Counter[Launch]:
        """Launches of all runs that are in no step, or in steps of other kinds than the one asked about: but for those
        of other batches, which run the same layers in as many steps as there were."""
        found: Counter[Launch] = Counter()
        for census in (run.census for run in self.runs):
            tables = [census.beyond_steps]
            others = [k for k in census.kinds if k is not census.chosen and not _of_another_batch(k, census.chosen)]
            tables += [table for kind in others for table in (kind.slots, kind.outside)]
            for table in tables:
                for name, kind, launches in zip(table["canonical"], table["op_kind"], table["launches"], strict=True):
                    found[str(name), str(kind)] += int(launches)
        return found

    @cached_property
    def between_steps(self) -> Mapping[Launch, Fraction]:
        """What runs between two of the steps asked about, in none: how often, on average over the runs."""
        found: dict[Launch, Fraction] = defaultdict(Fraction)
        for run in self.runs:
            for launch, number in run.census.chosen.between.items():
                found[launch] += Fraction(number, len(self.runs))
        return found

    @property
    def jobs(self) -> list[int]:
        """For each run the number of the job that it is a rank of; a run that is no rank is a job of its own."""
        return ranks.numbers(self.runs)

    @property
    def independent_runs(self) -> int:
        """Jobs: the ranks of one are no independent runs."""
        return len(set(self.jobs))


#: Steps that share so many of their launches are of one model.
_ONE_MODEL = 0.5


def _of_another_batch(kind: KindCensus, chosen: KindCensus) -> bool:
    return kind.kind.replayed and len(kind.layers) > 0 and kind.likeness(chosen) >= _ONE_MODEL


@dataclass(frozen=True)
class Gates:
    """Conditions that a flag sets; None or False where it was not given.

    Args:
        expect_removed: launches that must be gone, net, from every selected layer, neither more nor fewer.
        expect_faster_percent: the step must be faster by so much, beyond noise.
        expect_fused: launches must be gone, and another must stand in their place.
        max_launches_per_layer: more than these, after, fail.
        max_regression_percent: a selected layer's time may not grow by more, beyond noise.
        floor_us: the dispatch floor, where the user gives it; judges nothing, marks launches.
        force: compare although the runs are of different devices, workloads, shapes or profilers.
    """

    expect_removed: int | None = None
    expect_fused: bool = False
    expect_faster_percent: float | None = None
    max_launches_per_layer: float | None = None
    max_regression_percent: float | None = None
    floor_us: float | None = None
    force: bool = False


@dataclass(frozen=True)
class Reason:
    """A stable code and a sentence."""

    code: str
    message: str


@dataclass(frozen=True)
class Group:
    """Layers that hold the same launches before, and the same after.

    Args:
        index: its place among the groups.
        selected: the question is about these layers.
        stack: the layers' stack.
        pairs: rows of `KindCensus.layers` before and after.
        names: how reports call the layers.
        ranks: the rank of each, from 0.
        before, after: what one of them holds: launches over the steps.
    """

    index: int
    selected: bool
    stack: str
    pairs: Sequence[tuple[int, int]]
    names: Sequence[str]
    ranks: Sequence[int]
    before: Mapping[Launch, int]
    after: Mapping[Launch, int]

    @property
    def layers(self) -> int:
        """How many."""
        return len(self.pairs)


@dataclass(frozen=True, eq=False)
class Row:
    """One line of the comparison; equal only to itself. Counts and nanoseconds are sums over a side's steps and the
    layers of a group.

    Args:
        where: path inside the layer, or the place outside layers.
        name: display name (after's where the launch was renamed; `name_before` is then set).
        recorded: the recorded name: after's where the launch was renamed, else before's if it has one.
        recorded_before: before's recorded name where the launch was renamed, else None.
        op_kind: kernel, memcpy or memset.
        layers_before, layers_after: in how many layers the slot exists.
        launches_before, launches_after: sums over steps and layers.
        ns_before, ns_after: likewise.
        step_ns_before, step_ns_after: by step, summed over layers, shape [steps].
        selected: the question is about this row.
        outside: it runs outside layers.
        group: index of its group of layers; -1 of what is paired by name alone.
        shape_before, shape_after: how it was launched, by the columns of `census.SHAPE`; where its `census.EXTENT`
            differs in some layers only, in the first of these.
        layers_reshaped: in how many layers they differ.
        lane: its stream in the layer, before where it runs there: 0 is the one with most launches.
        slots: the rows of `KindCensus.slots` that it sums, before and after, pair by pair; `align.ABSENT` for none.
        position_before, position_after: its place in the first of the layers, from 1, and of how many; None where it
            does not run in layers.
    """

    where: str
    name: str
    name_before: str | None
    recorded: str
    recorded_before: str | None
    canonical: str
    op_kind: str
    layers_before: int
    layers_after: int
    launches_before: int
    launches_after: int
    ns_before: int
    ns_after: int
    step_ns_before: npt.NDArray[np.int64]
    step_ns_after: npt.NDArray[np.int64]
    selected: bool
    outside: bool = False
    group: int = -1
    shape_before: Mapping[str, str] = field(default_factory=dict)
    shape_after: Mapping[str, str] = field(default_factory=dict)
    layers_reshaped: int = 0
    lane: int = 0
    slots: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] = (np.empty(0, np.int64), np.empty(0, np.int64))
    position_before: tuple[int, int] | None = None
    position_after: tuple[int, int] | None = None

    def reshaped(self, *names: str) -> bool:
        """Whether one of these columns is known on both sides and differs; of the extent, if none is given."""
        return any(
            one != other
            for name in names or EXTENT
            if (one := self.shape_before.get(name)) not in _UNKNOWN
            and (other := self.shape_after.get(name)) not in _UNKNOWN
        )


_UNKNOWN = (None, "", "-1")


@dataclass(frozen=True, eq=False)
class Finding:
    """A row, judged; equal only to itself.

    Times are nanoseconds per layer per step (per step outside layers), NaN where not timed.

    Args:
        status: what happened to it.
        delta, low, high: difference of means and its interval.
        p: on its own.
        notable: the difference is beyond noise and the minimum effect.
        unlike: layers whose difference is not that of the others, and their own difference.
        collapsed: layers in which it lasts less than half of what it lasts in the others, and did not before.
    """

    row: Row
    status: Status
    delta: float
    low: float
    high: float
    p: float
    notable: bool
    unlike: Sequence[tuple[str, float]] = ()
    collapsed: Sequence[str] = ()


@dataclass(frozen=True)
class Gone:
    """Launches of one name that are gone without a claim or an explanation.

    Args:
        name: display name.
        where: the layers, or the place outside them.
        per_step: how many, a step.
    """

    name: str
    where: str
    per_step: float


@dataclass(frozen=True)
class Fusion:
    """Launches that became part of others, or that as many or more others replace (``replaced``: no fusion).

    Args:
        removed: the rows that are gone.
        absorbers: the rows that stand in their place, at least one; several only where they are new.
        evidence: ``new``, ``replaced`` (new, and not fewer than are gone), ``renamed``, ``rebuilt`` (other registers or
            shared memory), ``grew``, or ``adjacent`` (the neighbour, no longer than before: nothing shows that it does
            the work).
        ns_removed: per layer per step.
        ns_absorbed: likewise; the whole time of new absorbers.
    """

    removed: Sequence[Finding]
    absorbers: Sequence[Finding]
    evidence: str
    ns_removed: float
    ns_absorbed: float


@dataclass(frozen=True)
class Net:
    """The whole effect. Times in nanoseconds, NaN where not timed; steps include what lies outside layers.

    Args:
        low, high: interval of `ns_per_layer`.
        significant: beyond noise, tested alone; notable: and large enough to count.
        step_ns: what the whole step took before, untraced if that is known, as `share_basis` says.
    """

    launches_per_layer: float
    launches_per_step: float
    ns_per_layer: float
    low: float
    high: float
    significant: bool
    notable: bool
    ns_per_step: float
    step_ns: float
    share_of_step: float
    share_basis: str


@dataclass(frozen=True)
class LayerChange:
    """One selected layer, as far as gates ask.

    Args:
        name: its number, with its rank and its module where there are several.
        rank: of those that stand side by side, from 0.
        launches_before, launches_after: per step.
        removed: launches that are gone from it, net: without those that are new in it or moved elsewhere in the step.
        share: change of its time, after minus before over before; NaN where not timed.
        notable: beyond noise and the minimum effect, tested together with the other layers.
    """

    name: str
    rank: int
    launches_before: float
    launches_after: float
    removed: float
    share: float
    notable: bool


@dataclass(frozen=True)
class StepTimes:
    """Times of a whole step, microseconds: medians over the runs of a side, and each run's median.

    Args:
        half_us: half of the interval of their difference: over runs where both sides have several, else the spread of
            the replays and what single processes differ by.
    """

    before_us: float
    after_us: float
    runs_before: Sequence[float] = ()
    runs_after: Sequence[float] = ()
    half_us: float = 0.0

    @property
    def delta_us(self) -> float:
        """After minus before."""
        return self.after_us - self.before_us

    def notable(self, thresholds: Thresholds) -> bool:
        """Whether the step times differ beyond the interval and the minimum share."""
        return abs(self.delta_us) > max(self.half_us, thresholds.min_share * self.before_us)


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of a diff. `findings` and what follows are empty where the two cannot be compared.

    Args:
        steps: of all runs of a side together; those of each rank count.
        ranks: whose layers stand side by side; `selected_layers` and `groups` hold those of every one.
        samples: what times were compared over: independent runs if both sides have several, else replays. The ranks of
            a job are one run.
        elsewhere: launches in layers or scopes that were not selected, per step.
        outside: launches outside layers, per step.
        untraced, graph_level, traced: step times without a profiler, in a recording of whole graphs, and in the traces
            compared here; None where a side has none.
        floor: the dispatch floor of the side before, None where it is not known.
        groups: all layers, by what they hold on both sides.
        moved: launches a selected layer that are gone from it and run elsewhere in the step.
        unexplained: what is gone outside the claim.
        clock: by what all launches alike last longer or shorter after, as a factor; 1 where they do not.
    """

    before: Input
    after: Input
    verdict: Verdict
    work: Work
    reasons: Sequence[Reason]
    timed: bool
    selected_layers: tuple[int, int]
    steps: tuple[int, int]
    samples: Samples = "replays"
    ranks: int = 1
    findings: Sequence[Finding] = ()
    elsewhere: Sequence[Finding] = ()
    outside: Sequence[Finding] = ()
    fusions: Sequence[Fusion] = ()
    layers: Sequence[LayerChange] = ()
    net: Net | None = None
    untraced: StepTimes | None = None
    graph_level: StepTimes | None = None
    traced: StepTimes | None = None
    floor: Floor | None = None
    groups: Sequence[Group] = ()
    moved: int = 0
    unexplained: Sequence[Gone] = ()
    clock: float = 1.0
    thresholds: Thresholds = field(default_factory=Thresholds)

    @property
    def exit_code(self) -> Exit:
        """The exit status of the command."""
        return EXIT_OF[self.verdict]

    @property
    def between_differs(self) -> bool:
        """Whether what runs between the steps does."""
        return self.before.between_steps != self.after.between_steps

    @property
    def selected_groups(self) -> list[Group]:
        """The groups that the question is about."""
        return [group for group in self.groups if group.selected]

    @property
    def per(self) -> tuple[int, int]:
        """Layers times steps of either side: sums over the selected layers are divided by it."""
        layers = self.selected_layers[0]
        return layers * self.steps[0] // self.ranks, layers * self.steps[1] // self.ranks

    def per_of(self, row: Row) -> tuple[int, int]:
        """What the sums of a row are divided by: layers of its group times steps, or steps."""
        return self.per_group(self.groups[row.group]) if row.selected else self.steps

    def per_group(self, group: Group) -> tuple[int, int]:
        """Layers of a group times steps of either side."""
        layers = group.layers
        return layers * self.steps[0] // self.ranks, layers * self.steps[1] // self.ranks

    def at_floor(self, finding: Finding) -> bool | None:
        """Whether the launch lasted no longer than the dispatch floor before (after, if it is new); None for copies and
        where no floor is known."""
        row = finding.row
        ns, launches = (
            (row.ns_before, row.launches_before) if row.launches_before else (row.ns_after, row.launches_after)
        )
        if self.floor is None or row.op_kind != "kernel" or not launches:
            return None
        return self.floor.holds(ns / launches / 1e3)

    def with_status(self, *statuses: Status) -> list[Finding]:
        """The selected layers' findings that have one of `statuses`."""
        return [f for f in self.findings if f.status in statuses]

    def __repr__(self) -> str:
        why = f": {self.reasons[0].message}" if self.reasons else ""
        return f"Comparison({self.before.label} → {self.after.label}, {self.verdict}, work {self.work}{why})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict, and the findings."""
        table = self.to_pandas().to_html(max_rows=40, index=False) if self.findings else ""
        return f"<p>{escape(repr(self))}</p>{table}"

    def to_pandas(self) -> pd.DataFrame:
        """One row a finding: launches and microseconds per layer per step, outside the selected layers per step.

        Columns: place (layer, elsewhere, outside), layers, position (before; after where it is new), where, name, kind,
        status, launches_before, launches_after, us_before, us_after, us_delta, ci_low, ci_high.
        """
        nan = float("nan")
        places = (("layer", self.findings), ("elsewhere", self.elsewhere), ("outside", self.outside))
        return pd.DataFrame(
            [
                {
                    "place": place,
                    "layers": ", ".join(self.groups[f.row.group].names) if f.row.group >= 0 else "",
                    "position": "/".join(map(str, f.row.position_before or f.row.position_after or ())),
                    "where": f.row.where,
                    "name": f.row.name,
                    "kind": f.row.op_kind,
                    "status": f.status,
                    "launches_before": f.row.launches_before / self.per_of(f.row)[0],
                    "launches_after": f.row.launches_after / self.per_of(f.row)[1],
                    "us_before": f.row.ns_before / self.per_of(f.row)[0] / 1e3 if self.timed else nan,
                    "us_after": f.row.ns_after / self.per_of(f.row)[1] / 1e3 if self.timed else nan,
                    "us_delta": f.delta / 1e3,
                    "ci_low": f.low / 1e3,
                    "ci_high": f.high / 1e3,
                }
                for place, findings in places
                for f in findings
            ]
        )
