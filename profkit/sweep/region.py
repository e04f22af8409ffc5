"""The protocol for one region: check, screen, time in interleaved orders."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from profkit.capture.sittings import Progress
from profkit.errors import ProfkitError
from profkit.model.workload import Problem
from profkit.sweep.attempts import Attempts, workload_errors
from profkit.sweep.clock import Clock, Entry, Run, runs_in_a_sample
from profkit.sweep.measured import Candidate, Measured
from profkit.sweep.phases import Phases
from profkit.sweep.plan import Plan, Region, State
from profkit.sweep.problems import check_problem, check_rejection, check_tensors
from profkit.sweep.statistics import RULE

#: Samples of each configuration in the screening, of one run each.
SCREEN_REPLAYS = 3


class Helpers(Protocol):
    """Whoever compiles beside the check; see `profkit.sweep.warm.Warmers`."""

    def tried(self, spent_s: float, left: int) -> None:
        """One more configuration has run for the first time, which took `spent_s`; `left` have not yet."""

    def wait(self) -> None:
        """Wait until nobody else uses the device."""


def build(plan: Plan, region: Region) -> Problem:
    """The problem of `region`.

    Raises:
        ProfkitError: the workload cannot build it, or it is not as `profkit.model.workload` asks for.
    """
    with workload_errors(f"building region {region.name}"):
        return check_problem(plan.workload.name, region.name, plan.tunable.build(plan.context(region)))


def measure(
    plan: Plan, region: Region, problem: Problem, clock: Clock, display: Progress, helpers: Helpers, phases: Phases
) -> Measured:
    """Sweep one region; call it inside the clock's `region`.

    Raises:
        ProfkitError: the workload fails in a way that is no matter of one configuration.
    """
    candidates = [
        Candidate(configuration, [name for name, entry in problem.known.items() if dict(entry) == configuration])
        for configuration in plan.configurations(region, problem.known)
    ]
    states, left_out = _states(plan, problem, clock)
    display.note(f"{region.name}: checking {len(candidates)} configurations")
    with phases.of("reference"):
        attempts = _attempts(plan.workload.name, region.name, problem, clock)
    with phases.of("check"):
        singles = _checked(attempts, states, candidates, display, helpers)
    # Before anything is timed.
    with phases.of("wait for processes"):
        helpers.wait()
    runs: dict[State, int] = {}
    nothing_us: dict[State, list[list[float]]] = {}
    reference = None
    if singles:
        with phases.of("screen"):
            _screen(plan, clock, candidates, singles, display)
        reference = _reference(candidates, list(problem.known), states[0])
        singles.clear()
        display.note(f"timing {sum(c.status == 'timed' for c in candidates)} of {len(candidates)} configurations")
        left = [candidate for candidate in candidates if candidate.status == "timed"]
        runs = {state: runs_in_a_sample(state, min(c.screen_us[state] for c in left)) for state in states}
        with phases.of("time"):
            nothing_us = _time(plan, problem, clock, candidates, reference, runs, display)
    return Measured(
        candidates,
        reference,
        runs,
        left_out,
        nothing_us,
        known=problem.known,
        least_bytes=problem.least_bytes,
        tolerance=problem.tolerance,
    )


def _attempts(workload: str, region: str, problem: Problem, clock: Clock) -> Attempts:
    """What tries the configurations of `problem`: its reference is computed, and poisoned outputs fail against it.

    Raises:
        ProfkitError: the workload fails, or its check could not tell right from wrong.
    """
    with workload_errors(f"computing the reference of region {region}"):
        reference = check_tensors(workload, region, "reference()", problem.reference())
        clock.synchronize()
    attempts = Attempts(problem, reference, clock, workload, region)
    attempts.require_poison()
    return attempts


def _states(plan: Plan, problem: Problem, clock: Clock) -> tuple[list[State], dict[State, str]]:
    """The states to time, and why others are not."""
    left_out: dict[State, str] = {}
    if "hot" in plan.states:
        for state in plan.states:
            why = clock.left_out(state, problem.least_bytes)
            if why is not None:
                left_out[state] = why
    return [state for state in plan.states if state not in left_out], left_out


def _checked(
    attempts: Attempts, states: Sequence[State], candidates: Sequence[Candidate], display: Progress, helpers: Helpers
) -> dict[int, dict[State, Entry]]:
    """Run every configuration and compare, as it is and once more as it will be timed.

    Returns:
        For the index of each that is right, its single runs by state.
    """
    problem, region = attempts.problem, attempts.region
    singles: dict[int, dict[State, Entry]] = {}
    for index, candidate in enumerate(candidates):
        display.detail(f"{region}: checking {index + 1} of {len(candidates)}")
        begun = time.monotonic()
        with workload_errors(f"asking whether region {region} rejects a configuration"):
            why = check_rejection(attempts.workload, region, problem.rejects(candidate.configuration))
        if why is not None:
            candidate.leave("rejected", why)
            continue
        run = partial(attempts.run, candidate.configuration)
        trouble = attempts.trouble(candidate.configuration, run)
        helpers.tried(time.monotonic() - begun, len(candidates) - index - 1)
        if trouble is not None:
            candidate.leave(*trouble)
            continue
        if not singles:
            # Outputs that are right are those that poison may leave so.
            attempts.require_poison()
        entries: dict[State, Entry] = {}
        for state in states:
            prepare = partial(_prepare_into, entries, attempts.clock, run, state)
            why = attempts.failure(candidate.configuration, prepare)
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
    display: Progress,
) -> None:
    """Time single runs; those far from the best in every state are left, but for entries of known tables."""
    display.detail("screening")
    best_us: dict[State, float] = {}
    for state in next(iter(singles.values())):
        samples: dict[int, list[float]] = {index: [] for index in singles}
        entries = {index: prepared[state] for index, prepared in singles.items()}
        # The first pass meets clocks and caches as the check left them.
        _samples_us(clock, list(entries.values()))
        for turn in range(SCREEN_REPLAYS):
            _sample_in_order(clock, entries, list(entries)[:: -1 if turn % 2 else 1], samples)
        for index, values in samples.items():
            candidates[index].screen_us[state] = sorted(values)[len(values) // 2]
        best_us[state] = min(candidates[index].screen_us[state] for index in singles)
    if not plan.options.screen:
        return
    for index in singles:
        candidate = candidates[index]
        factors = [candidate.screen_us[state] / us for state, us in best_us.items()]
        if min(factors) > plan.options.screen and not candidate.known:
            candidate.leave("screened", f"{min(factors):.1f} x the best of the screening at least")


def _reference(candidates: Sequence[Candidate], tables: Sequence[str], state: State) -> int:
    """The entry of the first known table that can be timed, else the best of the screening in `state`.

    Chosen before the times that decide, so that it is not the best of them by luck.
    """
    timed = [index for index, candidate in enumerate(candidates) if candidate.status == "timed"]
    known = [index for index in timed if candidates[index].known]
    if known:
        return min(known, key=lambda index: min(map(tables.index, candidates[index].known)))
    return min(timed, key=lambda index: candidates[index].screen_us[state])


def _ready(clock: Clock, state: State, runs: int, bodies: Sequence[Run]) -> dict[int, Entry]:
    """The samples of every slot in `state`, ready to be timed."""
    with workload_errors(f"when {len(bodies)} samples were made ready for timing"):
        entries = {slot: clock.prepare(body, state, runs) for slot, body in enumerate(bodies)}
    # Untimed: the first replay of a graph uploads it.
    _samples_us(clock, list(entries.values()))
    return entries


def _time(
    plan: Plan,
    problem: Problem,
    clock: Clock,
    candidates: Sequence[Candidate],
    reference: int,
    runs: Mapping[State, int],
    display: Progress,
) -> dict[State, list[list[float]]]:
    """Time every slot in interleaved orders, each captured anew; fills `Candidate.samples_us`.

    What makes two captures of one thing differ so differs between orders, and is a part of what they scatter by.

    Returns:
        By state the samples of a run that does nothing.
    """
    left = [index for index, candidate in enumerate(candidates) if candidate.status == "timed"]
    slots = _slots(left, reference)
    bodies = [
        clock.nothing if index is None else partial(problem.run, candidates[index].configuration) for index in slots
    ]
    samples: dict[State, dict[int, list[list[float]]]] = {
        state: {slot: [] for slot in range(len(slots))} for state in runs
    }
    shuffler = random.Random(plan.options.seed)
    for number in range(plan.options.orders):
        order = list(range(len(slots)))
        if number == 1:
            order.reverse()
        elif number > 1:
            shuffler.shuffle(order)
        entries = {state: _ready(clock, state, runs[state], bodies) for state in runs}
        for state in runs:
            for values in samples[state].values():
                values.append([])
        for replay in range(plan.options.replays):
            display.detail(f"order {number + 1} of {plan.options.orders}, replay {replay + 1}")
            for state in runs:
                _sample_in_order(clock, entries[state], order, {s: v[-1] for s, v in samples[state].items()})
        # Their memory, before the next order's are captured.
        del entries
    nothing_us: dict[State, list[list[float]]] = {}
    for state in runs:
        for slot, index in enumerate(slots):
            if index is None:
                nothing_us[state] = samples[state][slot]
            else:
                candidates[index].samples_us.setdefault(state, []).append(samples[state][slot])
    return nothing_us


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
    for key, us in zip(order, _samples_us(clock, [entries[key] for key in order]), strict=True):
        if not us >= 0:
            raise ProfkitError(f"The clock gave {us} us for a sample. Run the sweep again.")
        samples[key].append(us)


def _samples_us(clock: Clock, entries: Sequence[Entry]) -> list[float]:
    """See `Clock.sample_us`; what ran when it was checked may fail all the same.

    Raises:
        ProfkitError: it does, which leaves the order without its samples.
    """
    with workload_errors("while configurations that had run before were timed"):
        return clock.sample_us(entries)
