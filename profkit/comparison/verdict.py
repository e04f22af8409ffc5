"""The verdict: one table of outcomes, each with its reasons; the gates that flags set; what became of each launch."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from profkit.comparison.model import Comparison, Finding, Gates, Launch, Reason, Row, Status, Verdict
from profkit.comparison.work import NOT_REPRODUCIBLE
from profkit.counting.ranks import world_sizes
from profkit.model.census import EXTENT, UNATTRIBUTED
from profkit.model.wording import are, counted, listed, signed, were


def judge(comparison: Comparison, gates: Gates, notes: Sequence[Reason]) -> Comparison:
    """`comparison` with its verdict and reasons.

    The first row that fits decides:

    | case | verdict |
    |---|---|
    | outputs differ, or a gate fails | refuted |
    | whether a gate holds cannot be told | inconclusive |
    | launches are gone outside the claim, or one lasts less than half of its siblings | inconclusive, by name |
    | launches gone, outputs checked in every layer and the same | confirmed |
    | launches gone, as many as `Gates.expect_removed` claims | confirmed, on launches alone; inconclusive where the
        outputs are not reproducible |
    | launches gone, outputs not compared in every layer | inconclusive |
    | nothing gone, `Gates.expect_faster_percent` | confirmed if the outputs are the same, else inconclusive |
    | nothing gone; something differs / nothing does | changed / neutral |

    Args:
        notes: reasons already known (work, settings), listed after the verdict's own.
    """
    verdict, reasons = _decide(comparison, gates, reproducible=all(note.code != NOT_REPRODUCIBLE for note in notes))
    identities = [{run.identity for run in side.runs} for side in (comparison.before, comparison.after)]
    if None not in identities[0] and identities[0] == identities[1]:
        reasons.append(Reason("same-input", "Both sides are the same recording."))
    if comparison.samples == "runs":
        reasons += _more_runs(comparison)
    if not comparison.timed:
        reasons.append(Reason("counts-only", "No times were measured: this compares launch counts only."))
    elif min(comparison.steps) < 2:
        reasons.append(Reason("one-step", "One step a side: times are shown without intervals and decide nothing."))
    elif comparison.samples == "replays":
        ranks = any(world_sizes(s.runs) != {1} for s in (comparison.before, comparison.after))
        peers = any(len(side.runs) > 1 for side in (comparison.before, comparison.after))
        within = "one process a side"
        if ranks:
            within = "one job a side, averaged over its ranks" if peers else "one rank of a job a side"
        message = f"Times compare replays within {within}, which are not independent runs."
        counts = [side.independent_runs for side in (comparison.before, comparison.after)]
        if max(counts) > 1:
            one, several = sorted(zip(counts, (comparison.before.label, comparison.after.label), strict=True))
            message = (
                f"{one[1]} is one run, so times compare its replays with those of {several[0]} runs of {several[1]}; "
                "replays are not independent runs."
            )
        reasons.append(Reason("replays-not-runs", message))
    return dataclasses.replace(comparison, verdict=verdict, reasons=(*reasons, *notes))


def _decide(comparison: Comparison, gates: Gates, *, reproducible: bool) -> tuple[Verdict, list[Reason]]:
    checked = _check_gates(comparison, gates)
    reasons = [reason for _, reason in checked]
    if comparison.work == "lost":
        return "refuted", [Reason("work-lost", "The outputs are not the same: work was lost or changed."), *reasons]
    failed = [reason for holds, reason in checked if holds is False]
    if failed:
        return "refuted", failed + [r for r in reasons if r not in failed]
    open_ = [reason for holds, reason in checked if holds is None]
    outside_claim = [*_unexplained(comparison), *_collapsed(comparison)]
    if open_ or outside_claim:
        return "inconclusive", [*open_, *outside_claim, *(r for r in reasons if r not in open_)]
    if any(layer.removed > 0 for layer in comparison.layers):
        reasons.insert(0, Reason("launches-removed", removed_sentence(comparison)))
        if comparison.work == "preserved":
            return "confirmed", reasons + _others_changed(comparison)
        if gates.expect_removed is not None and reproducible:
            partly = "compared in some layers only" if comparison.work == "partly" else "not compared"
            message = f"Judged on launches alone: outputs {partly}, so whether all work is done is not known."
            return "confirmed", [*reasons, Reason("launches-alone", message), *_others_changed(comparison)]
        message = "Launches are gone, and whether their work is still done is not known."
        return "inconclusive", [Reason("cannot-tell-work", message), *reasons]
    if gates.expect_faster_percent is not None:
        if comparison.work == "preserved":
            return "confirmed", reasons
        message = "The step is faster, and whether it still does the same work is not known."
        return "inconclusive", [Reason("cannot-tell-work", message), *reasons]
    everything = (*comparison.findings, *comparison.elsewhere, *comparison.outside)
    different = [f for f in everything if f.status != "unchanged"]
    slower = _whole_changed(comparison)
    if not different and (slower or comparison.between_differs):
        return "changed", [*slower, *reasons]
    if not different:
        return "neutral", [Reason("no-difference", _no_difference(comparison)), *reasons]
    return "changed", [*_differences(comparison, different), *reasons]


def _unexplained(comparison: Comparison) -> list[Reason]:
    """What is gone outside the claim."""
    gone = comparison.unexplained
    if not gone:
        return []
    told = [f"{g.name} from {g.where} ({_launches(g.per_step)} a step{_mean(g.per_step)})" for g in gone]
    what = listed(told, _MOST_NAMES, "; ")
    message = f"Launches are gone that no claim covers and nothing explains: {what}."
    return [Reason("gone-unexplained", message)]


def _collapsed(comparison: Comparison) -> list[Reason]:
    found = [(f.row.name, f.collapsed) for f in comparison.findings if f.collapsed]
    if not found:
        return []
    told = [f"{name} in layer {listed(layers, _MOST_NAMES)}" for name, layers in found]
    what = listed(told, _MOST_NAMES, "; ")
    message = f"Launches last less than half of what they last in the other layers, and did not before: {what}."
    return [Reason("launch-collapsed", message)]


def _whole_changed(comparison: Comparison) -> list[Reason]:
    """A difference of the whole that no single launch shows."""
    net, untraced = comparison.net, comparison.untraced
    found: list[Reason] = []
    if net is not None and net.notable:
        by, what = net.ns_per_layer / 1e3, "A layer's time"
        if len(comparison.selected_groups) > 1:
            by, what = by * comparison.selected_layers[0] / comparison.ranks, "The layers' time a step"
        message = f"{what} changed by {signed(by, 2)} µs beyond noise, spread over launches."
        found.append(Reason("layer-time-changed", message))
    if untraced is not None and untraced.notable(comparison.thresholds):
        message = f"The untraced step changed by {signed(untraced.delta_us, 2)} µs, beyond the spread of its replays."
        found.append(Reason("step-time-changed", message))
    return found


def _no_difference(comparison: Comparison) -> str:
    if not comparison.timed:
        return "The same launches."
    if min(comparison.steps) < 2:
        return "The same launches; of one step a side, times tell nothing."
    return "The same launches, and no time differs beyond noise."


def removed_sentence(comparison: Comparison) -> str:
    """How many launches are gone from each layer, net, and from the step: ``8 launches a layer are gone from 24 layers
    (−192 a step)``."""
    by_count: dict[float, Counter[int]] = {}
    for layer in comparison.layers:
        if layer.removed > 0:
            by_count.setdefault(layer.removed, Counter())[layer.rank] += 1
    told = [
        f"{_launches(removed)} a layer {are(removed)} gone from {_of_ranks(layers, comparison.ranks)}{_mean(removed)}"
        for removed, layers in sorted(by_count.items(), reverse=True)
    ]
    what = listed(told, _MOST_NAMES, " and ")
    net = comparison.net
    alike = all(len(layers) in (0, comparison.ranks) for layers in by_count.values())
    mean = "" if alike else " of a rank, on average"
    step = "" if net is None else f" ({signed(net.launches_per_step, 0)} a step{mean})"
    if comparison.moved:
        step += (
            f"; {comparison.moved} more a layer now {'runs' if comparison.moved == 1 else 'run'} elsewhere in the step"
        )
    return f"{what}{step}."


def _launches(number: float) -> str:
    return counted(round(number, 2), "launch")


def _mean(*numbers: float) -> str:
    """Says that a count is none of one step: steps, ranks or runs differ."""
    return ", a mean of what differs" if any(round(number, 2) % 1 for number in numbers) else ""


def _of_ranks(layers: Mapping[int, int], ranks: int) -> str:
    """How many layers, of which ranks.

    Args:
        layers: of each rank.
    """
    if ranks == 1:
        return counted(layers[0], "layer")
    if len(layers) == ranks and len(set(layers.values())) == 1:
        return f"{counted(next(iter(layers.values())), 'layer')} of each of {ranks} ranks"
    return listed([f"{counted(n, 'layer')} of rank {rank}" for rank, n in sorted(layers.items())], _MOST_NAMES, " and ")


def _new_launches(comparison: Comparison) -> str:
    """How many launches the selected layers have that they had not: ``1 launch a layer is new in 24 layers``."""
    added = comparison.with_status("added")
    by_group: dict[int, float] = {}
    for f in added:
        by_group[f.row.group] = by_group.get(f.row.group, 0) + f.row.launches_after / comparison.per_of(f.row)[1]
    layers: dict[float, Counter[int]] = {}
    for group, number in by_group.items():
        layers.setdefault(number, Counter()).update(comparison.groups[group].ranks)
    told = [
        f"{_launches(number)} a layer {are(number)} new in {_of_ranks(there, comparison.ranks)}{_mean(number)}"
        for number, there in sorted(layers.items(), reverse=True)
    ]
    return listed(told, _MOST_NAMES, " and ")


def _others_changed(comparison: Comparison) -> list[Reason]:
    """Launches beside the ones that are gone, and what took their place, that changed in number or beyond noise."""
    changed = other_changes(comparison)
    if not changed and comparison.between_differs:
        return []
    if not changed:
        return [Reason("nothing-else-moved", "No other launch changed in number, or in time beyond noise.")]
    what = _told(changed, comparison.steps)
    return [Reason("others-changed", f"{counted(len(changed), 'other launch')} changed: {what}.")]


def _differences(comparison: Comparison, different: Sequence[Finding]) -> list[Reason]:
    steps = comparison.steps
    reasons: list[Reason] = []
    added = comparison.with_status("added")
    if added:
        reasons.append(Reason("launches-added", f"{_new_launches(comparison)}."))
    if comparison.moved:
        message = f"{counted(comparison.moved, 'launch')} a layer only moved: they run elsewhere in the step."
        reasons.append(Reason("launches-moved", message))
    rest = [f for f in different if f not in added]
    if rest:
        differ = f"{counted(len(rest), 'launch')} differ{'s' if len(rest) == 1 else ''}"
        reasons.append(Reason("launches-changed", f"{differ}: {_told(rest, steps)}."))
    return reasons


def _more_runs(comparison: Comparison) -> list[Reason]:
    """How many more runs would decide a difference that is large enough to count and not significant."""
    runs = min(comparison.before.independent_runs, comparison.after.independent_runs)
    needed = 0
    for f in comparison.findings:
        per = comparison.per_of(f.row)
        effect = float(
            comparison.thresholds.effect_ns(np.array([f.row.ns_before / per[0], f.row.ns_after / per[1]])).max()
        )
        if f.status == "unchanged" and abs(f.delta) >= effect and f.high > f.low:
            # The half-width shrinks with the root of the number of runs; half the difference leaves room for Holm.
            needed = max(needed, math.ceil(runs * ((f.high - f.low) / abs(f.delta)) ** 2))
    if needed <= runs:
        return []
    message = (
        f"{runs} runs a side leave a difference open that would count; about {needed - runs} more would decide it."
    )
    return [Reason("more-runs", message)]


#: More names than this make a sentence unreadable; the report's table has them all.
_MOST_NAMES = 3


def _told(findings: Sequence[Finding], steps: tuple[int, int]) -> str:
    """The findings and what happened to each. By how much is for the table to say, whose rounded rows add up."""
    return listed([f"{f.row.name} ({_happened(f, steps)})" for f in findings], _MOST_NAMES)


def _happened(finding: Finding, steps: tuple[int, int]) -> str:
    row = finding.row
    same_number = row.launches_before * steps[1] == row.launches_after * steps[0]
    if finding.status != "changed":
        return finding.status
    if not same_number:
        return "more launches" if row.launches_before * steps[1] < row.launches_after * steps[0] else "fewer launches"
    if row.reshaped():
        names = [name for name in EXTENT if row.reshaped(name)]
        what = ", ".join(f"{name} {row.shape_before[name]} → {row.shape_after[name]}" for name in names)
        some = row.layers_reshaped < len(row.slots[0]) and not row.outside
        return f"{what} in {counted(row.layers_reshaped, 'layer')}" if some else what
    if not finding.notable and finding.unlike:
        return f"other times in layer {listed([name for name, _ in finding.unlike], _MOST_NAMES)}"
    if not finding.notable:
        return "renamed" if row.name_before else finding.status
    return "faster" if finding.delta < 0 else "slower"


def _check_gates(comparison: Comparison, gates: Gates) -> list[tuple[bool | None, Reason]]:
    """Each condition that a flag set: whether it holds (None: that cannot be told), and what was found."""
    checked: list[tuple[bool | None, Reason]] = []
    if gates.expect_removed is not None:
        checked.append(_removed(comparison, gates.expect_removed))
    if gates.expect_fused:
        checked.append(_fused(comparison, comparison.with_status("removed", "moved")))
    if gates.expect_faster_percent is not None:
        checked.append(_faster(comparison, gates.expect_faster_percent))
    if gates.max_launches_per_layer is not None:
        most = max(comparison.layers, key=lambda layer: layer.launches_after)
        holds = most.launches_after <= gates.max_launches_per_layer
        allowed = gates.max_launches_per_layer
        told = f"At most {counted(most.launches_after, 'launch')} in a layer ({most.name}); "
        told += f"{allowed:g} {were(allowed)} allowed."
        checked.append((holds, Reason("launches-within-limit" if holds else "too-many-launches", told)))
    if gates.max_regression_percent is not None and comparison.net is not None:
        checked.append(_regression(comparison, gates.max_regression_percent))
    return checked


def _removed(comparison: Comparison, expected: int) -> tuple[bool, Reason]:
    """Whether exactly so many launches are gone, net, from every selected layer."""
    lost = Counter(layer.removed for layer in comparison.layers)
    usual = lost.most_common(1)[0][0] if lost else 0.0
    holds = set(lost) == {float(expected)}
    gone = max(usual, 0)
    unlike = next((layer for layer in comparison.layers if layer.removed != usual), None)
    most = "" if unlike is None else "most of the layers, not all, have lost "
    gone_net = f"{most}{counted(gone, 'launch')} {'each, net' if most else f'per layer {are(gone)} gone, net'}"
    told = f"{gone_net}; {expected} {were(expected)} expected"
    if unlike is not None:
        counts = unlike.launches_before, unlike.launches_after
        told += f"; layer {unlike.name} has {counts[0]:.4g} → {counts[1]:.4g}{_mean(*counts)}"
    elif comparison.moved and not holds:
        told += f"; {comparison.moved} more a layer only moved: they run elsewhere in the step"
    elif usual < 0:
        told += f"; {counted(-usual, 'more launch')} a layer {are(-usual)} there"
    return holds, Reason("expected-removal" if holds else "unexpected-removal", f"{told[:1].upper()}{told[1:]}.")


def _faster(comparison: Comparison, percent: float) -> tuple[bool | None, Reason]:
    """Whether the step takes less time by so much: untraced where that is known, as traced elsewhere."""
    times, basis = (comparison.untraced, "untraced") if comparison.untraced else (comparison.traced, "traced")
    if times is None or not times.before_us:
        return None, Reason(
            "faster-unknown", "Whether the step is faster cannot be told: no times of it were recorded."
        )
    if comparison.between_differs:
        message = "Whether the step is faster cannot be told: what runs between steps differs, and no time holds it."
        return None, Reason("faster-unknown", message)
    share = -times.delta_us / times.before_us * 100
    half = times.half_us / times.before_us * 100
    low, high = share - half, share + half
    told = (
        f"The {basis} step is {signed(share, 1)} % faster ({times.before_us:.1f} → {times.after_us:.1f} µs; between "
        f"{signed(low, 1)} and {signed(high, 1)} %); at least {percent:g} % were expected."
    )
    if low >= percent:
        return True, Reason("expected-faster", told)
    return (False, Reason("not-faster", told)) if high < percent else (None, Reason("faster-unknown", told))


def _fused(comparison: Comparison, gone: Sequence[Finding]) -> tuple[bool | None, Reason]:
    kinds = {fusion.evidence for fusion in comparison.fusions} if gone else set()
    if kinds - {"replaced", "adjacent"}:
        return True, Reason("expected-fusion", "A fusion was expected, and one was found.")
    if "adjacent" in kinds:
        message = (
            "A fusion was expected, and whether it was one cannot be told: launches are gone, the outputs are equal, "
            "but no launch in their place is new, renamed or longer than before."
        )
        return None, Reason("fusion-unknown", message)
    return False, Reason("no-fusion", "A fusion was expected, and none was found.")


def _regression(comparison: Comparison, percent: float) -> tuple[bool | None, Reason]:
    net = comparison.net
    before = sum(f.row.ns_before for f in comparison.findings) / comparison.per[0]
    if net is None or not comparison.timed or before == 0 or math.isnan(net.low):
        message = "Whether a layer became slower cannot be told: there are no times, or no repetitions of them."
        return None, Reason("regression-unknown", message)
    share = net.ns_per_layer / before * 100
    slower = [layer for layer in comparison.layers if layer.notable and layer.share * 100 > percent]
    if slower:
        worst = max(slower, key=lambda layer: layer.share)
        message = (
            f"{counted(len(slower), 'layer')} became slower by more than {percent:g} %, beyond noise; layer "
            f"{worst.name} by {worst.share * 100:.2f} %."
        )
        return False, Reason("regression", message)
    highest = net.high / before * 100
    counts = float(comparison.thresholds.effect_ns(np.array(before))) / before * 100
    if not net.significant and highest > percent + counts:
        message = (
            f"Whether a layer became slower cannot be told: its time changed by {signed(share, 2)} %, and noise leaves "
            f"open up to {signed(highest, 2)} %; at most {percent:+g} % were allowed. Record more repetitions."
        )
        return None, Reason("regression-unknown", message)
    holds = not (net.significant and share > percent)
    alike = comparison.clock != 1.0 and not net.significant
    noise = "as all launches alike did (another clock)" if alike else "within noise"
    noise = "beyond noise" if net.significant else noise
    told = f"A layer's time changed by {signed(share, 2)} %, {noise}; at most {percent:+g} % were allowed."
    return holds, Reason("no-regression" if holds else "regression", told)


def other_changes(comparison: Comparison) -> list[Finding]:
    """Findings that are not unchanged and belong neither to what is gone nor to what took its place."""
    explained = {id(f) for f in comparison.with_status("removed", "moved")}
    explained |= {id(absorber) for fusion in comparison.fusions for absorber in fusion.absorbers}
    moved = {(f.row.canonical, f.row.op_kind) for f in comparison.with_status("moved")}
    explained |= {id(f) for f in comparison.outside if (f.row.canonical, f.row.op_kind) in moved}
    # What moved out of the selected layers moved out of the others too, where those lost the same launch.
    left = {(f.row.where, f.row.canonical, f.row.op_kind) for f in comparison.with_status("moved")}
    explained |= {
        id(f)
        for f in comparison.elsewhere
        if f.status == "removed" and (f.row.where, f.row.canonical, f.row.op_kind) in left
    }
    everything = (*comparison.findings, *comparison.elsewhere, *comparison.outside)
    return [f for f in everything if f.status != "unchanged" and id(f) not in explained]


#: A launch outside the layers that lasts less than this share of the one that is gone does other work.
_SAME_WORK = 0.5


def statuses_of(
    rows: Sequence[Row], notable: Sequence[bool], steps: tuple[int, int], layers: int, left: Collection[Launch]
) -> list[Status]:
    """The status of each row.

    Args:
        notable: whether each row's time differs, in all layers together or in one.
        steps: of either side.
        layers: how many are selected.
        left: launches that run elsewhere now, all that are gone from the layers.
    """
    statuses = [_status(row, differs, steps) for row, differs in zip(rows, notable, strict=True)]
    for index, row in enumerate(rows):
        if statuses[index] == "removed" and row.selected and (row.canonical, row.op_kind) in left:
            statuses[index] = "moved"
    _mark_moved(rows, statuses, steps, layers)
    return statuses


def _status(row: Row, notable: bool, steps: tuple[int, int]) -> Status:
    if row.launches_before and not row.launches_after:
        return "removed"
    if row.launches_after and not row.launches_before:
        return "added"
    per_step = row.launches_before * steps[1] != row.launches_after * steps[0]
    differs = notable or per_step or row.name_before is not None or row.reshaped()
    return "changed" if differs else "unchanged"


def _mark_moved(rows: Sequence[Row], statuses: list[Status], steps: tuple[int, int], layers: int) -> None:
    """A launch removed from the layers is moved if the same kernel now runs outside them, each step, as it did not."""
    room: dict[tuple[str, str], int] = {}
    lasts: dict[tuple[str, str], float] = {}
    for row, status in zip(rows, statuses, strict=True):
        # What no method placed may still belong to a layer, so it is no proof that a launch left one.
        if row.outside and status in ("added", "changed") and UNATTRIBUTED not in row.where:
            key = row.canonical, row.op_kind
            room[key] = row.launches_after // steps[1] - row.launches_before // steps[0]
            lasts[key] = row.ns_after / row.launches_after if row.launches_after else 0.0
    for index, row in enumerate(rows):
        key = row.canonical, row.op_kind
        here = (
            room.get(key, 0) if lasts.get(key, 0.0) >= _SAME_WORK * row.ns_before / max(row.launches_before, 1) else 0
        )
        # As many launches outside as were in several layers is no hoisting: the same work, in other ranges. Of one
        # layer, a launch that now runs once a step is moved.
        most = row.launches_before / steps[0]
        if statuses[index] == "removed" and row.selected and (0 < here < most or here == most == layers == 1):
            statuses[index] = "moved"
            room[key] -= 1
