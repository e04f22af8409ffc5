"""The report of a sweep: for each region the best configuration and what known tables choose, then what is amiss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from profkit.reporters import Answer
from profkit.reporters.blocks import Block, Column, Gap, Lines, Records, Row, Table, Title, numbers

#: Configurations that are named for one reason before the others are only counted.
_NAMED = 3


def answer(data: Mapping[str, Any], notes: Sequence[str]) -> Answer:
    """The results, and what is to be said of them beside."""
    return Answer(lambda: report(data, notes), lambda: data, lambda: records(data), notes)


def records(data: Mapping[str, Any]) -> Records:
    """A row for each region, configuration and state."""
    from profkit.sweep import results

    columns = results.columns(data)
    return Records(columns, [[row.get(name) for name in columns] for row in results.rows(data)])


def report(data: Mapping[str, Any], notes: Sequence[str]) -> Iterator[Block]:
    """What was measured and how, a table for each region, a summary of several, notes."""
    yield Lines(heading(data))
    for region in data["regions"]:
        yield Gap()
        yield Title(region_line(region))
        if region["timing"]:
            yield _table(region)
            yield Lines([noise_line(region)])
        # Sweeps of earlier versions have none.
        yield Lines([f"{state} was not timed: {why}." for state, why in region.get("left_out", {}).items()])
        for line in trouble_lines(region):
            yield Lines([line], "alarm" if line.startswith("WRONG") else "plain")
    if len(data["regions"]) > 1:
        yield Gap()
        yield Lines(summary_lines(data))
    yield Lines(notes, "warning")


def heading(data: Mapping[str, Any]) -> list[str]:
    """Workload, device, versions, and how it was measured and judged."""
    workload, versions, protocol = data["workload"], data["versions"], data["protocol"]
    of = ", ".join(f"{name} {versions[name]}" for name in ("torch", "triton", "cuda", "profkit") if versions[name])
    return [
        f"{workload['name']}, variant {workload['variant']}, on {data['device']['name']} · {of} · seed {data['seed']}",
        *(f"{state}: {method}." for state, method in protocol["methods"].items()),
        f"Protocol: {protocol['steps']}.",
        f"Rule: {protocol['rule']}.",
    ]


def region_line(region: Mapping[str, Any]) -> str:
    """The region, its shapes, and what became of its configurations."""
    counts = dict(region["counts"])
    tried = counts.pop("tried")
    told = ", ".join(f"{count} {'WRONG' if status == 'wrong' else status}" for status, count in counts.items() if count)
    shapes = " ".join(f"{name}={value}" for name, value in region["shapes"].items())
    return f"{region['name']} ({shapes}): {tried} configurations: {told}"


def table_rows(region: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any], str]]:
    """State, what the row is, its configuration, and how the best compares with it."""
    configurations = region["configurations"]
    for state, timing in region["timing"].items():
        best = configurations[timing["best"]]
        yield state, "best", best, ""
        for name, index in timing["anchors"].items():
            title = name if name in region["known"] else f"best of the {name}"
            yield state, title, configurations[index], _against(best["times"][state]["against"][name])
        for name in region["known"]:
            if name not in timing["anchors"]:
                yield state, name, next(c for c in configurations if name in c["known"]), ""


def _against(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "is the best"
    change = 100 * (found["ratio"] - 1)
    told = {"better": "better", "worse": "worse", "equal": "equal within noise"}[found["verdict"]]
    if found["low"] is None:
        return f"{_signed(change)} % (a single order): {told}"
    low, high = (100 * (found[key] - 1) for key in ("low", "high"))
    return f"{_signed(change)} % ({_signed(low)} … {_signed(high)}): {told}"


def _signed(percent: float) -> str:
    return f"{percent:+.1f}".replace("-", "−")


def _table(region: Mapping[str, Any]) -> Table:
    names = list(region["configurations"][0]["parameters"])
    least_bytes = region["least_bytes"]
    measured = ["µs", "p25 … p75", "× best", *(["GB/s"] if least_bytes else [])]
    rows: list[Row] = []
    for state, title, configuration, against in table_rows(region):
        best_us = region["configurations"][region["timing"][state]["best"]]["times"][state]["us"]
        cells = [state, title, *(str(configuration["parameters"][name]) for name in names)]
        times = configuration["times"].get(state)
        if times is None:
            cells += [""] * len(measured) + [configuration["status"]]
        else:
            cells += [f"{times['us']:.2f}", f"{times['p25_us']:.2f} … {times['p75_us']:.2f}"]
            cells.append(f"{times['us'] / best_us:.3f}")
            cells += [_rate(least_bytes / times["us"] / 1e3)] if least_bytes else []
            cells.append(against)
        rows.append(Row(cells))
    against_title = "the best against it (95 % CI)"
    return Table([Column("state"), Column("configuration"), *numbers(*names, *measured), Column(against_title)], rows)


def _rate(gigabytes_a_second: float) -> str:
    return f"{gigabytes_a_second:,.0f}" if gigabytes_a_second >= 100 else f"{gigabytes_a_second:.3g}"


def noise_line(region: Mapping[str, Any]) -> str:
    """What the copies of the reference show, and what the method itself takes."""
    parts = []
    for state, timing in region["timing"].items():
        noise = timing["noise"]
        parts.append(
            f"{state} ±{noise['percent']:.2f} % (the {len(noise['copies_us'])} A/A copies differ by up to "
            f"{noise['largest_percent']:.2f} %), a run that does nothing {timing['nothing_us']:.2f} µs"
        )
    reference = " ".join(f"{name}={value}" for name, value in region["reference"].items())
    return f"noise, from copies of {reference}: {'; '.join(parts)}"


def trouble_lines(region: Mapping[str, Any]) -> list[str]:
    """Every wrong configuration; failed and rejected ones by reason."""
    lines = [f"WRONG: {_named(c)}: {c['reason']}" for c in region["configurations"] if c["status"] == "wrong"]
    for status in ("failed", "rejected"):
        by_reason: dict[str, list[str]] = {}
        for configuration in region["configurations"]:
            if configuration["status"] == status:
                by_reason.setdefault(configuration["reason"], []).append(_named(configuration))
        for reason, names in by_reason.items():
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            lines.append(f"{status}: {'; '.join(names[:_NAMED])}{more}: {reason}")
    return lines


def _named(configuration: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in configuration["parameters"].items())


def summary_lines(data: Mapping[str, Any]) -> list[str]:
    """For each known table and state, in how many regions the best is better than its entry beyond noise, or is it."""
    told: dict[tuple[str, str], list[str]] = {}
    for region in data["regions"]:
        for state, timing in region["timing"].items():
            best = region["configurations"][timing["best"]]["times"][state]["against"]
            for name in timing["anchors"]:
                if name in region["known"]:
                    told.setdefault((name, state), []).append(_summed(best[name]))
    return [
        f"{name}, {state}: the best is better than its entry in {verdicts.count('better')} of {len(verdicts)} regions, "
        f"equal within noise in {verdicts.count('equal')}, and the entry itself in {verdicts.count('itself')}."
        for (name, state), verdicts in told.items()
    ]


def _summed(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "itself"
    return "better" if found["verdict"] == "better" else "equal"
