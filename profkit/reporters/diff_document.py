"""The JSON document of `diff`: its fields, and how a comparison fills them.

The docstrings are the one description of the fields: docs/json.md and docs/schemas are made from them. Within a version
fields are only added; a time that was not measured is None.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from msgspec import Struct

from profkit.comparison.model import (
    Comparison,
    Finding,
    Fusion,
    Input,
    Net,
    Reason,
    Row,
    Samples,
    Status,
    StepTimes,
    Verdict,
    Work,
)
from profkit.comparison.statistics import Thresholds
from profkit.counting.floor import Floor
from profkit.counting.ranks import diagnostics
from profkit.model.run import VersionsRecord, WorkloadRecord
from profkit.model.trace import Diagnostic
from profkit.reporters import ranks
from profkit.reporters.blocks import Records
from profkit.reporters.layers_document import AtFloor, Ledger, Methods, device_of
from profkit.reporters.ranks import RankChange, RoleChanges, SkewChange, Us, says


class Side(Struct, frozen=True, kw_only=True):
    """Before, or after: `methods`, `ledger` and `warnings` are of all runs together, the rest is of the first."""

    run: str
    runs: Annotated[Sequence[str], says("the names of all.")]
    device: str | None
    profiler: str
    workload: WorkloadRecord | None
    versions: VersionsRecord | None
    commit: Annotated[str | None, says("as in run.json.")]
    methods: Methods
    ledger: Ledger
    step_kind: Annotated[str | None, says("the id of the kind that is compared.")]
    warnings: Sequence[Diagnostic]


class Two(Struct, frozen=True, kw_only=True):
    """Of either side."""

    before: int
    after: int


class Unlike(Struct, frozen=True, kw_only=True):
    """One layer of a launch."""

    layer: str
    us_delta: Us


class FindingEntry(Struct, frozen=True, kw_only=True):
    """A launch, compared."""

    name: Annotated[str, says("the recorded name: before's where both sides have it, after's where renamed.")]
    short: Annotated[str, says("it, as the other reports show it.")]
    renamed_from: Annotated[str | None, says("before's recorded name of a launch that was renamed, else null.")]
    kind: str
    scope: str
    status: Status
    layers: Annotated[Sequence[str], says("the layers whose launch it is; all of them alike.")]
    position_before: Annotated[tuple[int, int] | None, says("its place in the layer, from 1, and of how many.")]
    position_after: tuple[int, int] | None
    grid: Annotated[tuple[str, str] | None, says("before and after; null where the recordings do not say.")]
    registers: Annotated[tuple[str, str] | None, says("a thread, before and after.")]
    shared_memory: Annotated[tuple[str, str] | None, says("bytes a block, before and after.")]
    bytes: Annotated[tuple[str, str] | None, says("that a copy or a set moves, before and after.")]
    unlike: Annotated[Sequence[Unlike], says("layers whose time changed otherwise than that of the others.")]
    collapsed: Annotated[Sequence[str], says("layers in which it lasts less than half of what it lasts in the others.")]
    launches_before: float
    launches_after: float
    us_before: Us
    us_after: Us
    us_delta: Us
    ci: Annotated[tuple[float, float] | None, says("the interval of `us_delta`, [low, high] in µs.")]
    p: Annotated[float | None, says("on its own.")]
    floor: AtFloor


class ScopeSum(Struct, frozen=True, kw_only=True):
    """Sums by the outermost scope inside the layer, of layers that hold the same."""

    scope: str
    layers: Annotated[Sequence[str], says("which.")]
    launches_before: float
    launches_after: float
    launches_per_step_before: float
    launches_per_step_after: float
    us_before: Us
    us_after: Us


class GoneEntry(Struct, frozen=True, kw_only=True):
    """Launches of one name that are gone outside the claim."""

    name: str
    where: str
    per_step: float


class FusionEntry(Struct, frozen=True, kw_only=True):
    """Launches that became part of others."""

    removed: Sequence[str]
    absorbed_by: Annotated[str, says("the first of `absorbers`.")]
    absorbers: Annotated[Sequence[str], says("all that stand in the place.")]
    evidence: Annotated[
        str, says("`new`, `replaced` (by as many or more: no fusion), `renamed`, `grew` or `adjacent`.")
    ]
    us_removed: Us
    us_absorbed: Annotated[Us, says("of all `absorbers`.")]


class NetEntry(Struct, frozen=True, kw_only=True):
    """The whole effect; from `us_per_step` on it is about the whole step."""

    launches_per_layer: Annotated[
        float | None, says("null where selected layers hold unlike launches, as `us_per_layer`.")
    ]
    launches_per_step: float
    us_per_layer: Us
    ci: Annotated[tuple[float, float] | None, says("the interval of `us_per_layer`, [low, high].")]
    us_per_step: Us
    step_us: Annotated[Us, says("what the step took before, untraced or traced as `share_basis` says.")]
    share_of_step: Annotated[float | None, says("`us_per_step` as a share of it.")]
    share_basis: str


class StepChange(Struct, frozen=True, kw_only=True):
    """Step times: medians over runs, and each run's median."""

    before_us: float
    after_us: float
    delta_us: float
    runs_before_us: Sequence[float]
    runs_after_us: Sequence[float]


class DiffDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="profkit.diff/2"):
    """What `profkit diff --format json` prints. Launches and µs are per layer per step in layers, else per step.

    The ranks of one job are one run, and their replays are averaged replay by replay.
    """

    verdict: Annotated[Verdict, says("see verdicts.md, as of `work`, `exit_code` and `reasons`.")]
    work: Work
    exit_code: int
    reasons: Sequence[Reason]
    before: Side
    after: Side
    timed: Annotated[bool, says("whether times were measured.")]
    samples: Annotated[
        Samples, says("`runs` where both sides have several independent runs to compare, else `replays`.")
    ]
    layers: Annotated[Two, says("selected ones of one rank; of ranks with unlike layers the mean, rounded down.")]
    steps: Two
    removed: Sequence[FindingEntry]
    added: Sequence[FindingEntry]
    changed: Sequence[FindingEntry]
    moved: Sequence[FindingEntry]
    unchanged: Sequence[FindingEntry]
    elsewhere: Annotated[Sequence[FindingEntry], says("layers or scopes that were not selected, per step.")]
    outside: Annotated[Sequence[FindingEntry], says("what runs outside layers, per step.")]
    scopes: Sequence[ScopeSum]
    removed_per_layer: Annotated[Mapping[str, float], says("launches gone from each selected layer, net.")]
    moved_per_layer: Annotated[int, says("launches a layer that run elsewhere in the step now.")]
    unexplained: Annotated[Sequence[GoneEntry], says("what is gone outside the claim.")]
    clock: Annotated[float, says("by what all launches alike last longer after; 1 where they do not.")]
    fusions: Sequence[FusionEntry]
    roles: Annotated[RoleChanges | None, says("null where the two cannot be compared.")]
    ranks: Annotated[Sequence[RankChange], says("empty without ranks.")]
    skew: Annotated[SkewChange | None, says("null without ranks.")]
    net: NetEntry | None
    untraced: Annotated[StepChange | None, says("step times without a profiler.")]
    graph_level: Annotated[StepChange | None, says("traced as whole graphs.")]
    traced: Annotated[StepChange | None, says("as in these traces.")]
    floor: Annotated[Floor | None, says("of the side before.")]
    thresholds: Thresholds


_STATUSES: Sequence[Status] = ("removed", "added", "changed", "moved", "unchanged")


