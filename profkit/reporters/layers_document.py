"""The JSON document of `layers`: its fields, and how a census fills them.

The docstrings are the one description of the fields: docs/json.md and docs/schemas are made from them. Within a version
fields are only added. Launches and µs are per layer per step unless said otherwise; a time that was not measured is
None. Names are the recorded ones; `short` is the display name.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import pandas as pd
from msgspec import UNSET, Struct, UnsetType

from profkit.counting.floor import Floor, floor_of
from profkit.counting.integrity import refusal_of
from profkit.counting.ranks import diagnostics, rank_of, same_layers, shares, unlike
from profkit.model.census import Census, KindCensus
from profkit.model.names import display
from profkit.model.run import MessageRecord, RunRecord, StepTimesRecord, WorkloadRecord
from profkit.model.trace import Diagnostic, Info
from profkit.reporters import ranks
from profkit.reporters.blocks import Records
from profkit.reporters.ranks import Job, Roles, Us, says
from profkit.runs.sides import Counted

AtFloor = Annotated[bool | None, says("is it at the dispatch floor? null for copies and where the floor is not known.")]
Methods = Annotated[Mapping[str, int], says("ops placed by each attribution method.")]
OverSteps = Annotated[Us, says("over the steps.")]
Exact = Annotated[int, says("exact sum over layers and steps.")]
KernelUs = Annotated[Us, says("the sum of all launches' durations, copies included.")]


class Ledger(Struct, frozen=True, kw_only=True):
    """Where ops went: `ops = in_layers + in_ranges + in_graph_outside_layers + outside_graphs + unattributed`."""

    ops: int
    in_layers: int
    in_ranges: int
    in_graph_outside_layers: int
    outside_graphs: int
    unattributed: int
    warm_up: Annotated[int, says("a part of `in_ranges`.")]
    set_aside: Annotated[int, says("broken rows, which are in no sum.")]


class TimedLedger(Ledger, frozen=True, kw_only=True):
    """The ledger of one run, which has times too."""

    us: Annotated[Mapping[str, Us], says("the same in µs.")]


class Outside(Struct, frozen=True, kw_only=True):
    """A kernel outside layers: per step, or, in no step, of the whole recording."""

    name: str
    kind: str
    short: str
    where: str
    launches: float
    us: Us


class LayerKernel(Struct, frozen=True, kw_only=True):
    """A launch of one layer; `scope` is the path inside it."""

    position: Annotated[int, says("its place in the layer, from 1.")]
    of: Annotated[int, says("how many places the layer has.")]
    name: str
    kind: str
    scope: str
    launches: float
    us: Us
    floor: AtFloor


class KindKernel(Struct, frozen=True, kw_only=True):
    """A kernel of a kind of layer."""

    positions: Annotated[Sequence[int], says("its places in the layer, from 1.")]
    name: str
    short: str
    kind: str
    scope: str
    launches: float
    us: Us
    us_median: OverSteps
    us_p25: OverSteps
    us_p75: OverSteps
    launches_total: Exact
    ns_total: Exact
    floor: AtFloor


class Layer(Struct, frozen=True, kw_only=True):
    """One layer, per step."""

    stack: Annotated[str, says("what the layers that are numbered together share.")]
    layer: Annotated[int, says("its number.")]
    module: Annotated[str, says("its path, `#` for the number.")]
    layer_kind: Annotated[int, says("layers of one stack with the same launches share one.")]
    exception: Annotated[bool, says("it differs from its kind in a few launches.")]
    scope: str
    selected: Annotated[bool, says("the question is about it.")]
    launches: float
    launches_by_kind: Mapping[str, float]
    kernel_us: KernelUs
    busy_us: Annotated[Us, says("their union.")]
    span_us: Annotated[Us, says("first start to last end.")]
    kernels: Annotated[Sequence[LayerKernel], says("in order.")]


class LayerKind(Struct, frozen=True, kw_only=True):
    """Selected layers with the same launches; per layer of the kind and step, without its exceptions."""

    kind: int
    stack: str
    layers: Annotated[Sequence[int], says("their numbers.")]
    exceptions: Annotated[Sequence[str], says("layers of the kind that differ in a few launches, and how.")]
    launches: float
    kernel_us: KernelUs
    kernels: Sequence[KindKernel]


class Between(Struct, frozen=True, kw_only=True):
    """A launch that runs eagerly behind nearly every step of a kind."""

    name: Annotated[str, says("as it is shown.")]
    kind: str
    launches: Annotated[int, says("how often behind one step.")]


class StepKind(Struct, frozen=True, kw_only=True):
    """Steps that do the same work; `outside` lies outside the layers, per step."""

    id: str
    batch: Annotated[str | None, says("what ranges tell, e.g. `decode 8`; null where they tell nothing.")]
    replayed: Annotated[bool, says("false of eager passes.")]
    steps: int
    launches_per_step: int
    us_per_step: Us
    layers: Sequence[Layer]
    outside: Sequence[Outside]
    between: Annotated[Sequence[Between], says("what runs behind these steps, in none.")]


class Selected(Struct, frozen=True, kw_only=True):
    """The selected layers together; means over `kinds`, where there are several."""

    layers: int
    steps: int
    launches: float
    launches_by_kind: Annotated[Mapping[str, float] | UnsetType, says("absent where there is no step.")] = UNSET
    kernel_us: KernelUs
    by_role: Annotated[Roles | None, says("null where there is no step.")]
    kinds: Annotated[Sequence[LayerKind], says("most GPU time first.")]


class Quartiles(Struct, frozen=True, kw_only=True):
    """Times over the steps, µs."""

    p25: float
    median: float
    p75: float


class Run(Struct, frozen=True, kw_only=True):
    """One run."""

    run: Annotated[str, says("how it is called.")]
    rank: Annotated[int | None, says("which rank of its job; null where nothing tells.")]
    device: str | None
    profiler: str
    format: str
    timed: Annotated[bool, says("false where launches were recorded without running them.")]
    workload: WorkloadRecord | None
    methods: Methods
    ledger: TimedLedger
    steps_found_by: str
    step_kinds: Annotated[Sequence[StepKind], says("most GPU time first.")]
    default_step_kind: Annotated[str | None, says("the id of the kind that the report is about.")]
    layers: Annotated[Sequence[Layer], says("of that kind.")]
    outside: Annotated[Sequence[Outside], says("of that kind.")]
    selected: Selected
    floor: Floor | None
    beyond_steps: Annotated[Sequence[Outside], says("ops in no step, for the whole recording.")]
    set_aside: Annotated[MessageRecord | None, says("why a repeated capture has it in no average.")]
    untraced: Annotated[StepTimesRecord | None, says("the step without a profiler, as in run.json.")]
    graph_level: Annotated[StepTimesRecord | None, says("the same of the step traced as whole graphs.")]
    traced_step: Annotated[Quartiles | None, says("first start to last end of the steps of this trace.")]
    refusal: Annotated[Diagnostic | None, says("why the trace cannot tell layers, else null.")]
    warnings: Sequence[Diagnostic]


class Unlike(Struct, frozen=True, kw_only=True):
    """A run that differs from the others."""

    run: str
    message: str


class Average(Struct, frozen=True, kw_only=True):
    """Means over the runs of one workload and variant, each of which counts once."""

    runs: Annotated[int, says("how many; 0 where they have no mean.")]
    layers: Annotated[int | None, says("of each; null where they differ.")]
    launches: float | None
    kernel_us: Us
    unlike: Sequence[Unlike]


class LayersDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="profkit.layers/2"):
    """What `profkit layers --format json` prints."""

    runs: Sequence[Run]
    average: Average
    jobs: Annotated[Sequence[Job], says("one entry for each capture by several processes.")]


def report(runs: Sequence[Counted], floor_us: float | None = None) -> LayersDocument:
    """Everything that the layers report says about `runs`.

    Args:
        floor_us: the dispatch floor, where the user gives it.
    """
    entries = [_run(run, floor_us, said) for run, said in zip(runs, diagnostics(runs), strict=True)]
    counted = [run for run in runs if run.census.refusal is None and run.census.kinds]
    timed = all(entry.timed for entry in entries)
    return LayersDocument(runs=entries, average=_average(entries, runs), jobs=ranks.jobs_of(counted, timed=timed))


def device_of(info: Info, record: RunRecord | None) -> str | None:
    """The devices of a trace, or what run.json says."""
    recorded = record.device.name if record and record.device else None
    return ", ".join(dict.fromkeys(info.devices.values())) or recorded


def _run(run: Counted, floor_us: float | None, warnings: Sequence[Diagnostic]) -> Run:
    record, census = run.record, run.census
    info = census.info
    floor = floor_of(record, [census], floor_us) if census.kinds and info.timed else None
    kinds = [_kind(census, k, floor) for k in census.kinds]
    default = kinds[census.default] if kinds else None
    rank = rank_of(run)
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
        floor=floor,
        beyond_steps=[_outside(row, 1, census) for row in census.beyond_steps.to_dict("records")],
        set_aside=record.set_aside if record else None,
        untraced=record.untraced if record else None,
        graph_level=record.graph_level if record else None,
        traced_step=_traced_step(census),
        refusal=refusal_of(census),
        warnings=warnings,
    )


def _traced_step(census: Census) -> Quartiles | None:
    """First start to last end of the default kind's steps; under the profiler, so longer than it runs."""
    if not census.kinds or not census.info.timed:
        return None
    p25, median, p75 = np.percentile(census.chosen.step_span_ns / 1e3, [25, 50, 75])
    return Quartiles(p25=_rounded(p25), median=_rounded(median), p75=_rounded(p75))


