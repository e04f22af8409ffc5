"""The launches of a graph's capture, as a trace shows them: order, names, and the scopes in which they lie."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.attribution.method import join
from profkit.attribution.scopes import ScopeTable, scopes_at, user_ranges
from profkit.model import names as kernel_names
from profkit.model.scope import place
from profkit.model.trace import RANGES, Trace, table

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Capture:
    """Launches that ran nothing when they were made, in order.

    Args:
        source: what reports call the trace they come from.
        kinds: kernel, memcpy or memset of each launch.
        kernels: canonical kernel name of each, "" where the format does not say.
        scope: of each, index into the scope table.
        operators: the innermost framework operator around each, "" for none.
        has_layers: whether a scope names a layer.
        at_once: launches among them that ran when they were made and so are no part of a graph, by name.
        kernel_launches: kernel launches, these included.
    """

    source: str
    kinds: Sequence[str]
    kernels: Sequence[str]
    scope: npt.NDArray[np.int32]
    operators: Sequence[str]
    has_layers: bool
    at_once: Counter[str]
    kernel_launches: int

    @property
    def named(self) -> bool:
        """Whether every kernel launch carries its kernel's name."""
        return all(name or kind != "kernel" for name, kind in zip(self.kernels, self.kinds, strict=True))


def captures_in(source: str, trace: Trace, launches: pd.DataFrame, scopes: ScopeTable) -> list[Capture]:
    """The captures that `launches` may be: all of them as one, and those of each outermost range.

    Args:
        source: what reports call `trace`.
        launches: rows of `trace.launches`, graph launches left out.
        scopes: grows by the paths found.
    """
    if not len(launches):
        return []
    launches = launches.sort_values("start")
    ranges = user_ranges(trace.ranges)
    scope = _scopes(ranges, launches, scopes)
    if not _names_layer(scope, scopes):
        modules = module_ranges(trace.ranges)
        by_module = _scopes(modules, launches, scopes)
        scope = by_module if _names_layer(by_module, scopes) else scope
    used = join(trace).used[launches.index.to_numpy()]
    operators = _operators(trace.ranges, launches)
    outer = _outermost(ranges, launches)
    whole = np.ones(len(launches), dtype=np.bool_)
    groups = [whole, *(outer == i for i in np.unique(outer[outer >= 0]).tolist())]
    return [
        _capture(source, launches[g], used[g], scope[g], operators[g], scopes)
        for i, g in enumerate(groups)
        if i == 0 or not g.all()
    ]


def _capture(
    source: str,
    launches: pd.DataFrame,
    used: npt.NDArray[np.bool_],
    scope: npt.NDArray[np.int32],
    operators: npt.NDArray[np.object_],
    scopes: ScopeTable,
) -> Capture:
    kinds: list[str] = launches["api"].astype(object).tolist()
    kernels = [kernel_names.canonical(k) if k else "" for k in launches["kernel"].astype(object)]
    kept = np.flatnonzero(~used).tolist()
    return Capture(
        source=source,
        kinds=[kinds[i] for i in kept],
        kernels=[kernels[i] for i in kept],
        scope=scope[kept],
        operators=[str(operators[i]) for i in kept],
        has_layers=_names_layer(scope[kept], scopes),
        at_once=Counter(kernels[i] or kinds[i] for i in np.flatnonzero(used).tolist()),
        kernel_launches=kinds.count("kernel"),
    )


def _scopes(ranges: pd.DataFrame, launches: pd.DataFrame, scopes: ScopeTable) -> npt.NDArray[np.int32]:
    process = launches["process"].to_numpy().astype(np.int64)
    return scopes_at(ranges, process, launches["thread"].to_numpy(), launches["start"].to_numpy(), scopes)


def _names_layer(scope: npt.NDArray[np.int32], scopes: ScopeTable) -> bool:
    return any(place(scopes.paths[s]).layer is not None for s in np.unique(scope).tolist())


def _operators(ranges: pd.DataFrame, launches: pd.DataFrame) -> npt.NDArray[np.object_]:
    if not len(ranges):
        return np.full(len(launches), "", dtype=object)
    own = ScopeTable()
    found = _scopes(ranges[(ranges["domain"] == "cpu_op").to_numpy()], launches, own)
    innermost = np.array([path[-1] if path else "" for path in own.paths], dtype=object)
    return innermost[found]


