"""The JSON document of `layers`: its fields, and how a census fills them.

The docstrings are the one description of the fields: docs/json.md and docs/schemas are made from them. Within a version
fields are only added. Launches and µs are per layer per step unless said otherwise; a time that was not measured is
None. Names are the recorded ones; `short` is the display name.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import UNSET, Struct, UnsetType

from profkit.counting import floor as floors
from profkit.counting.floor import Source
from profkit.counting.ranks import diagnostics, rank_of, same_layers, shares, unlike
from profkit.model.census import Census, KindCensus
from profkit.model.run import MessageRecord, RunRecord, StepTimesRecord, WorkloadRecord
from profkit.model.trace import Diagnostic, Info
from profkit.reporters import ranks
from profkit.reporters.blocks import Records
from profkit.reporters.ranks import Job, Roles
from profkit.runs.sides import RunFile


class Said(Struct, frozen=True, kw_only=True):
    """A stable code and a sentence."""

    code: str
    message: str


class Floor(Struct, frozen=True, kw_only=True):
    """The dispatch floor: launches of at most factor × us are at it.

    Args:
        us: what a kernel that does next to nothing lasts.
        source: ``measured`` with the capture, ``given``, or ``estimated``: the mean of the fastest kind of kernel, only
            where eight kinds or more ran and the three fastest are within a factor of 1.5.
        factor: see above.
    """

    us: float
    source: Source
    factor: float


class Ledger(Struct, frozen=True, kw_only=True):
    """``ops = in_layers + in_ranges + in_graph_outside_layers + outside_graphs + unattributed``.

    Args:
        warm_up: a part of `in_ranges`.
        set_aside: broken rows, which are in no sum.
    """

    ops: int
    in_layers: int
    in_ranges: int
    in_graph_outside_layers: int
    outside_graphs: int
    unattributed: int
    warm_up: int
    set_aside: int


class TimedLedger(Ledger, frozen=True, kw_only=True):
    """``ops = in_layers + in_ranges + in_graph_outside_layers + outside_graphs + unattributed``.

    Args:
        warm_up: a part of `in_ranges`.
        set_aside: broken rows, which are in no sum.
        us: the same in µs.
    """

    us: Mapping[str, float | None]


class Outside(Struct, frozen=True, kw_only=True):
    """A kernel outside layers: per step, or, in no step, of the whole recording."""

    name: str
    kind: str
    short: str
    where: str
    launches: float
    us: float | None


class LayerKernel(Struct, frozen=True, kw_only=True):
    """A kernel of one layer.

    Args:
        scope: the path inside the layer.
        floor: is it at the dispatch floor? null for copies and where the floor is not known.
    """

    name: str
    kind: str
    scope: str
    launches: float
    us: float | None
    floor: bool | None


class SelectedKernel(Struct, frozen=True, kw_only=True):
    """A kernel of all selected layers.

    Args:
        us_median, us_p25, us_p75: over the steps.
        launches_total, ns_total: exact sums over layers and steps.
        floor: as of a layer's kernel.
    """

    name: str
    short: str
    kind: str
    scope: str
    launches: float
    us: float | None
    us_median: float | None
    us_p25: float | None
    us_p75: float | None
    launches_total: int
    ns_total: int
    floor: bool | None


class Layer(Struct, frozen=True, kw_only=True):
    """One layer, per step.

    Args:
        layer: its number.
        selected: the question is about it.
        kernel_us: the sum of all launches' durations, copies included.
        busy_us: their union.
        span_us: first start to last end.
    """

    layer: int
    kind: str
    scope: str
    selected: bool
    launches: float
    launches_by_kind: Mapping[str, float]
    kernel_us: float | None
    busy_us: float | None
    span_us: float | None
    kernels: Sequence[LayerKernel]


class StepKind(Struct, frozen=True, kw_only=True):
    """Steps that do the same work.

    Args:
        layers: see Layer.
        outside: what lies outside them, per step.
    """

    id: str
    steps: int
    launches_per_step: int
    us_per_step: float | None
    layers: Sequence[Layer]
    outside: Sequence[Outside]


class Selected(Struct, frozen=True, kw_only=True):
    """The selected layers together.

    Args:
        layers, steps: how many.
        launches_by_kind: kernels, copies and sets apart; absent where there is no step.
        kernel_us: the sum of all launches' durations, copies included.
        by_role: null where there is no step.
    """

    layers: int
    steps: int
    launches: float
    launches_by_kind: Mapping[str, float] | UnsetType = UNSET
    kernel_us: float | None
    by_role: Roles | None
    kernels: Sequence[SelectedKernel]


class Quartiles(Struct, frozen=True, kw_only=True):
    """Times over the steps, µs."""

    p25: float
    median: float
    p75: float


class Run(Struct, frozen=True, kw_only=True):
    """One run.

    Args:
        run: how it is called.
        rank: which rank of its job; null where nothing tells.
        timed: false where launches were recorded without running them.
        workload: as in run.json.
        methods: ops placed by each attribution method.
        ledger: where every op went.
        steps_found_by: how steps were found.
        step_kinds: most GPU time first.
        default_step_kind: the id of the kind that the report is about.
        layers, outside: of that kind.
        selected: its selected layers together.
        beyond_steps: ops in no step, for the whole recording.
        set_aside: why a repeated capture set this repetition aside, as in run.json: it is in no average.
        untraced: the step time without a profiler, as in run.json.
        graph_level: the same of the step traced as whole graphs.
        traced_step: first start to last end of the steps of this trace.
        refusal: why the trace cannot tell layers, else null.
    """

    run: str
    rank: int | None
    device: str | None
    profiler: str
    format: str
    timed: bool
    workload: WorkloadRecord | None
    methods: Mapping[str, int]
    ledger: TimedLedger
    steps_found_by: str
    step_kinds: Sequence[StepKind]
    default_step_kind: str | None
    layers: Sequence[Layer]
    outside: Sequence[Outside]
    selected: Selected
    floor: Floor | None
    beyond_steps: Sequence[Outside]
    set_aside: MessageRecord | None
    untraced: StepTimesRecord | None
    graph_level: StepTimesRecord | None
    traced_step: Quartiles | None
    refusal: Said | None
    warnings: Sequence[Said]


class Unlike(Struct, frozen=True, kw_only=True):
    """A run that differs from the others."""

    run: str
    message: str


class Average(Struct, frozen=True, kw_only=True):
    """Means over the runs of one workload and variant, each of which counts once.

    Args:
        runs: how many; 0 where they have no mean.
        layers: of each; null where they differ.
    """

    runs: int
    layers: int | None
    launches: float | None
    kernel_us: float | None
    unlike: Sequence[Unlike]


class LayersDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="profkit.layers/1"):
    """What `profkit layers --format json` prints.

    Args:
        jobs: one entry for each capture by several processes.
    """

    runs: Sequence[Run]
    average: Average
    jobs: Sequence[Job]


def report(runs: Sequence[tuple[RunFile, Census]], floor_us: float | None = None) -> LayersDocument:
    """Everything that the layers report says about `runs`.

    Args:
        floor_us: the dispatch floor, where the user gives it.
    """
    said_by_run = diagnostics([(run.record, census) for run, census in runs])
    entries = [_run(run, census, floor_us, said) for (run, census), said in zip(runs, said_by_run, strict=True)]
    counted = [
        (run.label, run.record, census.chosen) for run, census in runs if census.refusal is None and census.kinds
    ]
    timed = all(entry.timed for entry in entries)
    return LayersDocument(runs=entries, average=_average(entries, runs), jobs=ranks.jobs_of(counted, timed=timed))


def device_of(info: Info, record: RunRecord | None) -> str | None:
    """The devices of a trace, or what run.json says."""
    recorded = record.device.name if record and record.device else None
    return ", ".join(dict.fromkeys(info.devices.values())) or recorded


def floor_entry(floor: floors.Floor | None) -> Floor | None:
    """The floor as the documents have it."""
    return None if floor is None else Floor(us=floor.us, source=floor.source, factor=floors.FACTOR)


def _run(run: RunFile, census: Census, floor_us: float | None, warnings: Sequence[Diagnostic]) -> Run:
    record, info = run.record, census.info
    floor = floors.floor_of(record, [census], floor_us) if census.kinds and info.timed else None
    kinds = [_kind(census, k, floor) for k in census.kinds]
    default = kinds[census.default] if kinds else None
    rank = rank_of(record)
    own_rank = info.processes[0].rank if len(info.processes) == 1 else None
    ledger = {name: value for name, value in vars(census.ledger).items() if name != "ns"}
    return Run(
        run=run.label,
        rank=own_rank if rank is None else rank.rank,
        device=device_of(info, record),
        profiler=info.profiler,
        format=info.format,
        timed=info.timed,
        workload=record.workload if record else None,
        methods=dict(census.methods),
        ledger=TimedLedger(**ledger, us={n: _us(ns, 1, census) for n, ns in census.ledger.ns.items()}),
        steps_found_by=census.step_method,
        step_kinds=kinds,
        default_step_kind=default.id if default else None,
        layers=default.layers if default else [],
        outside=default.outside if default else [],
        selected=_selected(census, floor, record),
        floor=floor_entry(floor),
        beyond_steps=[_outside(row, 1, census) for row in census.beyond_steps.to_dict("records")],
        set_aside=record.set_aside if record else None,
        untraced=record.untraced if record else None,
        graph_level=record.graph_level if record else None,
        traced_step=_traced_step(census),
        refusal=Said(code=census.refusal.code, message=census.refusal.message) if census.refusal else None,
        warnings=[Said(code=d.code, message=d.message) for d in warnings],
    )


def _traced_step(census: Census) -> Quartiles | None:
    """First start to last end of the default kind's steps; under the profiler, so longer than it runs."""
    if not census.kinds or not census.info.timed:
        return None
    p25, median, p75 = np.percentile(census.chosen.step_span_ns / 1e3, [25, 50, 75])
    return Quartiles(p25=_rounded(p25), median=_rounded(median), p75=_rounded(p75))


