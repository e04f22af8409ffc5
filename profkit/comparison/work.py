"""Is the work still done? Only outputs that were compared tell it."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from profkit.comparison.model import Input, Reason, Work
from profkit.comparison.outputs import compare_outputs
from profkit.model.outputs import OutputNumbers
from profkit.model.run import ReferenceRecord, ReferencesRecord
from profkit.model.scope import LAYER
from profkit.model.wording import are, counted, listed
from profkit.runs import run_dir

#: The code of outputs that differ from run to run: work is unknown then, whatever the traces show.
NOT_REPRODUCIBLE = "digests-not-reproducible"
#: The code of digests beside a trace that they were not captured with; work is unknown likewise.
OF_ANOTHER_TRACE = "digests-of-another-trace"


@dataclass(frozen=True)
class Digests:
    """What is known of the outputs of a run, or of all runs of a side: their digests and references by name."""

    outputs: Mapping[str, str]
    notes: Mapping[str, Any]
    references: ReferencesRecord | None
    numbers: Mapping[str, OutputNumbers]


def judged(before: Input, after: Input) -> tuple[Work, list[Reason]]:
    """What the outputs of the two sides say: preserved only where outputs of every layer were compared."""
    runs = [*before.runs, *after.runs]
    # First of all: outputs that differ by themselves cannot be told from lost work, whatever else is on record.
    unsteady = [run.label for run in runs if run.record and run.record.untraced_digests_equal is False]
    if unsteady:
        message = f"{unsteady[0]} gave other outputs when it ran without the profiler, so digests tell nothing."
        return "unknown", [Reason(NOT_REPRODUCIBLE, message)]
    strange = [run.label for run in runs if _digests(run) is not None and _replaced(run)]
    if strange:
        message = f"The output digests of {strange[0]} may be another recording's, so they tell nothing about its work."
        return "unknown", [Reason(OF_ANOTHER_TRACE, message)]
    for side in (before, after):
        if _disagree(side):
            message = f"The runs of {side.label} do not agree on their own outputs, so digests tell nothing."
            return "unknown", [Reason(NOT_REPRODUCIBLE, message)]
    sides = [_by_inputs(before), _by_inputs(after)]
    if not all(sides):
        message = (
            "No outputs were compared, so nothing shows that all work is still done. Capture both sides with profkit "
            "capture, or judge launches alone with --expect-removed."
        )
        return "unknown", [Reason("outputs-not-compared", message)]
    shared = [inputs for inputs in sides[0] if inputs in sides[1]]
    one, other = _together(sides[0], shared), _together(sides[1], shared)
    blind = _tell_nothing(one.numbers) & _tell_nothing(other.numbers)
    one, other = _without(one, blind), _without(other, blind)
    if blind and not one.outputs:
        message = f"The outputs are infinite or NaN on both sides (e.g. {min(blind)}), so they tell nothing."
        return "unknown", [Reason("outputs-not-finite", message)]
    work, why = _compared(before.label, one, after.label, other)
    unseen = []
    if blind:
        told = f"{counted(len(blind), 'output')} {are(len(blind))} infinite or NaN on both sides"
        message = f"{told} and tell nothing, e.g. {min(blind)}."
        unseen = [Reason("outputs-not-finite", message)]
    left = _not_compared(before, after, shared)
    # What differs in one rank is lost, whatever cannot be compared in others.
    if left is not None and work != "lost":
        return "unknown", [left]
    missing = _layers_without_outputs(before, after, set(one.outputs) & set(other.outputs))
    if work == "preserved" and missing:
        numbers = listed([str(number) for number in missing], _LISTED)
        message = f"No compared output names layer {numbers}: {len(missing)} of the trace's layers are not checked."
        return "partly", [why, Reason("outputs-partly", message), *unseen]
    return work, [why, *unseen]


#: Layers that a sentence lists.
_LISTED = 6


def _layers_without_outputs(before: Input, after: Input, outputs: Collection[str]) -> list[int]:
    """Numbers of layers that a run's trace shows and that no output of its own names; of a number that several stacks
    have, an output of each is needed."""
    missing: set[int] = set()
    for run in (*before.runs, *after.runs):
        prefix = _prefix(_inputs(run)[0])
        named: dict[int, set[str]] = {}
        for name in outputs:
            own = name.rpartition(": ")[2]
            if name.startswith(prefix) and (found := LAYER.search(own)):
                named.setdefault(int(found.group(1)), set()).add(own[: found.start(1)])
        layers = run.census.chosen.layers
        stacks = layers.groupby("number")["stack"].nunique()
        shown = zip(stacks.index.tolist(), stacks.tolist(), strict=True)
        missing |= {int(number) for number, count in shown if len(named.get(int(number), ())) < count}
    return sorted(missing)


def _without(digests: Digests, names: Collection[str]) -> Digests:
    return replace(digests, outputs={name: own for name, own in digests.outputs.items() if name not in names})


def _prefix(rank: int | None) -> str:
    return "" if rank is None else f"rank {rank}: "


def _tell_nothing(numbers: Mapping[str, OutputNumbers]) -> set[str]:
    """Outputs that are infinite or NaN in half of their elements or more: whatever was lost, they would be the same."""
    return {name for name, own in numbers.items() if 2 * own.nonfinite >= max(math.prod(own.shape), 1)}


def _compared(before: str, first: Digests, after: str, second: Digests) -> tuple[Work, Reason]:
    """The answer of the digests that both sides have on the same inputs.

    Args:
        before, after: the labels of the sides.
        first, second: from `_together`.
    """
    one, other = first.outputs, second.outputs
    missing = sorted(set(one) - set(other))
    if missing:
        exist = "exists" if len(missing) == 1 else "exist"
        return "lost", Reason(
            "outputs-missing", f"{counted(len(missing), 'output')} {exist} no longer, e.g. {missing[0]}."
        )
    said = _digest_notes(first)
    different = [name for name in one if one[name] != other[name]]
    if different:
        by_references = _judge_by_references(different, (before, first), (after, second))
        if by_references is not None:
            return by_references
        if all(name in first.numbers and name in second.numbers for name in different):
            return _judge_by_numbers(different, first, second)
        message = (
            f"{len(different)} of {len(one)} output digests differ, e.g. {different[0]}{said}. Whether by more than "
            "reordered arithmetic does, digests alone cannot tell: capture both sides again."
        )
        return "unknown", Reason("outputs-differ-in-bits", message)
    return "preserved", Reason("digests-equal", f"All {len(one)} output digests are equal, bit for bit{said}.")


def _digests(entry: Input) -> Digests | None:
    """What its run.json says of its outputs; None where it has digests of none."""
    said = entry.record.digests if entry.record else None
    if said is None or not said.outputs:
        return None
    return Digests(said.outputs, said.notes or {}, said.references, entry.numbers)


def _replaced(run: Input) -> bool:
    """Whether its trace is not the one that its run.json was written for."""
    return any(d.code == run_dir.REPLACED for d in run.census.diagnostics)


#: What decides the outputs of a run: its rank (None of a run that is no rank) and its seed.
Inputs = tuple[int | None, int | None]


def _inputs(run: Input) -> Inputs:
    of = None if run.record is None else run.record.ranks
    return None if of is None else of.rank, run.record.seed if run.record else None


def _by_inputs(side: Input) -> dict[Inputs, Digests]:
    """The digests of a side; runs of the same inputs have the same, see `_disagree`."""
    return {_inputs(run): digests for run in side.runs if (digests := _digests(run)) is not None}


def _disagree(side: Input) -> bool:
    """Whether runs that should compute the same do not."""
    found: dict[Inputs, set[str]] = {}
    for run in side.runs:
        digests = _digests(run)
        if digests is not None:
            found.setdefault(_inputs(run), set()).add(json.dumps(digests.outputs, sort_keys=True))
    return any(len(texts) > 1 for texts in found.values())


def _not_compared(before: Input, after: Input, shared: Sequence[Inputs]) -> Reason | None:
    """The runs whose outputs cannot be held against the other side's; None where there are none."""
    lacking = [(side, run) for side in (before, after) for run in side.runs if _digests(run) is None]
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        have = "have" if more else "has"
        message = f"{_who(*lacking[0])}{more} {have} no output digests, so whether all work is done is not proven."
        return Reason("digests-missing", message)
    alone = [(side, run) for side in (before, after) for run in side.runs if _inputs(run) not in shared]
    if not alone:
        return None
    seeds = {_inputs(run)[1] for side in (before, after) for run in side.runs}
    if len(seeds) > 1:
        listed = ", ".join(sorted(map(str, seeds)))
        message = f"The outputs were digested on inputs of different seeds ({listed}), e.g. {_who(*alone[0])}."
    else:
        message = f"{_who(*alone[0])} has outputs that no run of the other side has."
    return Reason("digests-of-other-inputs", message)


