"""`mla-step` between real processes, against double precision: gloo on CPUs, NCCL on GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from rank_processes import run_ranks  # noqa: E402

PROGRAM = Path(__file__).parent / "mla_rank.py"
GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0


@pytest.mark.skipif(GPUS > 0, reason="the GPU's own test runs here")
@pytest.mark.parametrize(("variant", "status"), [("eager", 0), ("fused", 0), ("dropped", 1)])
def test_over_gloo_two_ranks_agree_with_double_precision(variant: str, status: int) -> None:
    for ended, output in run_ranks(PROGRAM, 2, variant):
        assert ended == status, output


@pytest.mark.gpu
@pytest.mark.skipif(GPUS not in (1, 2, 4), reason="the tiny step has four heads")
def test_over_nccl_every_rank_agrees_with_double_precision() -> None:
    for ended, output in run_ranks(PROGRAM, GPUS, "fused"):
        assert ended == 0, output
