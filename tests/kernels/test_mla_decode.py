"""The decode attention against double precision, split and unsplit, and over eight simulated ranks."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from dcp_oracle import Batch, bits  # noqa: E402
from mla_cases import LATENT, SCALE, WIDTH, Attention, config  # noqa: E402

from profkit.kernels.dcp.layout import buffer_shape  # noqa: E402
from profkit.kernels.dcp.pack import pack  # noqa: E402
from profkit.kernels.dcp.reference import attend  # noqa: E402
from profkit.kernels.dcp.sharding import local_length, owner  # noqa: E402
from profkit.kernels.dcp.unpack import unpack_combine  # noqa: E402
from profkit.kernels.mla_step.decode import (  # noqa: E402
    STALE_LSE,
    DecodeBuffers,
    DecodeConfig,
    decode,
    decode_config,
)

# The interpreter runs numpy, which warns where the GPU quietly gives the NaN or -inf that is not stored.
pytestmark = pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")

#: Outputs are of order 1 and rounded to fp16, as are the softmax weights.
TOLERANCE = 5e-3
LSE_TOLERANCE = 2e-3

#: One turn of the loop and several, whole and ragged; a request without rows; spans of several rows.
BATCH = Batch([40, 5, 0, 16, 33], [1, 2, 1, 0, 1], 2)
LIVE = [0, 1, 2, 4]
EMPTY_SHARD, PADDING = 3, [5, 6]


@pytest.mark.parametrize("splits", [1, 2, 4])
@pytest.mark.parametrize(("heads", "block_tokens"), [((2, 3), 16), ((5, 4), 32)])
def test_it_agrees_with_the_reference(heads: tuple[int, int], block_tokens: int, splits: int, device: str) -> None:
    """Heads beyond one block; more splits than some rows have tiles."""
    attention = Attention.drawn(BATCH, heads, device)
    out, lse = attention.run(config(block_tokens=block_tokens, splits=splits))
    expected, expected_lse = attention.expected()
    torch.testing.assert_close(out[LIVE].double(), expected[LIVE], rtol=TOLERANCE, atol=TOLERANCE)
    torch.testing.assert_close(lse[LIVE].double(), expected_lse[LIVE], rtol=LSE_TOLERANCE, atol=LSE_TOLERANCE)


@pytest.mark.parametrize("splits", [1, 3])
def test_rows_without_tokens_are_left_with_what_looks_like_a_result(splits: int, device: str) -> None:
    attention = Attention.drawn(BATCH, (2, 3), device)
    out, lse = attention.run(config(splits=splits))
    assert (lse[[EMPTY_SHARD, *PADDING]] == STALE_LSE).all()
    own_query = attention.query.transpose(0, 1).reshape(BATCH.rows, 6, WIDTH)[EMPTY_SHARD, :, :LATENT]
    assert torch.equal(bits(out[EMPTY_SHARD]), bits(own_query))
    assert torch.isnan(out[PADDING]).all()
    assert torch.isfinite(out[LIVE]).all()


@pytest.mark.parametrize("splits", [1, 3])
def test_equal_inputs_give_equal_bits(splits: int, device: str) -> None:
    first = Attention.drawn(BATCH, (2, 3), device).run(config(splits=splits))
    second = Attention.drawn(BATCH, (2, 3), device).run(config(splits=splits))
    assert all(torch.equal(bits(one), bits(other)) for one, other in zip(first, second, strict=True))


def test_large_scores_do_not_overflow(device: str) -> None:
    attention = Attention.drawn(Batch([40], [1], 0), (1, 2), device)
    attention.query.mul_(100)
    out, lse = attention.run(config(splits=2))
    expected, expected_lse = attention.expected()
    torch.testing.assert_close(out.double(), expected, rtol=TOLERANCE, atol=TOLERANCE)
    torch.testing.assert_close(lse.double(), expected_lse, rtol=LSE_TOLERANCE, atol=LSE_TOLERANCE)


def test_no_rows_launch_nothing(device: str) -> None:
    out, lse = Attention.drawn(Batch([3], [0], 0), (1, 2), device).run(config())
    assert (out.numel(), lse.numel()) == (0, 0)


@pytest.mark.parametrize("interleave", [1, 4])
def test_eight_ranks_together_compute_unsharded_attention(interleave: int, device: str) -> None:
    """Lengths 3 and 9 leave shards empty; their rows and the padding row hold what the kernel leaves there."""
    ranks, local_heads, lengths, spans = 8, 1, [70, 3, 9], [1, 2, 1]
    whole = Attention.drawn(Batch(lengths, spans, 1), (ranks, local_heads), device, seed=3)
    rows, heads = whole.batch.rows, ranks * local_heads

    sends, empty_shards = [], 0
    for rank in range(ranks):
        shard = Batch([local_length(length, rank, ranks, interleave) for length in lengths], spans, 1)
        empty_shards += shard.seq_lens.count(0)
        kv = torch.full((len(lengths), 16, WIDTH), float("nan"), dtype=torch.float16, device=device)
        for request, length in enumerate(lengths):
            positions = [p for p in range(length) if owner(p, ranks, interleave) == rank]
            kv[request, : len(positions)] = whole.kv[request, positions]
        out, lse = Attention(shard, whole.query, kv).run(config())
        send = torch.zeros(buffer_shape(ranks, rows, heads, LATENT, torch.float16), dtype=torch.float16, device=device)
        pack(out, lse, send, *shard.tensors(device))
        sends.append(send)
    assert empty_shards > 0
    exchanged = torch.stack(sends).transpose(0, 1).contiguous()

    expected, _ = whole.expected()
    for rank in range(ranks):
        result = torch.full((rows, local_heads, LATENT), 7.0, dtype=torch.float16, device=device)
        unpack_combine(exchanged[rank], result)
        own = slice(rank * local_heads, (rank + 1) * local_heads)
        torch.testing.assert_close(result[:-1].double(), expected[:-1, own], rtol=TOLERANCE, atol=TOLERANCE)
        assert (result[-1] == 0).all(), "padding"


def test_tokens_are_split_as_far_as_every_multiprocessor_gets_a_program() -> None:
    def splits(rows: int, capacity: int) -> int:
        return decode_config(rows, 96, capacity, 132).splits

    # Two blocks of 64 heads a row.
    assert decode_config(56, 96, 1152, 132).block_heads == 64
    assert (splits(56, 1152), splits(66, 1152), splits(67, 1152)) == (1, 1, 1)
    assert (splits(33, 1152), splits(8, 1152)) == (2, 8)
    # No more splits than tiles.
    assert splits(1, 100) == -(-100 // decode_config(1, 96, 100, 132).block_tokens)
    assert splits(0, 1152) >= 1
    assert decode_config(4, 4, 64, 132).block_heads == 16


def test_what_does_not_fit_is_refused() -> None:
    attention = Attention.drawn(BATCH, (2, 3), "cpu")
    tensors = attention.batch.tensors("cpu")
    buffers = DecodeBuffers.zeros(BATCH.rows, 6, LATENT, torch.float16, "cpu", config())
    narrow = DecodeBuffers.zeros(BATCH.rows, 6, 24, torch.float16, "cpu", config())
    single = DecodeBuffers.zeros(BATCH.rows, 5, LATENT, torch.float16, "cpu", config())
    unsplit = DecodeBuffers(buffers.out, buffers.lse, None, None, config(splits=2))
    with pytest.raises(ValueError, match="query must be"):
        decode(attention.query.transpose(0, 1), attention.kv, *tensors, buffers, SCALE)
    with pytest.raises(ValueError, match="kv must be"):
        decode(attention.query, attention.kv.float(), *tensors, buffers, SCALE)
    with pytest.raises(ValueError, match="query_start_loc one longer"):
        decode(attention.query, attention.kv[1:], *tensors, buffers, SCALE)
    with pytest.raises(ValueError, match="latent part must be a power of two"):
        decode(attention.query, attention.kv, *tensors, narrow, SCALE)
    with pytest.raises(ValueError, match="out must be"):
        decode(attention.query, attention.kv, *tensors, single, SCALE)
    with pytest.raises(ValueError, match="more than one split"):
        decode(attention.query, attention.kv, *tensors, unsplit, SCALE)


#: Launches that differ in tensor core instructions, pipelining and splits, and must not in results.
REAL_CONFIGS = [
    DecodeConfig(64, 32, 1, 8, 3),
    DecodeConfig(64, 64, 1, 8, 2),
    DecodeConfig(32, 64, 1, 4, 2),
    DecodeConfig(16, 32, 1, 4, 2),
    DecodeConfig(64, 64, 5, 8, 2),
]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("launch", REAL_CONFIGS, ids=str)
def test_real_widths_on_a_gpu(launch: DecodeConfig, dtype: torch.dtype) -> None:
    """96 heads of 512 + 64 over about a thousand local tokens, as one rank of eight has at 8k context."""
    lengths = [1024 + 37 * index % 128 for index in range(12)]
    lengths[3] = 0
    batch = Batch(lengths, [1] * 12, 2)
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(8, batch.rows, 12, 576, generator=generator).to("cuda", dtype)
    kv = torch.randn(12, max(lengths), 576, generator=generator).to("cuda", dtype)
    buffers = DecodeBuffers.zeros(batch.rows, 96, 512, dtype, "cuda", launch)
    scale = 192**-0.5
    decode(query, kv, *batch.tensors("cuda"), buffers, scale)
    heads = query.transpose(0, 1).reshape(batch.rows, 96, 576)
    for row, length in enumerate(lengths):
        if length:
            tokens = kv[row, :length]
            expected, expected_lse = attend(heads[row : row + 1], tokens, tokens[:, :512], scale)
            torch.testing.assert_close(buffers.out[row : row + 1].double(), expected, rtol=2e-2, atol=1e-2)
            torch.testing.assert_close(buffers.lse[row : row + 1].double(), expected_lse, rtol=1e-3, atol=1e-3)
    assert torch.isnan(buffers.out[12:]).all()
    assert (buffers.lse[[3, 12, 13]] == STALE_LSE).all()
