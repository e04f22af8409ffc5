"""Masking by candidates: every form against the reference, bit for bit, and the edges one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from dsa_cases import CASES, NEG_INF, ROWS, Case, bits, overridden, strided_randn  # noqa: E402

from profkit.kernels.dsa.apply import MaskForm, apply_candidate_mask  # noqa: E402
from profkit.kernels.dsa.flags import FlagLaunch, empty_flags, flag_candidates  # noqa: E402
from profkit.kernels.dsa.fused import FusedLaunch  # noqa: E402
from profkit.kernels.dsa.mask import MaskLaunch, mask_columns  # noqa: E402
from profkit.kernels.dsa.programs import ProgramPolicy  # noqa: E402
from profkit.kernels.dsa.reference import reference_candidates, reference_mask, reference_scores  # noqa: E402

FORMS: tuple[MaskForm, ...] = get_args(MaskForm)
#: Few programs, so that each walks several tiles and runs even in narrow rows.
SMALL_MASK = MaskLaunch(ProgramPolicy(1, 4), tile=128, warps=1, vector=4, early=True)
#: Of forty candidates three steps are read.
SMALL_FLAGS = FlagLaunch(ProgramPolicy(1, 12), least_run=16, warps=1, candidate_step=16)
SMALL_FUSED = FusedLaunch(ProgramPolicy(1, 12), least_run=16, tile=128, warps=1, candidate_step=16)


def listed(case: Case, logits: torch.Tensor) -> torch.Tensor:
    starts, ends = case.bounds(logits.device.type)
    scores = reference_scores(logits, starts, ends, case.block_size, case.row_repeat)
    return overridden(reference_candidates(scores, case.slots), case.blocks)


@pytest.mark.parametrize("contiguous", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_masks_match_the_reference(case: Case, form: MaskForm, contiguous: bool, device: str) -> None:
    logits, (starts, ends) = case.logits(device), case.bounds(device)
    if contiguous:
        logits = logits.contiguous()
    candidates = listed(case, logits)
    rest = (case.block_size, case.row_repeat)
    expected = reference_mask(logits, starts, ends, candidates, *rest, full_width=form == "full-width")
    apply_candidate_mask(logits, starts, ends, candidates, *rest, form)
    assert torch.equal(bits(logits), bits(expected))


def assert_masked(width: int, decode: bool, form: MaskForm, device: str, mask: MaskLaunch = SMALL_MASK) -> None:
    """That a form masks as the reference does, launched small: six rows, with starts or in pairs without."""
    case = Case(width, 8, 40, decode)
    logits, (starts, ends) = case.logits(device).contiguous(), case.bounds(device)
    candidates = listed(case, logits)
    expected = reference_mask(logits, starts, ends, candidates, 8, case.row_repeat)
    apply_candidate_mask(
        *(logits, starts, ends, candidates, 8, case.row_repeat, form),
        flag_launch=SMALL_FLAGS,
        mask_launch=mask,
        fused_launch=SMALL_FUSED,
    )
    assert torch.equal(bits(logits), bits(expected))


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("width", [1500, 1501])
def test_one_kernel_may_walk_several_tiles_and_steps_of_candidates(width: int, decode: bool, device: str) -> None:
    assert_masked(width, decode, "one-kernel", device)


# One program a row, or two: of a whole row each walks six tiles or more.
@pytest.mark.parametrize("total", [4, 12])
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("width", [1500, 1501])
def test_a_program_of_the_mask_may_walk_several_tiles(
    width: int, decode: bool, early: bool, total: int, device: str
) -> None:
    mask = replace(SMALL_MASK, programs=ProgramPolicy(1, total), early=early)
    assert_masked(width, decode, "bounded", device, mask)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("end", [0, 200, 203])
def test_flags_behind_the_live_range_do_not_count(end: int, early: bool, device: str) -> None:
    logits = torch.zeros(1, 1024, device=device)
    flags = empty_flags(1, 1024, 8, device).fill_(1)
    ends = torch.tensor([end], device=device)
    flag_candidates(flags, torch.tensor([[3, -1]], dtype=torch.int32, device=device), None, ends, 1024, 8)
    mask_columns(logits, flags, None, ends, 8, launch=replace(SMALL_MASK, early=early))
    kept = [*range(24, min(32, end)), *range(end, 1024)]
    assert (logits[0] == 0).nonzero().flatten().tolist() == kept


@pytest.mark.parametrize("form", FORMS)
def test_only_the_full_width_form_writes_behind_the_live_range(form: MaskForm, device: str) -> None:
    width, sentinel = 8192, 777.0
    ends = torch.tensor([0, 1, 1023, 1024, 1025, width - 1, width, width // 2], device=device)
    logits = torch.full((8, width, 2), sentinel, device=device)[:, :, 0]
    apply_candidate_mask(logits, None, ends, torch.full((8, 4), -1, dtype=torch.int32, device=device), 8, form=form)
    column = torch.arange(width, device=device)
    behind = column[None, :] >= ends[:, None]
    assert (logits[~behind] == NEG_INF).all()
    assert (logits[behind] == (NEG_INF if form == "full-width" else sentinel)).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("start", "end", "candidate", "kept"),
    [
        # Width 70. A candidate that begins in the row keeps its columns, and nothing past the width is asked for.
        (3, 70, 8, range(67, 70)),
        # One that begins past the width keeps the last column, if that is live.
        (3, 70, 9, [69]),
        (3, 69, 9, []),
        (3, 90, 1 << 28, [69]),
        (0, 70, 8, range(64, 70)),
        (0, 70, 9, [69]),
        (0, 90, 8, range(64, 70)),
        (0, 66, 8, range(64, 66)),
        (3, 66, 8, []),
        (80, 90, 0, []),
        (30, 20, 0, []),
        (0, -5, 0, []),
    ],
)
def test_edges(start: int, end: int, candidate: int, kept: list[int], form: MaskForm, device: str) -> None:
    logits = torch.ones(1, 70, device=device)
    starts, ends = (torch.tensor([value], dtype=torch.int64, device=device) for value in (start, end))
    candidates = torch.tensor([[-1, candidate, candidate]], dtype=torch.int32, device=device)
    apply_candidate_mask(logits, starts if start else None, ends, candidates, 8, form=form)
    written = 70 if form == "full-width" else max(0, min(end, 70))
    expected = [1.0 if column in kept or column >= written else NEG_INF for column in range(70)]
    assert logits[0].tolist() == expected


@pytest.mark.parametrize("form", FORMS)
def test_the_bits_of_kept_columns_stay(form: MaskForm, device: str) -> None:
    patterns = torch.tensor([0x7FC01234, -1, -(1 << 31), 0x7F800000, 1, 2, 3, 4], dtype=torch.int32)
    logits = patterns.view(torch.float32).repeat(1, 2).to(device)
    one = torch.tensor([[1]], dtype=torch.int32, device=device)
    apply_candidate_mask(logits, None, torch.tensor([16], device=device), one, 8, form=form)
    assert bits(logits)[0, 8:].tolist() == patterns.tolist()
    assert (logits[0, :8] == NEG_INF).all()


@pytest.mark.parametrize("form", FORMS)
def test_masking_twice_is_masking_once(form: MaskForm, device: str) -> None:
    case = CASES[1]
    logits, (starts, ends) = case.logits(device), case.bounds(device)
    candidates = listed(case, logits)
    apply_candidate_mask(logits, starts, ends, candidates, case.block_size, form=form)
    once = bits(logits)
    apply_candidate_mask(logits, starts, ends, candidates, case.block_size, form=form)
    assert torch.equal(bits(logits), once)


@pytest.mark.parametrize("form", FORMS)
def test_no_row_no_column_and_no_candidate(form: MaskForm, device: str) -> None:
    none = torch.zeros(0, 3, dtype=torch.int32, device=device)
    apply_candidate_mask(torch.zeros(0, 8, device=device), None, none[:, 0], none, 8, form=form)
    row = torch.zeros(1, 3, dtype=torch.int32, device=device)
    apply_candidate_mask(torch.zeros(1, 0, device=device), None, row[:, 0], row, 8, form=form)
    logits = torch.zeros(1, 8, device=device)
    apply_candidate_mask(logits, None, torch.tensor([8], device=device), row[:, :0], 8, form=form)
    assert (logits == NEG_INF).all()


def test_an_unknown_form_is_refused() -> None:
    row = torch.zeros(1, 3, dtype=torch.int32)
    with pytest.raises(ValueError, match="no form 'narrow'"):
        apply_candidate_mask(torch.zeros(1, 8), None, row[:, 0], row, 8, form="narrow")  # type: ignore[arg-type]


@pytest.mark.gpu
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("rows", "width", "block_size"), [(ROWS, 1 << 18, 8), (1, 1 << 20, 8), (3, (1 << 20) + 5, 16), (2100, 1 << 20, 8)]
)
def test_wide_rows(rows: int, width: int, block_size: int, form: MaskForm) -> None:
    logits = strided_randn(min(rows, ROWS), width, "cuda") if rows <= ROWS else torch.zeros(rows, width, device="cuda")
    ends = torch.full((rows,), width // 2 + 3, device="cuda")
    ends[-1] = width + 40
    generator = torch.Generator(device="cuda").manual_seed(0)
    candidates = torch.randint(0, width // block_size + 5, (rows, 2048), generator=generator, device="cuda").int()
    checked = [0, rows - 1] if rows > ROWS else list(range(rows))
    arguments = (logits[checked], None, ends[checked], candidates[checked], block_size)
    expected = reference_mask(*arguments, full_width=form == "full-width")
    apply_candidate_mask(logits, None, ends, candidates, block_size, form=form)
    assert torch.equal(bits(logits[checked]), bits(expected))
