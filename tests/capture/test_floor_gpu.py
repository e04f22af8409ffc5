"""The dispatch floor and repeated captures on a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from capture_cli import TOY, names, profkit

torch = pytest.importorskip("torch", reason="captures run torch")

from profkit.errors import ProfkitError  # noqa: E402
from profkit.readers.installed import NSYS  # noqa: E402
from profkit.runs import run_dir  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(scope="module", params=["torch", "nsys"])
def profiler(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name == "nsys":
        try:
            NSYS.find()
        except ProfkitError as error:
            pytest.skip(str(error))
    return name


@pytest.fixture(scope="module")
def measured(profiler: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("floor")
    done = profkit("floor", "--profiler", profiler, "--format", "json", "-o", "floor.json", cwd=home)
    assert done.returncode == 0, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    assert json.loads((home / "floor.json").read_text()) == content
    return content


def test_the_floor_says_how_and_where_it_was_measured(measured: dict[str, Any], profiler: str) -> None:
    assert measured["schema"] == "profkit.floor/1"
    assert measured["unit"] == "us"
    assert measured["device"] == torch.cuda.get_device_name()
    assert measured["profiler"]["name"] == profiler


@pytest.mark.parametrize("kernel", ["empty", "load_store"])
def test_a_node_takes_between_a_fifth_of_a_microsecond_and_ten(measured: dict[str, Any], kernel: str) -> None:
    for part in ("untraced_per_node", "traced_duration"):
        summary = measured[kernel][part]
        assert 0.2 < summary["p25"] <= summary["median"] <= summary["p75"] < 10
    assert measured[kernel]["traced_duration"]["count"] == 2560
    assert measured[kernel]["traced_gap"]["count"] == 2550


def test_a_load_and_a_store_are_not_cheaper_than_nothing(measured: dict[str, Any]) -> None:
    for part in ("untraced_per_node", "traced_duration"):
        assert measured["load_store"][part]["median"] >= measured["empty"][part]["median"]


def test_repetitions_are_timed_share_one_floor_and_keep_no_report(profiler: str, tmp_path: Path) -> None:
    arguments = ("--variant", "unfused", "--against", "fused", "--pairs", "1", "--profiler", profiler)
    done = profkit("capture", TOY, *arguments, "-o", "session", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "dispatch floor: " in done.stdout
    runs = run_dir.find(tmp_path / "session")
    assert [run.path.parts[-3] for run in runs] == ["fused", "unfused"]
    first, second = (run.record for run in runs)
    assert first.floor == second.floor
    assert first.floor.profiler.name == profiler
    for run in runs:
        assert run.record.untraced.median > 0
        assert run.record.untraced_digests_equal is True
        assert run.record.warnings == []
        assert run.record.set_aside is None
        assert names(run.path) == sorted(["outputs.npz", "run.json", str(run.record.trace)])


def test_no_floor_measures_none(tmp_path: Path) -> None:
    done = profkit("capture", TOY, "--profiler", "torch", "--no-floor", "-o", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert run_dir.load(tmp_path / "run").record.floor is None
