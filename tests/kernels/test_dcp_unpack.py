"""The combine kernel against double precision, and attention over eight simulated ranks against unsharded attention."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from dcp_simulation import HEAD_DIM, HEADS, PADDING, RANKS, ROWS, simulate  # noqa: E402

from profkit.kernels.dcp.layout import Layout, buffer_shape, encode_lse  # noqa: E402
from profkit.kernels.dcp.pack import pack  # noqa: E402
from profkit.kernels.dcp.reference import combine  # noqa: E402
from profkit.kernels.dcp.sharding import local_length, owner  # noqa: E402
from profkit.kernels.dcp.unpack import unpack_combine  # noqa: E402

# The interpreter runs numpy, which warns where the GPU quietly gives the NaN or -inf that the kernel then handles.
pytestmark = pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")

NAN, INF = math.nan, math.inf
TOLERANCE = {torch.float16: 3e-2, torch.bfloat16: 3e-2, torch.float32: 1e-5}
LSE_TOLERANCE = 1e-4


def received(partial: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """The buffer ``[N, R, h, D + P]`` with this payload and LSE, written without the pack kernel."""
    return torch.cat([partial, encode_lse(lse, partial.dtype).view(partial.dtype)], dim=-1).contiguous()


def run(partial: torch.Tensor, lse: torch.Tensor, *, base_2: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    result = torch.full(partial.shape[1:], 7.0, dtype=partial.dtype, device=partial.device)
    total = torch.full(lse.shape[1:], 7.0, device=partial.device)
    unpack_combine(received(partial, lse), result, total, base_2=base_2)
    return result, total


@pytest.mark.parametrize("base_2", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("ranks", [4, 3])
def test_it_agrees_with_the_reference(ranks: int, dtype: torch.dtype, base_2: bool, device: str) -> None:
    generator = torch.Generator().manual_seed(0)
    partial = torch.randn(ranks, 7, 2, 32, generator=generator).to(dtype).to(device)
    lse = (3 * torch.randn(ranks, 7, 2, generator=generator)).to(device)
    lse[0, 1], lse[1:, 2] = -INF, -INF
    result, total = run(partial, lse, base_2=base_2)
    expected, expected_lse = combine(partial, lse, base_2=base_2)
    torch.testing.assert_close(result.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    torch.testing.assert_close(total.double(), expected_lse, rtol=LSE_TOLERANCE, atol=LSE_TOLERANCE)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_row_that_is_empty_everywhere_gives_zero_whatever_its_payload(dtype: torch.dtype, device: str) -> None:
    partial = torch.ones(4, 2, 1, 32, dtype=dtype, device=device)
    lse = torch.zeros(4, 2, 1, device=device)
    partial[:, 1], lse[:, 1] = NAN, -INF
    result, total = run(partial, lse)
    torch.testing.assert_close(result[0], torch.ones_like(result[0]))
    assert (result[1] == 0).all()
    assert total[1].item() == -INF


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("payload", [NAN, INF])
def test_an_unusable_lse_takes_its_rank_out(bad: float, payload: float, device: str) -> None:
    partial = torch.full((2, 1, 1, 16), 3.0, device=device)
    lse = torch.full((2, 1, 1), 0.5, device=device)
    partial[1], lse[1] = payload, bad
    result, total = run(partial, lse)
    assert (result == 3).all()
    assert total.item() == 0.5


def test_the_lse_output_is_optional_and_no_rows_launch_nothing(device: str) -> None:
    lse = torch.zeros(2, 3, 1, device=device)
    result = torch.zeros(3, 1, 16, device=device)
    unpack_combine(received(torch.ones(2, 3, 1, 16, device=device), lse), result)
    torch.testing.assert_close(result, torch.ones_like(result))
    unpack_combine(torch.empty(2, 0, 1, 17, device=device), torch.empty(0, 1, 16, device=device))


def test_what_does_not_fit_is_refused() -> None:
    recv = torch.zeros(2, 3, 1, 17)
    with pytest.raises(ValueError, match="recv must be"):
        unpack_combine(recv, torch.zeros(3, 1, 8))
    with pytest.raises(ValueError, match="result"):
        unpack_combine(recv, torch.zeros(3, 1, 32)[..., ::2])
    with pytest.raises(ValueError, match="lse must be"):
        unpack_combine(recv, torch.zeros(3, 1, 16), torch.zeros(3, 2))
    with pytest.raises(ValueError, match="power of two"):
        unpack_combine(torch.zeros(2, 3, 1, 13), torch.zeros(3, 1, 12))
    with pytest.raises(ValueError, match="contiguous"):
        unpack_combine(recv.transpose(0, 1), torch.zeros(2, 1, 16))
    storage = torch.zeros(2 * 3 * 18 + 1, dtype=torch.float16)
    with pytest.raises(ValueError, match="4 bytes"):
        unpack_combine(storage[1:].view(2, 3, 1, 18), torch.zeros(3, 1, 16, dtype=torch.float16))


@pytest.mark.parametrize(("ranks", "interleave"), [(8, 1), (8, 4), (3, 2), (1, 5)])
def test_local_lengths_count_the_tokens_that_each_rank_owns(ranks: int, interleave: int) -> None:
    for length in range(70):
        owners = [owner(position, ranks, interleave) for position in range(length)]
        lengths = [local_length(length, rank, ranks, interleave) for rank in range(ranks)]
        assert lengths == [owners.count(rank) for rank in range(ranks)]
        assert [local == 0 for local in lengths] == [length <= rank * interleave for rank in range(ranks)]


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("interleave", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_eight_ranks_together_compute_unsharded_attention(
    dtype: torch.dtype, interleave: int, layout: Layout, device: str
) -> None:
    parts, whole = simulate(interleave)
    sends = []
    for part in parts:
        shape = buffer_shape(RANKS, *part.out.shape, dtype, layout)
        send = torch.zeros(shape, dtype=dtype, device=device)
        pack(part.out.to(dtype).to(device), part.lse.to(device), send, *part.batch.tensors(device), layout=layout)
        sends.append(send)
    exchanged = torch.stack(sends).transpose(0, 1).contiguous()

    for rank in range(RANKS):
        result = torch.full((ROWS, HEADS, HEAD_DIM), 7.0, dtype=dtype, device=device)
        unpack_combine(exchanged[rank], result, layout=layout)
        expected = whole[:, rank * HEADS : (rank + 1) * HEADS]
        torch.testing.assert_close(result.cpu().double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
        assert (result[ROWS - PADDING :] == 0).all()
