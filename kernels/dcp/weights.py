"""The arithmetic of LSEs that every combine kernel shares, for natural and base-2 logarithms."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def usable(lse: tl.tensor) -> tl.tensor:
    """An LSE, with NaN and +inf read as an empty shard's -inf."""
    return tl.where((lse == lse) & (lse != float("inf")), lse, float("-inf"))


@triton.jit  # type: ignore[untyped-decorator]
def power(exponent: tl.tensor, BASE_2: tl.constexpr) -> tl.tensor:
    """2 or e to the `exponent`."""
    if BASE_2:
        return tl.exp2(exponent)
    else:
        return tl.exp(exponent)


@triton.jit  # type: ignore[untyped-decorator]
def logarithm(value: tl.tensor, BASE_2: tl.constexpr) -> tl.tensor:
    """The base-2 or natural logarithm."""
    if BASE_2:
        return tl.log2(value)
    else:
        return tl.log(value)


@triton.jit  # type: ignore[untyped-decorator]
def weight(lse: tl.tensor, total: tl.tensor, BASE_2: tl.constexpr) -> tl.tensor:
    """A shard's share of the whole; 0 where every shard is empty, which makes it -inf minus -inf."""
    share = power(lse - total, BASE_2)
    return tl.where(share == share, share, 0.0)


@triton.jit  # type: ignore[untyped-decorator]
def total_lse(lses: tl.tuple, N: tl.constexpr, BASE_2: tl.constexpr) -> tl.tensor:
    """The LSE of the whole from those of its N shards, summed in their order; -inf where every shard is empty."""
    highest = lses[0]
    for n in tl.static_range(1, N):
        highest = tl.maximum(highest, lses[n])
    highest = tl.where(highest == float("-inf"), 0.0, highest)
    total = power(lses[0] - highest, BASE_2)
    for n in tl.static_range(1, N):
        total += power(lses[n] - highest, BASE_2)
    return logarithm(total, BASE_2) + highest
