"""What `qsa_table.py` writes of a sweep: known entries, the best found and the chosen one of each problem.

And whether the table that was tuned on an H20 carries over to the device of the sweep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from profkit.kernels.qsa.regions import PARAMETERS

#: A configuration: block_n, splits, warps.
Numbers = tuple[int, ...]
VERDICTS = ("better", "equal", "unclear", "worse", "same entry")


def numbers_of(parameters: Mapping[str, int]) -> Numbers:
    """A configuration's values in the order in which tables write them."""
    return tuple(parameters[name] for name in PARAMETERS)


def carry_over(documents: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Counter[str]]:
    """By dtype and state, in how many regions which of `VERDICTS` is that of sm_90's entry beside default's.

    Regions in which both tables have the same entry are counted as that; those where one was not timed not at all.
    """
    found: dict[tuple[str, str], Counter[str]] = {}
    for region, state in _timed(documents):
        times = times_of(region, state).get(numbers_of(region["known"]["sm_90"]))
        if times is None or "default" not in times["against"]:
            continue
        against = times["against"]["default"]
        counts = found.setdefault((str(region["shapes"]["dtype"]), state), Counter())
        counts["same entry" if against is None else against["verdict"]] += 1
    return found


def carry_over_lines(found: Mapping[tuple[str, str], Counter[str]]) -> list[str]:
    """`carry_over` as a Markdown table."""
    lines = [f"| dtype | state | {' | '.join(VERDICTS)} |", f"|---|---|{'--:|' * len(VERDICTS)}"]
    for (dtype, state), counts in sorted(found.items()):
        lines.append(f"| {dtype} | {state} | {' | '.join(str(counts[verdict]) for verdict in VERDICTS)} |")
    return lines


def region_lines(documents: Sequence[Mapping[str, Any]], chosen_of: Mapping[str, Numbers]) -> Iterator[str]:
    """A Markdown table with a row for each region and state.

    Args:
        chosen_of: region of the sweep to the entry of the new table.
    """
    yield "| region | state | noise % | default | µs | sm_90 | µs | best found | µs | chosen | µs | of known |"
    yield "|---|---|--:|---|--:|---|--:|---|--:|---|--:|---|"
    for region, state in _timed(documents):
        times = times_of(region, state)
        known = {table: numbers_of(region["known"][table]) for table in ("default", "sm_90")}
        if not all(numbers in times for numbers in known.values()) or region["name"] not in chosen_of:
            continue
        best = min(times, key=lambda numbers: times[numbers]["us"])
        chosen = chosen_of[region["name"]]
        cells = [region["name"], state, f"{region['timing'][state]['noise']['percent']:.2f}"]
        for numbers in (*known.values(), best, chosen):
            us = times[numbers]["us"] if numbers in times else None
            cells += [",".join(map(str, numbers)), "not timed" if us is None else f"{us:.2f}"]
        yield f"| {' | '.join([*cells, _compared(times, known, chosen)])} |"
    for document in documents:
        for region in document["regions"]:
            for state, why in region["left_out"].items():
                yield f"\n{region['name']} {state} was not timed: {why}."


def _compared(times: Mapping[Numbers, Mapping[str, Any]], known: Mapping[str, Numbers], chosen: Numbers) -> str:
    """The chosen entry beside the faster known one: the ratio of the times, and whether that is beyond noise."""
    table = min(known, key=lambda name: times[known[name]]["us"])
    if chosen not in times:
        return ""
    ratio = times[chosen]["us"] / times[known[table]]["us"]
    against = times[chosen]["against"].get(table)
    return f"{ratio:.3f} {'same' if against is None else against['verdict']} ({table})"


def _timed(documents: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], str]]:
    for document in documents:
        for region in document["regions"]:
            for state in region["timing"]:
                yield region, state


def times_of(region: Mapping[str, Any], state: str) -> dict[Numbers, Mapping[str, Any]]:
    """The times of every configuration of a region that was timed in one state."""
    return {
        numbers_of(one["parameters"]): one["times"][state] for one in region["configurations"] if state in one["times"]
    }
