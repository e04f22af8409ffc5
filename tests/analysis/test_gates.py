"""What the gates hold, refute and leave open, and the sentences beside them count launches."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from bench import Bench, codes, outputs
from nsys_builder import Rows
from recording import step_recording

import profkit
from profkit.comparison.model import Comparison, Gates
from profkit.reporters import diff as say
from profkit.reporters import diff_document
from profkit.reporters.diff_table import build

SAME = {"seed": 0, "digests": {"algorithm": "sha256", "outputs": outputs()}}
EAGER = "gemm:3000 a:900 b:900 pack:1300 unpack:2000"
TRACES = Path(__file__).parents[2] / "traces"


def step(*layers: str, jitter_ns: float = 4, seed: int = 0, replays: int = 12) -> Rows:
    return step_recording(list(layers), replays=replays, jitter_ns=jitter_ns, seed=seed).rows


def compared(bench: Bench, before: Rows, after: Rows, **gates: int | bool) -> Comparison:
    return bench.diff(before, after, records=(SAME, SAME), gates=Gates(**gates))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        ("gemm:3000 pack:1800 unpack:2000", ("confirmed", "expected-removal")),
        ("gemm:3000 pack:1800", ("refuted", "unexpected-removal")),
        ("gemm:3000 a:900 pack:1800 unpack:2000", ("refuted", "unexpected-removal")),
    ],
    ids=["as the others", "lost one more", "lost one less"],
)
def test_each_layer_must_have_lost_as_many_as_expected(bench: Bench, last: str, outcome: tuple[str, str]) -> None:
    after = step(*["gemm:3000 pack:1800 unpack:2000"] * 23, last, seed=1)
    comparison = compared(bench, step(*[EAGER] * 24), after, expect_removed=2)
    assert (comparison.verdict, outcome[1] in codes(comparison)) == (outcome[0], True)


def test_a_launch_that_one_layer_lost_is_said_as_a_number(bench: Bench) -> None:
    after = step(*["gemm:3000 pack:1800 unpack:2000"] * 3, "gemm:3000 pack:1800", seed=1)
    comparison = compared(bench, step(*[EAGER] * 4), after)
    assert "unpack from layer 3 (1 launch a step)" in comparison.reasons[0].message


@pytest.mark.parametrize(
    ("pack", "outcome"),
    [
        ("pack:1800", ("confirmed", "expected-fusion")),
        ("pack:1300", ("inconclusive", "fusion-unknown")),
        ("pack:1000", ("inconclusive", "fusion-unknown")),
        ("fused:1000", ("confirmed", "expected-fusion")),
    ],
    ids=["grew", "is the same", "got faster", "is new"],
)
def test_a_fusion_needs_a_launch_that_shows_it(bench: Bench, pack: str, outcome: tuple[str, str]) -> None:
    after = step(*[f"gemm:3000 {pack} unpack:2000"] * 4, seed=1)
    comparison = compared(bench, step(*[EAGER] * 4), after, expect_fused=True)
    assert (comparison.verdict, outcome[1] in codes(comparison)) == (outcome[0], True)


@pytest.mark.parametrize(
    ("jitter_ns", "outcome"), [(4, ("confirmed", "no-regression")), (4000, ("inconclusive", "regression-unknown"))]
)
def test_a_regression_that_noise_leaves_open_is_not_excluded(
    bench: Bench, jitter_ns: float, outcome: tuple[str, str]
) -> None:
    layer = "gemm:30000 pack:13000 unpack:20000"
    sides = (
        step(*["gemm:30000 a:900 pack:13000 unpack:20000"] * 2, jitter_ns=jitter_ns, replays=4),
        step(*[layer] * 2, jitter_ns=jitter_ns, replays=4, seed=1),
    )
    comparison = compared(bench, *sides, max_regression_percent=0)
    assert (comparison.verdict, outcome[1] in codes(comparison)) == (outcome[0], True)


def test_noise_that_hides_what_would_count_is_said(bench: Bench) -> None:
    quiet, noisy = (
        compared(bench, step(*[EAGER] * 2, jitter_ns=ns), step(*["gemm:3000 pack:1300 unpack:2000"] * 2, jitter_ns=ns))
        for ns in (4, 900)
    )
    said = [str(say.others_line(comparison, build(comparison))) for comparison in (quiet, noisy)]
    assert said[0].startswith("Nothing else moved: 2 other launches")
    assert said[1].startswith("Nothing else moved beyond noise: 2 other launches")
    assert "Noise leaves open a change that would count in " in said[1]


def test_launches_that_are_new_stand_in_the_headline(bench: Bench) -> None:
    comparison = compared(bench, step(*[EAGER] * 4), step(*["gemm:3000 fused:1500 unpack:2000"] * 4, seed=1))
    assert say.headline(comparison) == (
        "CONFIRMED: 2 launches a layer are gone from 4 layers (−8 a step), outputs equal in all 4 layers; "
        "−1.60 µs a layer, step traced 32.6 → 26.1 µs (−19.9%)."
    )


FAMILIES = ("dcp-combine", "dsa-candidates", "mla-step", "qsa-attention", "qsa-attention-64-fp8")
ORDERED = [
    pytest.param(family, *pair, id=f"{family}-{'-'.join(pair)}")
    for family in FAMILIES
    for pair in itertools.permutations(sorted(run.parent.name for run in (TRACES / family).glob("*/run.json")), 2)
]


@pytest.mark.parametrize(("family", "before", "after"), ORDERED)
def test_any_two_shipped_variants_can_be_compared_either_way(family: str, before: str, after: str) -> None:
    comparison = profkit.diff(TRACES / family / before, TRACES / family / after)
    # THEN what ran once a step and is gone is outside any claim
    once = (
        before.startswith("hoisted")
        and not after.startswith("hoisted")
        and after != "eager"
        and family != "dsa-candidates"
    )
    assert comparison.verdict in (
        ("inconclusive", "refuted") if once else ("confirmed", "refuted", "changed", "neutral")
    )
    everything = (*comparison.findings, *comparison.elsewhere, *comparison.outside)
    steps = comparison.steps
    change = sum(f.row.launches_after / steps[1] - f.row.launches_before / steps[0] for f in everything)
    assert comparison.net is not None
    assert change == pytest.approx(comparison.net.launches_per_step)
    assert say.headline(comparison).startswith(comparison.verdict.upper())
    assert diff_document.report(comparison).verdict == comparison.verdict
