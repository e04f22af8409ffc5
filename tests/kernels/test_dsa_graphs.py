"""Captured graphs: replayed with other ends, candidates and logits, every form follows them."""

from __future__ import annotations

from typing import get_args

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from dsa_cases import assert_candidates, bits  # noqa: E402

from profkit.kernels.dsa.apply import MaskForm, apply_candidate_mask  # noqa: E402
from profkit.kernels.dsa.reference import reference_mask, reference_scores  # noqa: E402
from profkit.kernels.dsa.select import SelectForm, select_candidate_blocks  # noqa: E402

pytestmark = pytest.mark.gpu

WIDTH, BLOCK_SIZE, SLOTS = 1 << 15, 8, 512
#: Captured with the first; then from short to long and back, so that nothing of a replay may be left in the next.
ENDS = ([1, 0, 40, 4096], [WIDTH, WIDTH - 1, 5000, 3], [7, 1024, WIDTH + 9, WIDTH // 2], [0, 0, 8, 12000])


def drawn(seed: int, width: int = WIDTH) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and candidates."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(4, width, generator=generator)
    candidates = torch.randint(-1, WIDTH // BLOCK_SIZE + 2, (4, SLOTS), generator=generator, dtype=torch.int32)
    return logits.cuda(), candidates.cuda()


@pytest.mark.parametrize("with_starts", [False, True])
@pytest.mark.parametrize("form", get_args(MaskForm))
def test_a_captured_mask_follows_its_ends_and_candidates(form: MaskForm, with_starts: bool) -> None:
    logits, candidates = drawn(0)
    starts = torch.tensor([0, 3, 17, 4000], device="cuda") if with_starts else None
    ends = torch.tensor(ENDS[0], device="cuda")
    apply_candidate_mask(logits, starts, ends, candidates, BLOCK_SIZE, form=form)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        apply_candidate_mask(logits, starts, ends, candidates, BLOCK_SIZE, form=form)
    for seed, tokens in enumerate(ENDS, start=1):
        new_logits, new_candidates = drawn(seed)
        logits.copy_(new_logits)
        candidates.copy_(new_candidates)
        ends.copy_(torch.tensor(tokens))
        graph.replay()
        arguments = (new_logits, starts, ends, new_candidates, BLOCK_SIZE)
        expected = reference_mask(*arguments, full_width=form == "full-width")
        assert torch.equal(bits(logits), bits(expected))


@pytest.mark.parametrize("form", get_args(SelectForm))
@pytest.mark.parametrize("times", [1, 8])
def test_captured_candidates_follow_the_ends_and_logits(form: SelectForm, times: int) -> None:
    # Of the wider rows, which the bounded form may have to cut down, one is longer than its capacity in turn.
    logits, candidates = drawn(0, times * WIDTH)
    ends = times * torch.tensor(ENDS[0], device="cuda")
    select_candidate_blocks(logits, None, ends, candidates, BLOCK_SIZE, form=form)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        select_candidate_blocks(logits, None, ends, candidates, BLOCK_SIZE, form=form)
    for seed, tokens in enumerate(ENDS, start=1):
        logits.copy_(drawn(seed, times * WIDTH)[0])
        ends.copy_(times * torch.tensor(tokens))
        graph.replay()
        assert_candidates(candidates, reference_scores(logits, None, ends, BLOCK_SIZE))


@pytest.mark.parametrize("context", [5000, 1 << 17, 1 << 20])
def test_bounded_candidates_of_long_rows(context: int) -> None:
    logits = torch.randn(2, 1 << 20, device="cuda")
    logits[1] = (logits[1] * 4).round() / 4  # a few hundred distinct values: thousands of ties
    ends = torch.tensor([context, context - 1], device="cuda")
    candidates = torch.empty(2, 2048, dtype=torch.int32, device="cuda")
    select_candidate_blocks(logits, None, ends, candidates, BLOCK_SIZE)
    assert_candidates(candidates, reference_scores(logits, None, ends, BLOCK_SIZE))