def _kind(census: Census, kind: KindCensus, floor: floors.Floor | None) -> StepKind:
    steps = kind.kind.steps
    return StepKind(
        id=kind.kind.id,
        steps=steps,
        launches_per_step=kind.kind.ops_per_step,
        us_per_step=_us(kind.kind.gpu_ns, steps, census),
        layers=_layers(census, kind, floor),
        outside=[_outside(row, steps, census) for row in kind.outside.to_dict("records")],
    )


def _outside(row: Mapping[Hashable, Any], steps: int, census: Census) -> Outside:
    return Outside(
        name=row["name"],
        kind=row["op_kind"],
        short=census.display[row["canonical"]],
        where=row["where"],
        launches=_per(row["launches"], steps),
        us=_us(row["ns"], steps, census),
    )


def _layers(census: Census, kind: KindCensus, floor: floors.Floor | None) -> list[Layer]:
    steps = kind.kind.steps
    keys = ["layer", "inside", "name", "op_kind"]
    sums = kind.slots.groupby(keys, sort=False, as_index=False)[["launches", "ns"]].sum()
    kernels: list[list[LayerKernel]] = [[] for _ in range(len(kind.layers))]
    by_kind: list[dict[str, int]] = [{} for _ in range(len(kind.layers))]
    for row in sums.to_dict("records"):
        op_kind = row["op_kind"]
        kernels[row["layer"]].append(
            LayerKernel(
                name=row["name"],
                kind=op_kind,
                scope=row["inside"],
                launches=_per(row["launches"], steps),
                us=_us(row["ns"], steps, census),
                floor=_at_floor(floor, op_kind, row["ns"], row["launches"]),
            )
        )
        counted = by_kind[row["layer"]]
        counted[op_kind] = counted.get(op_kind, 0) + int(row["launches"])
    return [
        Layer(
            layer=int(layer["number"]),
            kind=layer["kind"],
            scope=layer["scope"],
            selected=bool(layer["selected"]),
            launches=_per(layer["launches"], steps),
            launches_by_kind={k: _per(v, steps) for k, v in by_kind[index].items()},
            kernel_us=_us(layer["kernel_ns"], steps, census),
            busy_us=_us(layer["busy_ns"], steps, census),
            span_us=_us(layer["span_ns"], steps, census),
            kernels=kernels[index],
        )
        for index, layer in enumerate(kind.layers.to_dict("records"))
    ]