def report(comparison: Comparison) -> DiffDocument:
    """Everything that the diff says."""
    before, after = (layers // comparison.ranks for layers in comparison.selected_layers)
    findings = [_finding(f, comparison, comparison.per_of(f.row)) for f in comparison.findings]
    roles, changes, skew = ranks.compared(comparison) if comparison.findings else (None, [], None)
    return DiffDocument(
        verdict=comparison.verdict,
        work=comparison.work,
        exit_code=int(comparison.exit_code),
        reasons=comparison.reasons,
        before=_side(comparison.before),
        after=_side(comparison.after),
        timed=comparison.timed,
        samples=comparison.samples,
        layers=Two(before=before, after=after),
        steps=Two(before=comparison.steps[0], after=comparison.steps[1]),
        **{status: [f for f in findings if f.status == status] for status in _STATUSES},
        elsewhere=[_finding(f, comparison, comparison.steps) for f in comparison.elsewhere],
        outside=[_finding(f, comparison, comparison.steps) for f in comparison.outside],
        scopes=_scopes(comparison),
        removed_per_layer={layer.name: layer.removed for layer in comparison.layers},
        moved_per_layer=comparison.moved,
        unexplained=[GoneEntry(name=g.name, where=g.where, per_step=g.per_step) for g in comparison.unexplained],
        clock=comparison.clock,
        fusions=[_fusion(f) for f in comparison.fusions],
        roles=roles,
        ranks=changes,
        skew=skew,
        net=None if comparison.net is None else _net(comparison.net, alike=len(comparison.selected_groups) == 1),
        untraced=_step_times(comparison.untraced),
        graph_level=_step_times(comparison.graph_level),
        traced=_step_times(comparison.traced),
        floor=comparison.floor,
        thresholds=comparison.thresholds,
    )


def _net(net: Net, *, alike: bool) -> NetEntry:
    return NetEntry(
        launches_per_layer=net.launches_per_layer if alike else None,
        launches_per_step=net.launches_per_step,
        us_per_layer=_us(net.ns_per_layer) if alike else None,
        ci=_interval(net.low, net.high) if alike else None,
        us_per_step=_us(net.ns_per_step),
        step_us=_us(net.step_ns),
        share_of_step=None if math.isnan(net.share_of_step) else net.share_of_step,
        share_basis=net.share_basis,
    )


def _step_times(times: StepTimes | None) -> StepChange | None:
    if times is None:
        return None
    return StepChange(
        before_us=times.before_us,
        after_us=times.after_us,
        delta_us=times.delta_us,
        runs_before_us=times.runs_before,
        runs_after_us=times.runs_after,
    )


def _side(entry: Input) -> Side:
    census, record = entry.census, entry.record
    said = (d for of_run in diagnostics(entry.runs) for d in of_run)
    names = Ledger.__struct_fields__
    return Side(
        run=entry.label,
        runs=[run.label for run in entry.runs],
        device=device_of(census.info, record),
        profiler=census.info.profiler,
        workload=record.workload if record else None,
        versions=record.versions if record else None,
        commit=record.commit if record else None,
        methods=dict(sum((Counter(run.census.methods) for run in entry.runs), Counter[str]())),
        ledger=Ledger(**{name: sum(getattr(run.census.ledger, name) for run in entry.runs) for name in names}),
        step_kind=census.chosen.kind.id if census.kinds else None,
        warnings=list(dict.fromkeys(said)),
    )


def _finding(finding: Finding, comparison: Comparison, per: tuple[int, int]) -> FindingEntry:
    row, timed = finding.row, comparison.timed
    return FindingEntry(
        name=row.recorded,
        short=row.name,
        renamed_from=row.recorded_before,
        kind=row.op_kind,
        scope=row.where,
        status=finding.status,
        layers=list(comparison.groups[row.group].names) if row.selected else [],
        position_before=row.position_before if row.selected else None,
        position_after=row.position_after if row.selected else None,
        grid=_both(row, "grid"),
        registers=_both(row, "registers"),
        shared_memory=_both(row, "shared_memory"),
        bytes=_both(row, "bytes"),
        unlike=[Unlike(layer=layer, us_delta=_us(delta)) for layer, delta in finding.unlike],
        collapsed=finding.collapsed,
        launches_before=row.launches_before / per[0],
        launches_after=row.launches_after / per[1],
        us_before=_us(row.ns_before / per[0]) if timed else None,
        us_after=_us(row.ns_after / per[1]) if timed else None,
        us_delta=_us(finding.delta),
        ci=_interval(finding.low, finding.high),
        p=None if math.isnan(finding.p) else finding.p,
        floor=comparison.at_floor(finding),
    )


def _both(row: Row, name: str) -> tuple[str, str] | None:
    before, after = row.shape_before.get(name, ""), row.shape_after.get(name, "")
    return (before, after) if {before, after}.isdisjoint({"", "-1"}) else None


def _scopes(comparison: Comparison) -> list[ScopeSum]:
    found: dict[tuple[int, str], list[Row]] = {}
    for finding in comparison.findings:
        found.setdefault((finding.row.group, finding.row.where.split("/")[0]), []).append(finding.row)
    steps, timed = comparison.steps, comparison.timed
    return [
        ScopeSum(
            scope=scope,
            layers=group.names,
            launches_before=sum(row.launches_before for row in rows) / per[0],
            launches_after=sum(row.launches_after for row in rows) / per[1],
            launches_per_step_before=sum(row.launches_before for row in rows) / steps[0],
            launches_per_step_after=sum(row.launches_after for row in rows) / steps[1],
            us_before=_us(sum(row.ns_before for row in rows) / per[0]) if timed else None,
            us_after=_us(sum(row.ns_after for row in rows) / per[1]) if timed else None,
        )
        for (index, scope), rows in found.items()
        for group in [comparison.groups[index]]
        for per in [comparison.per_group(group)]
    ]


def _fusion(fusion: Fusion) -> FusionEntry:
    return FusionEntry(
        removed=[f.row.recorded for f in fusion.removed],
        absorbed_by=fusion.absorbers[0].row.recorded,
        absorbers=[f.row.recorded for f in fusion.absorbers],
        evidence=fusion.evidence,
        us_removed=_us(fusion.ns_removed),
        us_absorbed=_us(fusion.ns_absorbed),
    )


def _interval(low: float, high: float) -> tuple[float, float] | None:
    return None if math.isnan(low) else (round(low / 1e3, 6), round(high / 1e3, 6))


def _us(ns: float) -> float | None:
    return None if math.isnan(ns) else round(ns / 1e3, 6)


def records(document: DiffDocument) -> Records:
    """A row a launch, with what launches and µs are per (``layer`` and step in the selected layers, else ``step``);
    beside them the verdict and its reasons."""
    columns = "place status position_before position_after scope name kind launches_before launches_after"
    times = "us_before us_after us_delta ci_low ci_high"
    beside = [document.verdict.upper(), *(f"[{reason.code}] {reason.message}" for reason in document.reasons)]
    return Records([*columns.split(), *times.split(), "per", "renamed_from"], list(_rows(document)), beside)


def _rows(document: DiffDocument) -> Iterator[Sequence[object]]:
    selected = (document.removed, document.added, document.changed, document.moved, document.unchanged)
    places = (*(("layer", rows) for rows in selected), ("elsewhere", document.elsewhere), ("outside", document.outside))
    for place, rows in places:
        for f in rows:
            times = (f.us_before, f.us_after, f.us_delta, *(f.ci or (None, None)))
            counts = (f.launches_before, f.launches_after)
            per = "layer" if place == "layer" else "step"
            positions = ["/".join(map(str, of or ())) for of in (f.position_before, f.position_after)]
            yield place, f.status, *positions, f.scope, f.name, f.kind, *counts, *times, per, f.renamed_from
