"""Selections and batches: which tokens a row gets, as the indexer's rules and the measured shapes have them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="selections are tensors")

from profkit.kernels.qsa.inputs import Batch, BatchSizes, digest_batch, timing_batch  # noqa: E402
from profkit.kernels.qsa.selection import expand, selection_width  # noqa: E402


def tokens(batch: Batch, row: int) -> set[int]:
    return set(batch.indices[row, :-1].tolist()) - {-1}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_budget_of_2048_tokens_needs_a_width_of_2051() -> None:
    assert selection_width(2048) == 2051


def test_a_selection_token_by_token() -> None:
    # Position 13 sees 3 complete groups, of which 2 are chosen, and the tokens 12 and 13 of the open one.
    found = expand(torch.tensor([[2, 0]]), torch.tensor([13]))
    assert found.tolist() == [[8, 9, 10, 11, 0, 1, 2, 3, 12, 13, -1, 10]]


def test_a_row_that_sees_fewer_groups_than_it_may_choose() -> None:
    found = expand(torch.tensor([[0, 7, 7], [7, 7, 7]]), torch.tensor([4, 2]))
    assert found[0].tolist() == [0, 1, 2, 3, 4, *[-1] * 10, 5]
    assert found[1].tolist() == [0, 1, 2, *[-1] * 12, 3]


@given(chosen=st.integers(1, 6), positions=st.lists(st.integers(0, 60), min_size=1, max_size=5), data=st.data())
def test_expanded_selections(chosen: int, positions: list[int], data: st.DataObject) -> None:
    groups = [
        data.draw(st.permutations(range(max(chosen, (position + 1) // 4)))).copy()[:chosen] for position in positions
    ]
    for position, row in zip(positions, groups, strict=True):
        visible = (position + 1) // 4
        row.sort(key=lambda group: group >= visible)
    found = expand(torch.tensor(groups), torch.tensor(positions))
    assert found.shape == (len(positions), 4 * chosen + 4)
    assert found.dtype == torch.int32
    for position, row, line in zip(positions, groups, found.tolist(), strict=True):
        visible = (position + 1) // 4
        complete = [4 * group + i for group in row[: min(visible, chosen)] for i in range(4)]
        expected = complete + [4 * visible + i for i in range((position + 1) % 4)]
        assert line[-1] == len(expected) == min(visible, chosen) * 4 + (position + 1) % 4
        assert line[:-1] == expected + [-1] * (4 * chosen + 3 - len(expected))
        assert max(expected, default=0) <= position


SIZES = st.builds(
    BatchSizes,
    rows=st.integers(1, 12),
    rows_per_request=st.integers(1, 5),
    budget=st.sampled_from([32, 64]),
    context=st.integers(5, 400),
    page=st.integers(1, 40),
)


@settings(deadline=None, max_examples=60)
@given(sizes=SIZES, seed=st.integers(0, 5))
def test_timing_batches(sizes: BatchSizes, seed: int) -> None:
    batch = timing_batch(sizes, seeded(seed))
    assert batch.indices.shape == (sizes.rows, sizes.budget + 4)
    assert sorted(batch.block_table.flatten().tolist()) == list(range(sizes.blocks))
    assert batch.token_to_req.tolist() == [row // sizes.rows_per_request for row in range(sizes.rows)]
    for row in range(sizes.rows):
        of_request = min(sizes.rows_per_request, sizes.rows - row // sizes.rows_per_request * sizes.rows_per_request)
        position = sizes.context - of_request + row % sizes.rows_per_request
        count = int(batch.indices[row, -1])
        assert len(tokens(batch, row)) == count, "no token is listed twice"
        assert count == min((position + 1) // 4 * 4, sizes.budget) + (position + 1) % 4
        assert max(tokens(batch, row), default=0) <= position


def test_neighbouring_rows_of_a_request_share_six_of_eight_groups() -> None:
    batch = timing_batch(BatchSizes(rows=8, rows_per_request=4, budget=2048, context=8192, page=1568), seeded())
    for row in (0, 1, 2, 4, 5, 6):
        in_groups = [{token // 4 for token in tokens(batch, r) if token < 8188} for r in (row, row + 1)]
        assert len(in_groups[0] & in_groups[1]) == 512 * 6 // 8
    assert len(tokens(batch, 0) & tokens(batch, 4)) < 1024, "requests choose on their own"


def test_every_stretch_of_the_context_is_chosen_from() -> None:
    batch = timing_batch(BatchSizes(rows=1, rows_per_request=1, budget=2048, context=65 * 784, page=784), seeded())
    pages = {token // 784 for token in tokens(batch, 0)}
    assert len(pages) >= 64


def test_rank_order_is_not_the_order_of_position() -> None:
    batch = timing_batch(BatchSizes(rows=2, rows_per_request=1, budget=64, context=400, page=16), seeded())
    first = batch.indices[:, :64:4]
    assert (first.diff(dim=1) < 0).any(dim=1).all()


def test_digest_batches_hold_what_may_go_wrong() -> None:
    sizes = BatchSizes(rows=16, rows_per_request=4, budget=64, context=400, page=16)
    batch = digest_batch(sizes, seeded())
    counts = batch.indices[:, -1]
    assert (counts[4:8] < 64).all()
    assert (counts[8:] >= 64).all()
    assert (batch.indices[1::2, :-1] == -1).any(dim=1).all()
    assert (batch.indices[1::2, :-1] // sizes.page >= sizes.pages).any(dim=1).all()
    assert (batch.block_table == -1).sum() == 1
    assert batch.token_to_req.tolist() == [0, 0, 0, 0, 1, -1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4]


@settings(deadline=None, max_examples=60)
@given(sizes=SIZES, seed=st.integers(0, 5))
def test_digest_batches_have_the_sizes_of_timing_batches(sizes: BatchSizes, seed: int) -> None:
    timing, digest = timing_batch(sizes, seeded(seed)), digest_batch(sizes, seeded(seed))
    running = timing.clone()
    running.copy_(digest)
    for name in ("indices", "block_table", "token_to_req"):
        one, other = getattr(timing, name), getattr(digest, name)
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert torch.equal(getattr(running, name), other)
