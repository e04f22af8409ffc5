"""Several runs of one side: ranks of a file or a job, told from independent runs; what differs; all as one census."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.model.census import EXTENTS, SHAPE, Census, KindCensus
from profkit.model.run import RankRecord, RunRecord
from profkit.model.steps import StepKind
from profkit.model.trace import Diagnostic, Trace, joint_key
from profkit.model.wording import are, counted

Role = Literal["compute", "collective", "stand-in"]
ROLES: Sequence[Role] = ("compute", "collective", "stand-in")

#: Kernels of NCCL and RCCL, of the custom all-reduces of serving engines, of NVSHMEM and DeepEP, and torch's operators.
#: More names than those of `readers.rows.needs_peers`, on purpose: here a name says what a launch in a layer is there
#: for, also where one process drives both devices or the kernel computes beside its exchange.
_COLLECTIVE = re.compile(
    r"nccl|rccl|nvshmem|deep_ep|mscclpp|\bc10d|_c10d_functional|cross_device_reduce|multimem|"
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|all2all|send_?recv|memcpy (?:PtoP|Peer)",
    re.IGNORECASE,
)
#: Ranges that mark an exchange between ranks: in anybody's run, and in one of a workload with a shape ``exchange``.
_EXCHANGE = re.compile(r"(?:^|/)exchange(?:/|$)")
_OWN_EXCHANGE = re.compile(r"(?:^|/)(?:exchange|gather|scatter)(?:/|$)")


def is_collective(name: str) -> bool:
    """Whether a launch of this recorded name moves data between ranks."""
    return _COLLECTIVE.search(name) is not None


def of_slots(slots: pd.DataFrame, record: RunRecord | None) -> list[Role]:
    """The role of each launch slot.

    A name tells a collective. Other launches in a range of an exchange stand in for one, unless run.json says that the
    exchange was between processes: then they belong to it (a collective that the GPU's copy engines carry out).

    Args:
        slots: a census's, with the columns inside and name.
        record: run.json, None for a bare trace.
    """
    shapes = {} if record is None or record.workload is None else record.workload.shapes
    range_of_exchange = _OWN_EXCHANGE if "exchange" in shapes else _EXCHANGE
    exchanged: Role = "collective" if shapes.get("exchange") == "distributed" else "stand-in"
    by_name = {name: is_collective(name) for name in pd.unique(slots["name"])}
    by_range = {inside: range_of_exchange.search(inside) is not None for inside in pd.unique(slots["inside"])}
    return [
        "collective" if by_name[name] else exchanged if by_range[inside] else "compute"
        for name, inside in zip(slots["name"], slots["inside"], strict=True)
    ]


Ints = npt.NDArray[np.int64]
_SUMS = ["launches", "kernel_ns", "busy_ns", "span_ns"]

#: A run is named as unlike the others beyond so many scaled median absolute deviations, and this share of the median:
#: the usual cut for normal data, and what one GPU of a host differs from the next without a cause (about 3 %).
OUTLIER_DEVIATIONS = 3.5
OUTLIER_SHARE = 0.05


def same_layers(censuses: Sequence[KindCensus]) -> bool:
    """Whether all have the same layers."""
    first = _layer_list(censuses[0])
    return all(_layer_list(c) == first for c in censuses[1:])


def _layer_list(census: KindCensus) -> list[tuple[int, str, int, bool]]:
    columns = (census.layers[name].tolist() for name in ("rank", "stack", "number", "selected"))
    return list(zip(*columns, strict=True))


def merge(censuses: Sequence[KindCensus], jobs: Sequence[int] | None = None) -> KindCensus:
    """One census of all: the ranks of a job side by side, each with layers of its own; the steps of several jobs, whose
    layers are the same, one behind the other.

    Args:
        jobs: for each the number of the job that it is a rank of; every one is independent of the others if not given.
    """
    numbers = list(range(len(censuses)) if jobs is None else jobs)
    return _behind(
        [_beside([c for c, n in zip(censuses, numbers, strict=True) if n == job]) for job in sorted({*numbers})]
    )


def _beside(ranks: Sequence[KindCensus]) -> KindCensus:
    """The ranks of one job. Of ranks with unlike numbers of steps the first ones are taken."""
    if len(ranks) == 1:
        return ranks[0]
    steps = min(c.kind.steps for c in ranks)
    first = np.cumsum([0, *(len(c.layers) for c in ranks)])
    slots = [_first_steps(c.slots, c.kind.steps, c.slot_ns[:, :steps]) for c in ranks]
    outside = [_first_steps(c.outside, c.kind.steps, c.outside_ns[:, :steps]) for c in ranks]
    layers = [c.layers.assign(rank=index) for index, c in enumerate(ranks)]
    for table, census in zip(layers, ranks, strict=True):
        table[_SUMS] = table[_SUMS] * steps // census.kind.steps
    return KindCensus(
        kind=StepKind(
            id=ranks[0].kind.id,
            batch=ranks[0].kind.batch,
            steps=steps,
            ops_per_step=sum(c.kind.ops_per_step for c in ranks),
            gpu_ns=sum(c.kind.gpu_ns * steps // c.kind.steps for c in ranks),
            one_graph=False,
        ),
        layers=pd.concat(layers, ignore_index=True),
        slots=pd.concat(
            [t.assign(layer=t["layer"] + n) for t, n in zip(slots, first, strict=False)], ignore_index=True
        ),
        slot_ns=np.concatenate([c.slot_ns[:, :steps] for c in ranks]),
        outside=pd.concat([t.assign(rank=index) for index, t in enumerate(outside)], ignore_index=True),
        outside_ns=np.concatenate([c.outside_ns[:, :steps] for c in ranks]),
        step_span_ns=np.stack([c.step_span_ns[:steps] for c in ranks]).max(axis=0),
        job_of_step=np.zeros(steps, dtype=np.int64),
        step_weight=np.ones(steps),
        ranks=len(ranks),
    )


def _first_steps(table: pd.DataFrame, steps: int, by_step: Ints) -> pd.DataFrame:
    """`table` with the sums of as many of its `steps` as `by_step` has."""
    return table.assign(launches=table["launches"] * by_step.shape[1] // steps, ns=by_step.sum(axis=1))


def _behind(jobs: Sequence[KindCensus]) -> KindCensus:
    if len(jobs) == 1:
        return jobs[0]
    steps = [c.kind.steps for c in jobs]
    weights = [sum(steps) / (len(steps) * n) for n in steps]
    slots, slot_ns = _merged(
        weights,
        [c.slots for c in jobs],
        [c.slot_ns for c in jobs],
        ["layer", "inside", "canonical", "op_kind", "occurrence"],
        ["name", "stream", *SHAPE, "in_layers", "selected"],
    )
    outside, outside_ns = _merged(
        weights,
        [c.outside.assign(rank=c.outside.get("rank", 0)) for c in jobs],
        [c.outside_ns for c in jobs],
        ["rank", "where", "canonical", "op_kind"],
        ["name", *EXTENTS],
    )
    layers = jobs[0].layers.copy()
    sums = sum(w * c.layers[_SUMS].to_numpy() for w, c in zip(weights, jobs, strict=True))
    layers[_SUMS] = np.rint(sums).astype(np.int64)
    kind = StepKind(
        id=jobs[0].kind.id,
        batch=jobs[0].kind.batch,
        steps=sum(steps),
        ops_per_step=round(sum(c.kind.ops_per_step for c in jobs) / len(jobs)),
        gpu_ns=round(sum(w * c.kind.gpu_ns for w, c in zip(weights, jobs, strict=True))),
        one_graph=False,
    )
    return KindCensus(
        kind=kind,
        layers=layers,
        slots=slots,
        slot_ns=slot_ns,
        outside=outside,
        outside_ns=outside_ns,
        step_span_ns=np.concatenate([c.step_span_ns for c in jobs]),
        job_of_step=np.repeat(np.arange(len(jobs)), steps),
        step_weight=np.repeat(weights, steps),
        ranks=jobs[0].ranks,
    )


def _merged(
    weights: Sequence[float], tables: Sequence[pd.DataFrame], by_step: Sequence[Ints], key: list[str], kept: list[str]
) -> tuple[pd.DataFrame, Ints]:
    """Rows of all tables with one key added up, and their by-step columns side by side.

    Rows keep their order; one that a run lacks stands where it stands, on average, in the runs that have it.
    """
    numbered = [
        t.assign(position=np.arange(len(t)) / max(len(t), 1), launches=t["launches"] * w)
        for t, w in zip(tables, weights, strict=True)
    ]
    whole = pd.concat(numbered, ignore_index=True)
    group = whole.groupby(key, sort=False).ngroup().to_numpy()
    sums = whole.groupby(key, sort=False, as_index=False).agg(
        {**dict.fromkeys(kept, "first"), "launches": "sum", "position": "mean"}
    )
    sums["launches"] = sums["launches"].round().astype("int64")
    ns = np.zeros((len(sums), sum(m.shape[1] for m in by_step)), dtype=np.int64)
    row, column = 0, 0
    for matrix, weight in zip(by_step, weights, strict=True):
        weighted = matrix if weight == 1 else np.rint(matrix * weight).astype(np.int64)
        # Two rows of one run may have one key: kernels whose recorded names differ only by a compiler's counter.
        np.add.at(ns[:, column : column + matrix.shape[1]], group[row : row + len(matrix)], weighted)
        row, column = row + len(matrix), column + matrix.shape[1]
    sums["ns"] = ns.sum(axis=1)
    order = np.lexsort((sums["position"], sums["layer"])) if "layer" in key else np.arange(len(sums))
    return sums.iloc[order].drop(columns="position").reset_index(drop=True), ns[order]


def unlike(censuses: Sequence[KindCensus]) -> list[tuple[int, str]]:
    """Runs that differ from the others: index and what differs, in launches by equality, in time by the median."""
    if len(censuses) < 2:
        return []
    per = [max(c.selected_layers * c.kind.steps, 1) for c in censuses]
    launches = np.array([c.selected_slots["launches"].sum() / n for c, n in zip(censuses, per, strict=True)])
    times = np.array([c.selected_slots["ns"].sum() / n / 1e3 for c, n in zip(censuses, per, strict=True)])
    values, counts = np.unique(launches, return_counts=True)
    usual = values[np.argmax(counts)]
    middle = float(np.median(times))
    spread = 1.4826 * float(np.median(np.abs(times - middle)))
    limit = max(OUTLIER_DEVIATIONS * spread, OUTLIER_SHARE * middle)
    found: list[tuple[int, str]] = [
        (int(i), f"{launches[i]:g} launches a layer where the others have {usual:g}")
        for i in np.flatnonzero(launches != usual)
    ]
    if len(censuses) > 2:
        found += [
            (int(i), f"{times[i]:.2f} µs a layer where the median is {middle:.2f}")
            for i in np.flatnonzero(np.abs(times - middle) > limit)
        ]
    return [(int(i), text) for i, text in found]


#: The diagnostic of a reader that saw collectives and one process alone; see `diagnostics`.
ALONE = "one-of-several-processes"


#: A pair of process and device with a smaller share of the ops of the busiest is a helper and no rank.
_HELPER_SHARE = 0.05


def divided(trace: Trace, job: str = "") -> list[tuple[RankRecord | None, Trace]]:
    """The ranks of a trace: what each process launched on each of its devices, as if it were a file of its own.

    Args:
        job: names the trace among others; its source if not given.

    Pairs of process and device with few ops (a helper's) stay with the first rank of their process, or of all. A trace
    of one rank is itself, and no rank.
    """
    ops = trace.ops
    pair, pairs = pd.factorize(_process_and_device(ops), sort=True)
    counts = np.bincount(pair, minlength=len(pairs))
    chosen = np.flatnonzero(counts >= max(counts.max(initial=0) * _HELPER_SHARE, 1))
    if len(chosen) < 2:
        return [(None, trace)]
    first = [int(np.flatnonzero(pair == p)[0]) for p in range(len(pairs))]
    process = ops["process"].to_numpy()[first]
    numbers = [trace.info.processes[process[p]].rank for p in chosen]
    if None in numbers or len(set(numbers)) < len(numbers):
        numbers = list(range(len(chosen)))
    rank_of_pair = np.array([_nearest(p, chosen, process) for p in range(len(pairs))])
    launch = trace.launches
    keys = joint_key(launch["process"].to_numpy(), launch["correlation"].to_numpy())
    op_keys = joint_key(ops["process"].to_numpy(), ops["correlation"].to_numpy())
    # A broken row belongs to its pair's rank, and where that has no sound op, to the first.
    broken = rank_of_pair[np.maximum(pd.Index(pairs).get_indexer(pd.Index(_process_and_device(trace.set_aside))), 0)]
    helpers = len(pairs) - len(chosen)
    note = Diagnostic(
        "ranks-in-one-file",
        f"{len(chosen)} pairs of process and device are counted as ranks"
        + (f"; {counted(helpers, 'other')} with few launches {are(helpers)} counted with them." if helpers else "."),
    )
    found: list[tuple[RankRecord | None, Trace]] = []
    for index, number in enumerate(numbers):
        mine = rank_of_pair[pair] == index
        processes = np.unique(ops["process"].to_numpy()[mine])
        others = np.isin(keys, op_keys[~mine]) & ~np.isin(keys, op_keys[mine])
        kept = np.isin(launch["process"].to_numpy(), processes) & ~others
        info = replace(trace.info, diagnostics=(*trace.info.diagnostics, note))
        part = replace(
            trace,
            ops=ops[mine].reset_index(drop=True),
            launches=launch[kept].reset_index(drop=True),
            ranges=trace.ranges[trace.ranges["process"].isin(processes)].reset_index(drop=True),
            nodes=trace.nodes[trace.nodes["process"].isin(processes)].reset_index(drop=True),
            set_aside=trace.set_aside[broken == index].reset_index(drop=True),
            info=info,
        )
        found.append((RankRecord(job=job or trace.info.source, rank=int(number or 0), world_size=len(chosen)), part))
    return sorted(found, key=lambda entry: entry[0].rank if entry[0] else 0)


def _process_and_device(ops: pd.DataFrame) -> Ints:
    return joint_key(ops["process"].to_numpy(), ops["device"].to_numpy().astype(np.int64))


def _nearest(pair: int, chosen: Ints, process: npt.NDArray[np.int32]) -> int:
    """Which of the `chosen` pairs a pair belongs to: itself, else the first of its process, else the first."""
    same = [index for index, c in enumerate(chosen) if c == pair or process[c] == process[pair]]
    return next((i for i in same if chosen[i] == pair), same[0] if same else 0)


class Ranked(Protocol):
    """A run, as far as it may be a rank."""

    @property
    def record(self) -> RunRecord | None:
        """run.json, None for a bare trace."""

    @property
    def rank(self) -> RankRecord | None:
        """Which rank of its file it is; None where the file holds one."""

    @property
    def census(self) -> Census:
        """Its trace, counted."""


def rank_of(run: Ranked) -> RankRecord | None:
    """Of the file that holds several, else what run.json says; None for a run that is no rank."""
    if run.rank is not None:
        return run.rank
    return None if run.record is None else run.record.ranks


def numbers(runs: Sequence[Ranked]) -> list[int]:
    """For each run the number of its job, from 0; a run that is no rank is a job of its own."""
    ranks = [rank_of(run) for run in runs]
    keys = [f"run {index}" if of is None else f"job {of.job}" for index, of in enumerate(ranks)]
    found = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return [found[key] for key in keys]


def ranks_by_job(runs: Sequence[Ranked]) -> list[frozenset[int]]:
    """The ranks that are there of every job of several; empty for runs that are no ranks."""
    found: dict[str, set[int]] = {}
    for run in runs:
        of = rank_of(run)
        if of is not None:
            found.setdefault(of.job, set()).add(of.rank)
    return [frozenset(ranks) for ranks in found.values()]


def world_sizes(runs: Sequence[Ranked]) -> set[int]:
    """How many ranks the jobs had, 1 for runs that are no ranks."""
    return {1 if (of := rank_of(run)) is None else of.world_size for run in runs}


def peers_here(runs: Sequence[Ranked]) -> list[bool]:
    """For each run whether the recordings of those it exchanged data with are among `runs` too.

    They are where every rank of its job is there, or, of bare traces, that of another process. A run.json without ranks
    tells of one capture, and other captures are no peers of it.
    """
    ranks: dict[str, set[int]] = {}
    processes: set[tuple[int, ...]] = set()
    for run in runs:
        of = rank_of(run)
        if of is not None:
            ranks.setdefault(of.job, set()).add(of.rank)
        elif run.record is None:
            processes.add(_processes(run.census))

    def here(run: Ranked) -> bool:
        of = rank_of(run)
        if of is not None:
            return len(ranks[of.job]) >= of.world_size
        return run.record is None and len(processes) > 1

    return [here(run) for run in runs]


def diagnostics(runs: Sequence[Ranked]) -> list[list[Diagnostic]]:
    """What the census of each run has to say, without `ALONE` where its peers are among `runs`."""
    here = peers_here(runs)
    return [
        [d for d in run.census.diagnostics if not (peers_are_here and d.code == ALONE)]
        for run, peers_are_here in zip(runs, here, strict=True)
    ]


def _processes(census: Census) -> tuple[int, ...]:
    """The processes of a trace, by rank where it says that."""
    return tuple(p.pid if p.rank is None else p.rank for p in census.info.processes)


def may_be_ranks(runs: Sequence[Ranked]) -> int:
    """How many of `runs` are bare traces of one process whose steps hold collectives: of those nothing says whether
    they are ranks of one job or independent runs."""
    return sum(
        run.record is None
        and run.rank is None
        and any(is_collective(name) for table in _launches(run.census) for name in table["name"].unique())
        for run in runs
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


def shares(census: KindCensus, record: RunRecord | None) -> Shares:
    """Launches and nanoseconds of the selected layers by role."""
    slots = census.selected_slots
    role = np.array(of_slots(slots, record), dtype=object)
    launches, ns = slots["launches"].to_numpy(), slots["ns"].to_numpy()
    return Shares(
        per=max(census.selected_layers * census.kind.steps, 1),
        launches={r: int(launches[role == r].sum()) for r in ROLES},
        ns={r: int(ns[role == r].sum()) for r in ROLES},
    )


def waiting_ns(censuses: Sequence[KindCensus], records: Sequence[RunRecord | None]) -> list[int] | None:
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
        role = np.array(of_slots(slots, record), dtype=object)
        mine = np.flatnonzero((role == "collective") & slots["selected"].to_numpy())
        times.append(census.slot_ns[mine])
        columns = (slots[name].to_numpy()[mine].tolist() for name in ("layer", "inside", "occurrence"))
        places.add(tuple(zip(*columns, strict=True)))
    if len({t.shape for t in times}) > 1 or len(places) > 1 or not times[0].size:
        return None
    stacked = np.stack(times)
    return [int(ns) for ns in (stacked - stacked.min(axis=0)).sum(axis=(1, 2))]
