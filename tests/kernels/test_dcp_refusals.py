"""What the launchers of the combines refuse with a ValueError before anything is launched."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from profkit.kernels.dcp.ag_rs import correct, mask_copy  # noqa: E402
from profkit.kernels.dcp.mask import mask_dcp_empty_shards_  # noqa: E402
from profkit.kernels.dcp.pack import pack  # noqa: E402
from profkit.kernels.dcp.unpack import unpack_combine  # noqa: E402

ROWS, HEADS, D = 3, 4, 16


def lengths(seq_lens: torch.dtype = torch.int32, starts: torch.dtype = torch.int32) -> dict[str, torch.Tensor]:
    """One request a row."""
    return {
        "seq_lens": torch.ones(ROWS, dtype=seq_lens),
        "query_start_loc": torch.arange(ROWS + 1).to(starts),
    }


def pack_some(heads: int = HEADS, ranks: int = 2, dtype: Any = torch.float32, lse: Any = torch.float32, **more: Any):  # type: ignore[no-untyped-def]
    send = torch.zeros(ranks, ROWS, heads // max(ranks, 1), D + 4 // dtype.itemsize, dtype=dtype)
    pack(torch.zeros(ROWS, heads, D, dtype=dtype), torch.zeros(ROWS, heads, dtype=lse), send, **more)


def unpack_some(heads: int = 2, ranks: int = 2, dtype: Any = torch.float32, **more: Any):  # type: ignore[no-untyped-def]
    recv = torch.zeros(ranks, ROWS, heads, D + 4 // dtype.itemsize, dtype=dtype)
    unpack_combine(recv, torch.zeros(ROWS, heads, D, dtype=dtype), **more)


def correct_some(heads: int = HEADS, ranks: int = 2, dtype: Any = torch.float32, lse: Any = torch.float32):  # type: ignore[no-untyped-def]
    corrected = torch.zeros(ranks, ROWS, heads // max(ranks, 1), D, dtype=dtype)
    own, gathered = torch.zeros(ROWS, heads, dtype=lse), torch.zeros(ranks, ROWS, heads, dtype=lse)
    correct(torch.zeros(ROWS, heads, D, dtype=dtype), own, gathered, corrected)


def copy_some(heads: int = HEADS, lse: Any = torch.float32, **more: Any):  # type: ignore[no-untyped-def]
    mask_copy(torch.zeros(ROWS, heads, dtype=lse), torch.zeros(ROWS, heads, dtype=lse), **{**lengths(), **more})


@pytest.mark.parametrize("call", [pack_some, unpack_some, correct_some, copy_some])
def test_no_heads(call: Any) -> None:
    with pytest.raises(ValueError, match="at least one head"):
        call(heads=0)


@pytest.mark.parametrize("call", [pack_some, unpack_some, correct_some])
def test_no_ranks(call: Any) -> None:
    with pytest.raises(ValueError, match="over 0 ranks"):
        call(ranks=0)


@pytest.mark.parametrize("call", [pack_some, unpack_some, correct_some])
@pytest.mark.parametrize("dtype", [torch.int16, torch.int32])
def test_integer_outputs(call: Any, dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match="must be fp16, bf16 or fp32"):
        call(dtype=dtype)


@pytest.mark.parametrize("call", [pack_some, correct_some])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bool])
def test_lses_that_are_not_widened(call: Any, dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match="lse must be fp16, bf16 or fp32"):
        call(lse=dtype)


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool])
def test_lses_that_cannot_be_minus_infinity(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match="float dtype"):
        copy_some(lse=dtype)
    with pytest.raises(ValueError, match="float dtype"):
        mask_dcp_empty_shards_(torch.zeros(ROWS, HEADS, dtype=dtype), **lengths())


@pytest.mark.parametrize(
    ("seq_lens", "starts"),
    [(torch.float32, torch.int32), (torch.int32, torch.float32), (torch.bool, torch.int32), (torch.int64, torch.int64)],
)
@pytest.mark.parametrize("call", [pack_some, copy_some])
def test_lengths_that_are_not_int32(call: Any, seq_lens: torch.dtype, starts: torch.dtype) -> None:
    with pytest.raises(ValueError, match="must be int32"):
        call(**lengths(seq_lens, starts))


def test_a_copy_without_anything_to_mask_by() -> None:
    with pytest.raises(ValueError, match="nothing to mask by"):
        copy_some(seq_lens=None, query_start_loc=None)


@pytest.mark.parametrize("call", [pack_some, unpack_some])
@pytest.mark.parametrize("layout", ["interleaved", None])
def test_a_layout_that_is_none(call: Any, layout: Any) -> None:
    with pytest.raises(ValueError, match="member of Layout"):
        call(layout=layout)