def _who(side: Input, run: Input) -> str:
    rank = _inputs(run)[0]
    return f"Run {run.label}" if rank is None else f"Rank {rank} of {side.label} (run {run.label})"


def _together(digests: Mapping[Inputs, Digests], shared: Sequence[Inputs]) -> Digests:
    """The digests of one side on the `shared` inputs, the outputs of every rank and seed under names of their own."""
    outputs: dict[str, str] = {}
    notes = digests[shared[0]].notes if shared else {}
    held: ReferencesRecord | None = None
    numbers: dict[str, OutputNumbers] = {}
    referenced: dict[str, ReferenceRecord] = {}
    several = len({seed for _, seed in shared}) > 1
    for inputs in shared:
        rank, seed = inputs
        prefix = _prefix(rank) + (f"seed {seed}: " if several else "")
        own = digests[inputs]
        outputs |= {prefix + name: value for name, value in own.outputs.items()}
        numbers |= {prefix + name: value for name, value in own.numbers.items()}
        if own.references is not None:
            held = own.references
            referenced |= {prefix + name: value for name, value in held.outputs.items()}
    references = None if held is None else msgspec.structs.replace(held, outputs=referenced)
    return Digests(outputs, notes, references, numbers)


def _judge_by_references(
    different: Sequence[str], before: tuple[str, Digests], after: tuple[str, Digests]
) -> tuple[Work, Reason] | None:
    """What the references say of outputs that differ; None where one of these has none on a side.

    Args:
        different: the outputs whose digests differ, at least one.
        before, after: a side's label and its digests.
    """
    one, other = before[1].references, after[1].references
    if one is None or other is None or not all(name in side.outputs for side in (one, other) for name in different):
        return None
    same_tolerance = (one.rtol, one.atol) == (other.rtol, other.atol)
    if not same_tolerance or any(one.outputs[n].reference != other.outputs[n].reference for n in different):
        message = (
            f"{len(different)} output digests differ, and the sides were held against other references or tolerances, "
            "so nothing tells whether they differ by more than they may."
        )
        return "unknown", Reason("references-differ", message)
    allowed = f"rtol {one.rtol:g}, atol {one.atol:g}"
    for label, side in ((before[0], one), (after[0], other)):
        off = [name for name in different if not _within(side.outputs[name])]
        if off:
            message = (
                f"{len(off)} of {len(side.outputs)} outputs of {label} differ from the other side's and are further "
                f"from an independent reference than {allowed} allow, e.g. {off[0]}."
            )
            return "lost", Reason("outputs-off-reference", message)
    # None of these is infinite, which is not within.
    largest = max(side.outputs[name].deviation or 0.0 for side in (one, other) for name in different)
    message = (
        f"{len(different)} of {len(before[1].outputs)} output digests differ; on both "
        f"sides these are within {allowed} of one independent reference, off by at most {largest:.0%} of that"
    )
    return "preserved", Reason("outputs-within-tolerance", f"{message}{_digest_notes(before[1])}.")


