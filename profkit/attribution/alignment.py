"""Which captured launch is which op of the replay: by name, skipping launches that became no op, or else by count.

By name the ops must be a subsequence of the launches. There may be several ways to embed one in the other; the leftmost
and the rightmost bound them all, so an op that both give the same layer has that layer in every way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

#: Of a capture's launches, so many must have become ops, or the ops are another graph's: the worst loss in public
#: reports is 64 of 512.
LEAST_USED = 0.8
#: By count alone, so many ops may come from another operator than the rest of their kernel's.
_MOST_CONTRADICTED = 0.1


@dataclass(frozen=True)
class Aligned:
    """For each op of the replay its launch, in the two ways that bound all others; equal where aligned by count."""

    leftmost: Ints
    rightmost: Ints
    by_name: bool


def by_name(launches: Sequence[object], ops: Sequence[object]) -> Aligned | str:
    """Embed `ops` in `launches` in order.

    Args:
        launches, ops: what must be equal for a launch and an op to be one, e.g. kind and canonical name.

    Returns:
        the alignment, or why there is none.
    """
    if len(ops) < LEAST_USED * len(launches):
        return f"the capture shows {len(launches)} launches and a replay has {len(ops)} ops, too few to be of it"
    leftmost = _embedded(launches, ops)
    if len(leftmost) < len(ops):
        return f"op {len(leftmost)} of {len(ops)}, {str(ops[len(leftmost)])[:60]}, has no launch of that name in order"
    rightmost = [len(launches) - 1 - i for i in _embedded(launches[::-1], ops[::-1])][::-1]
    return Aligned(np.array(leftmost, np.int64), np.array(rightmost, np.int64), by_name=True)


def _embedded(launches: Sequence[object], ops: Sequence[object]) -> list[int]:
    found: list[int] = []
    for index, launch in enumerate(launches):
        if len(found) < len(ops) and launch == ops[len(found)]:
            found.append(index)
    return found


def by_count(
    launch_kinds: Sequence[str], operators: Sequence[str], op_kinds: Sequence[str], op_names: Sequence[str]
) -> Aligned | str:
    """Pair launches and ops one to one, in order.

    Args:
        launch_kinds, op_kinds: kernel, memcpy or memset.
        operators: the innermost operator around each launch, "" for none.
        op_names: canonical kernel names.

    Returns:
        the alignment, or why there is none.
    """
    if len(launch_kinds) != len(op_kinds):
        return f"the capture shows {len(launch_kinds)} launches and a replay has {len(op_kinds)} ops"
    if list(launch_kinds) != list(op_kinds):
        return "the kinds of the captured launches and of the replayed ops differ in order"
    # One kernel comes from one operator, mostly; pairs shifted against each other would mix them.
    pairs = Counter(zip(op_names, operators, strict=True))
    usual: dict[str, int] = {}
    for (name, _), count in pairs.items():
        usual[name] = max(usual.get(name, 0), count)
    contradicted = len(op_names) - sum(usual.values())
    if contradicted > _MOST_CONTRADICTED * len(op_names):
        return f"{contradicted} of {len(op_names)} ops would come from another operator than their kernel's others"
    same = np.arange(len(op_kinds), dtype=np.int64)
    return Aligned(same, same, by_name=False)
