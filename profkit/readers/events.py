"""Rows of ops, launches and ranges, gathered piece by piece, and the trace that they make."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.errors import ProfkitError
from profkit.model.trace import (
    ANNOTATION,
    LAUNCH_APIS,
    LAUNCHES,
    NODES,
    OP_DETAIL,
    OP_KINDS,
    OPS,
    RANGES,
    Diagnostic,
    Info,
    Trace,
    categorical,
    table,
)
from profkit.readers import rows
from profkit.readers.rows import (
    Texts,
    broken_rows,
    module_path,
    set_aside_note,
    sorted_ranges,
    sound_launches,
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


def nests(ranges: Columns, doubt: npt.NDArray[Any], slack_ns: int = 0) -> npt.NDArray[np.bool_]:
    """Which ranges lie inside each other or apart on their thread, as push/pop ranges do.

    Of two that cross, the one of more `doubt` does not, or the later.

    Args:
        ranges: with process, thread, start and end.
        doubt: a value a range; below 0 it is not looked at, and does not nest.
        slack_ns: so much of an overlap is none: ends are sums of two rounded numbers.
    """
    process, thread, start, end = (ranges[name] for name in ("process", "thread", "start", "end"))
    nested = doubt >= 0
    order = np.lexsort((-end, start, thread, process))
    open_ranges: list[int] = []
    owner: tuple[int, int] | None = None
    for index in order[nested[order]].tolist():
        here = (int(process[index]), int(thread[index]))
        if here != owner:
            open_ranges, owner = [], here
        while open_ranges and end[open_ranges[-1]] <= start[index] + slack_ns:
            open_ranges.pop()
        while open_ranges and end[open_ranges[-1]] + slack_ns < end[index]:
            outer = open_ranges[-1]
            if doubt[outer] <= doubt[index]:
                nested[index] = False
                break
            nested[outer] = False
            open_ranges.pop()
        if nested[index]:
            open_ranges.append(index)
    return nested


class EventRows:
    """The rows of a recording; `trace` makes its tables of them.

    A text column holds codes: `kind` and `api` index `OP_KINDS` and `LAUNCH_APIS`, the others are of the `Texts` here,
    of which `domains` begin with `RANGE_DOMAINS`. Columns that the model does not have are the reader's own. `broken`
    marks rows without valid times; where it is absent, `start` and `end` tell.

    Args:
        detail: whether ops have `OP_DETAIL`.
    """

    def __init__(self, *, detail: bool) -> None:
        self.detail = detail
        self.ops, self.launches, self.ranges = Columns(), Columns(), Columns()
        self.op_names, self.call_names, self.kernels, self.texts = Texts(), Texts(), Texts(), Texts()
        self.annotations, self.domains = Texts(), Texts()
        self.domains.codes(RANGE_DOMAINS)
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
        info: Info,
        *,
        nodes: pd.DataFrame | None = None,
        graph_trace: str | None = None,
        without_ops: str | None = None,
        only_outer_calls: bool = False,
    ) -> Trace:
        """The recording from all rows added.

        Args:
            info: without what the rows tell.
            nodes: `Trace.nodes`.
            graph_trace: see `Info`; by the rows where it is None.
            without_ops: what to say of a recording of the host alone.
            only_outer_calls: see `sound_launches`.

        Raises:
            ProfkitError: a value that its column cannot hold.
        """
        annotated = any(self.annotations.labels())
        ops, broken_ops = _frame(
            info.source,
            {**OPS, **(OP_DETAIL if self.detail else {}), **({ANNOTATION: "category"} if annotated else {})},
            self.ops,
            {"kind": OP_KINDS, "name": self.op_names.labels(), ANNOTATION: self.annotations.labels()},
        )
        launches, broken_launches = _frame(
            info.source,
            LAUNCHES,
            self.launches,
            {"api": LAUNCH_APIS, "name": self.call_names.labels(), "kernel": self.kernels.labels()},
        )
        ranges, broken_ranges = _frame(
            info.source,
            RANGES,
            self.ranges,
            {"domain": self.domains.labels(), "text": [module_path(text) for text in self.texts.labels()]},
        )
        sound, set_aside = split_broken(ops, broken_ops)
        launches = sound_launches(launches, broken_launches, only_outer=only_outer_calls)
        notes = [
            *self.notes,
            *set_aside_note(len(set_aside), int(broken_launches.sum() + broken_ranges.sum()), len(ops)),
        ]
        if not len(ops) and without_ops is not None:
            notes.append(Diagnostic("no-gpu-activity", without_ops))
        if graph_trace is None:
            graph_trace = rows.graph_trace(sound, launches)
        info = replace(info, graph_trace=graph_trace, diagnostics=tuple(notes))
        nodes = table(NODES) if nodes is None else nodes
        return Trace(sound, launches, sorted_ranges(ranges[~broken_ranges]), nodes, info, set_aside)


def _frame(
    source: str, schema: Mapping[str, str], columns: Columns, labels: Mapping[str, Sequence[str]]
) -> tuple[pd.DataFrame, npt.NDArray[np.bool_]]:
    """The table of `schema`, and which of its rows are broken.

    Raises:
        ProfkitError: a value of more bits than its column has.
    """
    whole: dict[str, Any] = {}
    for name, dtype in schema.items():
        if name not in columns:
            continue
        values = whole[name] = columns[name]
        if name in labels:
            whole[name] = categorical(values, labels[name])
        elif values.dtype != dtype and not (values == values.astype(dtype)).all():
            row = int(np.flatnonzero(values != values.astype(dtype))[0])
            raise ProfkitError(
                f"{source}: {name} is {values[row]} in the row that starts at {columns['start'][row]} ns, expected an "
                f"{dtype} number. Copy or record it again."
            )
    broken = columns["broken"] if "broken" in columns else broken_rows(columns["start"], columns["end"])
    return table(schema, whole), broken
