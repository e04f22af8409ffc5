"""Captures on a GPU: both profilers record every launch of every replay, and digests say what was kept."""

from __future__ import annotations

import functools
import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from capture_cli import HERE, TOY, profkit

torch = pytest.importorskip("torch", reason="captures run torch")

from profkit.errors import ProfkitError  # noqa: E402
from profkit.readers.installed import NSYS  # noqa: E402
from profkit.runs import run_dir  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

REPLAYS = 6
Capture = Callable[[str, str], run_dir.Run]


def nsys_is_missing() -> str | None:
    try:
        NSYS.find()
    except ProfkitError as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    @functools.cache
    def make(profiler: str, variant: str) -> run_dir.Run:
        out = tmp_path_factory.mktemp("run") / variant
        arguments = ("--profiler", profiler, "--replays", str(REPLAYS), "-o", out)
        done = profkit("capture", TOY, "--variant", variant, *arguments, cwd=out.parent)
        assert done.returncode == 0, done.stderr
        return run_dir.load(out)

    return make


@pytest.fixture(params=["torch", "nsys"])
def profiler(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name == "nsys" and (reason := nsys_is_missing()):
        pytest.skip(reason)
    return name


def test_the_record_is_whole(capture: Capture, profiler: str) -> None:
    record = capture(profiler, "fused").record
    assert record.profiler.name == profiler
    assert record.timed is True
    assert record.replays == REPLAYS
    assert record.compiles.before >= 1
    assert record.compiles.inside == []
    assert record.warnings == []
    assert record.untraced.replays >= REPLAYS
    assert 0 < record.untraced.min <= record.untraced.median <= record.untraced.max
    assert record.untraced_digests_equal is True


def test_the_step_is_timed_at_graph_level_where_that_is_asked_for(tmp_path: Path) -> None:
    if reason := nsys_is_missing():
        pytest.skip(reason)
    done = profkit("capture", TOY, "--profiler", "nsys", "--graph-level", "--no-floor", "-o", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = run_dir.load(tmp_path / "run").record
    if NSYS.find().release < (2024, 1):
        assert [w.code for w in record.warnings] == ["graph-level-not-measured"]
        return
    assert record.warnings == []
    assert record.graph_level.replays == record.replays
    assert 0 < record.untraced.min <= record.graph_level.median
    assert "traced at graph level: " in done.stdout


def test_digests_tell_lost_work_from_fused_work(capture: Capture, profiler: str) -> None:
    outputs = {v: capture(profiler, v).record.digests.outputs for v in ("unfused", "fused", "lossy")}
    assert outputs["unfused"] == outputs["fused"]
    assert all(outputs["lossy"][name] != digest for name, digest in outputs["fused"].items())


def test_the_torch_trace_holds_every_replay_and_the_layers_names(capture: Capture) -> None:
    trace = json.loads(gzip.decompress(capture("torch", "fused").trace_path.read_bytes()))
    events = trace["traceEvents"]
    ranges = Counter(event["name"] for event in events if event.get("cat") == "user_annotation")
    assert all(ranges[f"layers.{layer}.toy"] == 1 for layer in range(3))
    assert all(ranges[f"replay.{number}"] == 1 for number in range(REPLAYS))
    kernels = Counter(event["name"] for event in events if event.get("cat") == "kernel")
    assert kernels["scale_kernel"] == 3 * REPLAYS
    assert "traceName" not in trace


def test_auto_uses_a_profiler_that_times(tmp_path: Path) -> None:
    done = profkit("capture", TOY, "-o", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert run_dir.load(tmp_path / "run").record.timed is True


def test_a_compilation_inside_the_window_is_recorded_and_reported(tmp_path: Path) -> None:
    late = f"{HERE / 'late_workload.py'}:LATE"
    cache = str(tmp_path / "cache")
    arguments = ("capture", late, "--profiler", "torch", "--warmup", "1", "-o", "run")
    done = profkit(*arguments, cwd=tmp_path, TRITON_CACHE_DIR=cache)
    assert done.returncode == 0, done.stderr
    assert "warning: compiled-inside-window" in done.stdout
    record = run_dir.load(tmp_path / "run").record
    assert [entry.name for entry in record.compiles.inside] == ["late_kernel"]
    assert [warning.code for warning in record.warnings] == ["compiled-inside-window"]