def _judge_by_numbers(different: Sequence[str], before: Digests, after: Digests) -> tuple[Work, Reason]:
    """What sums and norms say of outputs that differ in bits."""
    found = compare_outputs({n: before.numbers[n] for n in different}, {n: after.numbers[n] for n in different})
    off = found.of("differs", "other-kind")
    total = len(before.outputs)
    if off:
        more = f"; {len(off) - 1} more differ" if len(off) > 1 else ""
        first = f"{off[0].name}: {off[0].says}{more}"
        message = f"{len(off)} of {total} outputs differ by more than reordered arithmetic: {first}."
        return "lost", Reason("outputs-differ", message)
    worst = max(found.outputs, key=lambda output: (output.difference or 0.0) / (output.allowed or 1.0))
    message = (
        f"{len(different)} of {total} outputs differ in bits, and by no more than reordered arithmetic: at most "
        f"{worst.difference:.2g} of the norm of a block of {counted(worst.rows, 'row')}, where {worst.allowed:.2g} is "
        "allowed"
    )
    return "preserved", Reason("outputs-within-tolerance", f"{message}{_digest_notes(before)}.")


def _within(output: ReferenceRecord) -> bool:
    return output.within and output.deviation is not None


def _digest_notes(digests: Digests) -> str:
    """What a workload said of its digest inputs, in brackets; empty where it said nothing."""
    said = digests.notes.get("digest_inputs")
    return f" (inputs: {said})" if isinstance(said, str) else ""
