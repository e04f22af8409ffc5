"""The protocol for one region: check, screen, time in interleaved orders."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from profkit.capture.progress import Lines
from profkit.errors import ProfkitError
from profkit.sweep.attempts import Attempts, workload_errors
from profkit.sweep.clock import Clock, Entry, runs_in_a_sample
from profkit.sweep.plan import Plan, Region, State
from profkit.sweep.statistics import RULE
from profkit.tunable import Configuration, Problem

Status = Literal["timed", "screened", "rejected", "failed", "wrong"]

#: Samples of each configuration in the screening, of one run each.
SCREEN_REPLAYS = 3


@dataclass
class Candidate:
    """A configuration and what became of it.

    Args:
        known: the tables that choose it.
        reason: why it was not timed; None for those that were.
        screen_us: state to its median in the screening, one run a sample.
        samples_us: state to samples, ``[copies][orders][replays]``.
    """

    configuration: dict[str, int]
    known: Sequence[str]
    status: Status = "timed"
    reason: str | None = None
    screen_us: dict[State, float] = field(default_factory=dict)
    samples_us: dict[State, list[list[list[float]]]] = field(default_factory=dict)

    def leave(self, status: Status, reason: str) -> None:
        """It will not be timed (any further)."""
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Measured:
    """A region that was swept.

    Args:
        candidates: every configuration that was tried.
        reference: the index of the one that was measured as copies; None where nothing could be timed.
        runs: state to how many runs a sample is.
        nothing_us: state to samples of a run that does nothing, ``[orders][replays]``.
        known: what known tables choose, as `Problem.known`.
        least_bytes, tolerance: as in `Problem`.
    """

    candidates: Sequence[Candidate]
    reference: int | None
    runs: Mapping[State, int]
    nothing_us: Mapping[State, Sequence[Sequence[float]]]
    known: Mapping[str, Configuration]
    least_bytes: int | None
    tolerance: tuple[float, float]


def build(plan: Plan, region: Region) -> Problem:
    """The problem of `region`.

    Raises:
        ProfkitError: the workload cannot build it.
    """
    with workload_errors(f"building region {region.name}"):
        return plan.tunable.build(plan.context(region))


def measure(plan: Plan, region: Region, problem: Problem, clock: Clock, display: Lines) -> Measured:
    """Sweep one region; call it inside the clock's `region`.

    Raises:
        ProfkitError: the workload fails in a way that is no matter of one configuration.
    """
    candidates = [
        Candidate(configuration, [name for name, entry in problem.known.items() if dict(entry) == configuration])
        for configuration in plan.configurations(region, problem.known)
    ]
    singles = _checked(plan, region, problem, clock, candidates, display)
    runs: dict[State, int] = {}
    nothing_us: dict[State, list[list[float]]] = {}
    reference = None
    if singles:
        _screen(plan, clock, candidates, singles, display)
        reference = _reference(plan, candidates, list(problem.known))
        singles.clear()
        runs, nothing_us = _time(plan, problem, clock, candidates, reference, display)
    return Measured(candidates, reference, runs, nothing_us, problem.known, problem.least_bytes, problem.tolerance)


def _checked(
    plan: Plan, region: Region, problem: Problem, clock: Clock, candidates: Sequence[Candidate], display: Lines
) -> dict[int, dict[State, Entry]]:
    """Run every configuration and compare, as it is and once more as it will be timed.

    Returns:
        For the index of each that is right, its single runs by state.
    """
    display.note(f"{region.name}: checking {len(candidates)} configurations")
    with workload_errors(f"computing the reference of region {region.name}"):
        reference = dict(problem.reference())
        clock.synchronize()
    attempts = Attempts(problem, reference, clock, region.name)
    singles: dict[int, dict[State, Entry]] = {}
    for index, candidate in enumerate(candidates):
        display.detail(f"{region.name}: checking {index + 1} of {len(candidates)}")
        with workload_errors(f"asking whether region {region.name} rejects a configuration"):
            why = problem.rejects(candidate.configuration)
        if why is not None:
            candidate.leave("rejected", why)
            continue
        run = partial(problem.run, candidate.configuration)
        trouble = attempts.trouble(candidate.configuration, run)
        if trouble is not None:
            candidate.leave(*trouble)
            continue
        entries: dict[State, Entry] = {}
        for state in plan.states:
            why = attempts.failure(candidate.configuration, partial(_prepare_into, entries, clock, run, state))
            if why is not None:
                candidate.leave("failed", f"ready for timing: {why}")
                break
            trouble = attempts.trouble(candidate.configuration, entries[state].replay)
            if trouble is not None:
                candidate.leave(trouble[0], f"as it would be timed: {trouble[1]}")
                break
        else:
            singles[index] = entries
    return singles


def _prepare_into(entries: dict[State, Entry], clock: Clock, run: partial[None], state: State) -> None:
    entries[state] = clock.prepare(run, state, 1)


def _screen(
    plan: Plan,
    clock: Clock,
    candidates: Sequence[Candidate],
    singles: Mapping[int, Mapping[State, Entry]],
    display: Lines,
) -> None:
    """Time single runs; those far from the best in every state are left, but for entries of known tables."""
    display.detail("screening")
    best_us: dict[State, float] = {}
    for state in plan.states:
        samples: dict[int, list[float]] = {index: [] for index in singles}
        entries = {index: prepared[state] for index, prepared in singles.items()}
        # The first pass meets clocks and caches as the check left them.
        clock.sample_us(list(entries.values()))
        for turn in range(SCREEN_REPLAYS):
            _sample_in_order(clock, entries, list(entries)[:: -1 if turn % 2 else 1], samples)
        for index, values in samples.items():
            candidates[index].screen_us[state] = sorted(values)[len(values) // 2]
        best_us[state] = min(candidates[index].screen_us[state] for index in singles)
    if not plan.options.screen:
        return
    for index in singles:
        candidate = candidates[index]
        factors = [candidate.screen_us[state] / best_us[state] for state in plan.states]
        if min(factors) > plan.options.screen and not candidate.known:
            candidate.leave("screened", f"{min(factors):.1f} x the best of the screening at least")


def _reference(plan: Plan, candidates: Sequence[Candidate], tables: Sequence[str]) -> int:
    """The entry of the first known table that can be timed, else the best of the screening in the first state.

    Chosen before the times that decide, so that it is not the best of them by luck.
    """
    timed = [index for index, candidate in enumerate(candidates) if candidate.status == "timed"]
    known = [index for index in timed if candidates[index].known]
    if known:
        return min(known, key=lambda index: min(map(tables.index, candidates[index].known)))
    return min(timed, key=lambda index: candidates[index].screen_us[plan.states[0]])


def _time(
    plan: Plan,
    problem: Problem,
    clock: Clock,
    candidates: Sequence[Candidate],
    reference: int,
    display: Lines,
) -> tuple[dict[State, int], dict[State, list[list[float]]]]:
    """Time all that are left, the reference as copies, in interleaved orders; fills `Candidate.samples_us`.

    Returns:
        By state: runs in a sample, and the samples of a run that does nothing.
    """
    left = [index for index, candidate in enumerate(candidates) if candidate.status == "timed"]
    display.note(f"timing {len(left)} of {len(candidates)} configurations")
    slots = _slots(left, reference)
    runs: dict[State, int] = {}
    entries: dict[State, dict[int, Entry]] = {}
    for state in plan.states:
        runs[state] = runs_in_a_sample(state, min(candidates[index].screen_us[state] for index in left))
        bodies = [
            clock.nothing if index is None else partial(problem.run, candidates[index].configuration) for index in slots
        ]
        with workload_errors(f"when {len(bodies)} samples were made ready for timing"):
            entries[state] = {slot: clock.prepare(body, state, runs[state]) for slot, body in enumerate(bodies)}
        # Untimed: the first replay of a graph uploads it.
        clock.sample_us(list(entries[state].values()))
    samples: dict[State, dict[int, list[list[float]]]] = {
        state: {slot: [] for slot in range(len(slots))} for state in plan.states
    }
    shuffler = random.Random(plan.options.seed)
    for number in range(plan.options.orders):
        order = list(range(len(slots)))
        if number % 3 == 1:
            order.reverse()
        elif number % 3 == 2:
            shuffler.shuffle(order)
        for state in plan.states:
            for values in samples[state].values():
                values.append([])
        for replay in range(plan.options.replays):
            display.detail(f"order {number + 1} of {plan.options.orders}, replay {replay + 1}")
            for state in plan.states:
                _sample_in_order(clock, entries[state], order, {s: v[-1] for s, v in samples[state].items()})
    nothing_us: dict[State, list[list[float]]] = {}
    for state in plan.states:
        for slot, index in enumerate(slots):
            if index is None:
                nothing_us[state] = samples[state][slot]
            else:
                candidates[index].samples_us.setdefault(state, []).append(samples[state][slot])
    return runs, nothing_us


def _slots(left: Sequence[int], reference: int) -> list[int | None]:
    """What takes a turn in the forward order: each configuration, the reference's copies spread evenly among them, and
    at the end a run that does nothing (None)."""
    others = [index for index in left if index != reference]
    slots: list[int | None] = []
    taken = 0
    for copy in range(RULE.copies):
        slots.append(reference)
        until = len(others) * (copy + 1) // RULE.copies
        slots += others[taken:until]
        taken = until
    return [*slots, None]


def _sample_in_order(
    clock: Clock, entries: Mapping[int, Entry], order: Sequence[int], samples: Mapping[int, list[float]]
) -> None:
    """One sample of each entry, taken in `order`.

    Raises:
        ProfkitError: a time that is none.
    """
    for key, us in zip(order, clock.sample_us([entries[key] for key in order]), strict=True):
        if not us >= 0:
            raise ProfkitError(f"The clock gave {us} us for a sample. Run the sweep again.")
        samples[key].append(us)
