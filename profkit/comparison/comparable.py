"""Can the two inputs be compared at all? If not: a code, and the next thing to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from profkit import jobs, roles
from profkit.comparison.model import Input, Reason
from profkit.integrity import no_layers_advice
from profkit.merging import same_layers
from profkit.steps import UNDER_RECORDED_SHARE

#: What `--force` may set aside: the numbers exist, only their likeness is in doubt.
FORCEABLE = frozenset(
    [
        "other-device",
        "other-profiler",
        "other-workload",
        "other-shapes",
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
    names = [_device_names(e) for e in (before, after)]
    if names[0] and names[1] and names[0] != names[1]:
        listed = " and ".join(", ".join(sorted(n)) for n in names)
        found.append(Reason("other-device", f"The runs are from different devices: {listed}. Record both on one kind."))
    found += _silent_nodes(before, after)
    found += [reason for entry in (before, after) for run in entry.runs for reason in _incomplete(run)]
    if before.census.info.timed != after.census.info.timed:
        message = "One side counts dispatches on a CPU and the other launches on a GPU. Capture both the same way."
        found.append(Reason("other-profiler", message))
    else:
        profilers = [{run.census.info.profiler.split(" ")[0] for run in e.runs} for e in (before, after)]
        if profilers[0] != profilers[1]:
            shown = " and ".join(", ".join(sorted(p)) for p in profilers)
            message = (
                f"The sides were recorded by different profilers ({shown}), which time the same kernel "
                "differently. Record both with one."
            )
            found.append(Reason("other-profiler", message))
    shared = {run.identity for run in before.runs} & {run.identity for run in after.runs} - {None}
    if shared and {r.identity for r in before.runs} != {r.identity for r in after.runs}:
        message = f"{len(shared)} recordings are on both sides, among others that are not. Give each run to one side."
        found.append(Reason("shared-recording", message))
    ranks = [_processes_a_file(e) for e in (before, after)]
    if ranks[0] != ranks[1]:
        message = (
            f"A recording holds ops of {ranks[0]} processes before and of {ranks[1]} after: a rank may be missing. "
            "Record the same processes."
        )
        found.append(Reason("other-ranks", message))
    found += _other_ranks(before, after)
    found += _other_workload(before.record, after.record)
    placed = [_by_pattern(e) for e in (before, after)]
    if placed[0] != placed[1]:
        how = {True: "by the pattern of its kernels", False: "by ranges"}
        message = (
            f"The layers of {before.label} were found {how[placed[0]]} and those of {after.label} {how[placed[1]]}, so "
            "they need not begin and end at the same kernels. Record both sides with ranges, or give --anchor for both."
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
    sizes = [jobs.world_sizes(side) for side in records]
    if sizes[0] != sizes[1]:
        shown = " and ".join(", ".join(map(str, sorted(s))) for s in sizes)
        yield Reason("other-ranks", f"The jobs have other numbers of ranks: {shown}. Capture both with one --nproc.")
        return
    there = {ranks for side in records for ranks in jobs.ranks_by_job(side)}
    if len(there) > 1:
        shown = " and ".join(", ".join(map(str, sorted(ranks))) for ranks in sorted(there, key=sorted))
        message = f"Not every job has the same ranks here: {shown}. Compare all of them, or the same rank of each."
        yield Reason("other-ranks", message)


def _processes_a_file(entry: Input) -> int:
    """The most processes that one recording of a side has ops of."""
    return max(run.census.processes_with_ops for run in entry.runs)


def _by_pattern(entry: Input) -> bool:
    """Whether the layers come from the order of kernels alone, which knows no scopes."""
    return any({"anchor", "period"} & set(run.census.methods) for run in entry.runs)


def _numbers(entry: Input) -> list[int]:
    layers = entry.census.chosen.layers
    return sorted(layers["number"][layers["selected"]].tolist())


def _only(before: Input, after: Input) -> list[tuple[set[int], set[int]]]:
    one, other = set(_numbers(before)), set(_numbers(after))
    return [(one, other), (other, one)]


def _silent_nodes(before: Input, after: Input) -> Iterator[Reason]:
    """Nodes that never ran an op: lost launches would look removed.

    NCCL captures such nodes beside its kernels (events, host calls). Where all runs have as many of them in the same
    exchanges, no launch can look removed for them.
    """
    runs = [*before.runs, *after.runs]
    places = {tuple(sorted(run.census.silent_nodes.layer_scopes.items())) for run in runs}
    if len(places) == 1 and all(_are_exchanges(run) for run in runs):
        return
    for run in runs:
        if run.census.silent_nodes.in_layers:
            message = (
                f"{run.census.silent_nodes.in_layers} graph nodes in layers of {run.label} never ran an op. If they "
                "are no host or empty nodes, the recording lost launches, which would look removed. Record again."
            )
            yield Reason("nodes-without-ops", message)


def _are_exchanges(run: Input) -> bool:
    """Whether every scope of a layer's silent nodes holds a collective."""
    slots, layers = run.census.chosen.slots, run.census.chosen.layers
    scopes = layers["scope"].iloc[slots["layer"].to_numpy()]
    held = {
        f"{scope}/{inside}" if inside else scope
        for scope, inside, role in zip(scopes, slots["inside"], roles.of_slots(slots, run.record), strict=True)
        if role == "collective"
    }
    return set(run.census.silent_nodes.layer_scopes) <= held


