"""Can the two inputs be compared at all? If not: a code, and the next thing to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeVar

from profkit.attribution import METHODS
from profkit.comparison.model import Input, Reason
from profkit.counting import ranks
from profkit.counting.integrity import refusal_of
from profkit.model.census import VARIES
from profkit.model.run import RunRecord, WorkloadRecord
from profkit.model.steps import UNDER_RECORDED_SHARE
from profkit.model.wording import are, counted, listed

T = TypeVar("T")
#: A run's label, and what it says.
Said = tuple[str, T]

#: What `--force` may set aside: the numbers exist, only their likeness is in doubt.
FORCEABLE = frozenset(
    [
        "other-device",
        "other-profiler",
        "other-workload",
        "other-shapes",
        "other-batch",
        "other-variants-in-side",
        "other-layers",
        "other-ranks",
        "nodes-without-ops",
    ]
)


def obstacles(before: Input, after: Input) -> list[Reason]:
    """Every reason against a comparison, the most fundamental first; empty where there is none."""
    for checks in _CHECKS:
        found = [reason for check in checks for reason in check(before, after)]
        if found:
            return found
    return []


def _unanswered(before: Input, after: Input) -> Iterator[Reason]:
    for side, entry in (("before", before), ("after", after)):
        for run in entry.runs:
            refusal = refusal_of(run.census)
            if refusal is not None:
                yield Reason(refusal.code, f"{run.label} ({side}): {refusal.message}")


def _other_layers_in_side(before: Input, after: Input) -> Iterator[Reason]:
    for entry in (before, after):
        jobs = [[r for r, n in zip(entry.runs, entry.jobs, strict=True) if n == job] for job in sorted({*entry.jobs})]
        if not ranks.same_layers([ranks.merge([r.census.chosen for r in job], [0] * len(job)) for job in jobs]):
            shown = ", ".join(f"{run.label} {run.census.chosen.selected_layers}" for run in entry.runs)
            message = f"The runs of one side have different layers ({shown}). Compare runs of one model and selection."
            yield Reason("other-layers-in-side", message)


def _other_device(before: Input, after: Input) -> Iterator[Reason]:
    unlike = _unlike(before, after, _device)
    if unlike is not None:
        listed = _both(unlike)
        yield Reason("other-device", f"The runs are from different devices: {listed}. Record all on one kind.")


def _device(run: Input) -> str | None:
    recorded_on = run.record.device.name if run.record and run.record.device else None
    names: set[str | None] = set(run.census.info.devices.values()) or {recorded_on}
    return ", ".join(sorted(name for name in names if name)) or None


def _other_workload(before: Input, after: Input) -> Iterator[Reason]:
    unlike = _unlike(before, after, lambda run: workload.name if (workload := _workload(run)) else None)
    if unlike is not None:
        yield Reason("other-workload", f"The runs are of different workloads: {_both(unlike)}.")
        return
    shapes = _unlike(before, after, _shapes)
    if shapes is not None:
        (first, one), (second, other) = shapes
        changed = sorted(name for name in {**one, **other} if one.get(name) != other.get(name))
        listed = ", ".join(f"{name} {one.get(name)} → {other.get(name)}" for name in changed)
        message = f"{first} and {second} have different shapes: {listed}. Capture all with the same --shape."
        yield Reason("other-shapes", message)


def _shapes(run: Input) -> Mapping[str, Any] | None:
    """The shapes of a run of a workload; of one that names none, no shapes."""
    workload = _workload(run)
    return workload.shapes if workload else None


def _workload(run: Input) -> WorkloadRecord | None:
    return run.record.workload if run.record else None


def _several_variants(before: Input, after: Input) -> Iterator[Reason]:
    """Runs of one side that are no repetitions of each other; shapes, workload and device are the same in all runs."""
    for entry in (before, after):
        said = [workload.variant for run in entry.runs if (workload := _workload(run))]
        variants = sorted({variant for variant in said if variant is not None})
        if len(variants) > 1:
            message = (
                f"The runs of {entry.label} are of {len(variants)} variants: {', '.join(variants)}. They are no "
                "repetitions, and their mean is of none of them. Give the runs of one variant as a side; --force "
                "compares all the same."
            )
            yield Reason("other-variants-in-side", message)


def _silent_nodes(before: Input, after: Input) -> Iterator[Reason]:
    """Nodes that never ran an op: lost launches would look removed.

    NCCL captures such nodes beside its kernels (events, host calls). Where all runs have as many of them in the same
    exchanges, no launch can look removed for them. Where most runs agree, those that do not are named. Of runs of other
    workloads or shapes only those of one side need have as many.
    """
    alike = not any(_other_workload(before, after))
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
    most_agree = alike and len(runs) > agree > len(runs) / 2 and all(_are_exchanges(run) for run in normal_runs)
    for run, place in zip(runs, places, strict=True):
        silent = run.census.silent_nodes.in_layers
        said = f"{counted(silent, 'graph node')} in layers of {run.label} never ran an op"
        if most_agree and place != usual:
            message = (
                f"{said}; {agree} of {len(runs)} runs here have {sum(n for _, n in usual)}, all in their exchanges. "
                "This recording may have lost launches, which would look removed. Record it again."
            )
            yield Reason("nodes-without-ops", message)
        elif not most_agree and silent:
            message = (
                f"{said}. If they are no host or empty nodes, the recording lost launches, which would look removed. "
                "Record again."
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


def _incomplete(before: Input, after: Input) -> Iterator[Reason]:
    """What a recording lacks, by its own word or by the word of its run.json."""
    for run in (*before.runs, *after.runs):
        workload, shown = _workload(run), len(run.census.chosen.layers)
        layers = workload.layers if workload else None
        if layers is not None and layers != shown:
            message = f"{run.label} ran {counted(layers, 'layer')} and its trace shows {shown}. Capture it again."
            yield Reason("layers-missing", message)
        steps = run.census.chosen.kind.steps
        if steps < (1 - UNDER_RECORDED_SHARE) * (steps + lost_replays(run)):
            yield Reason("under-recorded", f"{few_replays(run)} Capture it again.")


def _other_profiler(before: Input, after: Input) -> Iterator[Reason]:
    timed = _unlike(before, after, lambda run: run.census.info.timed)
    if timed is not None:
        (counting, _), (timing, _) = sorted(timed, key=lambda said: said[1])
        message = f"{counting} counts dispatches on a CPU and {timing} launches on a GPU. Capture all the same way."
        yield Reason("other-profiler", message)
        return
    unlike = _unlike(before, after, lambda run: run.census.info.profiler.split(" ")[0])
    if unlike is not None:
        message = (
            f"The runs were recorded by different profilers: {_both(unlike)}. These time the same kernel differently. "
            "Record all with one."
        )
        yield Reason("other-profiler", message)


def _shared_recording(before: Input, after: Input) -> Iterator[Reason]:
    ours, theirs = ({run.identity for run in side.runs} for side in (before, after))
    shared = ours & theirs - {None}
    if shared and ours != theirs:
        both = f"{counted(len(shared), 'recording')} {are(len(shared))}"
        message = f"{both} on both sides, among others that are not. Give each run to one side."
        yield Reason("shared-recording", message)


def _other_ranks(before: Input, after: Input) -> Iterator[Reason]:
    """Jobs of other numbers of ranks, and ranks that are missing from some of them."""
    sizes = [ranks.world_sizes(side.runs) for side in (before, after)]
    if sizes[0] != sizes[1]:
        shown = " and ".join(", ".join(map(str, sorted(s))) for s in sizes)
        yield Reason("other-ranks", f"The jobs have other numbers of ranks: {shown}. Capture both with one --nproc.")
        return
    there = {together for side in (before, after) for together in ranks.ranks_by_job(side.runs)}
    if len(there) > 1:
        shown = " and ".join(", ".join(map(str, sorted(together))) for together in sorted(there, key=sorted))
        message = f"Not every job has the same ranks here: {shown}. Compare all of them, or the same rank of each."
        yield Reason("other-ranks", message)


def _other_method(before: Input, after: Input) -> Iterator[Reason]:
    """Layers from the order of kernels alone, which knows no scopes, beside layers from ranges."""
    by_pattern = {method.name for method in METHODS if method.by_pattern}
    placed = _unlike(before, after, lambda run: not by_pattern.isdisjoint(run.census.methods))
    if placed is not None:
        (first, how), (second, other) = [
            (label, "by the pattern of its kernels" if pattern else "by ranges") for label, pattern in placed
        ]
        message = (
            f"The layers of {first} were found {how} and those of {second} {other}, so they need not begin and end at "
            "the same kernels. Record both sides with ranges, or give --anchor for both."
        )
        yield Reason("other-method", message)


def _other_layers(before: Input, after: Input) -> Iterator[Reason]:
    counts = [side.chosen.selected_layers for side in (before, after)]
    ours, theirs = _numbers(before), _numbers(after)
    if counts[0] != counts[1]:
        message = (
            f"{before.label} has {counts[0]} selected layers and {after.label} has {counts[1]}, so layers cannot be "
            "paired. Select the same layers with --layers, or record both runs of the same model."
        )
        yield Reason("other-layer-count", message)
    elif ours != theirs:
        only = (set(ours) - set(theirs), set(theirs) - set(ours))
        shown = " and ".join(listed([str(n) for _, n in sorted(numbers)]) or "none" for numbers in only)
        message = f"The layers have different numbers (only before, and only after: {shown}). Record the same layers."
        yield Reason("other-layers", message)


#: Shared launches whose grids changed by one factor are of another batch where they are more than this share.
_MOST = 0.5


def _other_batch(before: Input, after: Input) -> Iterator[Reason]:
    """Another batch, as ranges name it; or grids that scaled alike, where nothing else says the batch."""
    if all(_shapes(run) for run in (*before.runs, *after.runs)):
        return
    # A graph serves several batches, so of several numbers the graph itself tells.
    named = _unlike(before, after, lambda run: None if "–" in (said := run.census.chosen.kind.batch) else said or None)
    if named is not None:
        listed = _both(named)
        yield Reason("other-batch", f"The steps are of different batches: {listed}. Choose the same with --graph.")
        return
    grids = [_blocks(side) for side in (before, after)]
    shared = sorted({*grids[0]} & {*grids[1]})
    ratios = Counter(round(grids[1][key] / grids[0][key], 2) for key in shared)
    if not ratios:
        return
    (ratio, count), *_ = ratios.most_common(1)
    if ratio != 1 and count > _MOST * len(shared):
        message = (
            f"{count} of {len(shared)} kernels that both sides run have {ratio:g} times the grid after: another batch "
            "or other shapes. Record both sides with the same, or compare with --force."
        )
        yield Reason("other-batch", message)


def _blocks(entry: Input) -> dict[tuple[str, int], int]:
    """Blocks of the first launch of each kernel in the layers, by name and threads; where the recording says them."""
    found: dict[tuple[str, int], int] = {}
    slots = entry.chosen.slots
    for name, grid, block in zip(slots["canonical"], slots["grid"], slots["block"], strict=True):
        if grid and block and VARIES not in (grid, block):
            found.setdefault((name, prod(map(int, block.split("x")))), prod(map(int, grid.split("x"))))
    return found


def _numbers(entry: Input) -> list[tuple[int, int]]:
    """Rank and number of the selected layers."""
    layers = entry.chosen.layers[entry.chosen.layers["selected"]]
    return sorted(zip(layers["rank"].tolist(), layers["number"].tolist(), strict=True))


def _unlike(before: Input, after: Input, value: Callable[[Input], T | None]) -> tuple[Said[T], Said[T]] | None:
    """The first run that is unlike the first of all, whichever side they are on: label and value of the first, and of
    that one. Runs whose value is None say nothing; None where all others are alike."""
    known = [(run.label, said) for run in (*before.runs, *after.runs) if (said := value(run)) is not None]
    return next(((known[0], other) for other in known if other[1] != known[0][1]), None)


def _both(unlike: tuple[Said[Any], Said[Any]]) -> str:
    return " and ".join(f"{value} ({label})" for label, value in unlike)


#: Each asks one thing. Where a group finds something the later ones are not asked: they need what it asks for.
_CHECKS: Sequence[Sequence[Callable[[Input, Input], Iterator[Reason]]]] = (
    (_unanswered,),
    (_other_ranks,),
    (_other_layers_in_side,),
    (
        _other_device,
        _other_workload,
        _several_variants,
        _silent_nodes,
        _incomplete,
        _other_profiler,
        _shared_recording,
        _other_batch,
        _other_method,
        _other_layers,
    ),
)


def lost_replays(run: Input) -> int:
    """How many fewer whole replays a trace shows than there were by the run's own word; negative where more."""
    replays = run.record.replays if run.record else None
    return 0 if replays is None or not run.census.info.timed else replays - run.census.chosen.kind.steps


def few_replays(run: Input) -> str:
    """The sentence that says so."""
    steps = run.census.chosen.kind.steps
    told = counted(steps + lost_replays(run), "time")
    return f"{run.label} replayed {told} and its trace shows {counted(steps, 'whole replay')}."


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
