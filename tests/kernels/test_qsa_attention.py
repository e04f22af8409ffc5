"""Split kernel and merge against dense attention: upstream's shapes on a GPU, small ones in the interpreter."""

from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

import qsa_oracle  # noqa: E402
from qsa_cases import UPSTREAM, Case, case_operands, small_operands  # noqa: E402

from profkit.kernels.qsa.attention import attend  # noqa: E402
from profkit.kernels.qsa.merge import LOOP, PLAIN, Merge  # noqa: E402
from profkit.kernels.qsa.operands import Operands, Workspace  # noqa: E402
from profkit.kernels.qsa.reference import gated_attention  # noqa: E402
from profkit.kernels.qsa.split import split_attention  # noqa: E402
from profkit.kernels.qsa.tables import TABLES, Entry, entry, launch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")

RTOL = ATOL = 2e-2
#: Products of fp16 lose less.
SMALL_TOLERANCE = 4e-3


def run(operands: Operands, chosen: Entry, merge: Merge = PLAIN) -> torch.Tensor:
    """The output of one launch, into a buffer of NaN."""
    launched = launch(chosen, operands.width)
    out = torch.full_like(operands.query, float("nan"))
    attend(operands, launched, out, Workspace(launched.splits, operands.query), merge)
    return out


def close(out: torch.Tensor, expected: torch.Tensor, tolerance: float = SMALL_TOLERANCE) -> None:
    torch.testing.assert_close(out.double().cpu(), expected.cpu(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["fp16", "fp8-fp16"])
@pytest.mark.parametrize("block_n", [None, 16])
def test_the_reference_is_attention_token_by_token(dtype: str, block_n: int | None, device: str) -> None:
    operands = small_operands(device, rows=9, dtype=dtype, q_heads=2, kv_heads=1)
    operands.indices[0, -1] = 7
    expected = qsa_oracle.as_tensor(qsa_oracle.attention(operands, block_n))
    torch.testing.assert_close(gated_attention(operands, block_n=block_n).cpu(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", ["fp16", "fp8-fp16"])
@pytest.mark.parametrize(("q_heads", "kv_heads"), [(3, 1), (6, 1), (12, 1), (6, 2), (24, 2)])
@pytest.mark.parametrize("chosen", [Entry(16, 1, 1), Entry(16, 2, 1), Entry(32, 64, 2)], ids=str)
def test_small_shapes(chosen: Entry, q_heads: int, kv_heads: int, dtype: str, device: str) -> None:
    rows = 9 if q_heads == 6 else 3
    operands = small_operands(device, rows=rows, q_heads=q_heads, kv_heads=kv_heads, dtype=dtype)
    close(run(operands, chosen), gated_attention(operands))


@pytest.mark.parametrize("merge", [PLAIN, LOOP, Merge("loop", chunk=2, programs=4)], ids=str)
@pytest.mark.parametrize("splits", [3, 5])
def test_any_number_of_splits_and_either_merge(splits: int, merge: Merge, device: str) -> None:
    operands = small_operands(device, rows=3, width=67, context=120)
    close(run(operands, Entry(16, splits, 1), merge), gated_attention(operands))


@pytest.mark.parametrize("chosen", [Entry(16, 1, 1), Entry(16, 3, 1)], ids=str)
def test_a_count_below_the_listed_entries_ends_the_selection_at_its_tile(chosen: Entry, device: str) -> None:
    operands = small_operands(device, mixed=False)
    # Tiles hold 16: counts of 0, within the first tile, its end, one more, and more than there are.
    operands.indices[:, -1] = torch.tensor([0, 3, 16, 17, 1000])
    out = run(operands, chosen)
    close(out, gated_attention(operands, block_n=16))
    assert not out[0].any()
    assert not torch.allclose(out[2].double(), gated_attention(operands)[2], rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("chosen", [Entry(16, 1, 1), Entry(16, 3, 1)], ids=str)
def test_a_row_whose_tokens_are_all_out_of_reach_gives_zero(chosen: Entry, device: str) -> None:
    operands = small_operands(device, mixed=False)
    blocks, pages = operands.keys.shape[0], operands.block_table.shape[1]
    operands.token_to_req[0] = -1
    operands.token_to_req[1] = operands.block_table.shape[0]
    operands.block_table[1, :] = torch.where(torch.arange(pages, device=device) % 2 == 0, -1, blocks)
    operands.indices[4, :-1] = 5 * pages
    out = run(operands, chosen)
    assert not out.isnan().any()
    assert not out.any()
    assert not gated_attention(operands).any()


def test_minus_one_inside_a_tile_and_a_missing_page_leave_out_their_tokens_alone(device: str) -> None:
    operands = small_operands(device, mixed=False)
    whole = gated_attention(operands)
    operands.indices[:, 3:20:4] = -1
    operands.block_table[0, 2] = -1
    expected = gated_attention(operands)
    assert not torch.allclose(expected, whole, rtol=RTOL, atol=ATOL)
    close(run(operands, Entry(16, 2, 1)), expected)


@pytest.mark.parametrize("splits", [1, 3])
def test_garbage_in_the_cache_where_no_token_lies_does_not_matter(splits: int, device: str) -> None:
    operands = small_operands(device)
    # Where there is no token the kernel reads the cache's first key, so that is to be garbage too.
    operands.block_table[operands.block_table == 0] = -1
    used = {place for row in range(5) for place in qsa_oracle.reachable(operands, row)}
    expected = run(operands, Entry(16, splits, 1))
    assert expected.any()
    assert (0, 0) not in used
    for block in range(operands.keys.shape[0]):
        for place in range(operands.keys.shape[1]):
            if (block, place) not in used:
                operands.keys[block, place] = float("nan")
                operands.values[block, place] = float("nan")
    assert torch.equal(run(operands, Entry(16, splits, 1)), expected)


@pytest.mark.parametrize("splits", [1, 3])
def test_a_cache_without_blocks_gives_zero(splits: int, device: str) -> None:
    operands = small_operands(device)
    none = dataclasses.replace(operands, keys=operands.keys[:0], values=operands.values[:0])
    assert not run(none, Entry(16, splits, 1)).any()
    assert not gated_attention(none).any()


def test_no_rows(device: str) -> None:
    operands = small_operands(device)
    none = dataclasses.replace(
        operands,
        query=operands.query[:0],
        gate=operands.gate[:0],
        indices=operands.indices[:0],
        token_to_req=operands.token_to_req[:0],
    )
    for splits in (1, 3):
        assert run(none, Entry(16, splits, 1)).shape == (0, 6, 16)
    assert gated_attention(none).shape == (0, 6, 16)


def test_fp8_scales(device: str) -> None:
    operands = small_operands(device, rows=2, dtype="fp8-fp16")
    assert (operands.k_scale, operands.v_scale) == (0.5, 2.0)
    # Scaled like this the cache holds what an unscaled one of 16 bits does.
    plain = dataclasses.replace(
        operands,
        keys=(operands.keys.float() * 0.5).half(),
        values=(operands.values.float() * 2.0).half(),
        k_scale=1.0,
        v_scale=1.0,
    )
    torch.testing.assert_close(gated_attention(operands), gated_attention(plain), rtol=1e-9, atol=1e-9)
    close(run(operands, Entry(16, 2, 1)), gated_attention(plain))


def test_lse_is_of_base_2_and_without_the_values_scale(device: str) -> None:
    operands = small_operands(device, rows=2, rows_per_request=1, dtype="fp8-fp16", mixed=False)
    operands.token_to_req[1] = -1
    launched = launch(Entry(16, 2, 1), operands.width)
    partials = Workspace(2, operands.query).partials(2)
    assert partials is not None
    split_attention(operands, launched, torch.empty_like(operands.query), partials)
    total = torch.logsumexp(partials.lse[:, 0].double() * torch.log(torch.tensor(2.0)), dim=0)
    for head in range(6):
        scores = [
            float(operands.query[0, head].double() @ operands.keys[block, place, head // 3].double()) * 0.5 / 4
            for block, place in qsa_oracle.reachable(operands, 0)
        ]
        expected = torch.logsumexp(torch.tensor(scores, dtype=torch.float64), dim=0)
        assert float(total[head]) == pytest.approx(float(expected), rel=1e-3)
    assert (partials.lse[:, 1] == float("-inf")).all()
    assert (partials.outputs[:, 1] == 0).all()


@pytest.mark.parametrize("splits", [1, 3])
def test_the_output_is_rounded_before_the_gate(splits: int, device: str) -> None:
    operands = small_operands(device, rows=4, mixed=False)
    # A gate of 0 halves exactly, so twice its output has the bits of the rounded one.
    even = dataclasses.replace(operands, gate=torch.zeros_like(operands.gate))
    rounded = run(even, Entry(16, splits, 1)) * 2
    expected = (rounded.float() * torch.sigmoid(operands.gate.float())).half()
    assert (run(operands, Entry(16, splits, 1)) == expected).float().mean() > 0.99


@pytest.mark.gpu
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("case", UPSTREAM, ids=lambda case: case.name)
def test_the_shapes_of_upstreams_tests(case: Case, table: str) -> None:
    operands = case_operands(case, "cuda")
    chosen = entry(table, case.rows, case.kv_heads, prefill=case.mode == "prefill", fp8=case.dtype == "fp8")
    expected = gated_attention(operands)
    for merge in (PLAIN, LOOP):
        close(run(operands, chosen, merge), expected, RTOL)


@pytest.mark.gpu
def test_a_cache_of_more_than_2_31_elements() -> None:
    # 2 KV heads x 1568 tokens x 512 elements a block: blocks from 1,338 on begin past element 2^31.
    operands = case_operands(Case(4, 24, 2, 1568, mixed=False), "cuda")
    large = torch.empty(1500, 2, 1568, 512, dtype=torch.bfloat16, device="cuda")
    keys, values = large.permute(0, 2, 1, 3)[..., :256], large.permute(0, 2, 1, 3)[..., 256:]
    keys[1370:].copy_(operands.keys)
    values[1370:].copy_(operands.values)
    far = dataclasses.replace(operands, keys=keys, values=values, block_table=operands.block_table + 1370)
    assert torch.equal(run(far, Entry(32, 4, 1)), run(operands, Entry(32, 4, 1)))
    close(run(far, Entry(32, 4, 1)), gated_attention(operands), RTOL)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (lambda o: {"query": o.query.float()}, "query must be"),
        (lambda o: {"query": o.query[..., :8].contiguous()}, "power of two from 16"),
        (lambda o: {"gate": o.gate[:1]}, "gate must be"),
        (lambda o: {"keys": o.keys[..., :8]}, "keys and values must both"),
        (lambda o: {"keys": o.keys.float(), "values": o.values.float()}, "or fp8"),
        (lambda o: {"values": o.values.transpose(1, 3).contiguous().transpose(1, 3)}, "last dimension of values"),
        (lambda o: {"query": o.query[:, :5].contiguous(), "gate": o.gate[:, :5].contiguous()}, "divided evenly"),
        (lambda o: {"indices": o.indices[1:]}, "indices must be"),
        (lambda o: {"indices": o.indices.long()}, "indices must be int32"),
        (lambda o: {"token_to_req": o.token_to_req[:1]}, "token_to_req must be"),
        (lambda o: {"block_table": o.block_table.t().contiguous().t()}, "contiguous"),
    ],
)
def test_operands_that_do_not_fit_are_refused(changes, message: str) -> None:  # type: ignore[no-untyped-def]
    operands = small_operands("cpu")
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(operands, **changes(operands))


def test_partials_must_be_those_of_the_launch() -> None:
    operands = small_operands("cpu")
    workspace = Workspace(3, operands.query)
    out = torch.empty_like(operands.query)
    for splits, given in ((1, 2), (2, 1), (2, 3)):
        with pytest.raises(ValueError, match=f"{splits} splits need partials"):
            split_attention(operands, launch(Entry(16, splits, 1), 35), out, workspace.partials(given))
    with pytest.raises(ValueError, match="holds 3 splits, not 4"):
        workspace.partials(4)
