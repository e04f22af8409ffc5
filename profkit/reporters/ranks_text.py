"""The ranks of a job side by side, as rows of text: for the terminal and for Markdown. Plain text, not escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

#: Columns of the table of ranks, the timed ones last.
COUNT_COLUMNS = ("rank", "launches", "collectives")
TIME_COLUMNS = ("µs", "compute µs", "collective µs", "waiting µs")
_TIMES = ("kernel_us", "compute_us", "collective_us", "waiting_us")


def is_one_job(jobs: Sequence[Mapping[str, Any]], runs: int) -> bool:
    """Whether all runs are ranks of one job, whose table has their average."""
    return len(jobs) == 1 and len(jobs[0]["ranks"]) == runs


def title(job: Mapping[str, Any]) -> str:
    """What the table of a job is about."""
    exchange = "" if job["exchange"] is None else f", exchange: {job['exchange']}"
    where = {entry["run"].rpartition("/")[0] for entry in job["ranks"]} - {""}
    name = f" ({', '.join(sorted(where))})" if where else ""
    return f"{job['world_size']} ranks of one job{name}{exchange}; per layer per step:"


def rows(job: Mapping[str, Any], *, timed: bool) -> Iterator[list[str]]:
    """A row for each rank, their average and their skew."""
    for entry in job["ranks"]:
        counts = [str(entry["rank"]), f"{entry['launches']:g}", f"{entry['collective_launches']:g}"]
        yield [*counts, *(_times(entry) if timed else [])]
    if timed and len(job["ranks"]) > 1:
        yield ["average", f"{job['average']['launches']:g}", "", *_times(job["average"])]
        yield ["skew", "", "", *_times(job["skew"])]


def _times(entry: Mapping[str, Any]) -> list[str]:
    return ["–" if entry[name] is None else f"{entry[name]:.2f}" for name in _TIMES]


def notes(job: Mapping[str, Any], *, timed: bool) -> list[str]:
    """What the numbers mean."""
    missing = job["world_size"] - len(job["ranks"])
    lines = [f"{missing} of {job['world_size']} ranks are not here."] if missing else []
    if not timed:
        return lines
    if len(job["ranks"]) == 1:
        lines.append("Waiting cannot be told: it takes the collectives of the other ranks to compare.")
    elif job["average"]["waiting_us"] is None:
        lines.append("Waiting cannot be told: the ranks show no collectives to compare, or not the same ones.")
    else:
        lines.append(
            "Waiting: how much longer a rank's collectives lasted than those of the rank that lasted shortest in the "
            "same exchange. Skew: largest minus smallest."
        )
    lines.append(f"How far apart the ranks started cannot be told: {_lower(job['start_skew']['why'])}")
    return lines


def role_line(roles: Mapping[str, Any]) -> str | None:
    """How much of a layer moves data between ranks; None where nothing does."""
    collective, stand_in = roles["collective"], roles["stand-in"]
    parts = [_role("compute", roles["compute"])]
    if collective["launches"]:
        parts.append(_role("collectives", collective))
    if stand_in["launches"]:
        parts.append(f"{_role('stand-in', stand_in)} (no exchange between ranks: something else in its place)")
    return f"Of each layer: {'; '.join(parts)}." if len(parts) > 1 else None


def _role(name: str, share: Mapping[str, Any]) -> str:
    us = "" if share["us"] is None else f", {share['us']:.2f} µs"
    return f"{name} {share['launches']:g} launch{'' if share['launches'] == 1 else 'es'}{us}"


def diff_lines(data: Mapping[str, Any]) -> list[str]:
    """The diff's ranks before and after, and what is compute and what moves data between ranks.

    Args:
        data: from `ranks_data.of_comparison`.
    """
    lines: list[str] = []
    collective, compute = data["roles"]["collective"], data["roles"]["compute"]
    if collective["launches_before"] or collective["launches_after"]:
        lines.append(f"Compute: {_change(compute)} a layer. Collectives: {_change(collective)} a layer.")
    for rank in data["ranks"]:
        before, after = rank["before"], rank["after"]
        if before is None or after is None:
            lines.append(f"Rank {rank['rank']}: only {'before' if after is None else 'after'}.")
            continue
        text = f"Rank {rank['rank']}: {before['launches']:g} → {after['launches']:g} launches a layer"
        for name, key in (("compute", "compute_us"), ("collectives", "collective_us"), ("waiting", "waiting_us")):
            if before[key] is not None and after[key] is not None:
                text += f"; {name} {before[key]:.2f} → {after[key]:.2f} µs"
        lines.append(f"{text}.")
    skew = data["skew"]
    if skew is not None and skew["before"] and skew["after"] and skew["before"]["compute_us"] is not None:
        shown = ", ".join(
            f"{name} {skew['before'][key]:.2f} → {skew['after'][key]:.2f} µs"
            for name, key in (("compute", "compute_us"), ("collectives", "collective_us"))
        )
        lines.append(
            f"Skew between the ranks of a job (largest minus smallest, mean over jobs): {shown} a layer; how far apart "
            "they started cannot be told."
        )
    return lines


def _change(share: Mapping[str, Any]) -> str:
    launches = f"{share['launches_before']:g} → {share['launches_after']:g} launches"
    if share["us_before"] is None or share["us_after"] is None:
        return launches
    return f"{launches}, {share['us_before']:.2f} → {share['us_after']:.2f} µs"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def header(*, timed: bool) -> Sequence[str]:
    """The columns of `rows`."""
    return (*COUNT_COLUMNS, *(TIME_COLUMNS if timed else ()))
