"""Which ranges were open on a thread at a time: scopes as interned paths of range texts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]

#: Ranges that libraries push, in their own domains; none of them names a layer of the user's model.
_LIBRARY_DOMAIN = re.compile(
    r"^(nccl|cublas|cudnn|cusparse|cusolver|cufft|cutensor|cccl|cub|thrust|libcu|gil|osrt|rccl)", re.I
)
#: torch.autograd.profiler.emit_nvtx writes one range an operator, with its sequence or operator number.
_OPERATOR_RANGE = re.compile(r", (seq|op_id) = \d+")
#: Domains that a reader gives to events that are no ranges of the user's: operators and Python frames.
_EVENT_DOMAINS = frozenset({"cpu_op", "python_function"})


@dataclass
class ScopeTable:
    """Interned scopes: index to path. Scope 0 is the empty path, no range open."""

    paths: list[tuple[str, ...]] = field(default_factory=lambda: [()])
    _index: dict[tuple[str, ...], int] = field(default_factory=lambda: {(): 0})

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
    for pair, (p, t) in enumerate(pairs):
        rows = groups.get((int(p), int(t)))
        if rows is None:
            continue
        queries = np.flatnonzero(inverse == pair)
        stack = _Stack(start[rows], end[rows], text[rows])
        result[queries] = stack.paths(time_ns[queries], texts, scopes)
    return result


class _Stack:
    """The ranges of one thread by nesting depth, for point queries without a Python loop over ranges."""

    def __init__(self, start: Ints, end: Ints, text: npt.NDArray[Any]) -> None:
        order = np.lexsort((-end, start))
        self.start, self.end, self.text = start[order], end[order], text[order]
        # Ranges on one thread nest, so a range's depth is how many started earlier and have not ended yet.
        ended = np.searchsorted(np.sort(self.end), self.start, side="right")
        self.depth = np.arange(len(order)) - ended

    def paths(self, time_ns: Ints, texts: pd.Index[str], scopes: ScopeTable) -> npt.NDArray[np.int32]:
        found = np.zeros(len(time_ns), dtype=np.int32)
        for depth in range(int(self.depth.max()) + 1):
            level = np.flatnonzero(self.depth == depth)
            position = np.searchsorted(self.start[level], time_ns, side="right") - 1
            candidate = level[np.maximum(position, 0)]
            inside = (position >= 0) & (self.end[candidate] > time_ns)
            if not inside.any():
                break
            pairs = (found[inside].astype(np.int64) << 32) | self.text[candidate[inside]]
            codes, unique = pd.factorize(pairs)
            extended = [scopes.intern((*scopes.paths[int(u >> 32)], texts[int(u & 0xFFFFFFFF)])) for u in unique]
            found[inside] = np.array(extended, dtype=np.int32)[codes]
        return found
