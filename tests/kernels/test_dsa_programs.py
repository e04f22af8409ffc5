"""How many programs walk a row: shapes alone decide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="the kernels need torch")

pytest.importorskip("triton", reason="the kernels need triton")

from profkit.kernels.dsa.fused import tuned_fused
from profkit.kernels.dsa.mask import tuned_mask
from profkit.kernels.dsa.programs import PR_POLICY, ProgramPolicy


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        *((1, 1024), (8, 1024), (16, 512), (32, 256), (52, 158), (64, 128)),
        *((104, 79), (128, 64), (256, 32), (512, 16), (1024, 8), (2048, 8)),
    ],
)
def test_programs_a_row_at_a_million_columns_as_in_the_pull_request(rows: int, expected: int) -> None:
    assert PR_POLICY.row_programs(rows, tiles=1024) == expected


@given(rows=st.integers(1, 10**5), tiles=st.integers(0, 10**4), floor=st.integers(1, 64), total=st.integers(1, 10**5))
def test_programs_lie_between_one_and_the_tiles_and_reach_floor_and_total_where_they_can(
    rows: int, tiles: int, floor: int, total: int
) -> None:
    programs = ProgramPolicy(floor, total).row_programs(rows, tiles)
    assert 1 <= programs <= max(1, tiles)
    if programs < tiles:
        assert programs >= floor
        assert programs * rows >= total
        # One program a row fewer would miss one of the two.
        assert programs == floor or (programs - 1) * rows < total


@pytest.mark.parametrize(("floor", "total"), [(0, 8192), (8, 0), (-1, 5)])
def test_a_policy_of_no_programs_is_refused(floor: int, total: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ProgramPolicy(floor, total)


@pytest.mark.parametrize(
    ("rows", "width", "tile"),
    [
        *((1, 8192, 2048), (52, 8192, 2048), (256, 8192, 4096), (1024, 8192, 2048)),
        *((1, 131072, 2048), (8, 131072, 2048), (52, 131072, 4096), (1024, 131072, 2048)),
        *((1, 1 << 20, 2048), (2, 1 << 20, 4096), (52, 1 << 20, 4096), (256, 1 << 20, 4096), (1024, 1 << 20, 2048)),
        # 264 tiles of 4096 are enough, 263 are not.
        *((1, 264 * 4096, 4096), (1, 263 * 4096, 2048), (264, 1, 4096), (263, 4096, 2048), (132, 4097, 4096)),
        *((527, 4096, 4096), (528, 4096, 2048), (1, 1, 2048)),
    ],
)
def test_the_tile_of_the_mask_follows_from_rows_and_width(rows: int, width: int, tile: int) -> None:
    assert tuned_mask(rows, width).tile == tile


@given(rows=st.integers(1, 5000), width=st.integers(1, 1 << 21))
def test_masks_have_enough_programs_wherever_the_smallest_tile_allows(rows: int, width: int) -> None:
    launch = tuned_mask(rows, width)
    programs = launch.programs.row_programs(rows, -(-width // launch.tile))
    assert rows * programs >= min(264, rows * -(-width // 2048))


@pytest.mark.parametrize(
    ("rows", "width", "early"),
    [
        # 2^23 columns of all rows together, and 132 rows.
        *((8, 1 << 20, True), (8, (1 << 20) + 4, False), (9, 1 << 20, False)),
        *((132, 8192, True), (133, 8192, False), (1, 1, True)),
    ],
)
def test_masks_load_flags_early_in_few_columns_and_rows(rows: int, width: int, early: bool) -> None:
    assert tuned_mask(rows, width).early == early


@pytest.mark.parametrize(("rows", "least_run"), [(1, 256), (31, 256), (32, 512), (127, 512), (128, 1024), (1024, 1024)])
def test_runs_of_the_one_kernel_are_longer_with_more_rows(rows: int, least_run: int) -> None:
    assert tuned_fused(rows).least_run == least_run
