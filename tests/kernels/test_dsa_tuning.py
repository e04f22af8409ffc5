"""The mask's launch configuration as a problem to sweep: right under every one, and wrong when nothing runs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

from profkit import kernels  # noqa: E402
from profkit.model.workload import BuildContext, Configuration, Problem, ShapeValue, Tunable  # noqa: E402  # noqa: E402

WORKLOAD = kernels.get("dsa-candidates")
SMALL: dict[str, ShapeValue] = {"rows": 3, "width": 1200, "context": 1003, "candidates": 16}
CONFIGURATION = {"floor": 1, "total": 6, "tile": 128, "warps": 1, "vector": 4, "early": 1}


def tunable() -> Tunable:
    assert WORKLOAD.tunable is not None
    return WORKLOAD.tunable


def problem(device: str, **shapes: ShapeValue) -> Problem:
    defaults = {name: shape.default for name, shape in WORKLOAD.shapes.items()}
    return tunable().build(BuildContext("old", {**defaults, **SMALL, **shapes}, device, 0))


def is_right(problem: Problem) -> bool:
    reference = problem.reference()
    return all(torch.equal(tensor, reference[name]) for name, tensor in problem.outputs().items())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"early": 0},
        {"vector": 1},
        {"total": 1},
        {"floor": 8},
        {"tile": 4096, "warps": 4},
        {"tile": 32},
    ],
)
def test_every_configuration_gives_the_reference(changes: Configuration, device: str) -> None:
    mask = problem(device)
    configuration = {**CONFIGURATION, **changes}
    assert mask.rejects(configuration) is None
    mask.poison()
    assert not is_right(mask), "unmasked logits must not pass"
    mask.run(configuration)
    assert is_right(mask)
    mask.run(configuration)
    assert is_right(mask), "running twice changes nothing"


def test_a_write_behind_the_live_range_shows(device: str) -> None:
    mask = problem(device)
    wider = problem(device, context=1011)
    mask.run(CONFIGURATION)
    wider.run(CONFIGURATION)
    right = mask.reference()["logits"]
    assert torch.equal(mask.outputs()["logits"], right)
    assert not (wider.outputs()["logits"] == right).any()


def test_a_mask_that_does_nothing_is_wrong_where_candidates_would_keep_every_block(device: str) -> None:
    mask = problem(device, candidates=1003)
    mask.poison()
    assert not is_right(mask)
    # The 8 columns of the one block that is no candidate, and the flags of 126 blocks.
    assert mask.least_bytes == 3 * (4 * 8 + 126)
    mask.run(CONFIGURATION)
    assert is_right(mask)


def test_known_configurations_run_and_give_the_reference(device: str) -> None:
    mask = problem(device)
    assert mask.known["pr"] == {"floor": 8, "total": 8192, "tile": 1024, "warps": 4, "vector": 1, "early": 0}
    for configuration in mask.known.values():
        assert set(configuration) == set(tunable().parameters)
        assert mask.rejects(configuration) is None
        mask.poison()
        mask.run(configuration)
        assert is_right(mask)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"floor": 0}, "floor must be at least 1"),
        ({"tile": 1000}, "tile must be a power of two"),
        ({"warps": 3}, "warps must be a power of two"),
        ({"warps": 64}, "at most"),
        ({"tile": 1 << 17}, "at most"),
        ({"vector": 2}, "1 or 4"),
        ({"early": 2}, "0 or 1"),
    ],
)
def test_configurations_that_cannot_run_are_rejected(changes: Configuration, message: str, device: str) -> None:
    rejection = problem(device).rejects({**CONFIGURATION, **changes})
    assert rejection is not None
    assert message in rejection


def test_vectors_are_rejected_where_blocks_do_not_divide(device: str) -> None:
    rejection = problem(device, block_size=6).rejects(CONFIGURATION)
    assert rejection is not None
    assert "multiples of 4" in rejection
    assert problem(device, block_size=6).rejects({**CONFIGURATION, "vector": 1}) is None


def test_regions_set_shapes_that_exist() -> None:
    assert len(tunable().regions) == 12
    for shapes in tunable().regions.values():
        assert set(shapes) <= set(WORKLOAD.shapes)


def test_what_must_be_written_is_what_candidates_do_not_keep(device: str) -> None:
    # Of 1003 live columns, 16 blocks of 8 are kept; one byte a block is read.
    assert problem(device).least_bytes == 3 * (4 * (1003 - 128) + 126)
