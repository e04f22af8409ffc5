"""The diff report: the verdict, its table, and what is said around it. Plain text, not escaped."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from profkit.comparison.effects import gap_us, longer_untraced
from profkit.comparison.model import Comparison, Finding, Fusion, Input, Reason, Row, StepTimes
from profkit.comparison.verdict import other_changes
from profkit.counting.floor import FACTOR
from profkit.counting.ranks import ranks_by_job
from profkit.model.codes import WORK, codes
from profkit.model.names import fused_words
from profkit.model.wording import are, counted, listed, signed
from profkit.readers import format_of
from profkit.reporters import Answer, blocks, diff_document, diff_table, figures, ranks
from profkit.reporters.blocks import Block, Column, Gap, Lines, Name, Notes, Table, Title, count, hundredths, numbers
from profkit.reporters.diff_table import DiffTable, Part, TableRow
from profkit.reporters.layers_document import device_of

#: More names than this make a sentence unreadable; the table has them all.
MAX_NAMES = 3


def answer(comparison: Comparison, *, details: bool = False) -> Answer:
    """A comparison, for every report.

    Args:
        details: a screen is to show all there is.
    """
    return Answer(
        blocks=lambda: report(comparison),
        document=lambda: diff_document.report(comparison),
        records=lambda: diff_document.records(diff_document.report(comparison)),
        details=details,
        next_steps=_next_steps(comparison),
        figures=lambda: figures.of_diff(comparison, diff_table.build(comparison)) if comparison.findings else (),
    )


_EXIT = {
    0: "the claim holds, or there is none",
    1: "refuted",
    3: "it cannot be told, which is no pass",
}


def _next_steps(comparison: Comparison) -> list[str]:
    status = int(comparison.exit_code)
    said = {reason.code for reason in comparison.reasons}
    follow = "put the table into the pull request: --format md"
    if comparison.verdict == "inconclusive" and "cannot-tell-work" in said:
        follow = "capture both sides with profkit capture, whose outputs are compared; or claim --expect-removed N"
    elif comparison.verdict in ("inconclusive", "refuted"):
        follow = f"profkit explain {comparison.reasons[0].code}"
    return [f"exit {status}: {_EXIT[status]}", f"next: {follow}"]


def report(comparison: Comparison) -> Iterator[Block]:
    """The whole report."""
    yield Title(headline(comparison), comparison.verdict)
    yield Lines([f"before: {describe(comparison.before)}", f"after: {describe(comparison.after)}"], "fine")
    yield Gap("page")
    if comparison.findings:
        table = diff_table.build(comparison)
        shown: dict[object, str] = {}
        for index, part in enumerate(table.parts):
            title, like = part.title, shown.setdefault(part.gone_and_new, part.title)
            if len(table.parts) > 1 and part.same:
                title += ", where nothing differs"
            elif like != title:
                title += f", where the same launches are gone and new as {like}"
            yield Gap("screen" if index == 0 else None)
            yield _table(title, [*(part.rows if title == part.title else ()), part.total], comparison)
        outside = [*table.outside, *([table.outside_rest] if table.outside_rest else [])]
        if outside:
            yield Gap("screen")
            yield _table("outside the selection, per step", outside, comparison, continued=True)
        yield Gap()
        yield Lines(scope_lines(comparison, table), "points", detail=True)
        yield Lines(sentences(comparison, table), "points")
        yield Lines([traced_line(comparison)], "points", detail=True)
        yield Lines([work_line(comparison)], "points")
    yield Gap("screen")
    yield Notes([(reason.code, reason.message) for reason in other_reasons(comparison)])


def _table(title: str, rows: Sequence[TableRow], comparison: Comparison, *, continued: bool = False) -> Table:
    timed, alone = comparison.timed, len(comparison.selected_groups) == 1 and not continued
    columns = [
        Column(title if alone else "scope"),
        *numbers("place", spare=2),
        Column("launch"),
        Column("status"),
    ]
    columns += numbers("launches", only="screen") + numbers("launches before", "after", "change", only="page")
    if timed:
        columns += numbers("µs", only="screen") + numbers("µs before", "after", only="page")
        columns += [*numbers("change"), *numbers("95 % CI", spare=1)]
    return Table(columns, [_row(row, timed=timed) for row in rows], "" if alone else title, continued=continued)


def _row(row: TableRow, *, timed: bool) -> blocks.Row:
    kind = row.kind if row.kind in ("memcpy", "memset") and row.kind not in row.name else ""
    sums = not row.kind
    cells: list[str | Name] = [row.where, row.position, row.name if sums else Name(row.name, kind), row.status]
    pair = count(row.launches_before), count(row.launches_after)
    cells += [" → ".join(pair), *pair, count(row.launches_change, sign=True)]
    if timed:
        pair = hundredths(row.us_before), hundredths(row.us_after)
        cells += [" → ".join(pair), *pair, hundredths(row.us_change, sign=True), " … ".join(_ends(row))]
    return blocks.Row(cells, "total" if row.total else "")


def sentences(comparison: Comparison, table: DiffTable) -> Iterator[str | None]:
    """What the table shows and what it cannot, in words."""
    yield from fusion_lines(comparison, table)
    yield moved_line(comparison)
    yield floor_line(comparison)
    yield others_line(comparison, table)
    yield net_line(comparison, table)
    yield from ranks.diff_lines(comparison)
    yield untraced_line(comparison)


def headline(comparison: Comparison) -> str:
    """The verdict and its first reason; where launches are gone, what it stands on: launches, work and times."""
    reason = comparison.reasons[0] if comparison.reasons else None
    if reason is None:
        return comparison.verdict.upper()
    if comparison.verdict != "confirmed" or reason.code != "launches-removed":
        return f"{comparison.verdict.upper()}: {reason.message}"
    work = {
        "preserved": f"outputs equal in all {counted(_model_layers(comparison), 'layer')}",
        "partly": "outputs compared in some layers only",
    }.get(comparison.work, "outputs not compared")
    alone = "" if comparison.work == "preserved" else " (launches only)"
    return f"CONFIRMED{alone}: {'; '.join([f'{reason.message[:-1]}, {work}', *_times(comparison)])}."


def _model_layers(comparison: Comparison) -> int:
    return len(comparison.before.chosen.layers) // comparison.ranks


def _times(comparison: Comparison) -> Iterator[str]:
    """What the layer and the step gained."""
    net = comparison.net
    if net is None or not comparison.timed:
        return
    times, how = (comparison.untraced, "") if comparison.untraced else (comparison.traced, " traced")
    alike = len(comparison.selected_groups) == 1
    told = f"{_us(net.ns_per_layer)} µs a layer" if alike else f"{_us(net.ns_per_step)} µs of kernel time a step"
    yield told if times is None else f"{told}, step{how} {_change_in_brief(times)}"


def _change_in_brief(times: StepTimes) -> str:
    return f"{times.before_us:.1f} → {times.after_us:.1f} µs ({_percent(times.delta_us / times.before_us)})"


def work_line(comparison: Comparison) -> str:
    """Whether the work is still done, and how that is known."""
    known = [r.message for r in comparison.reasons if _is_of_work(r)]
    return " ".join([f"Work {comparison.work}:", *known]) if known else f"Work: {comparison.work}."


def other_reasons(comparison: Comparison) -> list[Reason]:
    """The reasons that neither the headline nor another sentence tells."""
    if not comparison.findings:
        return list(comparison.reasons[1:])
    told = ("nothing-else-moved", "others-changed")
    return [r for r in comparison.reasons[1:] if r.code not in told and not _is_of_work(r)]


def _is_of_work(reason: Reason) -> bool:
    return reason.code in codes() and codes()[reason.code].group == WORK


def describe(entry: Input) -> str:
    """One side in a line: label, workload, device, profiler, steps, coverage."""
    census, record = entry.census, entry.record
    parts: list[object] = [entry.label, record.workload.name if record and record.workload else None]
    parts += [device_of(census.info, record), census.info.profiler]
    size = max(len(members) for members in [*ranks_by_job(entry.runs), [0]])
    if size > 1:
        jobs = entry.independent_runs
        parts.append(f"{size} ranks" if jobs == 1 else f"{jobs} runs of {size} ranks")
    elif len(entry.runs) > 1:
        parts.append(f"{len(entry.runs)} runs")
    if census.kinds:
        kind = census.chosen.kind
        steps = sum(run.census.chosen.kind.steps for run in entry.runs if run.census.kinds)
        parts.append(f"{steps} steps ({kind.name}, {census.step_method})")
    methods: Counter[str] = Counter()
    for run in entry.runs:
        methods.update(run.census.methods)
    ops = sum(run.census.ledger.ops for run in entry.runs)
    unattributed = sum(run.census.ledger.unattributed for run in entry.runs)
    return blocks.origin(*parts, f"{ops:,} ops, placed: {blocks.placed(methods)}; {unattributed:,} unattributed")


def scope_lines(comparison: Comparison, table: DiffTable) -> list[str]:
    """Launches and time by scope, per layer and per step."""
    lines = []
    for part in table.parts:
        if len(part.scopes) < 2:
            continue
        layers = f"{part.title[:1].upper()}{part.title[1:]}, " if len(table.parts) > 1 else ""
        layers_a_step = Fraction(part.layers, comparison.ranks)
        for scope in (scope for scope in part.scopes if scope.launches_change):
            before, after = scope.launches_before, scope.launches_after
            text = (
                f"{layers}{scope.where}: {count(before)} → {count(after)} launches a layer, "
                f"{count(before * layers_a_step)} → {count(after * layers_a_step)} a step"
            )
            if comparison.timed:
                text += f"; {hundredths(scope.us_before)} → {hundredths(scope.us_after)} µs a layer"
            lines.append(text + ".")
    return lines


def moved_line(comparison: Comparison) -> str | None:
    """What moved out of the layers."""
    moved = comparison.with_status("moved")
    if not moved:
        return None
    runs = "runs" if len(moved) == 1 else "run"
    launches = counted(len(moved), "launch")
    names = {(f.row.canonical, f.row.op_kind) for f in moved}
    there = sorted({f.row.where for f in comparison.outside if (f.row.canonical, f.row.op_kind) in names})
    to = f", in {listed(there, MAX_NAMES)}" if there else ""
    once = "" if comparison.moved else "once a step, "
    return f"Moved: {launches} of each layer ({where(moved)}) now {runs} {once}outside the layers{to}."


def floor_line(comparison: Comparison) -> str | None:
    """How many of the launches that are gone were dispatch-floor kernels."""
    gone = comparison.with_status("removed", "moved")
    floor = comparison.floor
    if not gone or not comparison.timed:
        return None
    if floor is None:
        return (
            "Dispatch floor: not known; it was not measured with the capture, and too few kinds of fast kernels ran to "
            "estimate it. --floor-us gives it."
        )
    judged = [f for f in gone if f.row.op_kind == "kernel"]
    everywhere = len(comparison.selected_groups) == 1
    per = comparison.per[0] if everywhere else comparison.steps[0]
    number, at_floor = (
        sum(f.row.launches_before for f in some) / per
        for some in (judged, [f for f in judged if comparison.at_floor(f)])
    )
    what = counted(number, "launch" if len(judged) == len(gone) else "kernel")
    source = {
        "measured": "measured with the capture",
        "given": "as given",
        "estimated": "estimated from the fastest kernels of the trace",
    }
    return (
        f"Dispatch floor: {at_floor:g} of the {what}{'' if everywhere else ' a step'} that {are(number)} gone lasted "
        f"at most {FACTOR:g} × {floor.us:.2f} µs ({source[floor.source]})."
    )


def others_line(comparison: Comparison, table: DiffTable) -> str | None:
    """Whether anything else moved, and how sure that is."""
    absorbers = {id(absorber) for fusion in comparison.fusions for absorber in fusion.absorbers}
    everything = (*comparison.findings, *comparison.elsewhere, *comparison.outside)
    kept = [f for f in everything if f.status == "unchanged" and id(f) not in absorbers]
    changed = other_changes(comparison)
    if changed:
        shown = [_changed(f, comparison, table) for f in changed[:MAX_NAMES]]
        rest = len(changed) - len(shown)
        listed = "; ".join([*shown, *([f"and {rest} more, in the table"] if rest else [])])
        return f"Something else moved: {counted(len(changed), 'other launch')} changed, {len(kept)} did not: {listed}."
    if not kept:
        return None
    if not comparison.timed:
        return f"Nothing else moved: {counted(len(kept), 'other launch')}, none changed in number."
    undecided = [f for f in kept if _leaves_open(f, comparison)]
    beyond = " beyond noise" if undecided else ""
    text = f"Nothing else moved{beyond}: {counted(len(kept), 'other launch')}"
    measured = [f for f in kept if not math.isnan(f.delta)]
    # Times per layer and per step are no one scale, so each has its own largest.
    groups = [[f for f in measured if f.row.selected == selected] for selected in (True, False)]
    largest = [max(group, key=lambda f: abs(f.delta)) for group in groups if group]
    if not largest:
        return text + "."
    said = [
        f"{'' if f.row.selected else 'outside the selected layers '}{_difference(f, table)} in {f.row.name}"
        for f in largest
    ]
    text += f"; the largest change is {', and '.join(said)}"
    if any(f.low > 0 or f.high < 0 for f in largest if abs(f.delta) >= comparison.thresholds.min_us * 1e3):
        text += f", less than the {comparison.thresholds.min_share:.0%} of a launch that count"
    if undecided:
        widest = max(undecided, key=lambda f: max(-f.low, f.high))
        text += (
            f". Noise leaves open a change that would count in {len(undecided)} of them, the largest in "
            f"{widest.row.name} {interval(table.printed[id(widest)])}"
        )
    return text + "."


def _leaves_open(finding: Finding, comparison: Comparison) -> bool:
    """Whether the interval of an unchanged launch holds changes that would count."""
    if math.isnan(finding.low):
        return False
    return max(-finding.low, finding.high) >= _least_ns(finding.row, comparison)


def _least_ns(row: Row, comparison: Comparison) -> float:
    """By how much the time of a launch must change to count."""
    per = comparison.per_of(row)
    larger_ns = max(row.ns_before / per[0], row.ns_after / per[1])
    return float(comparison.thresholds.effect_ns(np.array(larger_ns)))


def _changed(finding: Finding, comparison: Comparison, table: DiffTable) -> str:
    """A launch that changed: by how many a step, where their number did, and by how much time."""
    row, steps = finding.row, comparison.steps
    number = Fraction(row.launches_after, steps[1]) - Fraction(row.launches_before, steps[0])
    launches = f"{count(number, sign=True)} launches a step, " if finding.status == "changed" and number else ""
    return f"{row.name} {finding.status} {launches}{_difference(finding, table)}".rstrip(" ,")


def net_line(comparison: Comparison, table: DiffTable) -> str | None:
    """The whole effect per layer and per step."""
    net = comparison.net
    if net is None:
        return None
    layers = _model_layers(comparison)
    selected = comparison.selected_layers[0] // comparison.ranks
    whole = selected == layers and not comparison.elsewhere
    per_step = net.launches_per_step if whole else net.launches_per_layer * selected
    alike = len(table.parts) == 1
    texts = [
        f"{count(part.total.launches_change, sign=True)} launches"
        f"{_part_us(part) if comparison.timed and not alike else ''} {'a layer' if alike else part.title}"
        for part in table.parts
    ]
    text = f"Net: {', '.join([*texts, f'{_launches(per_step)} a step'])}"
    if comparison.timed and alike:
        interval = "" if math.isnan(net.low) else f" (95 % CI {_us(net.low)} to {_us(net.high)})"
        text += f"; {hundredths(table.parts[0].total.us_change, sign=True)} µs a layer{interval}"
    text += ", " if comparison.timed else ""
    if not whole:
        # A step runs all its layers, whichever are selected.
        selection = f"what is selected of its {counted(layers, 'layer')}"
        if selected < layers:
            selection = f"{selected} of its {layers} layers"
        text += f"{_us(net.ns_per_layer * selected)} µs a step" if comparison.timed else ""
        text += f", in {selection}. The whole step: {_launches(net.launches_per_step)} launches"
        text += ", " if comparison.timed else ""
    if comparison.timed:
        text += f"{_us(net.ns_per_step)} µs of kernel time"
        text += f" a step of {counted(layers, 'layer')}" if whole else ""
        if not math.isnan(net.share_of_step):
            text += f" ({_milliseconds(net.ns_per_step)}{_percent(net.share_of_step)} of the {net.share_basis}"
            # The untraced step's time has a sentence of its own.
            text += ")" if comparison.untraced else f" of {_step_time(net.step_ns)})"
    return text + "."


def _part_us(part: Part) -> str:
    return f" and {hundredths(part.total.us_change, sign=True)} µs"


def _launches(per_step: float) -> str:
    return count(Fraction(per_step).limit_denominator(1000), sign=True)


def untraced_line(comparison: Comparison) -> str | None:
    """Step times without a profiler beside the traced saving."""
    untraced, net = comparison.untraced, comparison.net
    if untraced is None or net is None:
        return None
    text = f"Untraced: the step took {_change(untraced)}"
    if comparison.timed:
        text += f"; the traces' kernel time, which holds no gaps between launches, by {_us(net.ns_per_step)} µs"
        gap = gap_us(untraced, net)
        if comparison.traced is not None and longer_untraced(untraced, comparison.traced):
            text += "; it took longer than under the profiler, so it waited for something that the traces do not show"
        elif gap is not None:
            text += f" ({signed(gap, 2)} µs of gap for each launch of difference)"
    return text + "."


def traced_line(comparison: Comparison) -> str | None:
    """Step times under the profiler, node by node and, where that was recorded, of whole graphs."""
    traced, whole, untraced = comparison.traced, comparison.graph_level, comparison.untraced
    if traced is None or untraced is None:
        return None
    text = f"Traced node by node: the step took {_change(traced)}, {_tax(traced, untraced)}"
    if whole is not None:
        text += f"; traced as whole graphs: {_change(whole)}, {_tax(whole, untraced)}"
    elif all(format_of(side.census.info.format).whole_graphs for side in (comparison.before, comparison.after)):
        text += "; not recorded as whole graphs (profkit capture --graph-level)"
    return text + "."


def _change(times: StepTimes) -> str:
    return (
        f"{times.before_us:.1f} → {times.after_us:.1f} µs "
        f"({signed(times.delta_us, 2)} µs, {_percent(times.delta_us / times.before_us)})"
    )


def _tax(traced: StepTimes, untraced: StepTimes) -> str:
    shares = (traced.before_us / untraced.before_us - 1, traced.after_us / untraced.after_us - 1)
    return f"{' and '.join(map(_percent, shares))} beside untraced"


def where(findings: Sequence[Finding]) -> str:
    """Where launches are, or which they are if they share no scope."""
    scopes = {f.row.where for f in findings}
    if len(scopes) == 1 and findings[0].row.where:
        return findings[0].row.where
    names = [f.row.name for f in findings]
    return listed(names, MAX_NAMES)


def _us(ns: float) -> str:
    return hundredths(round(ns / 10), sign=True)


#: From here on a step's change is also given in milliseconds, in which steps of a model are quoted.
_LEAST_MS_NS = 500_000


def _milliseconds(ns: float) -> str:
    return f"{hundredths(round(ns / 1e4), sign=True)} ms, " if abs(ns) >= _LEAST_MS_NS else ""


def _step_time(ns: float) -> str:
    return f"{ns / 1e6:.2f} ms" if ns >= _LEAST_MS_NS else f"{ns / 1e3:.1f} µs"


def _percent(share: float) -> str:
    return f"{'−' if share < 0 else '+'}{abs(share):.1%}"


def _difference(finding: Finding, table: DiffTable) -> str:
    """The change of a finding with its interval, as its row has them; empty where it has none."""
    if math.isnan(finding.delta):
        return ""
    row = table.printed[id(finding)]
    unit = "µs a layer" if finding.row.selected else "µs a step"
    return f"{hundredths(row.us_change, sign=True)} {unit} {interval(row)}".rstrip()


def interval(row: TableRow) -> str:
    """The interval of a row's change, in parentheses; empty where it has none."""
    ends = _ends(row)
    return f"(95 % CI {' to '.join(ends)})" if ends else ""


