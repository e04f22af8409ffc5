"""The layouts of the exchange buffers: the same bits in each, and the same result from each."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
triton = pytest.importorskip("triton", reason="the kernels need triton")

from dcp_cases import EDGES  # noqa: E402
from dcp_oracle import bits, is_empty, padded_bits, planar_bits, send_bits  # noqa: E402

from profkit.kernels.dcp.layout import Layout, buffer_shape, decode_lse, encode_lse, split  # noqa: E402
from profkit.kernels.dcp.pack import PackConfig, default_config, pack, pack_arguments, pack_kernel  # noqa: E402
from profkit.kernels.dcp.unpack import unpack_combine, unpack_kernel  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")

DTYPES = [torch.bfloat16, torch.float16, torch.float32]
D = 16
FILLER = 7.0


def draw(rows: int, num_heads: int, dtype: torch.dtype, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    out = torch.randn(rows, num_heads, D, generator=generator).to(dtype).to(device)
    return out, torch.randn(rows, num_heads, generator=generator).to(device)


def buffer(ranks: int, out: torch.Tensor, layout: Layout) -> torch.Tensor:
    shape = buffer_shape(ranks, *out.shape, out.dtype, layout)
    return torch.full(shape, FILLER, dtype=out.dtype, device=out.device)


def expected_bits(out: torch.Tensor, lse: torch.Tensor, ranks: int, empty: list[bool], layout: Layout) -> torch.Tensor:
    interleaved = send_bits(out, lse, ranks, empty)
    if layout is Layout.PLANAR:
        return planar_bits(interleaved, D)
    if layout is Layout.PADDED:
        return padded_bits(interleaved, D, bits(torch.full((1,), FILLER, dtype=out.dtype)))
    return interleaved


@pytest.mark.parametrize("edge", ["interior", "all-empty", "no-requests", "zero-length-trailing"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", Layout)
def test_payload_and_lse_bits(layout: Layout, dtype: torch.dtype, edge: str, device: str) -> None:
    batch = EDGES[edge]
    out, lse = draw(batch.rows, 6, dtype, device)
    send = buffer(2, out, layout)
    pack(out, lse, send, *batch.tensors(device), layout=layout)
    empty = [is_empty(row, batch.seq_lens, batch.starts) for row in range(batch.rows)]
    assert torch.equal(bits(send), expected_bits(out, lse, 2, empty, layout))


@pytest.mark.parametrize(
    ("head_dim", "warps"), [(16, (1, 1, 1)), (512, (2, 1, 1)), (1024, (4, 2, 2)), (8192, (8, 8, 8))]
)
def test_a_layout_decides_how_pack_is_launched_and_the_head_dimension_the_warps(
    head_dim: int, warps: tuple[int, int, int]
) -> None:
    expected = [(4, "evict_first", ".cg"), (8, "evict_first", ".cs"), (8, "", "")]
    for layout, count, (heads, evict, store) in zip(Layout, warps, expected, strict=True):
        assert default_config(head_dim, layout) == PackConfig(heads, count, evict, store)


@pytest.mark.parametrize("layout", Layout)
def test_pack_is_launched_as_its_layout_has_it_where_nothing_is_asked_for(layout: Layout) -> None:
    out, lse = draw(3, 8, torch.bfloat16, "cpu")
    _, _, constants = pack_arguments(out, lse, buffer(2, out, layout), layout=layout)
    launch = (constants["BLOCK_HEADS"], constants["num_warps"], constants["EVICT"], constants["STORE_CACHE"])
    assert PackConfig(*launch) == default_config(D, layout)


@pytest.mark.parametrize("heads", [1, 2, 4, 16])
@pytest.mark.parametrize("ranks", [1, 3, 6])
@pytest.mark.parametrize("layout", Layout)
def test_a_launch_configuration_changes_no_bit(layout: Layout, ranks: int, heads: int, device: str) -> None:
    batch = EDGES["single"]
    out, lse = draw(batch.rows, 6, torch.bfloat16, device)
    send = buffer(ranks, out, layout)
    config = PackConfig(heads=heads, warps=2, evict="evict_first", store_cache=".cs")
    pack(out, lse, send, *batch.tensors(device), layout=layout, config=config)
    empty = [is_empty(row, batch.seq_lens, batch.starts) for row in range(batch.rows)]
    assert torch.equal(bits(send), expected_bits(out, lse, ranks, empty, layout))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", Layout)
def test_split_views_what_pack_wrote(layout: Layout, dtype: torch.dtype, device: str) -> None:
    out, lse = draw(3, 4, dtype, device)
    send = buffer(2, out, layout)
    pack(out, lse, send, layout=layout)
    payload, slots = split(send, D, layout)
    assert torch.equal(payload, out.unflatten(1, (2, 2)).permute(1, 0, 2, 3))
    assert torch.equal(decode_lse(slots), lse.unflatten(1, (2, 2)).permute(1, 0, 2))
    payload.fill_(0)
    assert not split(send, D, layout)[0].any(), "the views must share the buffer's memory"


@pytest.mark.parametrize("ranks", [1, 4, 5])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_combine_gives_the_same_bits_from_every_layout(ranks: int, dtype: torch.dtype, device: str) -> None:
    generator = torch.Generator().manual_seed(0)
    partial = torch.randn(ranks, 3, 2, D, generator=generator).to(dtype)
    lse = 3 * torch.randn(ranks, 3, 2, generator=generator)
    partial[0, 1], lse[0, 1] = float("nan"), float("-inf")
    results = {}
    for layout in Layout:
        shape = buffer_shape(ranks, 3, 2 * ranks, D, dtype, layout)
        recv = torch.full(shape, float("nan"), dtype=dtype)
        payload, slots = split(recv, D, layout)
        payload.copy_(partial)
        slots.copy_(encode_lse(lse, dtype).view(dtype))
        result = torch.full((3, 2, D), FILLER, dtype=dtype, device=device)
        total = torch.full((3, 2), FILLER, device=device)
        unpack_combine(recv.to(device), result, total, layout=layout, warps=2)
        results[layout] = (bits(result), bits(total))
    assert not torch.isnan(result).any()
    for layout in Layout:
        assert all(map(torch.equal, results[layout], results[Layout.INTERLEAVED]))


@pytest.mark.parametrize(
    ("layout", "heads", "dtype", "elements"),
    [
        (Layout.INTERLEAVED, 12, torch.bfloat16, 2),
        (Layout.PLANAR, 12, torch.bfloat16, 8),
        (Layout.PLANAR, 2, torch.bfloat16, 4),
        (Layout.PLANAR, 1, torch.bfloat16, 2),
        (Layout.PADDED, 1, torch.bfloat16, 8),
        (Layout.INTERLEAVED, 12, torch.float32, 1),
        (Layout.PLANAR, 12, torch.float32, 4),
        (Layout.PADDED, 1, torch.float32, 4),
    ],
)
def test_how_wide_an_access_may_be(layout: Layout, heads: int, dtype: torch.dtype, elements: int) -> None:
    assert layout.alignment(heads, 512, dtype) == elements


def test_planar_is_as_large_as_interleaved_and_padded_is_not() -> None:
    sizes = {layout: buffer_shape(8, 56, 96, 512, torch.bfloat16, layout) for layout in Layout}
    assert sizes[Layout.INTERLEAVED] == sizes[Layout.PLANAR] == (8, 56, 12, 514)
    assert sizes[Layout.PADDED] == (8, 56, 12, 520)


def test_a_buffer_of_another_layout_or_alignment_is_refused() -> None:
    out, lse = draw(3, 4, torch.bfloat16, "cpu")
    with pytest.raises(ValueError, match=r"send must be \[2, 3, 2, 24\]"):
        pack(out, lse, buffer(2, out, Layout.PLANAR), layout=Layout.PADDED)
    storage = torch.zeros(2 * 3 * 2 * 18 + 1, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="4 bytes"):
        pack(out, lse, storage[1:].view(2, 3, 2, 18))


@pytest.mark.gpu
@pytest.mark.parametrize(("layout", "width"), [(Layout.INTERLEAVED, 4), (Layout.PLANAR, 16), (Layout.PADDED, 16)])
def test_compiled_accesses_are_as_wide_as_the_layout_allows(layout: Layout, width: int) -> None:
    out = torch.zeros(2, 96, 512, dtype=torch.bfloat16, device="cuda")
    send = buffer(8, out, layout)
    grid, arguments, constants = pack_arguments(out, torch.zeros(2, 96, device="cuda"), send, layout=layout)
    packed = pack_kernel[grid](*arguments, **constants)
    assert bool(re.search(r"st\.global\S*\.v4\.b32", packed.asm["ptx"])) == (width == 16)
    unpack_kernel.device_caches.clear()
    unpack_combine(send, torch.zeros(2, 12, 512, dtype=torch.bfloat16, device="cuda"), layout=layout, warps=2)
    (unpacked,) = unpack_kernel.device_caches[torch.cuda.current_device()][0].values()
    assert bool(re.search(r"ld\.global\S*\.v4\.b32", unpacked.asm["ptx"])) == (width == 16)
