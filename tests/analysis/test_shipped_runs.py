"""The recorded runs in `traces/`: the fusion and its controls, as the README promises them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bench import profkit

from profkit import census

RUNS = Path(__file__).parents[2] / "traces" / "dcp-combine"
LAYERS = 24


def diff(before: str, after: str, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit status and JSON of a diff of two variants."""
    result = profkit("diff", RUNS / before, RUNS / after, "--format", "json", *options)
    return result.returncode, json.loads(result.stdout)


@cache
def layers(variant: str) -> dict[str, Any]:
    """The only run of the layers report of a variant."""
    (run,) = json.loads(profkit("layers", RUNS / variant, "--format", "json").stdout)["runs"]
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
    assert [f for f in data["unchanged"] if "masked_fill" in f["name"]]
    assert combine(data) == (264, 4 * LAYERS)
    assert data["net"]["launches_per_step"] == 7 - 7 * LAYERS


def test_fused_to_eager_adds_eight() -> None:
    status, data = diff("fused", "eager")
    assert (status, data["verdict"], len(data["added"]), data["removed"]) == (0, "changed", 8, [])


@pytest.mark.parametrize("variant", ["eager", "fused", "hoisted", "hoisted-pack", "dropped"])
def test_rows_of_the_report_add_up(variant: str) -> None:
    run = layers(variant)
    assert run["selected"]["layers"] == LAYERS
    for layer in run["layers"]:
        assert sum(k["launches"] for k in layer["kernels"]) == layer["launches"]
        assert sum(k["us"] for k in layer["kernels"]) == pytest.approx(layer["kernel_us"], abs=1e-4)
    kind = next(k for k in run["step_kinds"] if k["id"] == run["default_step_kind"])
    launches = sum(layer["launches"] for layer in run["layers"]) + sum(k["launches"] for k in kind["outside"])
    us = sum(layer["kernel_us"] for layer in run["layers"]) + sum(k["us"] for k in kind["outside"])
    assert launches == kind["launches_per_step"]
    assert us == pytest.approx(kind["us_per_step"], abs=1e-3)


@pytest.mark.parametrize("variant", ["eager", "fused", "hoisted", "hoisted-pack", "dropped"])
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

    traces = Path(__file__).parents[2] / "traces"
    nsys, torch = launches(traces / "dcp-combine" / variant), launches(traces / "dcp-combine-torch" / variant)
    assert len(nsys) == {"eager": 12, "fused": 4}[variant] * 24
    assert nsys == torch
