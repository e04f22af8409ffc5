"""How alike two stretches of kernels are, and two kernel names: what decides whether a stretch is a layer."""

from __future__ import annotations

import re
from collections.abc import Sequence

_DIGITS = re.compile(r"\d+")
#: A tile in a name (64x32) marks a GEMM: its neighbours by digits are other matrices, not variants of one kernel.
_TILE = re.compile(r"\d+x\d+")
#: Stretches longer than this are compared for equality only; no layer of a model launches as much.
_MAX_COMPARED = 4096


def shared_length(first: Sequence[int], second: Sequence[int]) -> int:
    """The length of the longest common subsequence, by bit-parallel rows: one big-integer step an element.

    Stretches of more than `_MAX_COMPARED` ops share nothing unless they are equal.
    """
    if first == second:
        return len(first)
    if max(len(first), len(second)) > _MAX_COMPARED:
        return 0
    positions: dict[int, int] = {}
    for index, code in enumerate(first):
        positions[code] = positions.get(code, 0) | 1 << index
    full = (1 << len(first)) - 1
    row = full
    for code in second:
        hits = row & positions.get(code, 0)
        row = ((row + hits) | (row - hits)) & full
    return len(first) - row.bit_count()


def similarity(first: Sequence[int], second: Sequence[int]) -> float:
    """Shared ops over the longer stretch's ops, from 0 to 1."""
    longer = max(len(first), len(second))
    return shared_length(first, second) / longer if longer else 1.0


def last_matched(stretch: Sequence[int], kind: Sequence[int]) -> tuple[int, int]:
    """Where a longest common subsequence that ends earliest in `stretch` ends.

    Returns:
        how many ops of `stretch` and how many of `kind` it takes; (0, 0) where they share nothing.
    """
    shared = shared_length(stretch, kind)
    if not shared:
        return 0, 0
    ops = _shortest_prefix(stretch, kind, shared)
    slots = _shortest_prefix(kind, stretch[:ops], shared)
    return ops, slots


def _shortest_prefix(stretch: Sequence[int], other: Sequence[int], shared: int) -> int:
    low, high = shared, len(stretch)
    while low < high:
        middle = (low + high) // 2
        if shared_length(stretch[:middle], other) >= shared:
            high = middle
        else:
            low = middle + 1
    return low


def is_variant(first: str, second: str) -> bool:
    """Whether two canonical names are one kernel template with other numbers or flags in it.

    A first layer's norm without the residual is such a variant of the other layers' norm. Names without template
    arguments number stages of one algorithm, which are different kernels.
    """
    if first == second:
        return True
    if not all("<" in name or name.startswith("_Z") for name in (first, second)):
        return False
    if _TILE.search(first) or _TILE.search(second):
        return False
    return _DIGITS.sub("", first) == _DIGITS.sub("", second)
