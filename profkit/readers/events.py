"""Rows of ops, launches and ranges, gathered piece by piece, and the trace they make: for Kineto and AMD's formats."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
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
from profkit.readers.rows import (
    Texts,
    broken_rows,
    graph_trace,
    module_path,
    set_aside_note,
    sorted_ranges,
    split_broken,
)

#: What `domain` indexes: the user's ranges, and operators and Python frames of torch.profiler.
RANGE_DOMAINS = ("", "cpu_op", "python_function")


class Columns:
    """The columns of one table: one array a column from each piece of a recording, joined when they are asked for."""

    def __init__(self) -> None:
        self._pieces: defaultdict[str, list[npt.NDArray[Any]]] = defaultdict(list)

    def add(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """Append one piece; every piece has the same columns."""
        for name, values in columns.items():
            self._pieces[name].append(values)

    def __contains__(self, name: str) -> bool:
        return name in self._pieces

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """The whole column; empty where no piece was added."""
        pieces = self._pieces.get(name, [])
        if len(pieces) > 1:
            pieces[:] = [np.concatenate(pieces)]
        return pieces[0] if pieces else np.empty(0, np.int64)

    def __setitem__(self, name: str, values: npt.NDArray[Any]) -> None:
        self._pieces[name] = [values]

    def __len__(self) -> int:
        return sum(map(len, self._pieces.get("start", [])))


class EventRows:
    """The rows of a recording; `trace` makes its tables of them.

    A text column holds codes: `kind`, `api` and `domain` index `OP_KINDS`, `LAUNCH_APIS` and `RANGE_DOMAINS`, the
    others are of the `Texts` here. Columns that the model does not have are the reader's own. `broken` marks rows
    without valid times; where it is absent, `start` and `end` tell.

    Args:
        detail: whether ops have `OP_DETAIL`.
    """

    def __init__(self, *, detail: bool) -> None:
        self.detail = detail
        self.ops, self.launches, self.ranges = Columns(), Columns(), Columns()
        self.op_names, self.call_names, self.kernels, self.texts = Texts(), Texts(), Texts(), Texts()
        self.notes: list[Diagnostic] = []
        self._owners: dict[int, int] = {}

    @property
    def found(self) -> bool:
        """Whether any row was added."""
        return bool(len(self.ops) or len(self.launches) or len(self.ranges))

    def process(self, owners: npt.NDArray[np.int64], *, ascending: bool = False) -> npt.NDArray[np.int32]:
        """Column `process` from what identifies each row's process; new owners get the next numbers.

        Args:
            ascending: new owners are numbered in the order of their ids, not of their rows.
        """
        codes, unique = pd.factorize(owners, sort=ascending)
        return np.array([self._owners.setdefault(o, len(self._owners)) for o in unique.tolist()], np.int32)[codes]

    @property
    def owners(self) -> list[int]:
        """What `process` has numbered, in that order."""
        return list(self._owners)

    def trace(
        self,
        path: Path,
        format_name: str,
        *,
        vendor: str,
        profiler: str,
        devices: Mapping[int, str],
        processes: Sequence[Process],
        without_ops: str,
        only_outer_calls: bool = False,
    ) -> Trace:
        """The recording from all rows added.

        Args:
            path: the file as the user gave it.
            format_name, vendor, profiler, devices, processes: see `Info`.
            without_ops: what to say of a recording of the host alone.
            only_outer_calls: of the launches that share a process and a correlation id, keep the first: a runtime call
                and the driver call under it may share one.
        """
        ops, broken_ops = _frame(
            {**OPS, **(OP_DETAIL if self.detail else {})},
            self.ops,
            {"kind": OP_KINDS, "name": self.op_names.labels()},
        )
        launches, broken_launches = _frame(
            LAUNCHES,
            self.launches,
            {"api": LAUNCH_APIS, "name": self.call_names.labels(), "kernel": self.kernels.labels()},
        )
        ranges, broken_ranges = _frame(
            RANGES,
            self.ranges,
            {"domain": RANGE_DOMAINS, "text": [module_path(text) for text in self.texts.labels()]},
        )
        sound, set_aside = split_broken(ops, broken_ops)
        launches = launches[~broken_launches].sort_values(["process", "start"], kind="stable", ignore_index=True)
        if only_outer_calls:
            inner = launches.duplicated(["process", "correlation"]) & (launches["correlation"] != NONE)
            launches = launches[~inner].reset_index(drop=True)
        notes = [
            *self.notes,
            *set_aside_note(len(set_aside), int(broken_launches.sum() + broken_ranges.sum()), len(ops)),
        ]
        if not len(ops):
            notes.append(Diagnostic("no-gpu-activity", without_ops))
        info = Info(
            source=str(path),
            format=format_name,
            vendor=vendor,
            profiler=profiler,
            devices=devices,
            processes=tuple(processes),
            graph_trace=graph_trace(sound, launches),
            diagnostics=tuple(notes),
        )
        return Trace(sound, launches, sorted_ranges(ranges[~broken_ranges]), table(NODES), info, set_aside)


def _frame(
    schema: Mapping[str, str], columns: Columns, labels: Mapping[str, Sequence[str]]
) -> tuple[pd.DataFrame, npt.NDArray[np.bool_]]:
    """The table of `schema`, and which of its rows are broken."""
    whole: dict[str, Any] = {}
    for name in schema:
        if name in columns:
            whole[name] = categorical(columns[name], labels[name]) if name in labels else columns[name]
    broken = columns["broken"] if "broken" in columns else broken_rows(columns["start"], columns["end"])
    return table(schema, whole), broken
