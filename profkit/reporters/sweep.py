"""The report of a sweep: for each region the best configuration and what known tables choose, then what is amiss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from profkit.reporters import Answer
from profkit.reporters.blocks import Block, Column, Gap, Lines, Records, Row, Table, Title, numbers

if TYPE_CHECKING:
    from profkit.sweep.records import Against, Configuration, Region, State, Sweep

#: Configurations that are named for one reason before the others are only counted.
_NAMED = 3


def answer(sweep: Sweep, notes: Sequence[str]) -> Answer:
    """The results, and what is to be said of them beside."""
    return Answer(lambda: report(sweep, notes), lambda: sweep, lambda: rows(sweep), notes)


def rows(sweep: Sweep) -> Records:
    """A row for each region, configuration and state."""
    columns = sweep.columns()
    return Records(columns, [[row.get(name) for name in columns] for row in sweep.rows()])


def report(sweep: Sweep, notes: Sequence[str]) -> Iterator[Block]:
    """What was measured and how, a table for each region, a summary of several, notes."""
    yield Lines(heading(sweep))
    for region in sweep.regions:
        yield Gap()
        yield Title(region_line(region))
        if region.timing:
            yield _table(region)
            yield Lines([noise_line(region)])
        yield Lines([f"{state} was not timed: {why}." for state, why in region.left_out.items()])
        yield Lines([f"WRONG: {one}: {one.reason}" for one in region.configurations if one.status == "wrong"], "alarm")
        yield Lines(trouble_lines(region))
    if len(sweep.regions) > 1:
        yield Gap()
        yield Lines(summary_lines(sweep))
    yield Lines(notes, "warning")


def heading(sweep: Sweep) -> list[str]:
    """Workload, device, versions, and how it was measured and judged."""
    versions, protocol = sweep.versions, sweep.protocol
    of = ", ".join(f"{name} {versions[name]}" for name in ("torch", "triton", "cuda", "profkit") if versions.get(name))
    return [
        f"{sweep.workload.name}, variant {sweep.workload.variant}, on {sweep.device.name} · {of} · seed {sweep.seed}",
        *(f"{state}: {method}." for state, method in protocol.methods.items()),
        f"Protocol: {protocol.steps}.",
        f"Rule: {protocol.rule}.",
    ]


def region_line(region: Region) -> str:
    """The region, its shapes, and what became of its configurations."""
    counts = Counter("WRONG" if one.status == "wrong" else one.status for one in region.configurations)
    told = ", ".join(f"{counts[status]} {status}" for status in _STATUSES if counts[status])
    shapes = " ".join(f"{name}={value}" for name, value in region.shapes.items())
    return f"{region.name} ({shapes}): {len(region.configurations)} configurations: {told}"


_STATUSES = ("timed", "screened", "rejected", "failed", "WRONG")


def table_rows(region: Region) -> Iterator[tuple[State, str, Configuration, str]]:
    """State, what the row is, its configuration, and how the best compares with it."""
    for state in region.timing:
        best, entries = region.best(state), region.entries(state)
        yield state, "best", best, ""
        for name, found in best.times[state].against.items():
            yield state, name if name in region.known else f"best of the {name}", entries[name], _against(found)
        for one in region.configurations:
            yield from ((state, name, one, "") for name in one.known if name not in entries)


def _against(found: Against | None) -> str:
    if found is None:
        return "is the best"
    change = 100 * (found.ratio - 1)
    if found.low is None or found.high is None:
        return f"{_signed(change)} % (a single order): {found.verdict}"
    low, high = (100 * (ratio - 1) for ratio in (found.low, found.high))
    return f"{_signed(change)} % ({_signed(low)} … {_signed(high)}): {found.verdict}"


def _signed(percent: float) -> str:
    return f"{percent:+.1f}".replace("-", "−")


def _table(region: Region) -> Table:
    names = list(region.configurations[0].parameters)
    measured = ["µs", "p25 … p75", "× best", *(["GB/s"] if region.least_bytes else [])]
    rows: list[Row] = []
    for state, title, one, against in table_rows(region):
        cells = [state, title, *(str(one.parameters[name]) for name in names)]
        times = one.times.get(state)
        if times is None:
            cells += [""] * len(measured) + [one.status]
        else:
            cells += [f"{times.us:.2f}", f"{times.p25_us:.2f} … {times.p75_us:.2f}"]
            cells.append(f"{times.us / region.best(state).times[state].us:.3f}")
            cells += [_rate(region.least_bytes / times.us / 1e3)] if region.least_bytes else []
            cells.append(against)
        rows.append(Row(cells))
    against_title = "the best against it (95 % CI)"
    return Table([Column("state"), Column("configuration"), *numbers(*names, *measured), Column(against_title)], rows)


def _rate(gigabytes_a_second: float) -> str:
    return f"{gigabytes_a_second:,.0f}" if gigabytes_a_second >= 100 else f"{gigabytes_a_second:.3g}"


def noise_line(region: Region) -> str:
    """What the copies of the reference show, and what the method itself takes."""
    parts = [
        f"{state} ±{timing.noise.percent:.2f} % (the {len(timing.noise.copies_orders_us)} A/A copies differ by up to "
        f"{timing.noise.largest_percent:.2f} %), a run that does nothing {timing.nothing_us:.2f} µs"
        for state, timing in region.timing.items()
    ]
    reference = " ".join(f"{name}={value}" for name, value in (region.reference or {}).items())
    return f"noise, from copies of {reference}: {'; '.join(parts)}"


def trouble_lines(region: Region) -> list[str]:
    """Failed and rejected configurations by reason."""
    found: dict[tuple[str, str | None], list[str]] = {}
    for status in ("failed", "rejected"):
        for one in region.configurations:
            if one.status == status:
                found.setdefault((status, one.reason), []).append(str(one))
    return [
        f"{status}: {'; '.join(names[:_NAMED])}{f' and {len(names) - _NAMED} more' if names[_NAMED:] else ''}: {reason}"
        for (status, reason), names in found.items()
    ]


def summary_lines(sweep: Sweep) -> list[str]:
    """For each known table and state, in how many regions the best is better than its entry, or is it."""
    told: dict[tuple[str, State], Counter[str]] = {}
    for region in sweep.regions:
        for state in region.timing:
            for name, found in region.best(state).times[state].against.items():
                if name in region.known:
                    told.setdefault((name, state), Counter())["itself" if found is None else found.verdict] += 1
    return [
        f"{name}, {state}: the best is better than its entry in {verdicts['better']} of {verdicts.total()} regions, "
        f"equal in {verdicts['equal']}, unclear in {verdicts['unclear']}, and the entry itself in {verdicts['itself']}."
        for (name, state), verdicts in told.items()
    ]
