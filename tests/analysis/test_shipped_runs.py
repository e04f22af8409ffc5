"""The recorded runs in `traces/` of one GPU: the fusions and their controls, as the README promises them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bench import profkit
from test_diff_sums import markdown_tables

from profkit import census

TRACES = Path(__file__).parents[2] / "traces"
RUNS = TRACES / "dcp-combine"
LAYERS = 24

#: Of these pairs: what is gone from the layers (launches a step, moved ones too), moved, added; then the answer.
PAIRS = [
    ("dcp-combine", "eager", "fused", (192, 0, 0), ("confirmed", "preserved", 0)),
    ("dcp-combine", "eager", "fused-planar", (192, 0, 0), ("confirmed", "preserved", 0)),
    ("dcp-combine", "eager", "hoisted-pack", (192, 168, 0), ("confirmed", "preserved", 0)),
    ("dcp-combine", "fused", "fused-padded", (0, 0, 0), ("changed", "preserved", 0)),
    ("dcp-combine", "eager", "dropped", (192, 0, 0), ("refuted", "lost", 1)),
    ("mla-step", "eager", "fused", (192, 0, 0), ("confirmed", "preserved", 0)),
    ("mla-step", "eager", "hoisted", (168, 168, 0), ("confirmed", "preserved", 0)),
    ("mla-step", "eager", "hoisted-pack", (192, 168, 0), ("confirmed", "preserved", 0)),
    ("dsa-candidates", "old", "new", (0, 0, 1), ("changed", "preserved", 0)),
    ("dsa-candidates", "old", "bounded", (23, 0, 2), ("confirmed", "preserved", 0)),
    ("dsa-candidates", "old", "hoisted", (27, 0, 3), ("confirmed", "preserved", 0)),
    ("dsa-candidates", "bounded", "hoisted", (4, 0, 1), ("confirmed", "preserved", 0)),
    ("dsa-candidates", "new", "one-kernel", (28, 0, 2), ("confirmed", "preserved", 0)),
    ("qsa-attention", "default", "sm_90", (0, 0, 12), ("changed", "preserved", 0)),
    ("qsa-attention", "default", "dropped", (0, 0, 0), ("refuted", "lost", 1)),
    ("qsa-attention-64-fp8", "default", "h200", (0, 0, 0), ("changed", "preserved", 0)),
]
pairs = pytest.mark.parametrize(
    ("workload", "before", "after", "launches", "answer"), PAIRS, ids=[f"{w}-{b}-{a}" for w, b, a, *_ in PAIRS]
)
#: Every run of these workloads.
VARIANTS = sorted(
    "/".join(run.parent.parts[-2:])
    for name in ("dcp-combine", "mla-step", "dsa-candidates", "qsa-attention", "qsa-attention-64-fp8")
    for run in (TRACES / name).glob("*/run.json")
)


def diff(before: str, after: str, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit status and JSON of a diff of two variants."""
    result = profkit("diff", RUNS / before, RUNS / after, "--format", "json", *options)
    return result.returncode, json.loads(result.stdout)


@cache
def layers(variant: str) -> dict[str, Any]:
    """The only run of the layers report of ``workload/variant``."""
    (run,) = json.loads(profkit("layers", TRACES / variant, "--format", "json").stdout)["runs"]
    return dict(run)


def combine(data: dict[str, Any]) -> tuple[float, float]:
    """Launches a step in the scope `combine`, before and after."""
    scope = next(s for s in data["scopes"] if s["scope"] == "combine")
    return scope["launches_per_step_before"], scope["launches_per_step_after"]


def test_eager_to_fused_is_confirmed() -> None:
    status, data = diff("eager", "fused")
    assert (status, data["verdict"], data["work"]) == (0, "confirmed", "preserved")
    assert data["layers"] == {"before": LAYERS, "after": LAYERS}
    assert len(data["removed"]) == 8
    assert {f["scope"] for f in data["removed"]} == {"combine/mask"}
    assert combine(data) == (11 * LAYERS, 3 * LAYERS) == (264, 72)
    assert sum(f["launches_before"] for s in ("removed", "unchanged", "changed") for f in data[s]) == 12
    assert [f["kind"] for f in data["unchanged"]].count("memcpy") == 1
    assert data["net"]["launches_per_step"] == -8 * LAYERS


def test_the_removed_launches_are_found_without_their_scopes_names() -> None:
    # GIVEN only the scope that holds mask, pack, exchange and unpack alike
    status, data = diff("eager", "fused", "--scope", "^combine")
    assert (status, len(data["removed"]), len(data["unchanged"]) + len(data["changed"])) == (0, 8, 3)


def test_eager_to_hoisted_moves_seven_and_leaves_the_fill() -> None:
    status, data = diff("eager", "hoisted")
    assert (status, len(data["moved"]), data["removed"]) == (0, 7, [])
    # THEN only in the first layer, right behind the hoisted launches, the fill lasts longer
    (fill,) = data["changed"]
    assert "masked_fill" in fill["name"]
    assert [one["layer"] for one in fill["unlike"]] == ["0"]
    assert combine(data) == (264, 4 * LAYERS)
    assert data["net"]["launches_per_step"] == 7 - 7 * LAYERS