def _selected(census: Census, floor: floors.Floor | None, record: RunRecord | None) -> Selected:
    if not census.kinds:
        return Selected(layers=0, steps=0, launches=0, kernel_us=None, by_role=None, kernels=[])
    kind = census.chosen
    slots, layers, steps = kind.selected_slots, kind.selected_layers, kind.kind.steps
    per = max(layers * steps, 1)
    return Selected(
        layers=layers,
        steps=steps,
        launches=_per(slots["launches"].sum(), per),
        launches_by_kind={str(k): _per(v, per) for k, v in slots.groupby("op_kind")["launches"].sum().items()},
        kernel_us=_us(slots["ns"].sum(), per, census),
        by_role=ranks.by_role(shares(kind, record), timed=census.info.timed),
        kernels=_selected_kernels(census, kind, floor) if layers else [],
    )


def _selected_kernels(census: Census, kind: KindCensus, floor: floors.Floor | None) -> list[SelectedKernel]:
    """The selected layers' kernels together, per layer per step."""
    layers, steps, timed = kind.selected_layers, kind.kind.steps, census.info.timed
    rows: list[SelectedKernel] = []
    keys = ["inside", "canonical", "op_kind"]
    for (inside, canonical, op_kind), group in kind.selected_slots.groupby(keys, sort=False):
        by_step = kind.slot_ns[group.index.to_numpy()].sum(axis=0) / layers / 1e3
        p25, median, p75 = map(_rounded, np.percentile(by_step, [25, 50, 75])) if timed else (None, None, None)
        launches, ns = int(group["launches"].sum()), int(group["ns"].sum())
        rows.append(
            SelectedKernel(
                name=group["name"].iloc[0],
                short=census.display[str(canonical)],
                kind=str(op_kind),
                scope=str(inside),
                launches=_per(launches, layers * steps),
                us=_us(ns, layers * steps, census),
                us_median=median,
                us_p25=p25,
                us_p75=p75,
                launches_total=launches,
                ns_total=ns,
                floor=_at_floor(floor, op_kind, ns, launches),
            )
        )
    return rows


