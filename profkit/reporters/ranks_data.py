"""The ranks of a job side by side, as data: what the layers report and the diff say about them. See docs/json.md."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from profkit.counting import ranks
from profkit.counting.ranks import ROLES, Role, Shares
from profkit.model.census import KindCensus
from profkit.model.run import RunRecord

if TYPE_CHECKING:
    from profkit.comparison.model import Comparison, Input

_START_SKEW = {
    "us": None,
    "why": "Each rank was recorded in a file of its own, and the files have no common clock good to a microsecond.",
}
#: What of a rank is averaged, and whose spread is the skew.
_TIMES = ("kernel_us", "compute_us", "collective_us", "waiting_us")


def by_role(shares: Shares, *, timed: bool) -> dict[str, dict[str, Any]]:
    """Launches and µs per layer per step of each role."""
    return {
        role: {
            "launches": shares.launches[role] / shares.per,
            "us": _us(shares.ns[role], shares.per) if timed else None,
        }
        for role in ROLES
    }


def of_jobs(runs: Sequence[tuple[str, RunRecord | None, KindCensus]], *, timed: bool) -> list[dict[str, Any]]:
    """One entry for each job of several ranks among `runs`.

    Args:
        runs: label, run.json and the chosen kind of step of each.
    """
    members: dict[str, list[tuple[str, RunRecord | None, KindCensus]]] = {}
    for run in runs:
        of = ranks.rank_of(run[1])
        if of is not None and of.world_size > 1:
            members.setdefault(of.job, []).append(run)
    return [_job(job, own, timed=timed) for job, own in members.items()]


def _job(job: str, runs: Sequence[tuple[str, RunRecord | None, KindCensus]], *, timed: bool) -> dict[str, Any]:
    records = [record for _, record, _ in runs]
    waiting = ranks.waiting_ns([census for _, _, census in runs], records) if timed and len(runs) > 1 else None
    entries: list[dict[str, Any]] = []
    for index, (label, record, census) in enumerate(runs):
        shares = ranks.shares(census, record)
        parts = by_role(shares, timed=timed)
        of = ranks.rank_of(record)
        entries.append(
            {
                "run": label,
                "rank": None if of is None else of.rank,
                "launches": sum(shares.launches.values()) / shares.per,
                "kernel_us": _us(sum(shares.ns.values()), shares.per) if timed else None,
                **{f"{name}_us": parts[role]["us"] for name, role in _ROLE_OF.items()},
                **{f"{name}_launches": parts[role]["launches"] for name, role in _ROLE_OF.items()},
                "waiting_us": None if waiting is None else _us(waiting[index], shares.per),
            }
        )
    entries.sort(key=lambda entry: entry["rank"])
    first = ranks.rank_of(records[0])
    workload = records[0].workload if records[0] else None
    return {
        "job": job,
        "world_size": None if first is None else first.world_size,
        "exchange": workload.shapes.get("exchange") if workload else None,
        "ranks": entries,
        "average": {"launches": _mean([e["launches"] for e in entries]), **_over(entries, _mean)},
        "skew": _over(entries, _spread),
        "start_skew": _START_SKEW,
    }


_ROLE_OF: Mapping[str, Role] = {"compute": "compute", "collective": "collective", "stand_in": "stand-in"}


def _over(entries: Sequence[Mapping[str, Any]], summary: Any) -> dict[str, float | None]:
    return {name: summary([entry[name] for entry in entries]) for name in _TIMES}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.fmean(known), 6) if len(known) == len(values) else None


def _spread(values: Sequence[float | None]) -> float | None:
    """Largest minus smallest; None of a single value, which differs from nothing."""
    known = [value for value in values if value is not None]
    return round(max(known) - min(known), 6) if len(known) == len(values) > 1 else None


def of_comparison(comparison: Comparison) -> dict[str, Any]:
    """For the diff: `by_role` of either side, and each rank before and after, averaged over the jobs of a side."""
    sides = [_side(side, timed=comparison.timed) for side in (comparison.before, comparison.after)]
    return {
        "roles": {
            role: {
                f"{what}_{when}": side["roles"][role][what]
                for what in ("launches", "us")
                for when, side in zip(("before", "after"), sides, strict=True)
            }
            for role in ROLES
        },
        "ranks": [
            {"rank": rank, "before": sides[0]["ranks"].get(rank), "after": sides[1]["ranks"].get(rank)}
            for rank in sorted({*sides[0]["ranks"], *sides[1]["ranks"]})
        ],
        "skew": None
        if not sides[0]["ranks"] and not sides[1]["ranks"]
        else {"before": sides[0]["skew"], "after": sides[1]["skew"], "start_skew": _START_SKEW},
    }


def _side(side: Input, *, timed: bool) -> dict[str, Any]:
    runs = [(run.label, run.record, run.census.chosen) for run in side.runs]
    found = of_jobs(runs, timed=timed)
    each = [by_role(ranks.shares(census, record), timed=timed) for _, record, census in runs]
    by_rank: dict[int, list[Mapping[str, Any]]] = {}
    for job in found:
        for entry in job["ranks"]:
            by_rank.setdefault(entry["rank"], []).append(entry)
    return {
        "roles": {
            role: {what: _mean([parts[role][what] for parts in each]) for what in ("launches", "us")} for role in ROLES
        },
        "ranks": {
            rank: {"launches": _mean([entry["launches"] for entry in own]), **_over(own, _mean)}
            for rank, own in by_rank.items()
        },
        "skew": _over([job["skew"] for job in found], _mean) if found else None,
    }


def _us(ns: int, per: int) -> float:
    return round(ns / per / 1e3, 6)