def _incomplete(run: Input) -> Iterator[Reason]:
    """What the recording lacks, by its own word or by the word of its run.json."""
    census, record = run.census, run.record or {}
    layers = (record.get("workload") or {}).get("layers")
    if isinstance(layers, int) and layers != len(census.chosen.layers):
        message = f"{run.label} ran {layers} layers and its trace shows {len(census.chosen.layers)}. Capture it again."
        yield Reason("layers-missing", message)
    replays = lost_replays(run)
    if replays and census.chosen.kind.steps < (1 - UNDER_RECORDED_SHARE) * replays:
        yield Reason("under-recorded", f"{few_replays(run, replays)} Capture it again.")


def lost_replays(run: Input) -> int:
    """How many replays there should be by the run's own word, where its trace shows fewer whole ones; 0 elsewhere."""
    replays = (run.record or {}).get("replays")
    if not isinstance(replays, int) or not run.census.info.timed or run.census.chosen.kind.steps >= replays:
        return 0
    return replays


def few_replays(run: Input, replays: int) -> str:
    """The sentence that says so."""
    return f"{run.label} replayed {replays} times and its trace shows {run.census.chosen.kind.steps} whole replays."


def _device_names(entry: Input) -> frozenset[str]:
    names = {name for run in entry.runs for name in run.census.info.devices.values()}
    names |= {(run.record or {}).get("device", {}).get("name") for run in entry.runs if not run.census.info.devices}
    return frozenset(n for n in names if n)


def _other_workload(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Iterator[Reason]:
    first, second = (before or {}).get("workload"), (after or {}).get("workload")
    if not first or not second:
        return
    if first.get("name") != second.get("name"):
        message = f"The runs are of different workloads: {first.get('name')} and {second.get('name')}."
        yield Reason("other-workload", message)
        return
    shapes = [w.get("shapes") or {} for w in (first, second)]
    changed = [k for k in {**shapes[0], **shapes[1]} if shapes[0].get(k) != shapes[1].get(k)]
    if changed:
        listed = ", ".join(f"{k} {shapes[0].get(k)} → {shapes[1].get(k)}" for k in sorted(changed))
        yield Reason("other-shapes", f"The runs have different shapes: {listed}. Capture both with the same --shape.")


#: Settings of a run that are named where they differ, by their place in run.json.
_SETTINGS = (
    ("profiler", "name"),
    ("profiler", "version"),
    ("versions", "driver"),
    ("versions", "cuda"),
    ("versions", "torch"),
    ("versions", "triton"),
    ("seed",),
    ("warmup",),
    ("commit",),
)


def differing_settings(before: Input, after: Input) -> list[str]:
    """Settings under which the two were recorded that are not the same, each as ``name a → b``."""
    found: list[str] = []
    if before.record is not None and after.record is not None:
        for path in _SETTINGS:
            values = [_at(r, path) for r in (before.record, after.record)]
            if values[0] != values[1]:
                found.append(f"{' '.join(path)} {values[0]} → {values[1]}")
    elif before.census.info.profiler != after.census.info.profiler:
        found.append(f"profiler {before.census.info.profiler} → {after.census.info.profiler}")
    return found


def _at(record: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = record
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
