"""`profkit diff`: did the launches go, did anything else move, is the work still done?"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from profkit import reporters
from profkit.comparison.compare import compare
from profkit.comparison.model import Gates, Input, Reason
from profkit.errors import Exit, NothingSelectedError, ProfkitError
from profkit.model.census import Census
from profkit.model.run import MessageRecord
from profkit.model.selection import Selection
from profkit.model.wording import are, were
from profkit.reporters.diff import answer
from profkit.runs import files, planned
from profkit.runs.phases import in_phase

#: Pairs that a sentence lists.
_LISTED = 6


def diff(specs: Sequence[str], selection: Selection, gates: Gates, output_format: str) -> Exit:
    """Print the comparison of two runs and return its exit status.

    Args:
        specs: before and after, each one run or several of one side; or one directory that holds two arms.

    Raises:
        ProfkitError: bad input.
    """
    shown_as = reporters.find(output_format, "diff")
    sides = two_sides(specs)
    before, after = (_recorded_well(side) for side in sides)
    notes = [reason for spec in specs for reason in _not_recorded(spec)]
    notes += [reason for side in sides for reason in _stalled(side)]
    comparison = compare(*_inputs(before, after, selection), gates, notes=notes)
    shown_as.write(answer(comparison))
    return comparison.exit_code


@dataclass(frozen=True)
class Side:
    """The runs of one side: ranks of a job, or repeated captures of one arm."""

    label: str
    runs: Sequence[files.RunFile]


def two_sides(specs: Sequence[str]) -> tuple[Side, Side]:
    """The runs before and the runs after.

    Raises:
        ProfkitError: there are not two sides.
    """
    if len(specs) == 1:
        return _arms(specs[0])
    if len(specs) != 2:
        raise ProfkitError(f"A diff takes two sides, before and after; {len(specs)} were given.")
    found = [files.find(spec) for spec in specs]
    labels = [f[0].label if len(f) == 1 else spec for f, spec in zip(found, specs, strict=True)]
    if labels[0] == labels[1]:
        labels = list(specs)  # one name for both sides would make the report unreadable
    found = _told_apart(found)
    return Side(labels[0], found[0]), Side(labels[1], found[1])


def _told_apart(sides: Sequence[Sequence[files.RunFile]]) -> list[list[files.RunFile]]:
    """The runs of both sides, those that share a name called by their paths."""
    named = Counter(run.label for side in sides for run in side)

    def path(run: files.RunFile) -> str:
        return (run.trace if run.record is None else run.trace.parent).as_posix()

    return [
        [dataclasses.replace(run, label=path(run)) if named[run.label] > 1 else run for run in side] for side in sides
    ]


def _arms(spec: str) -> tuple[Side, Side]:
    """The two arms of a directory, the one that its capture named first before the other."""
    arms: dict[str, list[files.RunFile]] = {}
    for run in files.find(spec):
        arms.setdefault(run.label.split("/")[0], []).append(run)
    if len(arms) != 2 or all(arm.isdigit() for arm in arms):
        raise ProfkitError(
            f"{spec} does not hold two arms ({', '.join(arms)}). Name both sides: profkit diff BEFORE AFTER."
        )
    order = _baseline_first(spec, arms)
    return Side(order[0], arms[order[0]]), Side(order[1], arms[order[1]])


def _baseline_first(spec: str, arms: Mapping[str, Sequence[files.RunFile]]) -> list[str]:
    """The names of two arms in the order in which their capture was asked for them, whichever repetitions are there.

    Arms lie there by name. capture.json has their order; without it the place of any repetition tells, because pairs
    are recorded as A B, B A, A B, … Runs that no repeated capture made are taken by name.

    Raises:
        ProfkitError: the repetitions do not tell.
    """
    planned_order = planned.arms(spec)
    if set(planned_order) == set(arms):
        return list(planned_order)
    places = {name: {_place(run) for run in members} for name, members in arms.items()}
    by_place = sorted(arms, key=lambda name: min(places[name]))
    if [places[name] for name in by_place] in ([{0}, {1}], [{_NO_PLACE}, {_NO_PLACE}]):
        return by_place
    raise ProfkitError(
        f"Which arm of {spec} is the baseline cannot be told: it holds no {planned.PLAN_FILE} with these arms, and its "
        "repetitions do not tell. Name both sides: profkit diff BEFORE AFTER."
    )


_NO_PLACE = -1


def _place(run: files.RunFile) -> int:
    """Which arm of its capture a repetition says that it is of, from 0; `_NO_PLACE` where it says nothing."""
    repetition = run.record.repetition if run.record else None
    if repetition is None or repetition.sequence is None or repetition.pair is None:
        return _NO_PLACE
    return (repetition.sequence + repetition.pair) % 2


def _recorded_well(side: Side) -> Side:
    """`side` without the runs that their capture set aside.

    Raises:
        ProfkitError: all of them were.
    """
    kept = [run for run in side.runs if not _set_aside(run)]
    if not kept:
        why = _set_aside(side.runs[0])
        raise ProfkitError(
            f"Every run of {side.label} was set aside when it was captured ({why.message if why else None})."
        )
    return Side(side.label, kept)


def _set_aside(run: files.RunFile) -> MessageRecord | None:
    return run.record.set_aside if run.record else None


def _not_recorded(spec: str) -> Iterator[Reason]:
    """Repetitions that the capture planned and that are not there."""
    found = []
    for arm in planned.missing(spec):
        numbers = ", ".join(map(str, arm.pairs[:_LISTED])) + (" …" if len(arm.pairs) > _LISTED else "")
        pairs = f"pair{'' if len(arm.pairs) == 1 else 's'} {numbers}"
        found.append(f"{len(arm.pairs)} of {arm.planned} planned repetitions of {arm.arm} ({pairs})")
    if found:
        message = (
            f"Not there: {' and '.join(found)}. The capture was stopped, or is still running, and has not judged yet "
            "which repetitions stalled."
        )
        yield Reason("repetitions-missing", message)


def _stalled(side: Side) -> Iterator[Reason]:
    """Repetitions that were set aside, and those in whose window something compiled although they were not."""
    reasons = [_set_aside(run) for run in side.runs]
    found = Counter(str(r.code) for r in reasons if r)
    if found:
        causes = ", ".join(f"{code} {count}" for code, count in found.items())
        message = (
            f"{found.total()} of {len(side.runs)} runs of {side.label} {were(found.total())} set aside by the capture "
            f"and {are(found.total())} left out ({causes})."
        )
        yield Reason("set-aside", message)
    kept = [run for run, reason in zip(side.runs, reasons, strict=True) if not reason]
    compiled = [run.label for run in kept if run.record and run.record.compiles and run.record.compiles.inside]
    if compiled:
        message = (
            f"Something compiled inside the recorded window of {len(compiled)} of {len(kept)} runs of {side.label}, "
            f"e.g. {compiled[0]}: its first replays may be slower. Capture again."
        )
        yield Reason("compiled-inside-window", message)


def _inputs(before: Side, after: Side, selection: Selection) -> tuple[Input, Input]:
    every = [*before.runs, *after.runs]
    identities = files.identities(every)
    censuses: dict[str, Census] = {}
    inputs: list[Input] = []
    for run, identity in zip(every, identities, strict=True):
        # The same recording on both sides is read once.
        if identity not in censuses:
            try:
                censuses[identity] = files.census_of(run, selection)
            except NothingSelectedError as error:
                raise ProfkitError(_one_sided(error, run.label, after=len(inputs) >= len(before.runs))) from None
            if inputs and run not in before.runs:
                # Where layers by period begin is a convention; the before side sets it for both.
                censuses[identity] = in_phase(inputs[0].census, censuses[identity], _recount(run, selection))
        # Counts without times are the same in every run by nature: only one file given twice is the same recording.
        own = identity if censuses[identity].info.timed else str(run.trace.resolve())
        inputs.append(Input(run.label, files.noted(censuses[identity], run), run.record, own))
    sides = [_distinct(side) for side in (inputs[: len(before.runs)], inputs[len(before.runs) :])]
    first, second = (
        dataclasses.replace(side[0], label=label, more=tuple(side[1:]), own=side[0].label if len(side) > 1 else None)
        for side, label in zip(sides, (before.label, after.label), strict=True)
    )
    return first, second


def _one_sided(error: NothingSelectedError, label: str, *, after: bool) -> str:
    """`error`, with the side that it is about: the sides are counted in order, so that before has what after lacks."""
    if not after:
        return f"{label}, before: {error}"
    return f"{label}, after: {error} Before has it; select what both sides have, e.g. the part around it."


def _distinct(side: Sequence[Input]) -> Sequence[Input]:
    """`side`, refused if one recording is in it twice: copies would pass for independent runs that agree.

    Raises:
        ProfkitError: two of the runs are the same recording.
    """
    labels: dict[str | None, str] = {}
    for run in side:
        if run.identity in labels:
            raise ProfkitError(
                f"{labels[run.identity]} and {run.label} are the same recording, given twice on one side. Copies are "
                "no repeated runs; leave one out."
            )
        labels[run.identity] = run.label
    return side


def _recount(run: files.RunFile, selection: Selection) -> Callable[[str], Census]:
    return lambda start: files.census_of(run, dataclasses.replace(selection, start=start))