def test_fused_to_eager_adds_eight() -> None:
    status, data = diff("fused", "eager")
    assert (status, data["verdict"], len(data["added"]), data["removed"]) == (0, "changed", 8, [])


@pairs
def test_the_answer_to_a_pair(
    workload: str, before: str, after: str, launches: tuple[int, int, int], answer: tuple[str, str, int]
) -> None:
    result = profkit("diff", TRACES / workload / before, TRACES / workload / after, "--format", "json")
    data = json.loads(result.stdout)
    assert (data["verdict"], data["work"], result.returncode) == answer

    def a_step(*statuses: str) -> int:
        found = [f for status in statuses for f in data[status]]
        return round(abs(sum((f["launches_after"] - f["launches_before"]) * len(f["layers"]) for f in found)))

    assert (a_step("removed", "moved"), a_step("moved"), a_step("added")) == launches


@pairs
def test_rows_of_the_markdown_table_add_up(
    workload: str, before: str, after: str, launches: tuple[int, int, int], answer: tuple[str, str, int]
) -> None:
    result = profkit("diff", TRACES / workload / before, TRACES / workload / after, "--format", "md")
    for rows, total in markdown_tables(result.stdout):
        assert not rows or [sum(column) for column in zip(*rows, strict=True)] == total


@pytest.mark.parametrize(("workload", "other"), [("qsa-attention", "sm_90"), ("qsa-attention-64-fp8", "h200")])
def test_tables_of_qsa_differ_in_bits_and_are_within_tolerance(workload: str, other: str) -> None:
    result = profkit("diff", TRACES / workload / "default", TRACES / workload / other, "--format", "json")
    assert "outputs-within-tolerance" in [reason["code"] for reason in json.loads(result.stdout)["reasons"]]


@pytest.mark.parametrize(("before", "after", "fused"), [("new", "one-kernel", True), ("bounded", "hoisted", False)])
def test_flags_are_fused_into_the_mask_but_not_where_the_source_makes_them_once(
    before: str, after: str, fused: bool
) -> None:
    runs = TRACES / "dsa-candidates"
    result = profkit("diff", runs / before, runs / after, "--layers", "consumer", "--expect-fused", "--format", "json")
    assert len(json.loads(result.stdout)["fusions"]) == fused
    assert result.returncode == (0 if fused else 1)


def test_at_64_rows_of_fp8_the_split_kernel_gains_and_the_merge_pays() -> None:
    runs = TRACES / "qsa-attention-64-fp8"
    data = json.loads(profkit("diff", runs / "default", runs / "h200", "--format", "json").stdout)
    # µs a layer.
    changes = {f["name"]: round(f["us_after"] - f["us_before"], 2) for f in data["changed"]}
    assert changes == {"split_kernel": -8.61, "merge_loop_kernel": 0.26}
    assert round(data["untraced"]["delta_us"], 2) == -103.65


def test_the_traced_step_is_given_at_both_levels() -> None:
    _, data = diff("eager", "fused")
    saved = {key: round(data[key]["delta_us"], 2) for key in ("untraced", "traced", "graph_level")}
    assert saved == {"untraced": -294.08, "traced": -336.35, "graph_level": -298.32}


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_of_the_report_add_up(variant: str) -> None:
    run = layers(variant)
    for layer in run["layers"]:
        assert sum(k["launches"] for k in layer["kernels"]) == layer["launches"]
        assert sum(k["us"] for k in layer["kernels"]) == pytest.approx(layer["kernel_us"], abs=1e-4)
    kind = next(k for k in run["step_kinds"] if k["id"] == run["default_step_kind"])
    launches = sum(layer["launches"] for layer in run["layers"]) + sum(k["launches"] for k in kind["outside"])
    us = sum(layer["kernel_us"] for layer in run["layers"]) + sum(k["us"] for k in kind["outside"])
    assert launches == kind["launches_per_step"]
    assert us == pytest.approx(kind["us_per_step"], abs=1e-3)


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_op_is_unattributed(variant: str) -> None:
    ledger = layers(variant)["ledger"]
    assert ledger["unattributed"] == ledger["set_aside"] == 0


@pytest.mark.parametrize("variant", ["eager", "fused"])
def test_both_profilers_show_the_same_launches_in_every_layer(variant: str) -> None:
    def launches(run: Path) -> list[tuple[object, ...]]:
        chosen = census(run).chosen
        columns = ["layer", "inside", "canonical", "op_kind"]
        rows = chosen.slots[columns].itertuples(index=False, name=None)
        return sorted(zip(rows, (chosen.slots["launches"] / chosen.kind.steps).tolist(), strict=True))

    nsys, torch = launches(RUNS / variant), launches(TRACES / "dcp-combine-torch" / variant)
    assert len(nsys) == {"eager": 12, "fused": 4}[variant] * 24
    assert nsys == torch
