"""The pack kernel where layouts, dtypes and batches are unusual; expected bits come from `dcp_oracle`."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from dcp_cases import EDGES  # noqa: E402
from dcp_oracle import Batch, bits, is_empty, send_bits  # noqa: E402

from profkit.kernels.dcp.layout import buffer_shape, decode_lse, encode_lse, pack_dim  # noqa: E402
from profkit.kernels.dcp.pack import pack  # noqa: E402

DTYPES = [torch.bfloat16, torch.float16, torch.float32]
D = 16


def empty_rows(batch: Batch) -> list[bool]:
    return [is_empty(row, batch.seq_lens, batch.starts) for row in range(batch.rows)]


def new_send(ranks: int, out: torch.Tensor) -> torch.Tensor:
    return torch.full(buffer_shape(ranks, *out.shape, out.dtype), 7.0, dtype=out.dtype, device=out.device)


def draw(rows: int, num_heads: int, dtype: torch.dtype, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    out = torch.randn(rows, num_heads, D, generator=generator).to(dtype).to(device)
    return out, torch.randn(rows, num_heads, generator=generator).to(device)


@pytest.mark.parametrize("batch", EDGES.values(), ids=EDGES.keys())
@pytest.mark.parametrize("dtype", DTYPES)
def test_edge_batches(batch: Batch, dtype: torch.dtype, device: str) -> None:
    out, lse = draw(batch.rows, 4, dtype, device)
    send = new_send(2, out)
    pack(out, lse, send, *batch.tensors(device))
    assert torch.equal(bits(send), send_bits(out, lse, 2, empty_rows(batch)))


def test_without_requests_every_row_is_empty_and_the_metadata_is_not_read(device: str) -> None:
    out, lse = draw(3, 4, torch.bfloat16, device)
    send = new_send(2, out)
    # Were the one boundary read, it would say that all three rows are real.
    starts = torch.tensor([1_000_000], dtype=torch.int32, device=device)
    pack(out, lse, send, torch.zeros(0, dtype=torch.int32, device=device), starts)
    assert torch.equal(bits(send), send_bits(out, lse, 2, [True] * 3))


def test_no_rows_launch_nothing(device: str) -> None:
    out, lse = draw(0, 4, torch.bfloat16, device)
    pack(out, lse, new_send(2, out), *EDGES["single"].tensors(device))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lse_dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_narrow_lse_is_widened_exactly(dtype: torch.dtype, lse_dtype: torch.dtype, device: str) -> None:
    batch = EDGES["interior"]
    out, lse = draw(batch.rows, 4, dtype, device)
    lse = lse.to(lse_dtype)
    send = new_send(2, out)
    pack(out, lse, send, *batch.tensors(device))
    assert torch.equal(bits(send), send_bits(out, lse, 2, empty_rows(batch)))


def heads_first(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(0, 1).contiguous().transpose(0, 1)


def dims_first(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.permute(2, 0, 1).contiguous().permute(1, 2, 0)


def padded(tensor: torch.Tensor) -> torch.Tensor:
    storage = torch.zeros(*tensor.shape[:-1], tensor.shape[-1] + 3, dtype=tensor.dtype, device=tensor.device)
    storage[..., : tensor.shape[-1]] = tensor
    return storage[..., : tensor.shape[-1]]


@pytest.mark.parametrize("out_layout", [heads_first, dims_first, padded])
@pytest.mark.parametrize("lse_layout", [heads_first, padded])
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_strides(out_layout: Any, lse_layout: Any, dtype: torch.dtype, device: str) -> None:
    batch = EDGES["trailing"]
    out, lse = draw(batch.rows, 4, dtype, device)
    out, lse = out_layout(out), lse_layout(lse)
    assert not out.is_contiguous()
    assert not lse.is_contiguous()
    send = new_send(2, out)
    pack(out, lse, send, *batch.tensors(device))
    assert torch.equal(bits(send), send_bits(out, lse, 2, empty_rows(batch)))


@pytest.mark.parametrize("ranks", [1, 3, 6])
def test_rank_counts_that_are_no_power_of_two(ranks: int, device: str) -> None:
    batch = EDGES["interior"]
    out, lse = draw(batch.rows, 6, torch.bfloat16, device)
    send = new_send(ranks, out)
    pack(out, lse, send, *batch.tensors(device))
    assert torch.equal(bits(send), send_bits(out, lse, ranks, empty_rows(batch)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_precomputed_row_mask_gives_the_same_bits(dtype: torch.dtype, device: str) -> None:
    batch = EDGES["interior"]
    out, lse = draw(batch.rows, 4, dtype, device)
    send = new_send(2, out)
    pack(out, lse, send, row_mask=torch.tensor(empty_rows(batch), device=device))
    assert torch.equal(bits(send), send_bits(out, lse, 2, empty_rows(batch)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_payload_bits_pass_through_whatever_they_mean(dtype: torch.dtype, device: str) -> None:
    integers = torch.int16 if dtype.itemsize == 2 else torch.int32
    limits = torch.iinfo(integers)
    generator = torch.Generator().manual_seed(1)
    patterns = torch.randint(limits.min, limits.max, (3, 4, D), generator=generator).to(integers)
    out = patterns.view(dtype).to(device)
    _, lse = draw(3, 4, dtype, device)
    lse[1, 2] = float("nan")
    send = new_send(2, out)
    pack(out, lse, send)
    assert torch.equal(bits(send), send_bits(out, lse, 2, [False] * 3))


def test_lse_slots_hold_the_low_half_first() -> None:
    slots = encode_lse(torch.tensor([float("-inf"), 1.0]), torch.bfloat16)
    assert [[int(half) & 0xFFFF for half in row] for row in slots] == [[0x0000, 0xFF80], [0x0000, 0x3F80]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_codec_inverts_itself(dtype: torch.dtype) -> None:
    lse = torch.tensor([0.1, -1e30, float("-inf"), float("inf"), 3.0e-39])
    assert torch.equal(decode_lse(encode_lse(lse, dtype).view(dtype)), lse)


def test_other_widths_have_no_slots() -> None:
    with pytest.raises(ValueError, match="16- or 32-bit"):
        pack_dim(torch.float64)
    with pytest.raises(ValueError, match="16- or 32-bit"):
        pack_dim(torch.int8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lse": torch.zeros(3, 5)}, "lse is"),
        ({"send": torch.zeros(2, 3, 2, D, dtype=torch.bfloat16)}, "send must be"),
        ({"send": torch.zeros(3, 3, 1, D + 2, dtype=torch.bfloat16)}, "divided evenly"),
        ({"out": torch.zeros(3, 4, 12, dtype=torch.bfloat16)}, "power of two"),
        ({"seq_lens": torch.zeros(2, dtype=torch.int32)}, "go together"),
        ({"row_mask": torch.zeros(2, dtype=torch.bool)}, "row_mask must be"),
        (
            {
                "row_mask": torch.zeros(3, dtype=torch.bool),
                "seq_lens": torch.zeros(2, dtype=torch.int32),
                "query_start_loc": torch.zeros(3, dtype=torch.int32),
            },
            "not both",
        ),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    arguments = {
        "out": torch.zeros(3, 4, D, dtype=torch.bfloat16),
        "lse": torch.zeros(3, 4),
        "send": torch.zeros(2, 3, 2, D + 2, dtype=torch.bfloat16),
    }
    with pytest.raises(ValueError, match=message):
        pack(**{**arguments, **change})
