"""Conditions set by flags: each holds, or refutes and says which."""

from __future__ import annotations

import pytest
from bench import Bench, codes
from nsys_builder import Rows
from recording import step_recording

from profkit.comparison.model import Gates

BEFORE, FUSED = "gemm:3000 fill:900 mask:900 pack:1300", "gemm:3000 pack:1800"


def step(layer: str, seed: int = 0) -> Rows:
    """A step of 3 layers."""
    return step_recording([layer] * 3, replays=10, jitter_ns=5, seed=seed).rows


@pytest.mark.parametrize(
    ("gates", "after", "verdict"),
    [
        pytest.param(Gates(expect_removed=2), FUSED, "confirmed", id="removed"),
        pytest.param(Gates(expect_removed=3), FUSED, "refuted", id="too few removed"),
        pytest.param(Gates(expect_fused=True), FUSED, "confirmed", id="fused"),
        pytest.param(Gates(expect_fused=True), "gemm:3000 pack:1300", "refuted", id="not fused"),
        pytest.param(Gates(expect_fused=True), BEFORE, "refuted", id="nothing fused"),
        pytest.param(Gates(max_launches_per_layer=2), FUSED, "confirmed", id="few launches"),
        pytest.param(Gates(max_launches_per_layer=1), FUSED, "refuted", id="too many launches"),
        pytest.param(Gates(max_regression_percent=5), FUSED, "confirmed", id="faster"),
        pytest.param(Gates(max_regression_percent=5), "gemm:3900 pack:3900", "refuted", id="slower"),
    ],
)
def test_a_gate_holds_or_refutes(bench: Bench, gates: Gates, after: str, verdict: str) -> None:
    comparison = bench.diff(step(BEFORE), step(after, 1), gates=gates)
    assert comparison.verdict == verdict
    assert comparison.exit_code == (1 if verdict == "refuted" else 0)


def test_a_gate_that_holds_never_outweighs_one_that_fails(bench: Bench) -> None:
    gates = Gates(expect_removed=2, max_launches_per_layer=1)
    assert bench.diff(step(BEFORE), step(FUSED, 1), gates=gates).verdict == "refuted"


def test_a_gate_that_holds_never_outweighs_lost_work(bench: Bench) -> None:
    records = tuple({"seed": 0, "digests": {"outputs": {"layer 0": d}}} for d in ("aa", "bb"))
    comparison = bench.diff(
        step(BEFORE), step(FUSED, 1), gates=Gates(expect_removed=2), records=(records[0], records[1])
    )
    assert comparison.verdict == "refuted"
    assert "work-lost" in codes(comparison)


def test_a_gate_cannot_be_judged_where_the_runs_cannot_be_compared(bench: Bench) -> None:
    after = step_recording([FUSED] * 2, replays=10).rows
    assert bench.diff(step(BEFORE), after, gates=Gates(expect_removed=2)).verdict == "inconclusive"
