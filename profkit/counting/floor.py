"""The dispatch floor: what a launch costs when its kernel does nothing, and which launches cost little more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from msgspec import Meta, Struct

from profkit.model.census import Census
from profkit.model.run import RunRecord

#: A kernel that lasts at most so many times the floor is at it. On an H200 under nsys a kernel that copies one element
#: lasts 0.93 µs (profkit floor); the eight kernels of the DCP mask, a few hundred elements each, last 0.8 to 2.2 times
#: that, and the shortest kernel that moves megabytes, unpack, 3.1 times (docs/results/dcp-combine-h200.md).
FACTOR = 2.5
#: A kernel that lasts longer than this is no estimate of a floor: the slowest measured is about 4.4 µs (MI355X).
HIGHEST_ESTIMATE_US = 5.0
#: A floor is estimated only where so many kinds of kernels ran, and the fastest few of them last nearly the same. Where
#: a recording holds only kernels that work, the shortest of them is no floor.
FEWEST_KINDS = 8
FASTEST_KINDS = 3
NEARLY_THE_SAME = 1.5

Source = Literal["measured", "given", "estimated"]


class Floor(Struct, frozen=True):
    """The dispatch floor of a recording: launches of at most factor × us are at it."""

    us: Annotated[float, Meta(description="what a kernel that does next to nothing lasts under the same profiler.")]
    source: Annotated[
        Source,
        Meta(
            description="`measured` with the capture, `given` by the user, or `estimated`: the mean of the fastest "
            "kind of kernel, only where eight kinds or more ran and the three fastest are within a factor of 1.5."
        ),
    ]
    factor: float = FACTOR

    def holds(self, us: float) -> bool:
        """Whether a launch of this mean duration is at the floor."""
        return us <= self.factor * self.us


def floor_of(record: RunRecord | None, censuses: Sequence[Census], given_us: float | None) -> Floor | None:
    """The floor to judge the runs of one side by; None where nothing tells it.

    Args:
        record: run.json of the first run, which holds the floor measured with a capture.
        censuses: of every run.
        given_us: ``--floor-us``.
    """
    if given_us is not None:
        return Floor(given_us, "given")
    measured = record.floor.load_store.traced_duration.median if record and record.floor else None
    if measured is not None and measured > 0:
        return Floor(measured, "measured")
    columns = ["canonical", "op_kind", "launches", "ns"]
    # A kernel outside all steps can show that those of the chosen step are no floor.
    tables = [table for census in censuses for kind in census.kinds for table in (kind.slots, kind.outside)]
    every = pd.concat([table[columns] for table in (*tables, *(census.beyond_steps for census in censuses))])
    by_kind = every[every["op_kind"] == "kernel"].groupby("canonical")[["launches", "ns"]].sum()
    means_us = np.sort(by_kind["ns"].to_numpy() / by_kind["launches"].to_numpy() / 1e3)
    if len(means_us) < FEWEST_KINDS or means_us[FASTEST_KINDS - 1] > NEARLY_THE_SAME * means_us[0]:
        return None
    fastest = float(means_us[0])
    return Floor(fastest, "estimated") if 0 < fastest <= HIGHEST_ESTIMATE_US else None
