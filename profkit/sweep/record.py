"""A swept region as it is stored and reported: the entries of ``regions`` in schema ``profkit.sweep/1``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from profkit.sweep import statistics
from profkit.sweep.measured import SCREENING, Candidate, Measured, Status
from profkit.sweep.phases import Phases
from profkit.sweep.plan import Region, State
from profkit.sweep.region import SCREEN_REPLAYS
from profkit.sweep.statistics import RULE, Difference, Timed

STATUSES: tuple[Status, ...] = ("timed", "screened", "rejected", "failed", "wrong")


def protocol(orders: int, replays: int, screen: float, methods: Mapping[State, str]) -> dict[str, Any]:
    """The ``protocol`` field: how all regions were measured and judged."""
    thresholds = RULE.thresholds
    screening = f"those within {screen:g} x of the best" if screen else "all of them"
    return {
        "orders": orders,
        "replays": replays,
        "screen": screen,
        "screen_replays": SCREEN_REPLAYS,
        "states": list(methods),
        "copies": RULE.copies,
        "alpha": thresholds.alpha,
        "confidence": thresholds.confidence,
        "min_us": thresholds.min_us,
        "min_share": thresholds.min_share,
        "methods": dict(methods),
        "steps": "every configuration is checked against the reference, then screened with "
        f"{SCREEN_REPLAYS} samples of one run; {screening} and the entries of known tables are timed in {orders} "
        f"interleaved orders (forward, backward, then shuffled) of {replays} samples each, each captured anew",
        "rule": _rule(orders),
    }


def _rule(orders: int) -> str:
    thresholds = RULE.thresholds
    unseen = "; a single order tells nothing apart" if orders == 1 else ""
    return (
        "better or worse is what differs beyond the scatter of its orders' ratios to the entry (Student's t over "
        f"orders, Holm's correction over the region, alpha {thresholds.alpha:g}) and by at least "
        f"{thresholds.min_share:.0%} and {thresholds.min_us:g} us; all within one process{unseen}; an interval is "
        "for one comparison, without regard to "
        "how the best was picked"
    )


def region_record(region: Region, measured: Measured, phases: Phases, duration_s: float, date: str) -> dict[str, Any]:
    """What a region's file holds, but for the schema.

    Args:
        phases: where the region's time went; judging is added.
        duration_s: the whole region took, but for judging.
        date: when it was finished, ISO 8601.
    """
    candidates = measured.candidates
    counts = Counter(candidate.status for candidate in candidates)
    configurations = [_configuration(candidate) for candidate in candidates]
    timing: dict[str, Any] = {}
    reference = measured.reference
    if reference is not None:
        with phases.of("judge"):
            for state in measured.runs:
                timing[state] = _judge(state, measured, reference, configurations)
    return {
        "name": region.name,
        "shapes": dict(region.shapes),
        "known": {table: dict(entry) for table, entry in measured.known.items()},
        "least_bytes": measured.least_bytes,
        "tolerance": list(measured.tolerance),
        "counts": {"tried": len(candidates), **{status: counts[status] for status in STATUSES}},
        "reference": None if reference is None else dict(candidates[reference].configuration),
        "timing": timing,
        "left_out": dict(measured.left_out),
        "configurations": configurations,
        "duration_s": round(duration_s, 3),
        "phases_s": phases.seconds(),
        "date": date,
    }


def _configuration(candidate: Candidate) -> dict[str, Any]:
    return {
        "parameters": dict(candidate.configuration),
        "known": list(candidate.known),
        "status": candidate.status,
        "reason": candidate.reason,
        "screen_us": {state: _us(us) for state, us in candidate.screen_us.items()},
        "times": {},
    }


def _judge(
    state: State, measured: Measured, reference: int, configurations: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Fill in ``times[state]`` of every configuration that was timed; returns ``timing[state]`` of the region."""
    left = [index for index, candidate in enumerate(measured.candidates) if candidate.status == "timed"]
    samples = {index: measured.candidates[index].samples_us[state] for index in left}
    times = [statistics.timed(samples[index]) for index in left]
    noise = statistics.noise(samples[reference])
    anchors = {
        table: index for table in measured.known for index in left if table in measured.candidates[index].known
    } or {SCREENING: reference}
    against = {name: statistics.differences(times, left.index(index)) for name, index in anchors.items()}
    for place, index in enumerate(left):
        compared = {name: difference_record(found[place]) for name, found in against.items()}
        configurations[index]["times"][state] = {**_times(times[place], samples[index]), "against": compared}
    best = min(range(len(left)), key=lambda place: times[place].us)
    return {
        "best": left[best],
        "runs_per_sample": measured.runs[state],
        "nothing_us": _us(float(np.median(np.concatenate([np.asarray(o) for o in measured.nothing_us[state]])))),
        "noise": {
            "percent": round(noise.percent(), 3),
            "largest_percent": round(noise.largest_percent, 3),
            "copies_us": [_us(us) for us in noise.medians_us],
            "copies_orders_us": [[_us(us) for us in orders] for orders in noise.orders_us],
        },
        "anchors": anchors,
    }


def _times(timed: Timed, samples_us: Sequence[Sequence[Sequence[float]]]) -> dict[str, Any]:
    everything = np.concatenate([np.asarray(order) for copy in samples_us for order in copy])
    p25, p75 = np.percentile(everything, [25, 75])
    return {
        "us": _us(timed.us),
        "p25_us": _us(float(p25)),
        "p75_us": _us(float(p75)),
        "min_us": _us(float(everything.min())),
        "orders_us": [_us(us) for us in timed.orders_us],
        "samples": len(everything),
        "copies": timed.copies,
    }


def difference_record(found: Difference | None) -> dict[str, Any] | None:
    """A configuration's entry of ``against``; None for the anchor itself."""
    if found is None:
        return None
    return {
        "ratio": round(found.ratio, 5),
        "low": None if found.low is None else round(found.low, 5),
        "high": None if found.high is None else round(found.high, 5),
        "p": None if found.p is None else float(f"{found.p:.3g}"),
        "verdict": found.verdict,
    }


def _us(us: float) -> float:
    """To the tenth of a nanosecond: a mean over some runs is finer than the clock's tick."""
    return round(us, 4)
