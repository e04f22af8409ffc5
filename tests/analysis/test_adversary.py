"""Inputs that were made to fool the verdict: what each command must end in, and what it must say."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from bench import SHARED, profkit

ARCHIVE = SHARED / "adversary" / "cases.tar.xz"
pytestmark = pytest.mark.skipif(not ARCHIVE.is_file(), reason="no adversary cases beside the repository")

DIFF = "diff before.sqlite after.sqlite"
#: Case, command, exit status, and what the answer says.
ANSWERS = [
    ("01_neutral_layers_cancel", "diff before after", 0, "CHANGED: 1 launch differs: decode_kernel (other times in"),
    ("03_one_of_61_layers", DIFF, 3, "gemm in layer 60"),
    ("04_two_ranks_one_file_lost", DIFF, 3, "gemm from layer 3 of rank 1"),
    ("05_two_ranks_one_file_half", DIFF, 3, "of rank 1"),
    ("06_pipeline_one_file", DIFF, 3, "2 launches a layer are gone from 6 layers of each of 2 ranks"),
    ("06_pipeline_one_file", f"{DIFF} --expect-removed 2", 0, "CONFIRMED (launches only)"),
    ("06_pipeline_one_file", f"{DIFF} --expect-removed 1", 1, "2 launches per layer are gone, net; 1 was expected"),
    ("06_pipeline_one_file", f"{DIFF} --max-launches-per-layer 2", 1, "At most 3 launches in a layer"),
    ("08_dropped_slow_clock", "diff before after", 3, "INCONCLUSIVE"),
    ("09_exchange_lost_everywhere", "diff before after", 3, "INCONCLUSIVE"),
    ("11_gemm_lost_in_one_layer", "diff before after", 3, "from layer 12 (1 launch a step)"),
    ("12_absorbed_ratio", DIFF, 3, "INCONCLUSIVE"),
    ("14_eager_before_the_step", DIFF, 0, "2 launches a layer only moved"),
    ("14_eager_before_the_step", f"{DIFF} --expect-removed 2", 1, "0 launches per layer are gone, net"),
    ("16_left_the_ranges", "diff before after --expect-removed 8", 1, "2 launches per layer are gone, net"),
    ("17_grid_halved", "diff before after", 3, "INCONCLUSIVE"),
    ("18_hoist_lookalike", DIFF, 3, "INCONCLUSIVE"),
    ("19_batch_64_against_8", DIFF, 3, "0.12 times the grid after: another batch"),
    ("20_timing_loop_is_a_step", "layers before.sqlite", 0, "30 × graph 2: 30 launches a step"),
    ("20_timing_loop_is_a_step", DIFF, 3, "2 launches a layer are gone from 6 layers (−12 a step)"),
    ("21_digests_of_one_layer", "diff before after", 3, "from layer 12 (1 launch a step)"),
    ("22_draft_and_target_merge", "layers before.sqlite", 0, "2 layers of 6 launches (draft/model.layers.# 0, 1)"),
    ("23_encoder_and_decoder_merge", "layers before.sqlite", 0, "3 layers of 4 launches"),
    ("25_num_layers_is_layer_61", "layers before.sqlite", 0, "per layer per step (6 layers)"),
    ("26_lm_head_lost", DIFF, 3, "lm_head from outside the selected layers"),
    ("27_rename_refutes", f"{DIFF} --expect-removed 2", 0, "CONFIRMED (launches only)"),
    ("28_period_four_steps_in_a_graph", "layers before.sqlite", 3, ""),
    ("30_recorded_two_ranks_fine", DIFF, 3, "8 launches a layer are gone from 24 layers of each of 2 ranks"),
    ("30_recorded_two_ranks_fine", f"{DIFF} --expect-removed 8", 0, "CONFIRMED (launches only)"),
    ("32_recorded_rank1_not_fused", DIFF, 3, "of rank 1"),
]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of all cases."""
    directory = tmp_path_factory.mktemp("adversary")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    return directory


@pytest.mark.parametrize(("case", "command", "status", "said"), ANSWERS)
def test_the_answer_is_right(
    cases: Path, monkeypatch: pytest.MonkeyPatch, case: str, command: str, status: int, said: str
) -> None:
    monkeypatch.chdir(cases / case)
    done = profkit(*command.split())
    assert done.returncode == status
    assert said in " ".join(done.stdout.split())
