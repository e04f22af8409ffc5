"""The ranks of a job side by side, and launches by role: entries of both documents, and what reports say of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Protocol

from msgspec import Meta, Struct, field

from profkit.counting import ranks
from profkit.counting.ranks import ROLES, Shares
from profkit.reporters.blocks import Block, Gap, Lines, Row, Table, Title, numbers

if TYPE_CHECKING:
    from profkit.comparison.model import Comparison


class Run(ranks.Ranked, Protocol):
    """A run that reports call by a label."""

    @property
    def label(self) -> str:
        """How."""


#: What is not measured is None.
Us = float | None


def says(text: str) -> Meta:
    """What the docs and the schemas say of a field."""
    return Meta(description=text)


class Share(Struct, frozen=True, kw_only=True):
    """What launches of one role are of a layer."""

    launches: float
    us: Us


class Roles(Struct, frozen=True, kw_only=True):
    """The selected layers by role, see Ranks."""

    compute: Share
    collective: Share
    stand_in: Share = field(name="stand-in")


class RankTimes(Struct, frozen=True, kw_only=True):
    """Times of a rank, µs; of waiting see Ranks."""

    kernel_us: Us
    compute_us: Us
    collective_us: Us
    waiting_us: Us


class RankMeans(Struct, frozen=True, kw_only=True):
    """Means over ranks or jobs."""

    launches: float | None
    kernel_us: Us
    compute_us: Us
    collective_us: Us
    waiting_us: Us


class Rank(Struct, frozen=True, kw_only=True):
    """One rank of a job."""

    run: str
    rank: int
    launches: float
    kernel_us: Us
    compute_us: Us
    collective_us: Us
    stand_in_us: Us
    compute_launches: float
    collective_launches: float
    stand_in_launches: float
    waiting_us: Us


class StartSkew(Struct, frozen=True, kw_only=True):
    """How far apart ranks started: not known, and `why`."""

    us: Us = None
    why: str = "Each rank was recorded in a file of its own, and the files have no common clock good to a microsecond."


class Job(Struct, frozen=True, kw_only=True):
    """The ranks of one capture."""

    job: Annotated[str, says("the same for its ranks and for no others.")]
    world_size: Annotated[int, says("how many ranks it had.")]
    exchange: Annotated[int | float | str | None, says("its shape of that name, if it has one.")]
    ranks: Annotated[Sequence[Rank], says("those that are here, by rank.")]
    average: RankMeans
    skew: Annotated[RankTimes, says("largest minus smallest; null where only one rank is here.")]
    start_skew: StartSkew = StartSkew()


class ShareChange(Struct, frozen=True, kw_only=True):
    """Launches of one role, averaged over the runs of a side."""

    launches_before: float | None
    launches_after: float | None
    us_before: Us
    us_after: Us


class RoleChanges(Struct, frozen=True, kw_only=True):
    """Sums by role."""

    compute: ShareChange
    collective: ShareChange
    stand_in: ShareChange = field(name="stand-in")


class RankChange(Struct, frozen=True, kw_only=True):
    """A rank, averaged over the jobs of a side; null where a side has not that rank."""

    rank: int
    before: RankMeans | None
    after: RankMeans | None


class SkewChange(Struct, frozen=True, kw_only=True):
    """Largest minus smallest over the ranks of a job, mean over jobs."""

    before: RankTimes | None
    after: RankTimes | None
    start_skew: StartSkew = StartSkew()


#: What of a rank is averaged, and whose spread is the skew.
_TIMES = ("kernel_us", "compute_us", "collective_us", "waiting_us")


def by_role(shares: Shares, *, timed: bool) -> Roles:
    """Launches and µs per layer per step of each role."""
    compute, collective, stand_in = (
        Share(launches=shares.launches[role] / shares.per, us=_us(shares.ns[role], shares.per) if timed else None)
        for role in ROLES
    )
    return Roles(compute=compute, collective=collective, stand_in=stand_in)


def jobs_of(runs: Sequence[Run], *, timed: bool) -> list[Job]:
    """One entry for each job of several ranks among `runs`."""
    members: dict[str, list[Run]] = {}
    for run in runs:
        of = ranks.rank_of(run)
        if of is not None and of.world_size > 1:
            members.setdefault(of.job, []).append(run)
    return [_job(own, timed=timed) for own in members.values()]


def _job(runs: Sequence[Run], *, timed: bool) -> Job:
    records = [run.record for run in runs]
    waiting = ranks.waiting_ns([run.census.chosen for run in runs], records) if timed and len(runs) > 1 else None
    entries: list[Rank] = []
    for index, run in enumerate(runs):
        shares = ranks.shares(run.census.chosen, run.record)
        parts = by_role(shares, timed=timed)
        of = ranks.rank_of(run)
        assert of is not None  # `jobs_of` takes ranks alone
        entries.append(
            Rank(
                run=run.label,
                rank=of.rank,
                launches=sum(shares.launches.values()) / shares.per,
                kernel_us=_us(sum(shares.ns.values()), shares.per) if timed else None,
                compute_us=parts.compute.us,
                collective_us=parts.collective.us,
                stand_in_us=parts.stand_in.us,
                compute_launches=parts.compute.launches,
                collective_launches=parts.collective.launches,
                stand_in_launches=parts.stand_in.launches,
                waiting_us=None if waiting is None else _us(waiting[index], shares.per),
            )
        )
    entries.sort(key=lambda entry: entry.rank)
    first = ranks.rank_of(runs[0])
    assert first is not None
    workload = records[0].workload if records[0] else None
    return Job(
        job=first.job,
        world_size=first.world_size,
        exchange=workload.shapes.get("exchange") if workload else None,
        ranks=entries,
        average=_means(entries),
        skew=_times(entries, _spread),
    )


def _times(entries: Sequence[Rank | RankTimes], summary: Callable[[Sequence[float | None]], float | None]) -> RankTimes:
    return RankTimes(**{name: summary([getattr(entry, name) for entry in entries]) for name in _TIMES})


def _means(entries: Sequence[Rank]) -> RankMeans:
    names = ("launches", *_TIMES)
    return RankMeans(**{name: _mean([getattr(entry, name) for entry in entries]) for name in names})


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.fmean(known), 6) if len(known) == len(values) else None


def _spread(values: Sequence[float | None]) -> float | None:
    """Largest minus smallest; None of a single value, which differs from nothing."""
    known = [value for value in values if value is not None]
    return round(max(known) - min(known), 6) if len(known) == len(values) > 1 else None


def compared(comparison: Comparison) -> tuple[RoleChanges, list[RankChange], SkewChange | None]:
    """Of both sides: `by_role`, each rank averaged over the jobs of a side, and the skew."""
    timed = comparison.timed
    sides = [side.runs for side in (comparison.before, comparison.after)]
    before, after = ([by_role(ranks.shares(r.census.chosen, r.record), timed=timed) for r in runs] for runs in sides)
    compute, collective, stand_in = (
        ShareChange(
            launches_before=_mean([getattr(roles, name).launches for roles in before]),
            launches_after=_mean([getattr(roles, name).launches for roles in after]),
            us_before=_mean([getattr(roles, name).us for roles in before]),
            us_after=_mean([getattr(roles, name).us for roles in after]),
        )
        for name in Roles.__struct_fields__
    )
    jobs = [jobs_of(runs, timed=timed) for runs in sides]
    means = [
        {rank: _means([e for job in own for e in job.ranks if e.rank == rank]) for rank in _numbers(own)}
        for own in jobs
    ]
    changes = [
        RankChange(rank=rank, before=means[0].get(rank), after=means[1].get(rank))
        for rank in sorted({*means[0], *means[1]})
    ]
    skews = [_times([job.skew for job in own], _mean) if own else None for own in jobs]
    skew = SkewChange(before=skews[0], after=skews[1]) if changes else None
    return RoleChanges(compute=compute, collective=collective, stand_in=stand_in), changes, skew


def _numbers(jobs: Sequence[Job]) -> set[int]:
    return {entry.rank for job in jobs for entry in job.ranks}


def _us(ns: int, per: int) -> float:
    return round(ns / per / 1e3, 6)


# -- what is said ------------------------------------------------------------------------------------------------------


def blocks(job: Job, *, timed: bool) -> Iterator[Block]:
    """The table of a job: a row for each rank, their average and their skew; and what the numbers mean."""
    exchange = "" if job.exchange is None else f", exchange: {job.exchange}"
    where = {entry.run.rpartition("/")[0] for entry in job.ranks} - {""}
    name = f" ({', '.join(sorted(where))})" if where else ""
    yield Gap("page")
    yield Title(f"{job.world_size} ranks of one job{name}{exchange}; per layer per step:")
    yield Gap("page")
    times = ("µs", "compute µs", "collective µs", "waiting µs") if timed else ()
    rows = [
        [str(entry.rank), f"{entry.launches:g}", f"{entry.collective_launches:g}", *(_cells(entry) if timed else [])]
        for entry in job.ranks
    ]
    if timed and len(job.ranks) > 1:
        rows.append(["average", f"{job.average.launches:g}", "", *_cells(job.average)])
        rows.append(["skew", "", "", *_cells(job.skew)])
    yield Table(numbers("rank", "launches", "collectives", *times), [Row(cells) for cells in rows])
    yield Gap("page")
    yield Lines(_notes(job, timed=timed), "points")
    yield Gap("screen")


def _cells(entry: Rank | RankMeans | RankTimes) -> list[str]:
    return ["–" if (us := getattr(entry, name)) is None else f"{us:.2f}" for name in _TIMES]


def _notes(job: Job, *, timed: bool) -> list[str]:
    missing = job.world_size - len(job.ranks)
    lines = [f"{missing} of {job.world_size} ranks are not here."] if missing else []
    if not timed:
        return lines
    if len(job.ranks) == 1:
        lines.append("Waiting cannot be told: it takes the collectives of the other ranks to compare.")
    elif job.average.waiting_us is None:
        lines.append("Waiting cannot be told: the ranks show no collectives to compare, or not the same ones.")
    else:
        lines.append(
            "Waiting: how much longer a rank's collectives lasted than those of the rank that lasted shortest in the "
            "same exchange. Skew: largest minus smallest."
        )
    why = job.start_skew.why
    lines.append(f"How far apart the ranks started cannot be told: {why[:1].lower()}{why[1:]}")
    return lines


def role_line(roles: Roles) -> str | None:
    """How much of a layer moves data between ranks; None where nothing does."""
    parts = [_role("compute", roles.compute)]
    if roles.collective.launches:
        parts.append(_role("collectives", roles.collective))
    if roles.stand_in.launches:
        parts.append(f"{_role('stand-in', roles.stand_in)} (no exchange between ranks: something else in its place)")
    return f"Of each layer: {'; '.join(parts)}." if len(parts) > 1 else None


def _role(name: str, share: Share) -> str:
    us = "" if share.us is None else f", {share.us:.2f} µs"
    return f"{name} {share.launches:g} launch{'' if share.launches == 1 else 'es'}{us}"


def diff_lines(comparison: Comparison) -> list[str]:
    """What is compute and what moves data between ranks, and the ranks before and after; none where no rank exchanges
    anything."""
    lines: list[str] = []
    roles, changes, skew = compared(comparison)
    if roles.collective.launches_before or roles.collective.launches_after:
        lines.append(f"Compute: {_change(roles.compute)} a layer. Collectives: {_change(roles.collective)} a layer.")
    for rank in changes:
        before, after = rank.before, rank.after
        if before is None or after is None:
            lines.append(f"Rank {rank.rank}: only {'before' if after is None else 'after'}.")
            continue
        text = f"Rank {rank.rank}: {before.launches:g} → {after.launches:g} launches a layer"
        times = {"compute": "compute_us", "collectives": "collective_us", "waiting": "waiting_us"}
        pairs = [(word, getattr(before, name), getattr(after, name)) for word, name in times.items()]
        text += "".join(f"; {word} {b:.2f} → {a:.2f} µs" for word, b, a in pairs if None not in (b, a))
        lines.append(f"{text}.")
    if skew is not None and skew.before and skew.after and skew.before.compute_us is not None:
        lines.append(
            "Skew between the ranks of a job (largest minus smallest, mean over jobs): compute "
            f"{skew.before.compute_us:.2f} → {skew.after.compute_us:.2f} µs, collectives "
            f"{skew.before.collective_us:.2f} → {skew.after.collective_us:.2f} µs a layer; how far apart they started "
            "cannot be told."
        )
    return lines


def _change(share: ShareChange) -> str:
    launches = f"{share.launches_before:g} → {share.launches_after:g} launches"
    if share.us_before is None or share.us_after is None:
        return launches
    return f"{launches}, {share.us_before:.2f} → {share.us_after:.2f} µs"
