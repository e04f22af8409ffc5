"""The fused mask changes exactly what the eager mask changes, bit for bit. `dcp_cases` says which cases run where."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

import dcp_cases  # noqa: E402
from dcp_cases import Case  # noqa: E402
from dcp_oracle import bits, is_empty, send_bits  # noqa: E402

from profkit.kernels.dcp.mask import mask_dcp_empty_shards_  # noqa: E402
from profkit.kernels.dcp.pack import pack  # noqa: E402


def test_there_are_336_uniform_and_16_ragged_cases() -> None:
    assert len(dcp_cases.UNIFORM) == 336
    assert len(dcp_cases.RAGGED) == 16


def test_ragged_cases_mask_50_to_65_percent_of_the_rows() -> None:
    for case in dcp_cases.RAGGED:
        batch = case.batch
        empty = [is_empty(row, batch.seq_lens, batch.starts) for row in range(batch.rows)]
        assert 0.5 <= sum(empty) / len(empty) <= 0.65


@pytest.mark.parametrize("case", dcp_cases.params())
def test_fused_mask_equals_packing_an_eagerly_masked_lse(case: Case, device: str) -> None:
    out, lse, fused = case.tensors(device)
    seq_lens, starts = case.batch.tensors(device)
    masked = mask_dcp_empty_shards_(lse.clone(), seq_lens, starts)
    unfused = torch.empty_like(fused)
    pack(out, masked, unfused)

    pack(out, lse, fused, seq_lens, starts)

    assert torch.equal(bits(fused), bits(unfused))
    assert torch.equal(lse, case.tensors(device)[1]), "the fused mask must leave the LSE itself alone"


@pytest.mark.parametrize("case", dcp_cases.params())
def test_fused_pack_equals_the_formulas(case: Case, device: str) -> None:
    out, lse, send = case.tensors(device)
    seq_lens, starts = case.batch.tensors(device)

    pack(out, lse, send, seq_lens, starts)

    empty = [is_empty(row, case.batch.seq_lens, case.batch.starts) for row in range(case.batch.rows)]
    assert torch.equal(bits(send), send_bits(out, lse, case.ranks, empty))


def test_without_a_mask_every_lse_stays_finite(device: str) -> None:
    case = dcp_cases.UNIFORM[0]
    out, lse, send = case.tensors(device)
    pack(out, lse, send)
    decoded = send[..., dcp_cases.HEAD_DIM :].contiguous().view(torch.float32)
    assert torch.isfinite(decoded).all()