def _at_floor(floor: floors.Floor | None, op_kind: Any, ns: Any, launches: Any) -> bool | None:
    """Whether launches of this mean duration are at the floor; None for copies, and where no floor is known."""
    if floor is None or op_kind != "kernel":
        return None
    return floor.holds(int(ns) / int(launches) / 1e3)


def _average(entries: Sequence[Run], runs: Sequence[tuple[RunFile, Census]]) -> Average:
    """Means over the runs of what is per layer per step; each run counts once, whatever its length. Runs of different
    workloads or variants have no mean, and a repetition that its capture set aside is in none."""
    usable = [e for e in entries if e.selected.layers and e.refusal is None and not e.set_aside]
    arms = {(e.workload.name, e.workload.variant) if e.workload else None for e in usable}
    if not usable or len(arms) > 1:
        return Average(runs=0, layers=None, launches=None, kernel_us=None, unlike=[])
    times = [e.selected.kernel_us for e in usable]
    known = [us for us in times if us is not None]
    layers = {e.selected.layers for e in usable}
    return Average(
        runs=len(usable),
        layers=layers.pop() if len(layers) == 1 else None,
        launches=sum(e.selected.launches for e in usable) / len(usable),
        kernel_us=sum(known) / len(known) if len(known) == len(times) else None,
        unlike=_unlike(runs) if len(usable) > 1 else [],
    )


def _unlike(runs: Sequence[tuple[RunFile, Census]]) -> list[Unlike]:
    """Runs that differ from the others of the average."""
    usable = [(run, c) for run, c in runs if c.refusal is None and not (run.record and run.record.set_aside)]
    counted = [(run, c.chosen) for run, c in usable if c.kinds and c.chosen.selected_layers]
    kinds = [kind for _, kind in counted]
    if not same_layers(kinds):
        shown = ", ".join(f"{run.label} {kind.selected_layers}" for run, kind in counted)
        return [Unlike(run="", message=f"the runs have different layers: {shown}")]
    return [Unlike(run=counted[index][0].label, message=text) for index, text in unlike(kinds)]


def _per(total: Any, count: int) -> int | float:
    whole, rest = divmod(int(total), count)
    return whole if rest == 0 else int(total) / count


def _us(ns: Any, count: int, census: Census) -> float | None:
    return _rounded(int(ns) / count / 1e3) if census.info.timed else None


def _rounded(value: Any) -> float:
    """To a millionth of a microsecond: sums of a million rows still agree to a nanosecond."""
    return round(float(value), 6)


def records(document: LayersDocument) -> Records:
    """A row a kernel of a layer, and of what lies outside layers: launches and µs per step."""
    columns = ["run", "step_kind", "layer", "layer_kind", "selected", "scope", "name", "kind", "launches", "us"]
    return Records(columns, _rows(document))


def _rows(document: LayersDocument) -> Iterator[Sequence[object]]:
    for run in document.runs:
        for kind in run.step_kinds:
            for layer in kind.layers:
                of_layer = (run.run, kind.id, layer.layer, layer.kind, int(layer.selected))
                for k in layer.kernels:
                    yield *of_layer, k.scope, k.name, k.kind, k.launches, k.us
            for o in kind.outside:
                yield run.run, kind.id, None, None, None, o.where, o.name, o.kind, o.launches, o.us
