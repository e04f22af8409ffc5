"""Choosing candidate blocks: every form against the reference, and the edges one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from dsa_cases import CASES, NEG_INF, Case, assert_candidates, bits, strided_randn  # noqa: E402

from profkit.kernels.dsa.programs import ProgramPolicy  # noqa: E402
from profkit.kernels.dsa.reference import reference_candidates, reference_scores  # noqa: E402
from profkit.kernels.dsa.scores import PR_SCORES, TUNED_SCORES, ScoreLaunch, block_scores, can_load_early  # noqa: E402
from profkit.kernels.dsa.select import SelectForm, select_candidate_blocks  # noqa: E402

# The interpreter reduces with numpy, which warns about a block of nothing but NaN.
pytestmark = pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")

FORMS: tuple[SelectForm, ...] = get_args(SelectForm)


def select(
    logits: torch.Tensor,
    starts: torch.Tensor | None,
    ends: torch.Tensor,
    slots: int,
    block_size: int,
    form: SelectForm,
    row_repeat: int = 1,
) -> torch.Tensor:
    # Every second slot of a wider buffer: the list may be strided.
    candidates = torch.full((logits.shape[0], 2 * slots), 12345, dtype=torch.int32, device=logits.device)
    select_candidate_blocks(logits, starts, ends, candidates[:, ::2], block_size, row_repeat, form)
    assert (candidates[:, 1::2] == 12345).all()
    return candidates[:, ::2]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_candidates_are_the_highest_scores(case: Case, form: SelectForm, device: str) -> None:
    logits, (starts, ends) = case.logits(device), case.bounds(device)
    candidates = select(logits, starts, ends, case.slots, case.block_size, form, case.row_repeat)
    scores = reference_scores(logits, starts, ends, case.block_size, case.row_repeat)
    assert_candidates(candidates, scores)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_full_width_and_the_live_form_list_the_same_in_the_same_order(case: Case, device: str) -> None:
    logits, (starts, ends) = case.logits(device), case.bounds(device)
    old, new = (
        select(logits, starts, ends, case.slots, case.block_size, form, case.row_repeat)
        for form in ("full-width", "live")
    )
    assert torch.equal(old, new)


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_minus_infinity_have_their_newest_block_and_no_other(form: SelectForm, device: str) -> None:
    logits = torch.full((3, 64), NEG_INF, device=device)
    ends = torch.tensor([40, 17, 0], device=device)
    assert select(logits, None, ends, 4, 8, form).tolist() == [[4, -1, -1, -1], [2, -1, -1, -1], [-1] * 4]


@pytest.mark.parametrize("form", FORMS)
def test_the_newest_block_is_a_candidate_however_low_its_logits(form: SelectForm, device: str) -> None:
    logits = torch.arange(64, 0, -1, dtype=torch.float32, device=device).repeat(1, 1)
    assert sorted(select(logits, None, torch.tensor([60], device=device), 3, 8, form)[0].tolist()) == [0, 1, 7]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        # Eight blocks of eight from column 20 on, of which the first six have a column.
        (20, 64, {0, 1, 2, 3, 4, 5}),
        # The newest token, at 75, lies in block 6, which has no column.
        (20, 76, {0, 1, 2, 3, 4, 5, 6}),
        # Block 8 does not exist: nothing is pinned.
        (20, 90, {0, 1, 2, 3, 4, 5}),
        (0, 1000, {0, 1, 2, 3, 4, 5, 6, 7}),
        # No column at all, but the newest token has a block.
        (64, 70, {0}),
        (70, 90, {2}),
        (70, 60, set()),
        (5, 5, set()),
        (0, -3, set()),
    ],
)
def test_an_end_past_the_width(start: int, end: int, expected: set[int], form: SelectForm, device: str) -> None:
    logits = strided_randn(1, 64, device)
    bounds = (torch.tensor([value], dtype=torch.int32, device=device) for value in (start, end))
    found = select(logits, *bounds, 12, 8, form)[0].tolist()
    assert set(found) - {-1} == expected
    assert found.count(-1) == 12 - len(expected)


@pytest.mark.parametrize("form", FORMS)
def test_columns_outside_the_live_range_do_not_count(form: SelectForm, device: str) -> None:
    logits = torch.zeros(2, 64, device=device)
    logits[:, 50:] = float("nan")
    logits[1, :9] = 1e9
    bounds = [torch.tensor(values, dtype=torch.int32, device=device) for values in ([0, 9], [50, 49])]
    logits[0, 8:16] = 1.0
    logits[1, 9 + 16 : 9 + 24] = 1.0
    assert sorted(select(logits, *bounds, 2, 8, form)[0].tolist()) == [1, 6]
    assert sorted(select(logits, *bounds, 2, 8, form)[1].tolist()) == [2, 4]


# With fewer programs than tiles, of which the widest row has several, nothing is loaded early.
@pytest.mark.parametrize("total", [5, 2048])
@pytest.mark.parametrize("block_size", [3, 8])
@pytest.mark.parametrize("width", [1, 64, 1030])
def test_scores_whose_columns_are_loaded_early_are_the_same(
    width: int, block_size: int, total: int, device: str
) -> None:
    generator = torch.Generator().manual_seed(width)
    logits = torch.randn(5, width, generator=generator).to(device)
    logits[0, width // 3] = float("nan")
    ends = torch.tensor([width, width // 2, 0, width + 40, 1], device=device)
    for row, end in enumerate(ends.tolist()):
        logits[row, end:] = float("nan")
    found = []
    for early_columns in (0, 1 << 18):
        scores = torch.full((5, -(-width // block_size)), 7.0, device=device)
        programs = ProgramPolicy(1, total)
        launch = replace(TUNED_SCORES, programs=programs, early_columns=early_columns, tile=16, warps=1)
        block_scores(logits, None, ends, scores, block_size, launch=launch)
        found.append(bits(scores))
    assert torch.equal(*found)


@pytest.mark.parametrize(
    ("launch", "rows", "width", "early"),
    [
        # 2^18 columns of all rows together, in tiles of 128 blocks of 8.
        *((TUNED_SCORES, 2, 1 << 17, True), (TUNED_SCORES, 2, (1 << 17) + 8, False)),
        *((TUNED_SCORES, 1, 1 << 18, True), (TUNED_SCORES, 1, (1 << 18) + 1, False)),
        (PR_SCORES, 1, 1, False),
        # 256 tiles have 256 programs, or 255.
        (replace(TUNED_SCORES, programs=ProgramPolicy(1, 256)), 1, 1 << 18, True),
        (replace(TUNED_SCORES, programs=ProgramPolicy(1, 255)), 1, 1 << 18, False),
    ],
)
def test_few_columns_are_loaded_early_where_each_tile_has_a_program(
    launch: ScoreLaunch, rows: int, width: int, early: bool
) -> None:
    assert can_load_early(launch, rows, width, tiles=-(-width // (8 * launch.tile))) == early


@pytest.mark.parametrize("form", FORMS)
def test_a_block_with_a_nan_ranks_above_the_newest(form: SelectForm, device: str) -> None:
    logits = torch.zeros(1, 64, device=device)
    logits[0, 13] = float("nan")
    # A NaN whose sign bit is set is no lower.
    logits[0, 30] = torch.tensor(-1, dtype=torch.int32).view(torch.float32)
    assert sorted(select(logits, None, torch.tensor([64], device=device), 2, 8, form)[0].tolist()) == [1, 3]


@pytest.mark.parametrize("form", FORMS)
def test_no_row_and_no_column(form: SelectForm, device: str) -> None:
    none = torch.zeros(0, dtype=torch.int32, device=device)
    assert select(torch.zeros(0, 64, device=device), None, none, 3, 8, form).shape == (0, 3)
    ends = torch.tensor([5], device=device)
    assert select(torch.zeros(1, 0, device=device), None, ends, 3, 8, form).tolist() == [[-1, -1, -1]]


def test_the_references_agree_with_each_other() -> None:
    case = CASES[0]
    logits, (starts, ends) = case.logits("cpu"), case.bounds("cpu")
    scores = reference_scores(logits, starts, ends, case.block_size)
    assert_candidates(reference_candidates(scores, case.slots), scores)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_size": 0}, "at least 1"),
        ({"row_repeat": 3}, "each for 3 rows"),
        ({"logits": torch.zeros(2, 64, dtype=torch.float64)}, "fp32"),
        ({"candidates": torch.zeros(2, 4)}, "int32"),
        ({"candidates": torch.zeros(3, 4, dtype=torch.int32)}, r"\[2, K\]"),
        ({"ends": torch.zeros(2)}, "ends must be"),
        ({"starts": torch.zeros(4, dtype=torch.int32)[::2]}, "starts must be"),
        ({"starts": torch.zeros(1, dtype=torch.int32)}, "starts has 1 entries"),
        ({"form": "wide"}, "no form 'wide'"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, object], message: str) -> None:
    given: dict[str, object] = {
        "logits": torch.zeros(2, 64),
        "starts": None,
        "ends": torch.zeros(2, dtype=torch.int32),
        "candidates": torch.zeros(2, 4, dtype=torch.int32),
        "block_size": 8,
    }
    with pytest.raises(ValueError, match=message):
        select_candidate_blocks(**{**given, **changes})  # type: ignore[arg-type]
