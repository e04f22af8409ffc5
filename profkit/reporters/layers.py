"""The layers report: what it says of each run, of the ranks of a job and of all runs together."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from statistics import median

from profkit.model.wording import counted, listed
from profkit.reporters import Answer, blocks, figures, layers_document, ranks
from profkit.reporters.blocks import Block, Column, Gap, Lines, Name, Notes, Row, Table, Title, numbers
from profkit.reporters.layers_document import LayerKind, LayersDocument, Outside, Run, StepKind
from profkit.runs.sides import Counted

_KINDS = ("kernel", "memcpy", "memset")


def answer(runs: Sequence[Counted], floor_us: float | None = None, *, details: bool = False) -> Answer:
    """The runs, for every report.

    Args:
        floor_us: the dispatch floor, where the user gives it.
        details: a screen is to show all there is.
    """
    document = layers_document.report(runs, floor_us)
    records = functools.partial(layers_document.records, document)
    return Answer(
        lambda: report(document),
        lambda: document,
        records,
        details=details,
        figures=lambda: [figure for run in document.runs for figure in figures.of_layers(run)],
        next_steps=_next_steps(document),
    )


def _next_steps(document: LayersDocument) -> list[str]:
    if any(run.refusal is not None for run in document.runs) or len(document.runs) != 1:
        return []
    return [f"next: profkit diff {document.runs[0].run} OTHER"]


def report(document: LayersDocument) -> Iterator[Block]:
    """The whole report."""
    for run in document.runs:
        yield from _run(run)
    timed = all(run.timed for run in document.runs)
    for job in document.jobs:
        yield from ranks.blocks(job, timed=timed)
    average = document.average
    # The table of a job has its ranks' average.
    if average.runs > 1 and not (len(document.jobs) == 1 and len(document.jobs[0].ranks) == average.runs):
        us = "not timed" if average.kernel_us is None else f"{average.kernel_us:.2f} µs"
        text = f"Average of {average.runs} runs: {average.launches:g} launches and {us} a layer per step."
        yield Lines([text], only="screen")
    yield Lines([f"Unlike the others: {o.run}: {o.message}." for o in average.unlike], "warning", only="screen")
    yield Lines([f"N{step[1:]}" for step in _next_steps(document)], "next", only="screen")


def _run(run: Run) -> Iterator[Block]:
    step = _step_line(run)
    yield Title(blocks.origin(run.run, run.device, run.profiler))
    yield Gap("page")
    if run.set_aside:
        yield Lines([f"Set aside, and in no average: {run.set_aside.code}: {run.set_aside.message}"], "warning")
        yield Gap("page")
    yield Lines([*_counts(run), step], only="screen")
    if run.layers:
        yield Gap("screen")
        for kind in run.selected.kinds:
            yield _kernels_table(run, kind)
            yield Lines([f"Unlike its kind: {text}." for text in kind.exceptions], "warning")
            yield Gap("screen")
        yield Lines([None if run.selected.by_role is None else ranks.role_line(run.selected.by_role)], only="screen")
        yield Gap("screen")
        yield Lines([_spread_line(run)], only="screen")
        yield _layers_table(run)
        yield from _outside("outside layers, per step", run.outside, _MOST_OUTSIDE, timed=run.timed)
    if step is not None:
        yield Gap("page")
        yield Lines([step], only="page")
    said = f"{run.ledger.ops:,} ops: {', '.join(_parts(run, 'in other ranges'))}; {run.ledger.set_aside:,} set aside."
    yield Gap("page")
    yield Lines([f"{said} Placed: {blocks.placed(run.methods)}."], only="page")
    yield Gap("page")
    yield from _outside("in no step, whole recording", run.beyond_steps, _MOST_BEYOND, timed=run.timed)
    behind = [] if step is None else _default_kind(run).between
    if behind:
        names = listed([f"{launch.launches} × {launch.name}" for launch in behind], _NAMED)
        yield Lines([f"Of these, run eagerly behind each step reported: {names}."], only="screen", detail=True)
    yield Lines([f"{run.refusal.code}: {run.refusal.message}" if run.refusal else None], "warning", only="page")
    yield Notes(list(dict.fromkeys((warning.code, warning.message) for warning in run.warnings)), warning=True)
    yield Gap("screen")


def _parts(run: Run, in_ranges: str) -> tuple[str, ...]:
    """Where the ops went."""
    ledger = run.ledger
    return (
        f"{ledger.in_layers:,} in layers",
        f"{ledger.in_ranges:,} {in_ranges}",
        f"{ledger.in_graph_outside_layers:,} in a graph outside layers",
        f"{ledger.outside_graphs:,} outside graphs",
        f"{ledger.unattributed:,} unattributed",
    )


def _counts(run: Run) -> Iterator[str]:
    """Where the ops went, by which methods and in which steps, and the floor."""
    parts = " + ".join(_parts(run, "in ranges that are no layer"))
    yield f"{run.ledger.ops:,} ops = {parts}; {run.ledger.set_aside:,} set aside as broken."
    yield f"Placed: {blocks.placed(run.methods)}. Steps: {run.steps_found_by}."
    floor = run.floor
    if floor is not None:
        yield f"Dispatch floor: {floor.us:.2f} µs ({floor.source}); at it: up to {floor.factor:g} × that."
    for kind in run.step_kinds:
        chosen = " (reported here)" if kind.id == run.default_step_kind and len(run.step_kinds) > 1 else ""
        us = "" if kind.us_per_step is None else f", {kind.us_per_step:.2f} µs of kernel time"
        name = f"{kind.batch} ({kind.id})" if kind.batch else kind.id
        name += "" if kind.replayed or not any(other.replayed for other in run.step_kinds) else ", eager"
        yield f"  {kind.steps} × {name}: {kind.launches_per_step} launches a step{us}{chosen}"


def _step_line(run: Run) -> str | None:
    """How long the step took, as traced and, where the capture knows it, untraced and at graph level: medians."""
    traced = run.traced_step and run.traced_step.median
    whole, untraced = (recorded and recorded.median for recorded in (run.graph_level, run.untraced))
    times = (("as traced", traced), ("traced as whole graphs", whole), ("untraced", untraced))
    known = [f"{median:.1f} µs {how}" for how, median in times if median]
    return f"Step: {', '.join(known)}." if known else None


#: Layers that a title names, and that a screen shows unasked.
_NAMED, _MOST_LAYERS = 6, 3


def _default_kind(run: Run) -> StepKind:
    return next(kind for kind in run.step_kinds if kind.id == run.default_step_kind)


def _kind_title(run: Run, kind: LayerKind) -> str:
    if len(run.selected.kinds) == 1:
        return f"per layer per step ({counted(len(kind.layers), 'layer')})"
    stack = f"{kind.stack}# " if len({other.stack for other in run.selected.kinds}) > 1 else ""
    layers = listed([str(layer) for layer in kind.layers], _NAMED)
    return f"{counted(len(kind.layers), 'layer')} of {counted(kind.launches, 'launch')} ({stack}{layers})"


def _kernels_table(run: Run, kind: LayerKind) -> Table:
    """The kernels of a kind of layer: rows that add up to the total in the last line."""
    timed = run.timed
    per = Fraction(1, max(len(kind.layers) * run.selected.steps, 1))
    us = blocks.apportion([k.ns_total * per for k in kind.kernels], Fraction(10))
    counts = blocks.apportioned([k.launches_total * per for k in kind.kernels], Fraction(1, 100))
    columns = [
        Column("scope"),
        *numbers("place", spare=2),
        Column("launch"),
        *numbers("launches"),
    ]
    places = max((k.positions[-1] for k in kind.kernels), default=0)
    if timed:
        columns += [*numbers("µs"), *numbers("median", spare=3), *numbers("p25 … p75", spare=4)]
        columns.append(Column("", only="screen", spare=1))
    rows: list[Row] = []
    for k, n, u in zip(kind.kernels, counts, us, strict=True):
        cells: list[str | Name] = [k.scope, f"{_ranges(k.positions)}/{places}", Name(k.short), blocks.count(n)]
        if timed:
            cells += [blocks.hundredths(u), f"{k.us_median:.2f}", f"{k.us_p25:.2f} … {k.us_p75:.2f}"]
            cells.append("at floor" if k.floor else "")
        rows.append(Row(cells))
    total = ["", "", "total", blocks.count(sum(counts, Fraction()))]
    rows.append(Row([*total, *([blocks.hundredths(sum(us)), "", "", ""] if timed else [])], "total"))
    return Table(columns, rows, _kind_title(run, kind))


def _ranges(positions: Sequence[int]) -> str:
    """``3``, ``3,5``, or of many in a row ``3–8``."""
    first, last = positions[0], positions[-1]
    alike = len(positions) > 2 and last - first == len(positions) - 1
    return f"{first}–{last}" if alike else listed([str(p) for p in positions], 3, ",")


def _layers_table(run: Run) -> Table:
    times = ("µs", "busy µs", "span µs") if run.timed else ()
    rows = []
    for layer in run.layers:
        counts = [layer.launches, *(layer.launches_by_kind.get(kind, 0) for kind in _KINDS)]
        cells = [str(layer.layer), layer.module, *(f"{n:g}" for n in counts)]
        cells += [f"{us:.2f}" for us in (layer.kernel_us, layer.busy_us, layer.span_us)] if run.timed else []
        rows.append(Row(cells, "" if layer.selected else "dim"))
    columns = [Column("layer"), Column("module"), *numbers("launches"), *numbers(*_KINDS, spare=1), *numbers(*times)]
    return Table(columns, rows, only="screen", most=_MOST_LAYERS)


def _spread_line(run: Run) -> str | None:
    """How much the selected layers differ in time, kind by kind."""
    by_kind: dict[int, list[float]] = {}
    for layer in run.layers:
        if layer.selected and layer.kernel_us is not None:
            by_kind.setdefault(layer.layer_kind, []).append(layer.kernel_us)
    told = [
        f"{counted(len(times), 'layer')} from {min(times):.2f} to {max(times):.2f} µs, median {median(times):.2f}"
        for times in by_kind.values()
        if len(times) > 1
    ]
    return f"Layer by layer: {'; '.join(told)}." if told else None


#: Rows outside layers, and in no step, that a screen shows unasked.
_MOST_OUTSIDE, _MOST_BEYOND = 12, 3


def _outside(title: str, launches: Sequence[Outside], most: int, *, timed: bool) -> Iterator[Block]:
    if launches:
        columns = [Column(title), Column("launch"), *numbers("launches", *(["µs"] if timed else []))]
        rows = [Row([o.where, Name(o.short), f"{o.launches:g}", *([f"{o.us:.2f}"] if timed else [])]) for o in launches]
        yield Gap("screen")
        yield Table(columns, rows, only="screen", most=most)
