"""Several runs of one side as one census: ranks of a job, or repeated captures of one arm.

Every run counts once, whatever its number of steps: the steps of a run are weighted so that sums over all steps,
divided by their number, are means over the runs. The columns of the by-step tables keep which run they come from.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.census_model import KindCensus
from profkit.steps import StepKind

Ints = npt.NDArray[np.int64]
_SUMS = ["launches", "kernel_ns", "busy_ns", "span_ns"]

#: A run is named as unlike the others beyond so many scaled median absolute deviations, and this share of the median:
#: the usual cut for normal data, and what one GPU of a host differs from the next without a cause (about 3 %).
OUTLIER_DEVIATIONS = 3.5
OUTLIER_SHARE = 0.05


def same_layers(censuses: Sequence[KindCensus]) -> bool:
    """Whether all runs have the same layers, so that they can be merged."""
    first = _layer_list(censuses[0])
    return all(_layer_list(c) == first for c in censuses[1:])


def _layer_list(census: KindCensus) -> list[tuple[str, int, bool]]:
    layers = census.layers
    return list(zip(layers["family"], layers["number"].tolist(), layers["selected"].tolist(), strict=True))


def merge(censuses: Sequence[KindCensus], jobs: Sequence[int] | None = None) -> KindCensus:
    """One census of all steps of `censuses`, which have the same layers.

    Args:
        jobs: for each the number of the job that it is a rank of; every one is independent of the others if not given.
    """
    if len(censuses) == 1:
        return censuses[0]
    steps = [c.kind.steps for c in censuses]
    weights = [sum(steps) / (len(steps) * n) for n in steps]
    slots, slot_ns = _merged(
        weights,
        [c.slots for c in censuses],
        [c.slot_ns for c in censuses],
        ["layer", "inside", "canonical", "op_kind", "occurrence"],
        ["name", "in_layers", "selected"],
    )
    outside, outside_ns = _merged(
        weights,
        [c.outside for c in censuses],
        [c.outside_ns for c in censuses],
        ["where", "canonical", "op_kind"],
        ["name"],
    )
    layers = censuses[0].layers.copy()
    sums = sum(w * c.layers[_SUMS].to_numpy() for w, c in zip(weights, censuses, strict=True))
    layers[_SUMS] = np.rint(sums).astype(np.int64)
    launches = sum(c.kind.ops_per_step for c in censuses) / len(censuses)
    kind = StepKind(
        id=censuses[0].kind.id,
        steps=sum(steps),
        ops_per_step=round(launches),
        gpu_ns=round(sum(w * c.kind.gpu_ns for w, c in zip(weights, censuses, strict=True))),
        one_graph=False,
    )
    return KindCensus(
        kind=kind,
        layers=layers,
        slots=slots,
        slot_ns=slot_ns,
        outside=outside,
        outside_ns=outside_ns,
        step_span_ns=np.concatenate([c.step_span_ns for c in censuses]),
        run_of_step=np.repeat(np.arange(len(censuses)), steps),
        job_of_step=np.repeat(np.arange(len(censuses)) if jobs is None else jobs, steps),
        step_weight=np.repeat(weights, steps),
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
