"""Random small inputs, full of ties, NaN and infinities: every form against the reference."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from dsa_cases import assert_candidates, bits  # noqa: E402

from profkit.kernels.dsa.apply import MaskForm, apply_candidate_mask  # noqa: E402
from profkit.kernels.dsa.flags import FlagLaunch  # noqa: E402
from profkit.kernels.dsa.fused import FusedLaunch  # noqa: E402
from profkit.kernels.dsa.mask import MaskLaunch  # noqa: E402
from profkit.kernels.dsa.programs import ProgramPolicy  # noqa: E402
from profkit.kernels.dsa.reference import reference_mask, reference_scores  # noqa: E402
from profkit.kernels.dsa.scores import TUNED_SCORES  # noqa: E402
from profkit.kernels.dsa.select import SelectForm, select_candidate_blocks  # noqa: E402
from profkit.kernels.dsa.topk import TopkLaunch, topk_live  # noqa: E402

# The interpreter reduces with numpy, which warns about a block of nothing but NaN.
pytestmark = pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")

VALUES = (0.0, -0.0, 1.0, 1.0, -2.5, 3e38, 1e-45, -math.inf, -math.inf, math.inf, math.nan)
POLICY = ProgramPolicy(1, 6)
# The interpreter takes tens of milliseconds an example.
EXAMPLES = settings(max_examples=25, deadline=None)


@st.composite
def problems(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, int, int, int]:
    """logits, starts, ends, block size, slots, row repeat."""
    width = draw(st.integers(1, 150))
    repeat = draw(st.integers(1, 2))
    entries = draw(st.integers(1, 2))
    seed = draw(st.integers(0, 2**16))
    generator = torch.Generator().manual_seed(seed)
    rows = entries * repeat
    logits = torch.tensor(VALUES)[torch.randint(0, len(VALUES), (rows, width), generator=generator)]
    if draw(st.booleans()):
        distinct = torch.randn(rows, width, generator=generator)
        logits = torch.where(torch.rand(rows, width, generator=generator) < 0.8, distinct, logits)
    ends = torch.tensor([draw(st.integers(-2, width + 30)) for _ in range(entries)])
    starts = None
    if draw(st.booleans()):
        starts = torch.tensor([draw(st.integers(0, width + 5)) for _ in range(entries)], dtype=torch.int32)
    # Few block sizes: each is compiled for on a GPU.
    return logits, starts, ends, draw(st.sampled_from([1, 3, 8, 16])), draw(st.integers(1, 20)), repeat


@given(problem=problems(), form=st.sampled_from(get_args(SelectForm)), early_columns=st.sampled_from([0, 1000]))
@EXAMPLES
def test_candidates(
    problem: tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, int, int, int],
    form: SelectForm,
    early_columns: int,
    device: str,
) -> None:
    logits, starts, ends, block_size, slots, repeat = problem
    scores = reference_scores(logits, starts, ends, block_size, repeat)
    candidates = torch.full((logits.shape[0], slots), -7, dtype=torch.int32, device=device)
    on_device = (None if starts is None else starts.to(device), ends.to(device))
    launch = replace(TUNED_SCORES, early_columns=early_columns)
    select_candidate_blocks(logits.to(device), *on_device, candidates, block_size, repeat, form, scores_launch=launch)
    assert_candidates(candidates, scores)


@given(problem=problems(), form=st.sampled_from(get_args(MaskForm)), early=st.booleans(), seed=st.integers(0, 999))
@EXAMPLES
def test_masks(
    problem: tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, int, int, int],
    form: MaskForm,
    early: bool,
    seed: int,
    device: str,
) -> None:
    logits, starts, ends, block_size, slots, repeat = problem
    blocks = -(-logits.shape[1] // block_size)
    generator = torch.Generator().manual_seed(seed)
    candidates = torch.randint(-1, blocks + 2, (logits.shape[0], slots), generator=generator, dtype=torch.int32)
    expected = reference_mask(logits, starts, ends, candidates, block_size, repeat, full_width=form == "full-width")
    masked = logits.to(device)
    apply_candidate_mask(
        *(masked, None if starts is None else starts.to(device), ends.to(device), candidates.to(device)),
        *(block_size, repeat, form),
        mask_launch=MaskLaunch(POLICY, tile=32, warps=1, vector=4, early=early),
        flag_launch=FlagLaunch(POLICY, least_run=16, warps=1, candidate_step=16),
        fused_launch=FusedLaunch(POLICY, least_run=16, tile=32, warps=1, candidate_step=16),
    )
    assert torch.equal(bits(masked), bits(expected))


def drawn_scores(kind: str, blocks: int, generator: torch.Generator) -> torch.Tensor:
    """``[1, blocks]`` fp32: few values; any bits, NaN of both signs among them; or numbers that differ in low bits."""
    if kind == "few":
        return torch.tensor(VALUES)[torch.randint(0, len(VALUES), (1, blocks), generator=generator)]
    low, high = (-(2**31), 2**31) if kind == "any" else (0x3F800000, 0x3F800000 + 64)
    return torch.randint(low, high, (1, blocks), generator=generator).int().view(torch.float32)


@given(
    seed=st.integers(0, 2**16),
    blocks=st.integers(1, 200),
    slots=st.sampled_from([1, 2, 3, 4, 10, 25, 40]),
    capacity=st.sampled_from([16, 40, 160]),
    kind=st.sampled_from(["few", "any", "close"]),
    programs=st.sampled_from([1, 2, 3, 13]),
)
@EXAMPLES
@example(seed=0, blocks=100, slots=7, capacity=200, kind="close", programs=1)
@example(seed=0, blocks=200, slots=30, capacity=200, kind="few", programs=1)
@example(seed=0, blocks=200, slots=10, capacity=40, kind="any", programs=3)
@example(seed=0, blocks=200, slots=10, capacity=40, kind="few", programs=13)
def test_the_bounded_topk(
    seed: int, blocks: int, slots: int, capacity: int, kind: str, programs: int, device: str
) -> None:
    """Rows below and above the capacity; above it, samples that serve and samples that mislead."""
    scores = drawn_scores(kind, blocks, torch.Generator().manual_seed(seed))
    out = torch.full((1, slots), -7, dtype=torch.int32, device=device)
    ends = torch.tensor([blocks], device=device)
    launch = TopkLaunch(ProgramPolicy(1, programs), cut_tile=16, tile=16, warps=1, capacity=capacity, sample=8)
    topk_live(scores.to(device), None, ends, out, blocks, 1, launch=launch)
    assert_candidates(out, scores.double())
    listed = [block for block in out[0].tolist() if block != -1]
    assert listed == sorted(listed)


@pytest.mark.parametrize("programs", [1, 4])
@pytest.mark.parametrize("misled", [False, True])
def test_a_sample_that_misleads_costs_time_only(misled: bool, programs: int, device: str) -> None:
    # Every 25th score from the 12th on is sampled. Where just these are high, too few reach the pivot.
    scores = torch.arange(200, dtype=torch.float32).roll(60)[None] / 1000
    if misled:
        scores[0, 12::25] += 1
    out = torch.empty(1, 10, dtype=torch.int32, device=device)
    launch = TopkLaunch(ProgramPolicy(1, programs), cut_tile=16, tile=16, warps=1, capacity=40, sample=8)
    topk_live(scores.to(device), None, torch.tensor([200], device=device), out, 200, 1, launch=launch)
    assert_candidates(out, scores.double())


@pytest.mark.parametrize("programs", [1, 2, 4, 13])
@pytest.mark.parametrize("blocks", [41, 193, 200, 208])
def test_scores_behind_the_live_blocks_do_not_count(blocks: int, programs: int, device: str) -> None:
    scores = torch.full((2, 256), float("inf"))
    scores[:, :blocks] = -1 - torch.randperm(blocks, generator=torch.Generator().manual_seed(blocks)) / 100
    out = torch.empty(2, 10, dtype=torch.int32, device=device)
    launch = TopkLaunch(ProgramPolicy(1, 2 * programs), cut_tile=16, tile=16, warps=1, capacity=40, sample=8)
    # The second row is not cut down.
    topk_live(scores.to(device), None, torch.tensor([blocks, 30], device=device), out, 256, 1, launch=launch)
    scores[0, blocks:] = scores[1, 30:] = float("-inf")
    assert_candidates(out, scores.double())


@pytest.mark.parametrize(
    ("bits_of_scores", "expected"),
    [
        # NaN of either sign ranks above infinity.
        ([1, 0x7F800000, -1, 2, 0x7FC00000], [2, 4]),
        # More NaN than slots: the first of them.
        ([0x7F800000, 0x7FC00000, -1, 0x7FC00000, 1], [1, 2]),
        # The lowest bit decides, and ties below it do not count.
        ([0x3F800000, 0x3F800001, 0x3F800000, 0x3F800001, 0x3F800001], [1, 3]),
        ([0x3F800000, 0x3F800001, 0x3F800000, 0x3F800000], [0, 1]),
        # Nothing but -inf, and zeros of both signs.
        ([-0x800000, -0x800000, -0x800000], [-1, -1]),
        ([-(1 << 31), 0, 0], [1, 2]),
    ],
)
def test_the_order_of_scores(bits_of_scores: list[int], expected: list[int], device: str) -> None:
    scores = torch.tensor([bits_of_scores], dtype=torch.int32).view(torch.float32)
    out = torch.empty(1, 2, dtype=torch.int32, device=device)
    blocks = len(bits_of_scores)
    launch = TopkLaunch(ProgramPolicy(1, 1), cut_tile=16, tile=16, warps=1, capacity=8, sample=4)
    topk_live(scores.to(device), None, torch.tensor([blocks], device=device), out, blocks, 1, launch=launch)
    assert out.tolist() == [expected]
