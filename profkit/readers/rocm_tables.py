"""Rows of AMD's formats gathered into one Trace: the readers for CSV, JSON and rocpd fill it file by file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.model.trace import (
    LAUNCH_APIS,
    LAUNCHES,
    NODES,
    NONE,
    OP_DETAIL,
    OP_KINDS,
    OPS,
    RANGES,
    Diagnostic,
    Info,
    Process,
    Trace,
    categorical,
    table,
)
from profkit.model.wording import are, counted
from profkit.readers import rocm
from profkit.readers.rows import (
    Texts,
    broken_rows,
    graph_trace,
    joined,
    module_path,
    set_aside_note,
    sorted_ranges,
    split_broken,
)

Arrays = Mapping[str, npt.NDArray[Any]]


class RocmRows:
    """Columns of ops, launches and ranges, as lists of arrays.

    `owner` of the `add` methods identifies the process of each row by one int64: its pid, or a value below `NONE` for
    a process whose pid is not known, or that of `new_owner`.

    Args:
        detail: whether ops have `OP_DETAIL`.
    """

    def __init__(self, *, detail: bool) -> None:
        self._schema = {**OPS, **(OP_DETAIL if detail else {})}
        self._parts: dict[str, dict[str, list[npt.NDArray[Any]]]] = {
            name: defaultdict(list) for name in ("ops", "launches", "ranges")
        }
        self._owners: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._notes: list[Diagnostic] = []
        self.op_names, self.call_names, self.texts = Texts(), Texts(), Texts()

    @property
    def found(self) -> bool:
        """Whether any row was added."""
        return any(len(a) for part in self._parts.values() for a in part["start"])

    def note(self, diagnostic: Diagnostic) -> None:
        """Add something that the user should know."""
        self._notes.append(diagnostic)

    def new_owner(self, pid: int) -> int:
        """An owner for a process that may share its pid with others, where recordings of several machines are one."""
        owner = -(1 << 32) - len(self._pids)
        self._pids[owner] = pid
        return owner

    def add_ops(self, owner: npt.NDArray[np.int64], columns: Arrays) -> None:
        """Columns of `OPS` without `process`; `kind` indexes `OP_KINDS`, `name` is of `op_names`."""
        self._add("ops", owner, columns, [c for c in self._schema if c != "process"])

    def add_launches(self, owner: npt.NDArray[np.int64], columns: Arrays) -> None:
        """Columns of `LAUNCHES` without `process`; `api` indexes `LAUNCH_APIS`, `name` is of `call_names`."""
        self._add("launches", owner, columns, ["start", "end", "thread", "correlation", "api", "name"])

    def add_ranges(self, owner: npt.NDArray[np.int64], columns: Arrays) -> None:
        """`start`, `end`, `thread` and `text` (of `texts`); `crosses` marks what is known to be a start/end range."""
        self._add("ranges", owner, columns, ["start", "end", "thread", "text", "crosses"])

    def _add(self, name: str, owner: npt.NDArray[np.int64], columns: Arrays, wanted: list[str]) -> None:
        part = self._parts[name]
        unique, inverse = np.unique(owner, return_inverse=True)
        index = np.array([self._owners.setdefault(o, len(self._owners)) for o in unique.tolist()], np.int32)
        part["process"].append(index[inverse] if len(owner) else np.empty(0, np.int32))
        for column in wanted:
            default = 0 if column == "crosses" else NONE
            part[column].append(columns.get(column, np.full(len(owner), default, np.int64)))

    def trace(self, source: str, format_name: str, profiler: str, agents: Mapping[int, str]) -> Trace:
        """The recording from all rows added.

        Args:
            source: the file as the user gave it.
            format_name: `Info.format`.
            profiler: name and version.
            agents: index to name of the GPUs.
        """
        ops = self._ops()
        sound, set_aside = split_broken(ops, broken_rows(ops["start"].to_numpy(), ops["end"].to_numpy()))
        launches, broken_launches = self._launches()
        ranges, broken_ranges = self._ranges()
        notes = [*self._notes, *set_aside_note(len(set_aside), broken_launches + broken_ranges, len(ops))]
        if not len(ops):
            notes.append(Diagnostic("no-gpu-activity", "The files hold host rows only, no op of a GPU."))
        pids = (self._pids.get(owner, max(owner, NONE)) for owner in self._owners)
        info = Info(
            source=source,
            format=format_name,
            vendor="amd",
            profiler=profiler,
            devices=rocm.device_names(agents, ops["device"].unique().tolist()),
            processes=tuple(Process(pid) for pid in pids),
            graph_trace=graph_trace(sound, launches),
            diagnostics=tuple(notes),
        )
        return Trace(sound, launches, ranges, table(NODES), info, set_aside)

    def _ops(self) -> pd.DataFrame:
        part = self._parts["ops"]
        whole: dict[str, Any] = {n: joined(part[n], d) for n, d in self._schema.items() if d != "category"}
        whole["kind"] = categorical(joined(part["kind"], "int8"), OP_KINDS)
        whole["name"] = self.op_names.column(joined(part["name"], "int32"), rename=rocm.kernel_name)
        return table(self._schema, whole)

    def _launches(self) -> tuple[pd.DataFrame, int]:
        part = self._parts["launches"]
        whole: dict[str, Any] = {n: joined(part[n], d) for n, d in LAUNCHES.items() if d != "category"}
        whole["api"] = categorical(joined(part["api"], "int8"), LAUNCH_APIS)
        whole["name"] = self.call_names.column(joined(part["name"], "int32"))
        broken = broken_rows(whole["start"], whole["end"])
        launches = table(LAUNCHES, whole)[~broken]
        return launches.sort_values(["process", "start"], kind="stable", ignore_index=True), int(broken.sum())

    def _ranges(self) -> tuple[pd.DataFrame, int]:
        part = self._parts["ranges"]
        start, end, thread = (joined(part[n], "int64") for n in ("start", "end", "thread"))
        process, crosses = joined(part["process"], "int32"), joined(part["crosses"], "bool")
        broken = broken_rows(start, end)
        judged = ~broken & ~crosses
        nested = np.zeros(len(start), np.bool_)
        nested[judged] = rocm.nests(process[judged], thread[judged], start[judged], end[judged])
        crossing = int((judged & ~nested).sum())
        if crossing:
            markers = f"{counted(crossing, 'marker')} {are(crossing)} taken for"
            message = f"{markers} start/end ranges: others of the same thread are crossed."
            self._notes.append(Diagnostic("crossing-ranges", message))
        whole = {
            "start": start,
            "end": end,
            "process": process,
            "thread": thread,
            "text": self.texts.column(joined(part["text"], "int32"), rename=module_path),
            "domain": categorical(np.zeros(len(start), np.int8), [""]),
            "nested": nested,
        }
        return sorted_ranges(table(RANGES, whole)[~broken]), int(broken.sum())
