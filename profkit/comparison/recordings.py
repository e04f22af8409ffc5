"""What is to be said of the recordings themselves: which kind of step of either side is compared, what the recordings
lost, what the comparison leaves out, which run is odd."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from fractions import Fraction

from profkit.comparison.comparable import few_replays, lost_replays
from profkit.comparison.model import Input, Launch, Reason
from profkit.counting import ranks
from profkit.counting.ranks import unlike
from profkit.model.census import Census, KindCensus
from profkit.model.names import display
from profkit.model.wording import are, counted, listed
from profkit.runs import run_dir

#: Two kinds whose likeness to the other side differs by less are not told apart by their kernels.
_TELLING = 0.02


def matched_kinds(before: Input, after: Input) -> tuple[Input, list[Reason], list[Reason]]:
    """`after` with the kind of step that is most like the one chosen for `before`.

    Without ``--graph`` each side would report its longest kind, and the longest need not be the same graph twice.

    Returns:
        after; notes; and what forbids the comparison.
    """
    if any(r.census.selection.graph is not None or r.census.refusal is not None for r in (*before.runs, *after.runs)):
        return after, [], []
    if not before.census.kinds or all(len(_with_layers(run.census)) < 2 for run in (*before.runs, *after.runs)):
        return after, [], []
    wanted = before.census.chosen
    notes: list[Reason] = []
    runs: list[Input] = []
    for run in after.runs:
        index, reason = most_like(wanted, before.census, run.census)
        if index is None:
            return after, notes, [] if reason is None else [reason]
        if reason is not None:
            notes.append(reason)
        runs.append(dataclasses.replace(run, census=dataclasses.replace(run.census, default=index), more=()))
    return dataclasses.replace(runs[0], label=after.label, more=tuple(runs[1:]), own=after.own), notes[:1], []


def most_like(wanted: KindCensus, before: Census, after: Census) -> tuple[int | None, Reason | None]:
    """Which kind of step of `after` is the same as `wanted`, one of `before`; and what is to be said of that."""
    candidates = _with_layers(after)
    if not candidates:
        return None, None
    like = {index: wanted.likeness(after.kinds[index]) for index in candidates}
    best = max(like.values())
    alike = [index for index in candidates if best - like[index] < _TELLING]
    named = [index for index in alike if wanted.kind.batch and after.kinds[index].kind.batch == wanted.kind.batch]
    if len(alike) == 1 or len(named) == 1:
        return (named or alike)[0], None
    peers = [i for i in _with_layers(before) if wanted.likeness(before.kinds[i]) > 1 - _TELLING]
    if len(peers) == len(alike):
        # The same number of graphs with the same kernels on both sides: batch sizes, captured in one order.
        position = _by_id(before, peers).index(next(i for i in peers if before.kinds[i] is wanted))
        index = _by_id(after, alike)[position]
        message = (
            f"{len(alike)} kinds of step run the same kernels; {wanted.kind.name} is compared "
            f"with {after.kinds[index].kind.name} by the order of their capture. Choose with --graph."
        )
        return index, Reason("step-kind-by-order", message)
    shown = ", ".join(after.kinds[i].kind.name for i in alike)
    message = (
        f"Which kind of step is the same on both sides cannot be told ({shown} run the same kernels). Use --graph."
    )
    return None, Reason("other-step-kind", message)


def _with_layers(census: Census) -> list[int]:
    return [index for index, kind in enumerate(census.kinds) if len(kind.layers)]


def _by_id(census: Census, indices: list[int]) -> list[int]:
    def number(index: int) -> tuple[str, int]:
        word, _, rest = census.kinds[index].kind.id.partition(" ")
        digits = rest.split(" ")[0]
        return word, int(digits) if digits.isdigit() else index

    return sorted(indices, key=number)


#: Diagnostics of a census by which ops are missing, doubled, not placed or perhaps in other layers, or run.json is of
#: another trace; the rest is about methods and settings.
_LOSSES = (
    "partial-replay",
    "doubled-node",
    "launches-without-ops",
    "eager-launches-without-ops",
    "nodes-without-ops",
    "set-aside",
    "duplicate-rows",
    "mixed-processes",
    "conflicting-origins",
    "cyclic-origin",
    "node-created-twice",
    "origin-not-recorded",
    "cut-leaves-ops",
    "cut-doubtful",
    "cut-aligned",
    "cut-differs",
    ranks.ALONE,
    run_dir.REPLACED,
)
#: In a diff, runs are set aside; broken rows have another code there.
_CODE = {"set-aside": "rows-set-aside"}
#: Kinds of step, and names of launches, that a sentence lists.
_LISTED = 3


def losses(before: Input, after: Input) -> Iterator[Reason]:
    """What the recordings lost or hold twice, as far as it forbids no answer."""
    for side in (before, after):
        few = [run for run in side.runs if lost_replays(run) > 0]
        if few:
            yield Reason("fewer-replays", _several(side, len(few)) + few_replays(few[0]))
        more = [run for run in side.runs if lost_replays(run) < 0]
        if more:
            message = f"{few_replays(more[0])} The two may be of different recordings."
            yield Reason("more-replays", _several(side, len(more)) + message)
        said_by_run = ranks.diagnostics(side.runs)
        for code in _LOSSES:
            said = [
                (run.label, d.message)
                for run, diagnostics in zip(side.runs, said_by_run, strict=True)
                for d in diagnostics
                if d.code == code and not (code == "nodes-without-ops" and _only_in_layers(run))
            ]
            if said:
                label, message = said[0]
                yield Reason(_CODE.get(code, code), f"{_several(side, len(said))}{label}: {message}")


def _only_in_layers(run: Input) -> bool:
    """Whether all nodes that never ran lie in layers: those forbid a comparison, or are known to be no loss."""
    silent = run.census.silent_nodes
    return silent.count == silent.in_layers


def _several(side: Input, count: int) -> str:
    return f"{count} of {len(side.runs)} runs of {side.label}, e.g. " if len(side.runs) > 1 else ""


def ranks_as_runs(before: Input, after: Input) -> Iterator[Reason]:
    """Bare traces that are compared as independent runs and may be ranks of one job."""
    sides = [(side.label, ranks.may_be_ranks(side.runs)) for side in (before, after)]
    found = [f"{count} files of {label}" for label, count in sides if count > 1]
    if found and before.census.info.timed:
        message = (
            f"{' and '.join(found)} hold collectives, and no run.json says whether they are ranks of one job. They "
            "count as independent runs; ranks wait for each other and are none, so if they are ranks, the intervals "
            "are too narrow. Capture with profkit capture --nproc, whose run.json tells."
        )
        yield Reason("ranks-as-runs", message)


def unlike_steps(before: Input, after: Input) -> Iterator[Reason]:
    """Ranks of one job with unlike numbers of steps, of which the first ones are compared."""
    for side in (before, after):
        steps: dict[int, set[int]] = {}
        for job, run in zip(side.jobs, side.runs, strict=True):
            steps.setdefault(job, set()).add(run.census.chosen.kind.steps)
        found = next((numbers for numbers in steps.values() if len(numbers) > 1), None)
        if found is not None:
            numbers = " and ".join(map(str, sorted(found)))
            message = (
                f"Ranks of {side.label} recorded {numbers} steps; the first {min(found)} of each are compared, as if "
                "they were the same steps."
            )
            yield Reason("ranks-unlike-steps", message)


def unlike_runs(before: Input, after: Input) -> Iterator[Reason]:
    """Runs that differ from the others of their side."""
    for side in (before, after):
        runs = side.runs
        for index, text in unlike([run.census.chosen for run in runs]):
            yield Reason("unlike-run", f"{runs[index].label} is unlike the other runs of its side: {text}.")


def other_kinds(before: Input, after: Input) -> Iterator[Reason]:
    """Steps of other kinds, which the comparison leaves out."""
    for run in (*before.runs, *after.runs):
        chosen = run.census.chosen.kind
        others = [k.kind for k in run.census.kinds if k is not run.census.chosen]
        if others and run.census.selection.graph is None:
            shown = listed([f"{k.steps} of {k.name} with {k.ops_per_step} launches" for k in others], _LISTED)
            left = sum(k.steps for k in others)
            message = (
                f"{counted(left, 'step')} of {run.label} with other launches {are(left)} not compared ({shown}); "
                f"{chosen.steps} of {chosen.name} with {chosen.ops_per_step} {are(chosen.steps)}."
            )
            yield Reason("other-step-kinds", message)


def between(before: Input, after: Input) -> Iterator[Reason]:
    """Launches that run between the steps and differ in number."""
    sides = before.between_steps, after.between_steps
    different = [launch for launch in {**sides[0], **sides[1]} if sides[0].get(launch, 0) != sides[1].get(launch, 0)]
    if different:
        changes = [
            f"{display(name)} {_each(sides[0], name, kind)} → {_each(sides[1], name, kind)}" for name, kind in different
        ]
        yield Reason(
            "between-steps-differ", f"Between two steps, launches differ in number: {listed(changes, _LISTED)}."
        )


def _each(between: Mapping[Launch, Fraction], name: str, kind: str) -> str:
    return f"{float(between.get((name, kind), 0)):g}"


def beyond(before: Input, after: Input) -> Iterator[Reason]:
    """Launches outside the compared steps that differ in number. Only of recordings of as many runs and steps: a longer
    one has more of them."""
    sides = (before, after)
    if len(before.runs) != len(after.runs) or before.chosen.kind.steps != after.chosen.kind.steps:
        return
    counts = [side.beyond_steps for side in sides]
    different = {key: (counts[0][key], counts[1][key]) for key in counts[0] | counts[1]}
    different = {key: pair for key, pair in different.items() if pair[0] != pair[1]}
    if not different:
        return
    changes = listed([f"{display(name)} {b} → {a}" for (name, _), (b, a) in different.items()], _LISTED)
    message = (
        f"Outside the compared steps, launches differ in number: {changes}. What is new there is not counted as "
        "gone; nothing else of it is judged."
    )
    yield Reason("beyond-steps-differ", message)
