"""What the readers of AMD's formats share: names, launch shapes, agents, and which markers nest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from profkit.model.trace import NONE

#: rocprofv3's directions to the notation of the other readers.
_DIRECTIONS = {
    "HOST_TO_DEVICE": "HtoD",
    "DEVICE_TO_HOST": "DtoH",
    "DEVICE_TO_DEVICE": "DtoD",
    "HOST_TO_HOST": "HtoH",
}
_CLONE = re.compile(r"( \[clone \.kd\]|\.kd)$")


def kernel_name(recorded: str) -> str:
    """`recorded` without the suffix of its code object's symbol."""
    return _CLONE.sub("", recorded)


def copy_name(recorded: str) -> str:
    """``memcpy HtoD`` for ``MEMORY_COPY_HOST_TO_DEVICE``, with or without its prefix."""
    direction = recorded.removeprefix("MEMORY_COPY_")
    return f"memcpy {_DIRECTIONS.get(direction, direction)}"


def agent_index(label: str) -> int:
    """4 for ``Agent 4`` and for ``4``; `NONE` without a number."""
    found = re.search(r"(\d+)$", label)
    return int(found[1]) if found else NONE


def blocks(grid: npt.NDArray[np.int64], workgroup: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Workgroups along one axis; HSA gives the grid in work-items, and the last workgroup may be partial."""
    known = (workgroup > 0) & (grid >= 0)
    return np.where(known, -(-grid // np.where(known, workgroup, 1)), NONE)


def is_marker_range(domain: str, text: str) -> bool:
    """Whether rows of a marker domain may be ranges: names, pauses and other controls are none."""
    return domain.startswith("MARKER_CORE") and not text.startswith("roctxProfiler")


def nests(
    process: npt.NDArray[np.int32],
    thread: npt.NDArray[np.int64],
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    """Which ranges can be push/pop ranges, for formats that do not say it.

    Push/pop ranges of one thread lie inside each other or apart. Of two that cross, at least one is a start/end range;
    the longer one is taken for it, since those usually span many others (a request, a training step).
    """
    nested = np.ones(len(start), np.bool_)
    order = np.lexsort((-end, start, thread, process))
    open_ranges: list[int] = []
    owner: tuple[int, int] | None = None
    for index in order.tolist():
        here = (int(process[index]), int(thread[index]))
        if here != owner:
            open_ranges, owner = [], here
        while open_ranges and end[open_ranges[-1]] <= start[index]:
            open_ranges.pop()
        while open_ranges and end[open_ranges[-1]] < end[index]:
            outer = open_ranges[-1]
            if end[outer] - start[outer] <= end[index] - start[index]:
                nested[index] = False
                break
            nested[outer] = False
            open_ranges.pop()
        if nested[index]:
            open_ranges.append(index)
    return nested


def device_names(named: Mapping[int, str], used: Iterable[int]) -> dict[int, str]:
    """Names of the devices in `used`.

    rocprofv3 numbers agents by node, by visible index or by type (``--agent-index``), and does not write which; one
    name for all GPUs settles it.
    """
    indices = sorted(i for i in used if i >= 0)
    kinds = set(named.values())
    if len(kinds) == 1:
        return dict.fromkeys(indices, kinds.pop())
    return {i: named[i] for i in indices if i in named}
