"""How a request's KV cache is spread over the ranks of a decode-context-parallel group."""

from __future__ import annotations


def local_length(length: int, rank: int, ranks: int, interleave: int = 1) -> int:
    """How many of a request's tokens lie on `rank`: tokens are dealt out in runs of `interleave`.

    A shard is empty iff ``length <= rank * interleave``.
    """
    base = length // interleave // ranks * interleave
    remainder = length - base * ranks - rank * interleave
    return base + min(max(remainder, 0), interleave)


def owner(position: int, ranks: int, interleave: int = 1) -> int:
    """The rank on which the token at `position` lies."""
    return position // interleave % ranks
