"""The combine between real processes gives attention over the whole KV cache: gloo on CPUs, NCCL on GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from rank_processes import run_ranks  # noqa: E402

from profkit import kernels  # noqa: E402
from profkit.errors import ProfkitError  # noqa: E402
from profkit.kernels.dcp.metadata import digest_metadata, timing_metadata  # noqa: E402
from profkit.kernels.dcp.sharding import local_length  # noqa: E402
from profkit.model.workload import BuildContext, resolve_shapes  # noqa: E402

PROGRAM = Path(__file__).parent / "dcp_rank.py"
WORKLOAD = kernels.get("dcp-combine")
VARIANTS = (*(variant for variant in WORKLOAD.variants if variant != "dropped"), "ag-rs/eager", "ag-rs/fused")
GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0


@pytest.mark.skipif(GPUS > 0, reason="the GPU's own test runs here")
@pytest.mark.parametrize(
    ("ranks", "arguments"),
    [(2, ("fp32", *VARIANTS)), (8, ("bf16", "eager", "fused", "ag-rs/eager", "ag-rs/fused"))],
)
def test_over_gloo_every_rank_has_its_heads_of_the_whole_attention(ranks: int, arguments: tuple[str, ...]) -> None:
    for status, output in run_ranks(PROGRAM, ranks, *arguments):
        assert status == 0, output


@pytest.mark.skipif(GPUS > 0, reason="shown once, without a GPU")
def test_without_the_mask_the_result_is_wrong() -> None:
    for variant in ("dropped", "ag-rs/dropped"):
        assert [status for status, _ in run_ranks(PROGRAM, 2, "fp32", variant)] == [1, 1]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_over_nccl_every_rank_has_its_heads_of_the_whole_attention(dtype: str) -> None:
    # On one GPU the rank exchanges with itself, which is captured all the same.
    for status, output in run_ranks(PROGRAM, GPUS, dtype, *VARIANTS):
        assert status == 0, output


def test_the_ranks_are_the_processes_where_the_exchange_is_between_them() -> None:
    def exchange_and_ranks(*given: str, processes: int) -> tuple[object, object]:
        shapes = resolve_shapes(WORKLOAD, given, processes)
        return shapes["exchange"], shapes["ranks"]

    assert exchange_and_ranks(processes=1) == ("copy", 8)
    assert exchange_and_ranks("ranks=4", processes=1) == ("copy", 4)
    assert exchange_and_ranks(processes=2) == ("distributed", 2)
    assert exchange_and_ranks("ranks=2", processes=2) == ("distributed", 2)
    assert exchange_and_ranks("exchange=distributed", processes=1) == ("distributed", 1)
    assert exchange_and_ranks("exchange=copy", processes=2) == ("copy", 8)
    with pytest.raises(ProfkitError, match=r"ranks=8: 2 processes take part .* give --nproc 8"):
        resolve_shapes(WORKLOAD, ["ranks=8"], 2)


def test_a_distributed_exchange_without_a_group_is_refused() -> None:
    shapes = resolve_shapes(WORKLOAD, ["exchange=distributed"])
    with pytest.raises(ProfkitError, match="needs a process group"):
        WORKLOAD.build(BuildContext("fused", shapes, "cpu", 0))


def test_ranks_run_one_batch_with_lengths_and_empty_rows_of_their_own() -> None:
    sizes = (56, 52, 56, 4)
    batches = [timing_metadata(*sizes, torch.Generator().manual_seed(3), rank=rank) for rank in range(4)]
    assert all(torch.equal(batch.query_start_loc, batches[0].query_start_loc) for batch in batches)
    # 8192 tokens and more, dealt out one by one: the first rank has at most one token more than the last.
    spread = batches[0].seq_lens - batches[3].seq_lens
    assert set(spread.tolist()) == {0, 1}
    assert int(batches[3].seq_lens[:52].min()) >= local_length(8192, 3, 4)

    batches = [digest_metadata(*sizes, torch.Generator().manual_seed(3), rank=rank) for rank in range(4)]
    assert all(torch.equal(batch.query_start_loc, batches[0].query_start_loc) for batch in batches)
    assert all(0.5 <= batch.masked_share <= 0.65 for batch in batches)
    assert len({tuple(batch.empty.tolist()) for batch in batches}) == 4
    # What one process stands for is the last rank.
    alone = digest_metadata(*sizes, torch.Generator().manual_seed(3))
    assert torch.equal(alone.seq_lens, batches[3].seq_lens)
