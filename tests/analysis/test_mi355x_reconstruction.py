"""The public numbers of the MI355X, from synthetic rocprofv3 recordings of 5 and 6 ranks that have them as means."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bench import is_excerpt, profkit

ROOT = Path(__file__).parents[2]
SIDES = ("mi355x/before/*", "mi355x/after/*")
LAYERS = ("--layers", r"\.mla$", "--expect-removed", "8")
ANCHOR = ("--anchor", "gemm_q_kv|gemm_in", "--layer-kind", "B")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which the script has written ``mi355x``."""
    directory = tmp_path_factory.mktemp("reconstruction")
    command = [sys.executable, ROOT / "benchmarks" / "mi355x_reconstruction.py", "mi355x"]
    subprocess.run(command, cwd=directory, check=True, timeout=60)
    return directory


@pytest.fixture(autouse=True)
def _there(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(written)


@cache
def report() -> dict[str, Any]:
    """The diff as data."""
    done = profkit("diff", *SIDES, *LAYERS, "--format", "json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_the_means_over_unequal_ranks_are_the_public_ones() -> None:
    data = report()
    assert (data["verdict"], data["work"], data["samples"]) == ("confirmed", "unknown", "runs")
    assert [len(data[side]["runs"]) for side in ("before", "after")] == [5, 6]
    assert data["layers"] == {"before": 24, "after": 24}
    assert [f["us_delta"] for f in data["removed"]] == [-4.375] * 8
    (pack,) = data["changed"]
    assert (pack["short"], pack["us_before"], pack["us_after"], pack["us_delta"]) == ("pack_kernel", 6.81, 8.04, 1.23)
    (fusion,) = data["fusions"]
    assert (fusion["us_removed"], fusion["us_absorbed"], fusion["evidence"]) == (35.0, 1.23, "grew")
    assert "nothing-else-moved" in [r["code"] for r in data["reasons"]]


def test_the_net_effect_is_the_public_one() -> None:
    net = report()["net"]
    assert (net["launches_per_layer"], net["launches_per_step"]) == (-8, -192)
    assert (net["us_per_layer"], net["us_per_step"], net["step_us"]) == (-33.77, -810.48, 35_700)
    # THEN the step is the traced one, and it says so
    assert net["share_basis"] == "traced step"
    assert round(net["share_of_step"], 3) == -0.023


def test_layers_come_from_the_order_of_the_capture_and_every_op_has_one() -> None:
    for side in ("before", "after"):
        data = report()[side]
        assert list(data["methods"]) == ["sequence"]
        assert data["methods"]["sequence"] == data["ledger"]["ops"]
        assert {w["code"] for w in data["warnings"]} == {"by-order"}


@pytest.mark.parametrize("output_format", ["text", "md"])
def test_the_report_reads_as_the_public_one(output_format: str) -> None:
    said = " ".join(profkit("diff", *SIDES, *LAYERS, "--format", output_format).stdout.replace("\\", "").split())
    assert "−35.00 µs removed, +1.23 µs absorbed, net −33.77 µs a layer" in said
    assert "(−0.81 ms, −2.3% of the traced step of 35.70 ms)" in said
    assert said.count("SYNTHETIC") == 2


@pytest.mark.parametrize("pattern", ["/*_marker_api_trace.csv", ""], ids=["one file a rank", "a directory a side"])
def test_ranks_are_found_by_any_of_their_files_and_by_their_directory(pattern: str) -> None:
    sides = [side.replace("/*", pattern) for side in SIDES]
    done = profkit("diff", *sides, *LAYERS, "--format", "json")
    assert json.loads(done.stdout)["net"] == report()["net"]


def test_without_the_markers_the_kernels_that_begin_a_layer_give_the_same_numbers() -> None:
    # GIVEN kernels and HIP calls alone
    for path in [p for kind in ("kernel", "hip_api") for p in Path("mi355x").glob(f"*/*_{kind}_trace.csv")]:
        copy = Path("bare") / path.parent.name / path.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    sides = [side.replace("mi355x", "bare") for side in SIDES]
    done = profkit("diff", *sides, *ANCHOR, "--format", "json")
    net = json.loads(done.stdout)["net"]
    assert (net["us_per_layer"], net["us_per_step"]) == (-33.77, -810.48)


def test_the_page_shows_what_the_command_prints() -> None:
    page = (ROOT / "docs" / "results" / "mi355x-reconstruction.md").read_text(encoding="utf-8")
    shown = next(block for block in page.split("```\n") if block.startswith("CONFIRMED"))
    assert is_excerpt(shown, profkit("diff", *SIDES, *LAYERS).stdout)
