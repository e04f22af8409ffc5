"""Which ranges were open on a thread at a time: scopes as interned paths of range texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]

#: Ranges that libraries push, in their own domains; none of them names a layer of the user's model.
_LIBRARY_DOMAIN = re.compile(
    r"(?:nccl|rccl|nvshmem|cublas(?:lt|mp|xt)?|cudnn|cusparse(?:lt)?|cusolver(?:mp)?|cufft|cutensor|cccl|cub|thrust|libcudf"
    r"|gil|osrt)\b",
    re.IGNORECASE,
)
#: torch.autograd.profiler.emit_nvtx writes one range an operator, with its sequence or operator number; Inductor one a
#: compiled piece, with a hash that is new in every build.
_OPERATOR_RANGE = re.compile(r", (seq|op_id) = \d+|^## Call CompiledFxGraph ")
#: Domains that a reader gives to events that are no ranges of the user's: operators and Python frames.
_EVENT_DOMAINS = frozenset({"cpu_op", "python_function"})


@dataclass
class ScopeTable:
    """Interned scopes: index to path. Scope 0 is the empty path, no range open."""

    paths: list[tuple[str, ...]] = field(default_factory=lambda: [()])
    _index: dict[tuple[str, ...], int] = field(default_factory=lambda: {(): 0})

    @classmethod
    def of(cls, paths: Sequence[tuple[str, ...]]) -> ScopeTable:
        """A table that begins with `paths`, each at its index."""
        return cls(list(paths), {path: index for index, path in enumerate(paths)})

    def intern(self, path: tuple[str, ...]) -> int:
        """The index of `path`, added if new."""
        index = self._index.setdefault(path, len(self.paths))
        if index == len(self.paths):
            self.paths.append(path)
        return index


def user_ranges(ranges: pd.DataFrame) -> pd.DataFrame:
    """The push/pop ranges that a user may have named: no library's, no operator's, none of zero length."""
    if not len(ranges):
        return ranges
    domains = ranges["domain"].cat.categories
    foreign = np.array([bool(_LIBRARY_DOMAIN.match(d)) or d in _EVENT_DOMAINS for d in domains], dtype=bool)
    operator = np.array([bool(_OPERATOR_RANGE.search(t)) for t in ranges["text"].cat.categories], dtype=bool)
    keep = ranges["nested"].to_numpy() & (ranges["end"].to_numpy() > ranges["start"].to_numpy())
    keep &= ~foreign[ranges["domain"].cat.codes.to_numpy()]
    keep &= ~operator[ranges["text"].cat.codes.to_numpy()]
    return ranges[keep]


def scopes_at(
    ranges: pd.DataFrame, process: Ints, thread: Ints, time_ns: Ints, scopes: ScopeTable
) -> npt.NDArray[np.int32]:
    """The scope open on each (process, thread) at each time.

    Args:
        ranges: from `user_ranges`.
        process, thread, time_ns: one query an element.
        scopes: grows by the paths found.

    Returns:
        indices into `scopes`; 0 where no range was open.
    """
    result = np.zeros(len(time_ns), dtype=np.int32)
    if not len(ranges) or not len(time_ns):
        return result
    texts = ranges["text"].cat.categories
    groups = ranges.groupby(["process", "thread"], sort=False, observed=True).indices
    pairs, inverse = np.unique(np.stack([process, thread], axis=1), axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    start, end = ranges["start"].to_numpy(), ranges["end"].to_numpy()
    text = ranges["text"].cat.codes.to_numpy()
    domain = ranges["domain"].cat.codes.to_numpy()
    for pair, (p, t) in enumerate(pairs):
        rows = groups.get((int(p), int(t)))
        if rows is None:
            continue
        queries = np.flatnonzero(inverse == pair)
        # Ranges nest within a domain; ranges of two domains may overlap in any way.
        stacks = [_Stack(start[mine], end[mine], text[mine]) for mine in _by_domain(np.asarray(rows), domain)]
        result[queries] = _paths(stacks, time_ns[queries], texts, scopes)
    return result


def _by_domain(rows: npt.NDArray[np.intp], domain: npt.NDArray[Any]) -> list[npt.NDArray[np.intp]]:
    return [rows[domain[rows] == d] for d in np.unique(domain[rows])]


def _paths(stacks: list[_Stack], time_ns: Ints, texts: pd.Index[str], scopes: ScopeTable) -> npt.NDArray[np.int32]:
    """The open ranges of all domains at each time, outermost (earliest opened) first, as scopes."""
    opened = [level for stack in stacks for level in stack.open_at(time_ns)]
    if not opened:
        return np.zeros(len(time_ns), dtype=np.int32)
    starts = np.stack([o[0] for o in opened], axis=1)
    codes = np.stack([o[1] for o in opened], axis=1)
    if len(stacks) > 1:
        order = np.argsort(starts, axis=1, kind="stable")
        codes = np.take_along_axis(codes, order, axis=1)
    # Paths on the way are no scopes: with deep stacks there would be as many as ranges.
    own = ScopeTable()
    found = np.zeros(len(time_ns), dtype=np.int32)
    for level in range(codes.shape[1]):
        inside = codes[:, level] >= 0
        pairs = (found[inside].astype(np.int64) << 32) | codes[inside, level]
        numbers, unique = pd.factorize(pairs)
        extended = [own.intern((*own.paths[int(u >> 32)], texts[int(u & 0xFFFFFFFF)])) for u in unique]
        found[inside] = np.array(extended, dtype=np.int32)[numbers]
    last, unique = pd.factorize(found)
    return np.array([scopes.intern(own.paths[int(u)]) for u in unique], dtype=np.int32)[last]


class _Stack:
    """The ranges of one domain on one thread by depth, for point queries without a Python loop over ranges."""

    def __init__(self, start: Ints, end: Ints, text: npt.NDArray[Any]) -> None:
        order = np.lexsort((-end, start))
        self.start, self.end, self.text = start[order], end[order], text[order]
        # They nest, so a range's depth is how many started earlier and have not ended yet.
        ended = np.searchsorted(np.sort(self.end), self.start, side="right")
        self.depth = np.arange(len(order)) - ended

    def open_at(self, time_ns: Ints) -> list[tuple[Ints, Ints]]:
        """For each depth the open range's start and text code at each time; where there is none, -1 for the code."""
        levels: list[tuple[Ints, Ints]] = []
        for depth in range(int(self.depth.max()) + 1):
            level = np.flatnonzero(self.depth == depth)
            position = np.searchsorted(self.start[level], time_ns, side="right") - 1
            candidate = level[np.maximum(position, 0)]
            inside = (position >= 0) & (self.end[candidate] > time_ns)
            if not inside.any():
                break
            latest = np.iinfo(np.int64).max
            code = np.where(inside, self.text[candidate].astype(np.int64), -1)
            levels.append((np.where(inside, self.start[candidate], latest), code))
        return levels