def _ends(row: TableRow) -> list[str]:
    return [hundredths(end, sign=True) for end in row.interval or ()]


_EVIDENCE = {
    "renamed": "the launch there, under a new name",
    "grew": "which grew beyond noise",
    "rebuilt": "whose registers or shared memory changed",
}


def fusion_lines(comparison: Comparison, table: DiffTable) -> Iterator[str]:
    """Fusions and replacements; the same at several places is one sentence."""
    alike: dict[object, list[Fusion]] = {}
    for index, fusion in enumerate(comparison.fusions):
        # What is not shown to do the work is told of each place.
        where_told = index if fusion.evidence == "adjacent" else -1
        names = [sorted(f.row.name for f in findings) for findings in (fusion.removed, fusion.absorbers)]
        alike.setdefault((fusion.evidence, *map(tuple, names), where_told), []).append(fusion)
    for members in alike.values():
        yield _fusion_line(comparison, table, members)


def _fusion_line(comparison: Comparison, table: DiffTable, members: Sequence[Fusion]) -> str:
    """One fusion, or replacement, at one or several places; its numbers are sums of the table's rows."""
    fusion = members[0]
    groups = {f.removed[0].row.group: comparison.groups[f.removed[0].row.group].layers for f in members}
    per = comparison.per_of(fusion.removed[0].row)
    per_layer = sum(f.row.launches_before for f in fusion.removed) / per[0]
    gone = f"{counted(per_layer, 'launch')} a layer ({where(fusion.removed)})"
    if len(groups) == 1 and len(members) > 1:
        gone = f"at {len(members)} places of a layer {gone.replace(' a layer', '', 1)}"
    elif len(groups) > 1:
        layers = Fraction(sum(groups.values()), comparison.ranks)
        gone = f"in {counted(float(layers), 'layer')} {gone}"
    # Of layers that hold unlike launches, only the step has a sum.
    weigh = {group: 1 if len(groups) == 1 else layers for group, layers in groups.items()}
    unit = "a layer" if len(groups) == 1 else "a step"
    changed = "absorbed"
    if fusion.evidence == "replaced":
        new = sum(f.row.launches_after for f in fusion.absorbers) / per[1]
        text = f"Replaced, not fused: {gone} by {counted(new, 'new launch')} at the same place ({_named(fusion)})"
        changed = "added"
    elif fusion.evidence == "new":
        several = len(fusion.absorbers) > 1
        text = f"Fusion: {gone} became {'' if several else 'part of '}{_named(fusion)}, "
        text += "new launches at the same place" if several else "a new launch at the same place"
    elif fusion.evidence == "adjacent":
        (neighbour,) = fusion.absorbers
        text = f"Not shown what does the work of {gone}, though the outputs are equal; behind them is {_named(fusion)}"
        text += f", {_neighbour(comparison, table, neighbour)}" if comparison.timed else ""
        changed = "in that launch"
    else:
        text = f"Fusion: {gone} became part of {_named(fusion)}, {_EVIDENCE[fusion.evidence]}"
    if comparison.timed:
        by_place = [(weigh[f.removed[0].row.group], f) for f in members]
        removed, added = (
            sum(weight * table.printed[id(own)].us_change for weight, findings in told for own in findings)
            // (1 if len(groups) == 1 else comparison.ranks)
            for told in ([(w, f.removed) for w, f in by_place], [(w, f.absorbers) for w, f in by_place])
        )
        # A launch that got faster absorbed no time.
        changed = "in that launch" if added < 0 else changed
        text += (
            f"; {hundredths(removed, sign=True)} µs removed, {hundredths(added, sign=True)} µs {changed}, "
            f"net {hundredths(removed + added, sign=True)} µs {unit}"
        )
    return text + "."


def _named(fusion: Fusion) -> str:
    """What stands in the place of the launches that are gone."""
    names = [f"{f.row.name}{_holds(f.row)}" for f in fusion.absorbers]
    if len(names) > MAX_NAMES + 1:
        names = [*names[:MAX_NAMES], f"{len(names) - MAX_NAMES} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _holds(row: Row) -> str:
    """What a compiler's name says that its kernel holds."""
    words = fused_words(row.canonical)
    return f" (which its name says holds {listed(words, 6)})" if words else ""


def _neighbour(comparison: Comparison, table: DiffTable, neighbour: Finding) -> str:
    """What the time of the launch behind the ones that are gone did, which did not grow beyond noise."""
    if neighbour.status == "changed" and neighbour.delta < 0:
        return "which got faster, not slower"
    if abs(neighbour.delta) < _least_ns(neighbour.row, comparison):
        return "whose time changed by less than what counts"
    if math.isnan(neighbour.low):
        return "whose change of time has no interval, and shows nothing"
    return f"whose time did not change beyond noise {interval(table.printed[id(neighbour)])}"