def _outermost(ranges: pd.DataFrame, launches: pd.DataFrame) -> Ints:
    """For each launch the outermost range around it, as a number; -1 for none."""
    found = np.full(len(launches), -1, dtype=np.int64)
    count = 0
    for (process, thread), group in ranges.groupby(["process", "thread"], sort=False):
        group = group.sort_values(["start", "end"], ascending=[True, False])
        start, end = group["start"].to_numpy(), group["end"].to_numpy()
        covered = np.r_[np.iinfo(np.int64).min, np.maximum.accumulate(end)[:-1]]
        outer = start >= covered
        start, end = start[outer], end[outer]
        mine = ((launches["process"] == process) & (launches["thread"] == thread)).to_numpy()
        at = launches["start"].to_numpy()[mine]
        position = np.searchsorted(start, at, side="right") - 1
        inside = (position >= 0) & (end[np.maximum(position, 0)] > at)
        found[mine] = np.where(inside, position + count, -1)
        count += len(start)
    return found


_MODULE = re.compile(r"^nn\.Module: (.+)_(\d+)$")
#: How model code names the class of a whole layer: LlamaDecoderLayer, BertLayer, GPT2Block. The outermost module of
#: such a class counts, so that layers within a layer (BertSelfOutput has a LinearLayer) do not.
_LAYER_CLASS = re.compile(r"(?:Layer|Block)$")


def module_ranges(ranges: pd.DataFrame) -> pd.DataFrame:
    """Module calls as ranges whose texts are class names, those of layers ``layers.N``.

    N counts the layers of one parent in the order of their first calls; the instance number that the profiler gives
    counts per class and differs in hybrid models. Where layers of one parent are of several classes, the class follows
    the number.

    Args:
        ranges: a trace's ranges.

    Returns:
        ranges of the same columns; empty where no module is a layer.
    """
    none = ranges.iloc[:0]
    if not len(ranges):
        return none
    parsed = [_MODULE.match(text) for text in ranges["text"].cat.categories]
    is_module = np.array([match is not None for match in parsed], dtype=np.bool_)
    rows = ranges[is_module[ranges["text"].cat.codes.to_numpy()] & ranges["nested"].to_numpy()]
    if not len(rows):
        return none
    rows = rows.sort_values(["process", "thread", "start", "end"], ascending=[True, True, True, False])
    names = [m.groups() for m in (parsed[c] for c in rows["text"].cat.codes) if m is not None]
    parent = _parents(rows)
    texts = [class_name for class_name, _ in names]
    layers = _layers(names, parent)
    if not layers:
        return none
    for row, text in layers.items():
        texts[row] = text
    columns = {c: rows[c].to_numpy() for c in ("start", "end", "process", "thread", "nested", "clipped")}
    return table(RANGES, {**columns, "text": texts})


def _parents(rows: pd.DataFrame) -> list[int]:
    """For each module call the position of the call around it, -1 for none."""
    parents: list[int] = []
    stack: list[int] = []
    calls = list(zip(rows["process"].tolist(), rows["thread"].tolist(), rows["end"].tolist(), strict=True))
    for position, ((process, thread, _), start) in enumerate(zip(calls, rows["start"].tolist(), strict=True)):
        while stack and (calls[stack[-1]][:2] != (process, thread) or calls[stack[-1]][2] <= start):
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        stack.append(position)
    return parents


def _layers(names: list[tuple[str, ...]], parent: list[int]) -> dict[int, str]:
    """The text of each call of a layer: of the outermost depth at which a parent has several."""
    depth: list[int] = []
    for above in parent:
        depth.append(0 if above < 0 else depth[above] + 1)
    candidates = [i for i, (class_name, _) in enumerate(names) if _LAYER_CLASS.search(class_name)]
    for level in sorted({depth[i] for i in candidates}):
        calls = [i for i in candidates if depth[i] == level]
        owner = {i: names[parent[i]] if parent[i] >= 0 else ("", "") for i in calls}
        number: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}
        count: dict[tuple[str, ...], int] = {}
        for i in calls:
            if (owner[i], names[i]) not in number:
                number[owner[i], names[i]] = count.setdefault(owner[i], 0)
                count[owner[i]] += 1
        if max(count.values()) < 2:
            continue
        classes: dict[tuple[str, ...], set[str]] = {}
        for i in calls:
            classes.setdefault(owner[i], set()).add(names[i][0])
        return {
            i: f"layers.{number[owner[i], names[i]]}" + (f".{names[i][0]}" if len(classes[owner[i]]) > 1 else "")
            for i in calls
            if count[owner[i]] > 1
        }
    return {}
