"""What the readers of AMD's formats share: names, launch shapes, agents, which markers nest, and rows → Trace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.errors import ProfkitError
from profkit.model.trace import NONE, OP_DETAIL, OP_KINDS, OPS, Diagnostic, Info, Process, Trace
from profkit.model.wording import are, counted
from profkit.readers.events import Columns, EventRows, nests
from profkit.readers.rows import broken_rows

#: rocprofv3's directions to the notation of the other readers.
_DIRECTIONS = {
    "HOST_TO_DEVICE": "HtoD",
    "DEVICE_TO_HOST": "DtoH",
    "DEVICE_TO_DEVICE": "DtoD",
    "HOST_TO_HOST": "HtoH",
}
#: The start of a row whose profiler wrote none: after every end, so that it is known to be broken.
UNWRITTEN = int(np.iinfo(np.int64).max)
_CLONE = re.compile(r"( \[clone \.kd\]|\.kd)$")

Arrays = Mapping[str, npt.NDArray[Any]]
Owner = int | npt.NDArray[np.int64]


def record_with(output: str) -> str:
    """The command that records all that profkit reads, with `output` as its formats."""
    return f"rocprofv3 --kernel-trace --hip-trace --marker-trace --output-format {output} -- CMD"


def kernel_name(recorded: str) -> str:
    """`recorded` without the suffix of its code object's symbol."""
    return _CLONE.sub("", recorded)


def copy_name(recorded: str) -> str:
    """``memcpy HtoD`` for ``MEMORY_COPY_HOST_TO_DEVICE``, with or without its prefix."""
    direction = recorded.removeprefix("MEMORY_COPY_")
    return f"memcpy {_DIRECTIONS.get(direction, direction)}"


def is_marker_range(domain: str, text: str) -> bool:
    """Whether rows of a marker domain may be ranges: names, pauses and other controls are none."""
    return domain.startswith("MARKER_CORE") and not text.startswith("roctxProfiler")


def mapped(ids: npt.NDArray[Any], mapping: Mapping[int, int]) -> npt.NDArray[np.int64]:
    """What `mapping` gives for each of `ids`, `NONE` where it has nothing."""
    codes, unique = pd.factorize(ids)
    return np.array([mapping.get(i, NONE) for i in unique.tolist()], np.int64)[codes]


class RocmRows(EventRows):
    """Rows of one recording of AMD's profilers, of one process or of several.

    `owner` of the `add` methods identifies the process of all rows or of each by one int64: its pid, or a value below
    `NONE` for a process whose pid is not known, or that of `new_owner`. Columns that a format does not have may be left
    out.
    """

    def __init__(self, *, detail: bool) -> None:
        super().__init__(detail=detail)
        self._pids: dict[int, int] = {}

    def new_owner(self, pid: int) -> int:
        """An owner for a process that may share its pid with others, where recordings of several machines are one."""
        owner = -(1 << 32) - len(self._pids)
        self._pids[owner] = pid
        return owner

    def add_ops(self, kind: str, owner: Owner, columns: Arrays) -> None:
        """Columns of `OPS` and `OP_DETAIL`; `name` is of `op_names`, and the grid counts work-items, as HSA does."""
        shape = {
            f"grid_{axis}": _workgroups(columns[f"grid_{axis}"], columns[f"block_{axis}"])
            for axis in "xyz"
            if f"grid_{axis}" in columns
        }
        kinds = np.full(len(columns["start"]), OP_KINDS.index(kind), np.int8)
        wanted = [*OPS, *(OP_DETAIL if self.detail else ())]
        self._add(self.ops, owner, {**columns, **shape, "kind": kinds}, wanted)

    def add_launches(self, owner: Owner, columns: Arrays) -> None:
        """Columns of `LAUNCHES`; `api` indexes `LAUNCH_APIS`, `name` is of `call_names`."""
        self._add(self.launches, owner, columns, ["start", "end", "thread", "correlation", "api", "name"])

    def add_ranges(self, owner: Owner, columns: Arrays) -> None:
        """`start`, `end`, `thread` and `text` (of `texts`); `crosses` marks what is known to be a start/end range."""
        crosses = {"crosses": np.zeros(len(columns["start"]), np.bool_)}
        self._add(self.ranges, owner, {**crosses, **columns}, ["start", "end", "thread", "text", "crosses"])

    def _add(self, table: Columns, owner: Owner, columns: Arrays, wanted: Iterable[str]) -> None:
        absent = np.full(len(columns["start"]), NONE, np.int64)
        process = self.process(np.full(len(absent), owner, np.int64), ascending=True)
        table.add({name: columns.get(name, absent) for name in wanted} | {"process": process})

    def rocm_trace(self, path: Path, format_name: str, profiler: str, agents: Mapping[int, str], output: str) -> Trace:
        """The recording from all rows added.

        Args:
            path, format_name, profiler: see `Info`.
            agents: index to name of the GPUs.
            output: rocprofv3's name of the format.

        Raises:
            ProfkitError: there is no row.
        """
        if not self.found:
            raise ProfkitError(
                f"{path}: no kernel, copy, launch or marker in this file. Open that of the kernels of the same run, or "
                f"record with: {record_with(output)}"
            )
        self._mark_nested()
        info = Info(
            source=str(path),
            format=format_name,
            vendor="amd",
            profiler=profiler,
            devices=_device_names(agents, np.unique(self.ops["device"]).tolist()),
            processes=tuple(Process(self._pids.get(owner, max(owner, NONE))) for owner in self.owners),
        )
        return self.trace(info, without_ops="The files hold host rows only, no op of a GPU.")

    def _mark_nested(self) -> None:
        """Column `nested` of the ranges: what may be a push/pop range."""
        start, end = self.ranges["start"], self.ranges["end"]
        judged = ~broken_rows(start, end) & ~self.ranges["crosses"].astype(np.bool_)
        # Formats do not say it. A start/end range usually spans many others: a request, a training step.
        nested = nests(self.ranges, np.where(judged, end - start, -1))
        self.ranges["nested"] = nested
        crossing = int((judged & ~nested).sum())
        if crossing:
            markers = f"{counted(crossing, 'marker')} {are(crossing)} taken for"
            message = f"{markers} start/end ranges: others of the same thread are crossed."
            self.notes.append(Diagnostic("crossing-ranges", message))


def _workgroups(grid: npt.NDArray[np.int64], workgroup: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Workgroups along one axis; HSA gives the grid in work-items, and the last workgroup may be partial."""
    known = (workgroup > 0) & (grid >= 0)
    return np.where(known, -(-grid // np.where(known, workgroup, 1)), NONE)


def _device_names(named: Mapping[int, str], used: Iterable[int]) -> dict[int, str]:
    """Names of the devices in `used`.

    rocprofv3 numbers agents by node, by visible index or by type (``--agent-index``), and does not write which; one
    name for all GPUs settles it.
    """
    indices = sorted(i for i in used if i >= 0)
    kinds = set(named.values())
    if len(kinds) == 1:
        return dict.fromkeys(indices, kinds.pop())
    return {i: named[i] for i in indices if i in named}
