"""Can the two inputs be compared at all? If not: a code, and the next thing to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from profkit.comparison.model import Input, Reason
from profkit.counting import ranks
from profkit.counting.integrity import no_layers_advice
from profkit.counting.ranks import same_layers
from profkit.model.run import RunRecord, WorkloadRecord
from profkit.model.steps import UNDER_RECORDED_SHARE
from profkit.model.wording import are, counted

T = TypeVar("T")

#: What `--force` may set aside: the numbers exist, only their likeness is in doubt.
FORCEABLE = frozenset(
    [
        "other-device",
        "other-profiler",
        "other-workload",
        "other-shapes",
        "other-variants-in-side",
        "other-layers",
        "other-ranks",
        "nodes-without-ops",
    ]
)


def obstacles(before: Input, after: Input) -> list[Reason]:
    """Every reason against a comparison, the most fundamental first; empty where there is none."""
    found: list[Reason] = []
    for side, entry in (("before", before), ("after", after)):
        for run in entry.runs:
            census = run.census
            if census.refusal is not None:
                found.append(Reason(census.refusal.code, f"{run.label} ({side}): {census.refusal.message}"))
            elif not census.kinds or not census.chosen.selected_layers:
                advice = no_layers_advice(census.diagnostics, census.ledger.ops, census.ledger.warm_up)
                found.append(Reason("no-layers", f"{run.label} ({side}): {advice}"))
    if found:
        return found
    for entry in (before, after):
        if not same_layers([run.census.chosen for run in entry.runs]):
            shown = ", ".join(f"{run.label} {run.census.chosen.selected_layers}" for run in entry.runs)
            message = f"The runs of one side have different layers ({shown}). Compare runs of one model and selection."
            found.append(Reason("other-layers-in-side", message))
    if found:
        return found
    runs = [*before.runs, *after.runs]
    found += _other_device(runs)
    other = list(_other_workload(runs))
    found += other
    found += [reason for entry in (before, after) for reason in _several_variants(entry)]
    found += _silent_nodes(before, after, alike=not other)
    found += [reason for entry in (before, after) for run in entry.runs for reason in _incomplete(run)]
    found += _other_profiler(runs)
    shared = {run.identity for run in before.runs} & {run.identity for run in after.runs} - {None}
    if shared and {r.identity for r in before.runs} != {r.identity for r in after.runs}:
        both = f"{counted(len(shared), 'recording')} {are(len(shared))}"
        message = f"{both} on both sides, among others that are not. Give each run to one side."
        found.append(Reason("shared-recording", message))
    ranks = [_processes_a_file(e) for e in (before, after)]
    if ranks[0] != ranks[1]:
        message = (
            f"A recording holds ops of {ranks[0]} processes before and of {ranks[1]} after: a rank may be missing. "
            "Record the same processes."
        )
        found.append(Reason("other-ranks", message))
    found += _other_ranks(before, after)
    placed = _unlike(runs, _by_pattern)
    if placed is not None:
        how = [f"{'by the pattern of its kernels' if pattern else 'by ranges'}" for _, pattern in placed]
        message = (
            f"The layers of {placed[0][0]} were found {how[0]} and those of {placed[1][0]} {how[1]}, so they need not "
            "begin and end at the same kernels. Record both sides with ranges, or give --anchor for both."
        )
        found.append(Reason("other-method", message))
    counts = [e.census.chosen.selected_layers for e in (before, after)]
    if counts[0] != counts[1]:
        message = (
            f"{before.label} has {counts[0]} selected layers and {after.label} has {counts[1]}, so layers cannot be "
            "paired. Select the same layers with --layers, or record both runs of the same model."
        )
        found.append(Reason("other-layer-count", message))
    elif _numbers(before) != _numbers(after):
        shown = " and ".join(", ".join(map(str, sorted(a - b)[:6])) or "none" for a, b in _only(before, after))
        message = f"The layers have different numbers (only before, and only after: {shown}). Record the same layers."
        found.append(Reason("other-layers", message))
    return found


def _other_ranks(before: Input, after: Input) -> Iterator[Reason]:
    """Jobs of other numbers of ranks, and ranks that are missing from some of them."""
    records = [[run.record for run in side.runs] for side in (before, after)]
    sizes = [ranks.world_sizes(side) for side in records]
    if sizes[0] != sizes[1]:
        shown = " and ".join(", ".join(map(str, sorted(s))) for s in sizes)
        yield Reason("other-ranks", f"The jobs have other numbers of ranks: {shown}. Capture both with one --nproc.")
        return
    there = {together for side in records for together in ranks.ranks_by_job(side)}
    if len(there) > 1:
        shown = " and ".join(", ".join(map(str, sorted(together))) for together in sorted(there, key=sorted))
        message = f"Not every job has the same ranks here: {shown}. Compare all of them, or the same rank of each."
        yield Reason("other-ranks", message)


def _processes_a_file(entry: Input) -> int:
    """The most processes that one recording of a side has ops of."""
    return max(run.census.processes_with_ops for run in entry.runs)


def _by_pattern(run: Input) -> bool:
    """Whether the layers come from the order of kernels alone, which knows no scopes."""
    return bool({"anchor", "period"} & set(run.census.methods))


def _numbers(entry: Input) -> list[int]:
    layers = entry.census.chosen.layers
    return sorted(layers["number"][layers["selected"]].tolist())


def _only(before: Input, after: Input) -> list[tuple[set[int], set[int]]]:
    one, other = set(_numbers(before)), set(_numbers(after))
    return [(one, other), (other, one)]


def _silent_nodes(before: Input, after: Input, *, alike: bool) -> Iterator[Reason]:
    """Nodes that never ran an op: lost launches would look removed.

    NCCL captures such nodes beside its kernels (events, host calls). Where all runs have as many of them in the same
    exchanges, no launch can look removed for them. Where most runs agree, those that do not are named.

    Args:
        alike: the runs are of one workload and shape. Else only the runs of one side need have as many.
    """
    runs = [*before.runs, *after.runs]
    places = [tuple(sorted(run.census.silent_nodes.layer_scopes.items())) for run in runs]
    sides = (places,) if alike else (places[: len(before.runs)], places[len(before.runs) :])
    if (
        all(_are_exchanges(run) for run in runs)
        and all(len(set(side)) == 1 for side in sides)
        and (alike or min(map(len, sides)) > 1)
    ):
        return
    usual, agree = Counter(places).most_common(1)[0]
    normal_runs = [run for run, place in zip(runs, places, strict=True) if place == usual]
    if alike and len(runs) > agree > len(runs) / 2 and all(_are_exchanges(run) for run in normal_runs):
        normal = sum(n for _, n in usual)
        for run, place in zip(runs, places, strict=True):
            if place != usual:
                message = (
                    f"{counted(run.census.silent_nodes.in_layers, 'graph node')} in layers of {run.label} never ran an "
                    f"op; {agree} of {len(runs)} runs here have {normal}, all in their exchanges. This recording may "
                    "have lost launches, which would look removed. Record it again."
                )
                yield Reason("nodes-without-ops", message)
        return
    for run in runs:
        if run.census.silent_nodes.in_layers:
            message = (
                f"{counted(run.census.silent_nodes.in_layers, 'graph node')} in layers of {run.label} never ran an op. "
                "If they are no host or empty nodes, the recording lost launches, which would look removed. Record "
                "again."
            )
            yield Reason("nodes-without-ops", message)


def _are_exchanges(run: Input) -> bool:
    """Whether every scope of a layer's silent nodes holds a collective."""
    slots, layers = run.census.chosen.slots, run.census.chosen.layers
    scopes = layers["scope"].iloc[slots["layer"].to_numpy()]
    held = {
        f"{scope}/{inside}" if inside else scope
        for scope, inside, role in zip(scopes, slots["inside"], ranks.of_slots(slots, run.record), strict=True)
        if role == "collective"
    }
    return set(run.census.silent_nodes.layer_scopes) <= held


