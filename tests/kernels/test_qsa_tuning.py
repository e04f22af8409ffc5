"""Sweeping `qsa-attention`: its problems have right answers, known entries can run, regions cover the tables."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from qsa_cases import WORKLOAD, context, small_operands  # noqa: E402

from profkit.kernels.qsa.cost import (  # noqa: E402
    attention_bytes,
    attention_operations,
    distinct_tokens,
    gathered_bytes,
)
from profkit.kernels.qsa.regions import PARAMETERS, SWEPT  # noqa: E402
from profkit.kernels.qsa.tables import REGIONS, region  # noqa: E402
from profkit.model.workload import BuildContext, Problem  # noqa: E402
from profkit.sweep.plan import Options, make_plan  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")

TUNABLE = WORKLOAD.tunable
assert TUNABLE is not None


def build(variant: str = "default", device: str = "cpu", **shapes: int | str) -> Problem:
    assert TUNABLE is not None
    return TUNABLE.build(context(variant, device, **shapes))


def within(problem: Problem) -> bool:
    rtol, atol = problem.tolerance
    expected, found = problem.reference()["out"], problem.outputs()["out"]
    return torch.allclose(found.double(), expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("variant", ["default", "default-plain", "sm_90-loop"])
@pytest.mark.parametrize("configuration", [(32, 1, 1), (32, 2, 2), (64, 64, 4)], ids=str)
def test_a_run_gives_the_reference_and_a_poisoned_one_does_not(
    configuration: tuple[int, int, int], variant: str, device: str
) -> None:
    problem = build(variant, device, rows=3, width=131, context=200, page=16)
    chosen = dict(zip(PARAMETERS, configuration, strict=True))
    problem.poison()
    assert not within(problem)
    problem.run(chosen)
    assert within(problem)
    problem.poison()
    problem.run(chosen)
    assert within(problem), "a run does not consume its inputs"


def test_a_wrong_variant_is_not_within_the_tolerance(device: str) -> None:
    problem = build("dropped", device)
    problem.run({"block_n": 32, "splits": 1, "warps": 1})
    assert not within(problem)


def test_known_configurations_are_the_tables_entries_and_can_be_run() -> None:
    full = {"rows": 8, "head_dim": 256, "width": 2051, "context": 2200, "page": 784, "q_heads": 3, "kv_heads": 1}
    problem = build(**full)
    assert problem.known["default"] == {"block_n": 32, "splits": 64, "warps": 4}
    assert problem.known["sm_90"] == {"block_n": 64, "splits": 64, "warps": 2}
    assert problem.known["sm_120"] == {"block_n": 64, "splits": 64, "warps": 8}
    for configuration in problem.known.values():
        assert problem.rejects(configuration) is None


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ((128, 64, 8), "17 tiles leave 64 splits idle: it is the launch of 32"),
        ((128, 1, 1), "1024 elements of a tile"),
        ((8, 1, 1), "block_n 8 is less than"),
        ((32, 1, 16), "16 warps"),
        ((48, 1, 1), "block_n must be a power of two"),
        ((32, 0, 1), "splits must be at least 1"),
        ((32, 4, 3), "warps must be a power of two"),
    ],
)
def test_configurations_that_are_refused(configuration: tuple[int, int, int], message: str) -> None:
    problem = build(rows=2, head_dim=256, width=2051, context=2200, page=784, q_heads=3, kv_heads=1)
    reason = problem.rejects(dict(zip(PARAMETERS, configuration, strict=True)))
    assert reason is not None
    assert message in reason


@pytest.mark.parametrize(("block_n", "splits"), [(64, 64), (128, 32), (32, 6)])
def test_as_many_splits_as_tiles_or_any_number_of_fewer_is_not_refused(block_n: int, splits: int) -> None:
    # 33 and 17 tiles: half as many splits would give some of them two.
    problem = build(rows=2, head_dim=256, width=2051, context=2200, page=784, q_heads=3, kv_heads=1)
    assert problem.rejects({"block_n": block_n, "splits": splits, "warps": 2}) is None


def test_an_entry_of_a_known_table_is_not_refused_for_being_pointless(device: str) -> None:
    # 5 and 3 tiles have no use for 64 splits, and a launch has no more than there are tiles.
    problem = build(device=device, rows=2, width=131, page=16, context=200)
    assert all(problem.rejects(configuration) is None for configuration in problem.known.values())
    problem.run(problem.known["sm_90"])
    assert within(problem)


def test_more_programs_than_any_device_needs_are_refused() -> None:
    problem = build(rows=2048, rows_per_request=1024, width=131, page=16, context=1100, kv_heads=1)
    assert problem.rejects({"block_n": 32, "splits": 4, "warps": 1}) is None
    problem = build(rows=9000, rows_per_request=9000, width=131, page=16, context=9000, kv_heads=1)
    reason = problem.rejects({"block_n": 32, "splits": 4, "warps": 1})
    assert reason == "4 splits of 9000 pairs of row and KV head are more than 32768 programs."


def test_swept_problems_cover_every_region_group_head_count_and_dtype_and_do_so_first() -> None:
    covered = set()
    for number, (name, shapes) in enumerate(SWEPT.items()):
        assert set(shapes) <= set(WORKLOAD.shapes)
        rows, kv_heads = int(shapes["rows"]), int(shapes["kv_heads"])
        group = int(shapes["q_heads"]) // kv_heads
        prefill = shapes["mode"] == "prefill"
        start = "" if number < 9 * 3 * 2 * 2 else "between-"
        assert name == f"{start}r{rows}-g{group}-kv{kv_heads}-{shapes['dtype']}{'-prefill' if prefill else ''}"
        if number < 9 * 3 * 2 * 2:
            covered.add((region(rows, kv_heads, prefill=prefill), group, kv_heads, shapes["dtype"]))
    assert covered == {(r, g, k, d) for r in REGIONS for g in (3, 6, 12) for k in (1, 2) for d in ("bf16", "fp8")}


def test_one_glob_takes_the_108_that_have_one_size_in_each_region() -> None:
    plan = make_plan(Options("qsa-attention", regions=("r*",)), WORKLOAD)
    assert list(plan.regions) == list(SWEPT)[:108]


def test_the_shapes_that_the_upstream_sweep_names_are_there() -> None:
    assert {"r512-g3-kv1-bf16", "r512-g3-kv1-fp8", "r4-g3-kv1-bf16", "between-r16-g3-kv1-fp8"} <= set(SWEPT)


def test_bytes_and_operations_counted_token_by_token() -> None:
    operands = small_operands("cpu", rows=9)
    reached = []
    table = operands.block_table.tolist()
    blocks, page = operands.keys.shape[:2]
    for row in range(9):
        request = int(operands.token_to_req[row])
        for token in operands.indices[row, :-1].tolist():
            if 0 <= request < len(table) and 0 <= token < page * len(table[request]):
                block = table[request][token // page]
                reached += [(block, token % page)] if 0 <= block < blocks else []
    assert distinct_tokens(operands) == len(set(reached))
    # A token is a key and a value of 16 halves for each of 2 KV heads: 128 bytes.
    assert gathered_bytes(operands) == 128 * len(reached)
    other = 3 * (9 * 6 * 16 * 2) + 9 * 36 * 4 + 9 * 4 + operands.block_table.numel() * 4
    assert attention_bytes(operands) == 128 * len(set(reached)) + other
    # Two products of 16 multiplications and additions for each of 6 heads.
    assert attention_operations(operands) == len(reached) * 6 * 2 * 16 * 2


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_every_configuration_of_a_region_runs_or_is_refused_with_a_reason(dtype: str) -> None:
    assert TUNABLE is not None
    defaults = {name: shape.default for name, shape in WORKLOAD.shapes.items()}
    shapes = {**defaults, **SWEPT[f"between-r16-g12-kv1-{dtype}"]}
    problem = TUNABLE.build(BuildContext("default", shapes, "cuda", 0))
    expected = problem.reference()["out"]
    ran = 0
    for block_n in PARAMETERS["block_n"].values:
        for splits in PARAMETERS["splits"].values:
            for warps in PARAMETERS["warps"].values:
                configuration = {"block_n": block_n, "splits": splits, "warps": warps}
                if problem.rejects(configuration) is not None:
                    continue
                problem.poison()
                problem.run(configuration)
                found = problem.outputs()["out"].double()
                torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
                ran += 1
    assert ran >= 60
