"""The protocol for one region: check, screen, time in interleaved orders, judge."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

from profkit.capture.sittings import Progress
from profkit.comparison.statistics import OVER_RUNS
from profkit.errors import ProfkitError
from profkit.model.workload import Problem
from profkit.sweep import judge
from profkit.sweep.check import Attempts, check_tensors
from profkit.sweep.clock import Clock, Run, Sample, runs_in_a_sample
from profkit.sweep.plan import Plan
from profkit.sweep.records import SCREENING, Configuration, Protocol, Region, State, Status, Timing
from profkit.sweep.workload import checked, code, fault, printable

#: Samples of each configuration in the screening, of one run each.
SCREEN_REPLAYS = 3


def protocol(plan: Plan, methods: Mapping[State, str]) -> Protocol:
    """How all regions of `plan` are measured and judged."""
    options = plan.options
    screening = f"those within {options.screen:g} x of the best" if options.screen else "all of them"
    return Protocol(
        states=list(plan.states),
        orders=options.orders,
        replays=options.replays,
        screen=options.screen,
        screen_replays=SCREEN_REPLAYS,
        copies=judge.COPIES,
        alpha=OVER_RUNS.alpha,
        confidence=OVER_RUNS.confidence,
        min_us=OVER_RUNS.min_us,
        min_share=OVER_RUNS.min_share,
        methods={state: methods[state] for state in plan.states},
        steps="every configuration is checked against the reference, then screened with "
        f"{SCREEN_REPLAYS} samples of one run; {screening} and the entries of known tables are timed in "
        f"{options.orders} interleaved orders (forward, backward, then shuffled) of {options.replays} samples each, "
        "each captured anew",
        rule=judge.rule(options.orders),
    )


@contextmanager
def counted(seconds: dict[str, float], phase: str) -> Iterator[None]:
    """Count the block towards `phase`."""
    begun = time.monotonic()
    try:
        yield
    finally:
        seconds[phase] = round(seconds.get(phase, 0.0) + time.monotonic() - begun, 3)


def build(plan: Plan, name: str) -> Problem:
    """The problem of a region.

    Raises:
        ProfkitError: the workload cannot build it, or it is not as `profkit.model.workload` asks for.
    """
    with code(f"building region {name}"):
        problem = plan.tunable.build(plan.context(name))
    return checked(plan.workload.name, f"region {name}", problem, Problem)


def measure(plan: Plan, name: str, clock: Clock, display: Progress, wait: Callable[[], None] = lambda: None) -> Region:
    """Sweep one region; call it inside the clock's `region`.

    Args:
        wait: returns when nobody else uses the device; called before anything is timed.

    Raises:
        ProfkitError: the workload fails in a way that is no matter of one configuration.
    """
    seconds: dict[str, float] = {}
    with counted(seconds, "build"):
        problem = build(plan, name)
        clock.synchronize()
    configurations = [
        Configuration(parameters=one, known=[table for table, entry in problem.known.items() if dict(entry) == one])
        for one in plan.configurations(name, problem.known)
    ]
    left_out = {}
    if "hot" in plan.states:
        reasons = {state: clock.left_out(state, problem.least_bytes) for state in plan.states}
        left_out = {state: why for state, why in reasons.items() if why is not None}
    states = [state for state in plan.states if state not in left_out]
    display.note(f"{name}: checking {len(configurations)} configurations")
    with counted(seconds, "reference"), code(f"computing the reference of region {name}"):
        reference = check_tensors(plan.workload.name, f"reference() of region {name}", problem.reference())
        clock.synchronize()
    attempts = Attempts(problem, reference, clock, plan.workload.name, name)
    with counted(seconds, "check"):
        singles = _check(attempts, states, configurations, display)
    with counted(seconds, "wait for processes"):
        wait()
    timing: dict[State, Timing] = {}
    copied = None
    if singles:
        with counted(seconds, "screen"):
            _screen(plan, clock, configurations, singles, display)
        left = [index for index, one in enumerate(configurations) if one.status == "timed"]
        copied = _reference(configurations, left, list(problem.known), states[0])
        singles.clear()
        display.note(f"timing {len(left)} of {len(configurations)} configurations")
        with counted(seconds, "time"):
            runs = {
                state: runs_in_a_sample(state, min(configurations[i].screen_us[state] for i in left))
                for state in states
            }
            samples = _time(plan, problem, clock, configurations, _slots(left, copied), runs, display)
        with counted(seconds, "judge"):
            entries = {t: i for t in problem.known for i in left if t in configurations[i].known} or {SCREENING: copied}
            for state, of in samples.items():
                nothing_us = float(np.median(np.array(of.pop(None))))
                found = {index: one for index, one in of.items() if index is not None}
                timing[state] = Timing(
                    runs_per_sample=runs[state],
                    nothing_us=judge.rounded(nothing_us),
                    noise=judge.noise(found[copied]),
                )
                for index, times in judge.judge(found, entries).items():
                    configurations[index].times[state] = times
    return Region(
        name=name,
        shapes=dict(plan.regions[name]),
        known={table: dict(entry) for table, entry in problem.known.items()},
        least_bytes=problem.least_bytes,
        tolerance=problem.tolerance,
        reference=None if copied is None else configurations[copied].parameters,
        timing=timing,
        left_out=left_out,
        configurations=configurations,
        phases_s=seconds,
    )


def _check(
    attempts: Attempts, states: Sequence[State], configurations: Sequence[Configuration], display: Progress
) -> dict[int, dict[State, Sample]]:
    """Try every configuration; returns for the index of each that is right its single runs by state."""
    singles: dict[int, dict[State, Sample]] = {}
    attempts.require_poison()
    for index, one in enumerate(configurations):
        display.detail(f"{attempts.region}: checking {index + 1} of {len(configurations)}")
        found = _tried(attempts, states, one.parameters)
        if not isinstance(found, dict):
            one.status, one.reason = found
            continue
        if not singles:
            # Outputs that are right are those that poison may leave so.
            attempts.require_poison()
        singles[index] = found
    return singles


def _tried(
    attempts: Attempts, states: Sequence[State], parameters: dict[str, int]
) -> tuple[Status, str] | dict[State, Sample]:
    """What is amiss with a configuration as it is or as it will be timed; where nothing is, its single runs."""
    problem, region = attempts.problem, attempts.region
    with code(f"asking whether region {region} rejects a configuration"):
        why = problem.rejects(parameters)
    if why is not None:
        if not isinstance(why, str) or not why.strip():
            raise fault(attempts.workload, f"rejects() of region {region} gave {why!r}, not a sentence or None")
        return "rejected", printable(why)
    run = partial(problem.run, parameters)
    trouble = attempts.trouble(parameters, run)
    if trouble is not None:
        return trouble
    samples: dict[State, Sample] = {}
    for state in states:
        failed = attempts.failure(parameters, partial(_prepare_into, samples, attempts.clock, run, state))
        if failed is not None:
            return "failed", f"ready for timing: {failed}"
        trouble = attempts.trouble(parameters, samples[state].replay)
        if trouble is not None:
            return trouble[0], f"as it would be timed: {trouble[1]}"
    return samples


def _prepare_into(samples: dict[State, Sample], clock: Clock, run: Run, state: State) -> None:
    samples[state] = clock.prepare(run, state, 1)


def _screen(
    plan: Plan,
    clock: Clock,
    configurations: Sequence[Configuration],
    singles: Mapping[int, Mapping[State, Sample]],
    display: Progress,
) -> None:
    """Time single runs; those far from the best in every state are left, but for entries of known tables."""
    display.detail("screening")
    best_us: dict[State, float] = {}
    for state in next(iter(singles.values())):
        ready = {index: samples[state] for index, samples in singles.items()}
        # The first pass meets clocks and caches as the check left them.
        _sampled(clock, ready, list(ready))
        turns = [_sampled(clock, ready, list(ready)[:: -1 if turn % 2 else 1]) for turn in range(SCREEN_REPLAYS)]
        for index in ready:
            configurations[index].screen_us[state] = float(np.median([turn[index] for turn in turns]))
        best_us[state] = min(configurations[index].screen_us[state] for index in ready)
    for index in singles if plan.options.screen else ():
        one = configurations[index]
        factor = min(one.screen_us[state] / us for state, us in best_us.items())
        if factor > plan.options.screen and not one.known:
            one.status, one.reason = "screened", f"{factor:.1f} x the best of the screening at least"


def _reference(configurations: Sequence[Configuration], left: Sequence[int], tables: list[str], state: State) -> int:
    """The entry of the first known table that can be timed, else the best of the screening in `state`.

    Chosen before the times that decide, so that it is not the best of them by luck.
    """
    known = [index for index in left if configurations[index].known]
    if known:
        return min(known, key=lambda index: min(map(tables.index, configurations[index].known)))
    return min(left, key=lambda index: configurations[index].screen_us[state])


def _slots(left: Sequence[int], reference: int) -> list[int | None]:
    """What takes a turn in the forward order: each configuration, the reference's copies spread evenly among them, and
    at the end a run that does nothing (None)."""
    others = [index for index in left if index != reference]
    starts = [len(others) * copy // judge.COPIES for copy in range(judge.COPIES + 1)]
    slots: list[int | None] = []
    for copy in range(judge.COPIES):
        slots += [reference, *others[starts[copy] : starts[copy + 1]]]
    return [*slots, None]


def _time(
    plan: Plan,
    problem: Problem,
    clock: Clock,
    configurations: Sequence[Configuration],
    slots: Sequence[int | None],
    runs: Mapping[State, int],
    display: Progress,
) -> dict[State, dict[int | None, list[list[list[float]]]]]:
    """Time every slot in interleaved orders, each captured anew.

    What makes two captures of one thing differ so differs between orders, and is a part of what they scatter by.

    Returns:
        By state and configuration the samples, ``[copies][orders][replays]``; None is a run that does nothing.
    """
    options = plan.options
    bodies = [
        clock.nothing if index is None else partial(problem.run, configurations[index].parameters) for index in slots
    ]
    taken: dict[State, list[list[list[float]]]] = {state: [[] for _ in slots] for state in runs}
    shuffler = random.Random(options.seed)
    for number in range(options.orders):
        order = list(range(len(slots)))
        if number == 1:
            order.reverse()
        elif number > 1:
            shuffler.shuffle(order)
        ready: dict[State, dict[int, Sample]] = {}
        for state in runs:
            with code(f"when {len(bodies)} samples were made ready for timing"):
                ready[state] = {slot: clock.prepare(body, state, runs[state]) for slot, body in enumerate(bodies)}
            # Untimed: the first replay of a graph uploads it.
            _sampled(clock, ready[state], list(ready[state]))
            for samples in taken[state]:
                samples.append([])
        for replay in range(options.replays):
            display.detail(f"order {number + 1} of {options.orders}, replay {replay + 1}")
            for state in runs:
                for slot, us in _sampled(clock, ready[state], order).items():
                    taken[state][slot][-1].append(us)
        # Their memory, before the next order's are captured.
        ready.clear()
    found: dict[State, dict[int | None, list[list[list[float]]]]] = {state: {} for state in runs}
    for state in runs:
        for index, samples in zip(slots, taken[state], strict=True):
            found[state].setdefault(index, []).append(samples)
    return found


def _sampled(clock: Clock, ready: Mapping[int, Sample], order: Sequence[int]) -> dict[int, float]:
    """One time of each in µs, taken in `order`.

    Raises:
        ProfkitError: what ran when it was checked fails after all, which leaves the order without its samples; or a
            time that is none.
    """
    with code("while configurations that had run before were timed"):
        found = dict(zip(order, clock.sample_us([ready[key] for key in order]), strict=True))
    if not all(us > 0 for us in found.values()):
        raise ProfkitError("The clock gave a time of 0 us or less for a sample. Run the sweep again.")
    return found