def _incomplete(run: Input) -> Iterator[Reason]:
    """What the recording lacks, by its own word or by the word of its run.json."""
    census, workload = run.census, _workload(run)
    layers = workload.layers if workload else None
    if layers is not None and layers != len(census.chosen.layers):
        shown = len(census.chosen.layers)
        message = f"{run.label} ran {counted(layers, 'layer')} and its trace shows {shown}. Capture it again."
        yield Reason("layers-missing", message)
    replays = lost_replays(run)
    if replays and census.chosen.kind.steps < (1 - UNDER_RECORDED_SHARE) * replays:
        yield Reason("under-recorded", f"{few_replays(run, replays)} Capture it again.")


def lost_replays(run: Input) -> int:
    """How many replays there should be by the run's own word, where its trace shows fewer whole ones; 0 elsewhere."""
    replays = run.record.replays if run.record else None
    if replays is None or not run.census.info.timed or run.census.chosen.kind.steps >= replays:
        return 0
    return replays


def few_replays(run: Input, replays: int) -> str:
    """The sentence that says so."""
    shown = counted(run.census.chosen.kind.steps, "whole replay")
    return f"{run.label} replayed {counted(replays, 'time')} and its trace shows {shown}."


def _unlike(runs: Sequence[Input], value: Callable[[Input], T | None]) -> tuple[tuple[str, T], tuple[str, T]] | None:
    """The first of `runs` that is unlike the first, whichever side they are on: label and value of the first, and of
    that one. Runs whose value is None say nothing; None where all others are alike."""
    known = [(run.label, said) for run in runs if (said := value(run)) is not None]
    return next(((known[0], other) for other in known if other[1] != known[0][1]), None)