def _kind(census: Census, kind: KindCensus, floor: Floor | None) -> StepKind:
    steps = kind.kind.steps
    return StepKind(
        id=kind.kind.id,
        batch=kind.kind.batch or None,
        replayed=kind.kind.replayed,
        steps=steps,
        launches_per_step=kind.kind.ops_per_step,
        us_per_step=_us(kind.kind.gpu_ns, steps, census),
        layers=_layers(census, kind, floor),
        outside=[_outside(row, steps, census) for row in kind.outside.to_dict("records")],
        between=[
            Between(name=display(name), kind=op_kind, launches=number)
            for (name, op_kind), number in kind.between.items()
        ],
    )


def _outside(row: Mapping[Hashable, Any], steps: int, census: Census) -> Outside:
    return Outside(
        name=row["name"],
        kind=row["op_kind"],
        short=display(row["canonical"]),
        where=row["where"],
        launches=_per(row["launches"], steps),
        us=_us(row["ns"], steps, census),
    )


def _layers(census: Census, kind: KindCensus, floor: Floor | None) -> list[Layer]:
    steps = kind.kind.steps
    kernels: list[list[LayerKernel]] = [[] for _ in range(len(kind.layers))]
    by_kind: list[dict[str, int]] = [{} for _ in range(len(kind.layers))]
    places = kind.slots["layer"].value_counts()
    for row in kind.slots.to_dict("records"):
        op_kind, own = row["op_kind"], kernels[row["layer"]]
        own.append(
            LayerKernel(
                position=len(own) + 1,
                of=int(places[row["layer"]]),
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
            stack=layer["stack"],
            layer=int(layer["number"]),
            module=layer["module"],
            layer_kind=int(layer["kind"]),
            exception=bool(layer["exception"]),
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


def _selected(census: Census, floor: Floor | None, record: RunRecord | None) -> Selected:
    if not census.kinds:
        return Selected(layers=0, steps=0, launches=0, kernel_us=None, by_role=None, kinds=[])
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
        kinds=_layer_kinds(census, kind, floor),
    )


def _layer_kinds(census: Census, kind: KindCensus, floor: Floor | None) -> list[LayerKind]:
    """The selected layers by kind."""
    chosen = kind.layers[kind.layers["selected"]]
    found: list[tuple[int, LayerKind]] = []
    for number, members in chosen.groupby("kind", sort=False):
        regular = members[~members["exception"]]
        if not len(regular):  # its example is not selected
            regular = members
        slots = kind.selected_slots[kind.selected_slots["layer"].isin(regular.index)]
        per = len(regular) * kind.kind.steps
        entry = LayerKind(
            kind=int(str(number)),
            stack=str(regular["stack"].iloc[0]),
            layers=regular["number"].tolist(),
            exceptions=[
                f"layer {layer} ({_difference(kind, int(regular.index[0]), row)})"
                for row, layer in members["number"].drop(regular.index).items()
            ],
            launches=_per(slots["launches"].sum(), per),
            kernel_us=_us(slots["ns"].sum(), per, census),
            kernels=_kind_kernels(census, kind, slots, len(regular), floor),
        )
        found.append((int(slots["ns"].sum()), entry))
    return [entry for _, entry in sorted(found, key=lambda one: -one[0])]


def _difference(kind: KindCensus, example: int, row: Any) -> str:
    """What a layer has more or fewer than one of its kind."""
    slots, steps = kind.selected_slots, kind.kind.steps
    held = [
        slots[slots["layer"] == layer].groupby("canonical", sort=False)["launches"].sum() // steps
        for layer in (example, row)
    ]
    change = held[1].sub(held[0], fill_value=0)
    return ", ".join(f"{n:+.0f} {display(str(name))}" for name, n in change.items() if n) or "other places"


def _kind_kernels(
    census: Census, kind: KindCensus, slots: pd.DataFrame, layers: int, floor: Floor | None
) -> list[KindKernel]:
    """The kernels of `slots`, which are those of so many alike layers, per layer per step."""
    steps, timed = kind.kind.steps, census.info.timed
    place = slots.groupby("layer").cumcount() + 1
    kernel = slots.groupby(["inside", "canonical", "op_kind"], sort=False).ngroup().to_numpy()
    first = slots[~pd.Series(kernel).duplicated().to_numpy()]
    by_step = np.zeros((len(first), steps), dtype=np.int64)
    np.add.at(by_step, kernel, kind.slot_ns[slots.index.to_numpy()])
    quartiles = np.percentile(by_step / layers / 1e3, [25, 50, 75], axis=1).T
    launches = np.bincount(kernel, weights=slots["launches"], minlength=len(first)).astype(int).tolist()
    positions: list[list[int]] = [[] for _ in range(len(first))]
    example = first["layer"].tolist()
    for code, layer, position in zip(kernel.tolist(), slots["layer"].tolist(), place.tolist(), strict=True):
        if layer == example[code]:
            positions[code].append(position)
    rows: list[KindKernel] = []
    for code, row in enumerate(first.to_dict("records")):
        p25, median, p75 = map(_rounded, quartiles[code]) if timed else (None, None, None)
        ns = int(by_step[code].sum())
        rows.append(
            KindKernel(
                positions=positions[code],
                name=row["name"],
                short=display(row["canonical"]),
                kind=row["op_kind"],
                scope=row["inside"],
                launches=_per(launches[code], layers * steps),
                us=_us(ns, layers * steps, census),
                us_median=median,
                us_p25=p25,
                us_p75=p75,
                launches_total=launches[code],
                ns_total=ns,
                floor=_at_floor(floor, row["op_kind"], ns, launches[code]),
            )
        )
    return rows


def _at_floor(floor: Floor | None, op_kind: Any, ns: Any, launches: Any) -> bool | None:
    """Whether launches of this mean duration are at the floor; None for copies, and where no floor is known."""
    if floor is None or op_kind != "kernel":
        return None
    return floor.holds(int(ns) / int(launches) / 1e3)


def _average(entries: Sequence[Run], runs: Sequence[Counted]) -> Average:
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


def _unlike(runs: Sequence[Counted]) -> list[Unlike]:
    """Runs that differ from the others of the average."""
    usable = [run for run in runs if run.census.refusal is None and not (run.record and run.record.set_aside)]
    counted = [(run, run.census.chosen) for run in usable if run.census.kinds and run.census.chosen.selected_layers]
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
    columns = [
        "run",
        "step_kind",
        "stack",
        "layer",
        "layer_kind",
        "selected",
        "position",
        "of",
        "scope",
        "name",
        "kind",
        "launches",
        "us",
    ]
    return Records(columns, _rows(document))


def _rows(document: LayersDocument) -> Iterator[Sequence[object]]:
    for run in document.runs:
        for kind in run.step_kinds:
            for layer in kind.layers:
                of_layer = (run.run, kind.id, layer.stack, layer.layer, layer.layer_kind, int(layer.selected))
                for k in layer.kernels:
                    yield *of_layer, k.position, k.of, k.scope, k.name, k.kind, k.launches, k.us
            for o in kind.outside:
                yield run.run, kind.id, None, None, None, None, None, None, o.where, o.name, o.kind, o.launches, o.us
