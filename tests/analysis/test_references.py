"""Outputs that differ in bits are judged by one reference on both sides, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from bench import Bench, codes
from recording import step_recording

from profkit.comparison.model import Comparison
from profkit.reporters.diff import work_line

NAMES = ("layers.0/out", "layers.1/out")


def record(bits: str, deviations: tuple[float | None, ...], **changes: Any) -> dict[str, Any]:
    """A run.json of two outputs, each held against its reference; a deviation of None is infinite."""
    outputs = {
        name: {"within": d is not None and d <= 1, "deviation": d, "reference": f"reference of {name}"}
        for name, d in zip(NAMES, deviations, strict=False)
    }
    references = {"rtol": 0.02, "atol": 0.01, "outputs": outputs, **changes}
    return {"seed": 0, "digests": {"outputs": dict(zip(NAMES, bits, strict=True)), "references": references}}


def diff(bench: Bench, before: dict[str, Any] | None, after: dict[str, Any] | None) -> Comparison:
    slow, fast = (step_recording([layer] * 2, replays=12).rows for layer in ("gemm mask pack", "gemm pack"))
    return bench.diff(slow, fast, records=(before, after))


def test_within_the_tolerance_on_both_sides_is_preserved_and_says_how(bench: Bench) -> None:
    comparison = diff(bench, record("ab", (0.1, 0.2)), record("aX", (0.9, 0.34)))
    assert (comparison.verdict, comparison.work) == ("confirmed", "preserved")
    assert "outputs-within-tolerance" in codes(comparison)
    line = work_line(comparison)
    # The output whose bits are equal does not count towards the largest deviation.
    assert "1 of 2 output digests differ" in line
    assert "within rtol 0.02, atol 0.01 of one independent reference" in line
    assert "at most 34%" in line


def test_equal_bits_need_no_reference(bench: Bench) -> None:
    comparison = diff(bench, record("ab", (0.1, None)), record("ab", (0.1, None)))
    assert (comparison.work, "digests-equal" in codes(comparison)) == ("preserved", True)


@pytest.mark.parametrize("off", [1.01, None])
@pytest.mark.parametrize("side", ["before", "after"])
def test_further_off_than_allowed_on_either_side_is_lost(bench: Bench, side: str, off: float | None) -> None:
    good, bad = record("ab", (0.1, 0.2)), record("aX", (0.1, off))
    comparison = diff(bench, *((bad, good) if side == "before" else (good, bad)))
    assert (comparison.verdict, comparison.work) == ("refuted", "lost")
    assert f"1 of 2 outputs of {side}" in work_line(comparison)
    assert "layers.1/out" in work_line(comparison)


@pytest.mark.parametrize("changes", [{"rtol": 0.5}, {"atol": 1.0}])
def test_another_tolerance_says_nothing(bench: Bench, changes: dict[str, Any]) -> None:
    comparison = diff(bench, record("ab", (0.1, 0.2)), record("aX", (0.1, 0.2), **changes))
    assert (comparison.verdict, comparison.work) == ("inconclusive", "unknown")
    assert "references-differ" in codes(comparison)


def test_another_reference_says_nothing(bench: Bench) -> None:
    other = record("aX", (0.1, 0.2))
    other["digests"]["references"]["outputs"][NAMES[1]]["reference"] = "of other inputs"
    comparison = diff(bench, record("ab", (0.1, 0.2)), other)
    assert (comparison.verdict, comparison.work) == ("inconclusive", "unknown")


def test_another_reference_of_an_output_with_equal_bits_does_not_matter(bench: Bench) -> None:
    other = record("aX", (0.1, 0.2))
    other["digests"]["references"]["outputs"][NAMES[0]]["reference"] = "of other inputs"
    assert diff(bench, record("ab", (0.1, 0.2)), other).work == "preserved"


@pytest.mark.parametrize(
    "other", [record("aX", (0.1,)), {"seed": 0, "digests": {"outputs": {**dict.fromkeys(NAMES, "X")}}}]
)
def test_an_output_without_a_reference_that_differs_in_bits_tells_nothing(bench: Bench, other: dict[str, Any]) -> None:
    comparison = diff(bench, record("ab", (0.1, 0.2)), other)
    assert (comparison.verdict, comparison.work) == ("inconclusive", "unknown")
    assert "outputs-differ-in-bits" in codes(comparison)
