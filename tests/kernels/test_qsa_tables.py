"""The launch tables, number by number, their regions and their dispatch."""

from __future__ import annotations

import pytest

from profkit.kernels.qsa.tables import BOUNDS, REGIONS, TABLES, Entry, entry, launch, region, table_for

#: Block, splits, warps by region: default, then in 16 bits and fp8 sm_90, sm_120 and h200.
EXPECTED = """
1-24          32,64,4  64,64,2  64,64,2  64,64,8  64,64,8  64,64,2  64,64,8
25-32         32,16,1  64,64,2  32,16,1  64,8,8   128,8,4  64,8,2   32,32,1
33-64         32,8,1   32,16,1  32,8,1   64,8,8   64,8,4   32,8,4   32,16,1
65-128        32,4,1   32,8,1   32,4,1   32,8,8   32,4,4   32,4,1   32,8,1
129-256       32,8,1   32,8,1   32,8,1   32,8,1   128,4,4  64,1,2   32,4,1
257-512       64,4,2   32,4,1   32,4,1   64,4,2   64,4,4   64,2,2   32,2,1
513-2048      64,1,2   32,4,1   32,4,1   32,4,1   32,2,1   64,1,2   32,1,1
2049-prefill  32,1,1   32,1,1   32,1,1   64,2,2   32,2,1   32,1,1   32,1,1
2049-decode   64,1,2   64,1,2   64,1,2   64,2,2   64,1,2   64,1,2   32,1,1
"""


@pytest.mark.parametrize("line", EXPECTED.strip().splitlines(), ids=lambda line: line.split()[0])
def test_every_entry(line: str) -> None:
    name, *columns = line.split()
    default, *others = (Entry(*map(int, column.split(","))) for column in columns)
    index = REGIONS.index(name)
    assert TABLES["default"].bits_16[index] == TABLES["default"].fp8[index] == default
    for table in ("sm_90", "sm_120", "h200"):
        assert (TABLES[table].bits_16[index], TABLES[table].fp8[index]) == (others.pop(0), others.pop(0))
    assert not others


def test_sm_90_has_two_shapes_of_program() -> None:
    table = TABLES["sm_90"]
    assert {(e.block_n, e.warps) for e in (*table.bits_16, *table.fp8)} == {(32, 1), (64, 2)}


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        *((1, "1-24"), (24, "1-24"), (25, "25-32"), (32, "25-32"), (33, "33-64"), (64, "33-64"), (65, "65-128")),
        *((128, "65-128"), (129, "129-256"), (256, "129-256"), (257, "257-512"), (512, "257-512")),
        *((513, "513-2048"), (2048, "513-2048"), (2049, "2049-decode"), (10**6, "2049-decode")),
    ],
)
def test_regions_by_rows_times_kv_heads(pairs: int, expected: str) -> None:
    assert region(pairs, 1, prefill=False) == expected
    if pairs % 2 == 0:
        assert region(pairs // 2, 2, prefill=False) == expected


def test_prefill_matters_past_the_last_bound_alone() -> None:
    assert region(2049, 1, prefill=True) == "2049-prefill"
    for bound in BOUNDS:
        assert region(bound, 1, prefill=True) == region(bound, 1, prefill=False)


def test_an_entry_by_table_rows_and_cache() -> None:
    assert entry("sm_90", 32, 1, prefill=False, fp8=False) == Entry(64, 64, 2)
    assert entry("sm_90", 32, 1, prefill=False, fp8=True) == Entry(32, 16, 1)
    assert entry("default", 2048, 2, prefill=True, fp8=False) == Entry(32, 1, 1)


@pytest.mark.parametrize(
    ("capability", "expected"),
    [((9, 0), "sm_90"), ((12, 0), "sm_120"), ((10, 0), "default"), ((10, 3), "default"), ((12, 1), "default")],
)
def test_the_table_of_a_device(capability: tuple[int, int], expected: str) -> None:
    assert table_for(capability, 78) == expected


def test_a_table_of_the_larger_devices_of_a_capability_is_theirs_alone() -> None:
    assert table_for((9, 0), 132) == "h200"
    assert table_for((9, 0), 131) == "sm_90"
    assert table_for((12, 0), 188) == "sm_120"


@pytest.mark.parametrize(
    ("chosen", "tiles", "splits"),
    [((32, 64, 4), 65, 64), ((64, 64, 2), 33, 33), ((128, 8, 4), 17, 8), ((32, 1, 1), 65, 1)],
)
def test_splits_are_at_most_the_tiles_of_2051_tokens(chosen: tuple[int, int, int], tiles: int, splits: int) -> None:
    launched = launch(Entry(*chosen), 2051)
    assert (launched.tiles, launched.splits) == (tiles, splits)
    assert (launched.block_n, launched.warps) == (chosen[0], chosen[2])