def _device(run: Input) -> str | None:
    recorded_on = run.record.device.name if run.record and run.record.device else None
    names: set[str | None] = set(run.census.info.devices.values()) or {recorded_on}
    return ", ".join(sorted(name for name in names if name)) or None


def _other_device(runs: Sequence[Input]) -> Iterator[Reason]:
    unlike = _unlike(runs, _device)
    if unlike is not None:
        listed = _both(unlike)
        yield Reason("other-device", f"The runs are from different devices: {listed}. Record all on one kind.")


def _other_profiler(runs: Sequence[Input]) -> Iterator[Reason]:
    timed = _unlike(runs, lambda run: run.census.info.timed)
    if timed is not None:
        (counted, _), (other, _) = sorted(timed, key=lambda said: said[1])
        message = f"{counted} counts dispatches on a CPU and {other} launches on a GPU. Capture all the same way."
        yield Reason("other-profiler", message)
        return
    unlike = _unlike(runs, lambda run: run.census.info.profiler.split(" ")[0])
    if unlike is not None:
        message = (
            f"The runs were recorded by different profilers: {_both(unlike)}. These time the same kernel differently. "
            "Record all with one."
        )
        yield Reason("other-profiler", message)


def _other_workload(runs: Sequence[Input]) -> Iterator[Reason]:
    unlike = _unlike(runs, lambda run: workload.name if (workload := _workload(run)) else None)
    if unlike is not None:
        yield Reason("other-workload", f"The runs are of different workloads: {_both(unlike)}.")
        return
    shapes = _unlike(runs, _shapes)
    if shapes is not None:
        (first, one), (second, other) = shapes
        changed = sorted(name for name in {**one, **other} if one.get(name) != other.get(name))
        listed = ", ".join(f"{name} {one.get(name)} → {other.get(name)}" for name in changed)
        message = f"{first} and {second} have different shapes: {listed}. Capture all with the same --shape."
        yield Reason("other-shapes", message)


def _several_variants(entry: Input) -> Iterator[Reason]:
    """Runs of one side that are no repetitions of each other; shapes, workload and device are the same in all runs."""
    said = [workload.variant for run in entry.runs if (workload := _workload(run))]
    variants = sorted({variant for variant in said if variant is not None})
    if len(variants) > 1:
        message = (
            f"The runs of {entry.label} are of {len(variants)} variants: {', '.join(variants)}. They are no "
            "repetitions, and their mean is of none of them. Give the runs of one variant as a side; --force compares "
            "all the same."
        )
        yield Reason("other-variants-in-side", message)


def _shapes(run: Input) -> Mapping[str, Any] | None:
    """The shapes of a run of a workload; of one that names none, no shapes."""
    workload = _workload(run)
    return workload.shapes if workload else None


def _workload(run: Input) -> WorkloadRecord | None:
    return run.record.workload if run.record else None


def _both(unlike: tuple[tuple[str, object], tuple[str, object]]) -> str:
    return " and ".join(f"{value} ({label})" for label, value in unlike)


#: Settings of a run that are named where they differ: in run.json, or in an object of it.
_SETTINGS = (
    "profiler name",
    "profiler version",
    "versions driver",
    "versions cuda",
    "versions torch",
    "versions triton",
    "seed",
    "warmup",
    "commit",
)


def differing_settings(before: Input, after: Input) -> list[str]:
    """Settings under which the runs were recorded that are not all the same, each as ``name a → b``; where those of one
    side differ, as ``name a (run) and b (run)``."""
    runs = [*before.runs, *after.runs]
    if any(run.record is None for run in runs):
        profilers = [[run.census.info.profiler for run in side.runs] for side in (before, after)]
        return _difference("profiler", before, after, profilers)
    found: list[str] = []
    for name in _SETTINGS:
        values = [[_setting(run.record, name) for run in side.runs] for side in (before, after)]
        found += _difference(name, before, after, values)
    return found


def _difference(name: str, before: Input, after: Input, values: Sequence[Sequence[Any]]) -> list[str]:
    """One setting's sentence part, by its value in every run of either side; empty where all are alike."""
    labels = [run.label for side in (before, after) for run in side.runs]
    said = [value for side in values for value in side]
    if all(value == said[0] for value in said):
        return []
    if all(value == side[0] for side in values for value in side):
        return [f"{name} {values[0][0]} → {values[1][0]}"]
    other = next(index for index, value in enumerate(said) if value != said[0])
    return [f"{name} {said[0]} ({labels[0]}) and {said[other]} ({labels[other]})"]


def _setting(record: RunRecord | None, name: str) -> object:
    value: object = record
    for part in name.split():
        value = None if value is None else getattr(value, part)
    return value
