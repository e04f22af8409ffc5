"""Ranks of one job, told from independent runs, and what differs between them.

`profkit capture --nproc` marks the runs of a job in their run.json. Ranks wait for each other in every exchange, so
they are no independent runs: a job counts as one, whatever its number of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit import roles
from profkit.census_model import Census, KindCensus
from profkit.roles import Role
from profkit.trace import Diagnostic

Record = Mapping[str, Any] | None

#: The diagnostic of a reader that saw collectives and one process alone; see `diagnostics`.
ALONE = "one-of-several-processes"


@dataclass(frozen=True)
class RankOf:
    """Which rank of which job a run is."""

    rank: int
    world_size: int
    job: str


def rank_of(record: Record) -> RankOf | None:
    """What run.json says; None for a run without a process group, and for a bare trace."""
    said = (record or {}).get("ranks")
    if not isinstance(said, Mapping):
        return None
    return RankOf(int(said["rank"]), int(said["world_size"]), str(said["job"]))


def numbers(records: Sequence[Record]) -> list[int]:
    """For each run the number of its job, from 0; a run that is no rank is a job of its own."""
    ranks = [rank_of(record) for record in records]
    keys = [f"run {index}" if of is None else f"job {of.job}" for index, of in enumerate(ranks)]
    found = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return [found[key] for key in keys]


def ranks_by_job(records: Sequence[Record]) -> list[frozenset[int]]:
    """The ranks that are there of every job of several; empty for runs that are no ranks."""
    found: dict[str, set[int]] = {}
    for record in records:
        of = rank_of(record)
        if of is not None:
            found.setdefault(of.job, set()).add(of.rank)
    return [frozenset(ranks) for ranks in found.values()]


def world_sizes(records: Sequence[Record]) -> set[int]:
    """How many ranks the jobs had, 1 for runs that are no ranks."""
    return {1 if (of := rank_of(record)) is None else of.world_size for record in records}


def peers_here(runs: Sequence[tuple[Record, Census]]) -> list[bool]:
    """For each run whether the recordings of those it exchanged data with are among `runs` too.

    They are where every rank of its job is there, or, of bare traces, that of another process. A run.json without ranks
    tells of one capture, and other captures are no peers of it.
    """
    ranks: dict[str, set[int]] = {}
    processes: set[tuple[int, ...]] = set()
    for record, census in runs:
        of = rank_of(record)
        if of is not None:
            ranks.setdefault(of.job, set()).add(of.rank)
        elif record is None:
            processes.add(_processes(census))

    def here(record: Record) -> bool:
        of = rank_of(record)
        if of is not None:
            return len(ranks[of.job]) >= of.world_size
        return record is None and len(processes) > 1

    return [here(record) for record, _ in runs]


def diagnostics(runs: Sequence[tuple[Record, Census]]) -> list[list[Diagnostic]]:
    """What the census of each run has to say, without `ALONE` where its peers are among `runs`."""
    here = peers_here(runs)
    return [
        [d for d in census.diagnostics if not (peers_are_here and d.code == ALONE)]
        for (_, census), peers_are_here in zip(runs, here, strict=True)
    ]


def _processes(census: Census) -> tuple[int, ...]:
    """The processes of a trace, by rank where it says that."""
    return tuple(p.pid if p.rank is None else p.rank for p in census.info.processes)


def may_be_ranks(runs: Sequence[tuple[Record, Census]]) -> int:
    """How many of `runs` are bare traces of one process whose steps hold collectives: of those nothing says whether
    they are ranks of one job or independent runs."""
    return sum(
        record is None
        and census.processes_with_ops == 1
        and any(roles.is_collective(name) for table in _launches(census) for name in table["name"].unique())
        for record, census in runs
    )


def _launches(census: Census) -> Sequence[pd.DataFrame]:
    return (census.chosen.slots, census.chosen.outside) if census.kinds else ()


@dataclass(frozen=True)
class Shares:
    """The selected layers of one run by role. Exact sums; per layer per step is a sum over `per`.

    Args:
        per: selected layers × steps.
        launches, ns: by role.
    """

    per: int
    launches: Mapping[Role, int]
    ns: Mapping[Role, int]


def shares(census: KindCensus, record: Record) -> Shares:
    """Launches and nanoseconds of the selected layers by role."""
    slots = census.selected_slots
    role = np.array(roles.of_slots(slots, record), dtype=object)
    launches, ns = slots["launches"].to_numpy(), slots["ns"].to_numpy()
    return Shares(
        per=max(census.selected_layers * census.kind.steps, 1),
        launches={r: int(launches[role == r].sum()) for r in roles.ROLES},
        ns={r: int(ns[role == r].sum()) for r in roles.ROLES},
    )


def waiting_ns(censuses: Sequence[KindCensus], records: Sequence[Record]) -> list[int] | None:
    """For each rank of one job how much longer its collectives lasted than those of the rank that lasted shortest, each
    compared in the same exchange of the same step, summed: time in which it waited for others.

    This needs no common clock: a rank that arrives late finds the others there and is done soonest.

    Returns:
        None where there is nothing to compare: no collectives, or not the same ones in as many steps on every rank.
    """
    times: list[npt.NDArray[np.int64]] = []
    places: set[tuple[tuple[int, str, int], ...]] = set()
    for census, record in zip(censuses, records, strict=True):
        slots = census.slots
        role = np.array(roles.of_slots(slots, record), dtype=object)
        mine = np.flatnonzero((role == "collective") & slots["selected"].to_numpy())
        times.append(census.slot_ns[mine])
        columns = (slots[name].to_numpy()[mine].tolist() for name in ("layer", "inside", "occurrence"))
        places.add(tuple(zip(*columns, strict=True)))
    if len({t.shape for t in times}) > 1 or len(places) > 1 or not times[0].size:
        return None
    stacked = np.stack(times)
    return [int(ns) for ns in (stacked - stacked.min(axis=0)).sum(axis=(1, 2))]
