"""Launch tables of the split kernel: tile, splits and warps by the number of (row, KV head) pairs.

The numbers of h200 were measured here, those of the others are vLLM's (#57273 and before). They need neither torch nor
triton.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: The largest number of (row, KV head) pairs of each region but the last; the last is divided into prefill and decode.
BOUNDS = (24, 32, 64, 128, 256, 512, 2048)
REGIONS = ("1-24", "25-32", "33-64", "65-128", "129-256", "257-512", "513-2048", "2049-prefill", "2049-decode")


@dataclass(frozen=True)
class Entry:
    """One entry of a table.

    Args:
        block_n: selected tokens in a tile.
        splits: programs that a row's tiles are divided among, where there are as many tiles.
        warps: warps a program.
    """

    block_n: int
    splits: int
    warps: int


@dataclass(frozen=True)
class Table:
    """An `Entry` for every region, in the order of `REGIONS`, for KV caches of 16 bits and of fp8.

    Args:
        summary: where it is from, in a few words.
    """

    summary: str
    bits_16: tuple[Entry, ...]
    fp8: tuple[Entry, ...]


@dataclass(frozen=True)
class Launch:
    """How the split kernel is launched for one batch.

    Args:
        block_n, warps: of the entry.
        tiles: tiles that hold a row's selection.
        splits: programs a row; with 1 there is no merge.
    """

    block_n: int
    warps: int
    tiles: int
    splits: int


def _entries(*numbers: tuple[int, int, int]) -> tuple[Entry, ...]:
    assert len(numbers) == len(REGIONS)
    return tuple(Entry(*n) for n in numbers)


_DEFAULT = _entries(
    *((32, 64, 4), (32, 16, 1), (32, 8, 1), (32, 4, 1), (32, 8, 1), (64, 4, 2), (64, 1, 2), (32, 1, 1), (64, 1, 2))
)

#: By name; the first is the one for devices without a table of their own.
TABLES: Mapping[str, Table] = {
    "default": Table("tuned on a GB300", _DEFAULT, _DEFAULT),
    "sm_90": Table(
        "tuned on an H20, which has 78 multiprocessors",
        _entries(
            *((64, 64, 2), (64, 64, 2), (32, 16, 1), (32, 8, 1), (32, 8, 1)),
            *((32, 4, 1), (32, 4, 1), (32, 1, 1), (64, 1, 2)),
        ),
        _entries(
            *((64, 64, 2), (32, 16, 1), (32, 8, 1), (32, 4, 1), (32, 8, 1)),
            *((32, 4, 1), (32, 4, 1), (32, 1, 1), (64, 1, 2)),
        ),
    ),
    "sm_120": Table(
        "tuned on devices of sm_120",
        _entries(
            *((64, 64, 8), (64, 8, 8), (64, 8, 8), (32, 8, 8), (32, 8, 1)),
            *((64, 4, 2), (32, 4, 1), (64, 2, 2), (64, 2, 2)),
        ),
        _entries(
            *((64, 64, 8), (128, 8, 4), (64, 8, 4), (32, 4, 4), (128, 4, 4)),
            *((64, 4, 4), (32, 2, 1), (32, 2, 1), (64, 1, 2)),
        ),
    ),
    # Made by benchmarks/qsa_table.py of the sweep in docs/results/qsa-attention-h200.md, at one size in each region,
    # and confirmed by another run of these. Between them it is slower in places: by up to 1.8 times at 16 pairs of fp8.
    # Six entries are those of sm_90 or default, since nothing beat the better one in its region without losing there.
    "h200": Table(
        "tuned on an H200, which has 132 multiprocessors",
        _entries(
            *((64, 64, 2), (64, 8, 2), (32, 8, 4), (32, 4, 1), (64, 1, 2)),
            *((64, 2, 2), (64, 1, 2), (32, 1, 1), (64, 1, 2)),
        ),
        _entries(
            *((64, 64, 8), (32, 32, 1), (32, 16, 1), (32, 8, 1), (32, 4, 1)),
            *((32, 2, 1), (32, 1, 1), (32, 1, 1), (32, 1, 1)),
        ),
    ),
}

#: Compute capabilities that have a table of their own.
_BY_CAPABILITY = {(9, 0): "sm_90", (12, 0): "sm_120"}
#: Of one capability, the table for devices with at least so many multiprocessors: an H20 has 78, an H100 SXM and an
#: H200 132. Nothing was measured on an H100.
_LARGE = {(9, 0): (132, "h200")}


def table_for(capability: tuple[int, int], multiprocessors: int) -> str:
    """The name of the table for a device of compute capability `capability` with `multiprocessors` of them."""
    if capability in _LARGE:
        least, name = _LARGE[capability]
        if multiprocessors >= least:
            return name
    return _BY_CAPABILITY.get(capability, "default")


def region(rows: int, kv_heads: int, *, prefill: bool) -> str:
    """The region of `REGIONS` that a batch falls into.

    Args:
        rows: query positions in the batch.
        kv_heads: KV heads of this rank.
        prefill: some request has more rows than speculative decoding gives one.
    """
    pairs = rows * kv_heads
    for bound, name in zip(BOUNDS, REGIONS, strict=False):
        if pairs <= bound:
            return name
    return REGIONS[-2] if prefill else REGIONS[-1]


def entry(table: str, rows: int, kv_heads: int, *, prefill: bool, fp8: bool) -> Entry:
    """The entry of the table called `table`; see `region` for the arguments.

    Args:
        fp8: the KV cache is of an fp8 type.
    """
    entries = TABLES[table].fp8 if fp8 else TABLES[table].bits_16
    return entries[REGIONS.index(region(rows, kv_heads, prefill=prefill))]


def launch(chosen: Entry, width: int) -> Launch:
    """The launch of an entry for selections of up to `width` tokens: never more splits than tiles."""
    tiles = -(-width // chosen.block_n)
    return Launch(chosen.block_n, chosen.warps, tiles, min(chosen.splits, tiles))
