"""How many programs walk a row: shapes alone decide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="the kernels need torch")

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
