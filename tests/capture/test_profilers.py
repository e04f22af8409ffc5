"""The registry of profilers: an entry is all that a profiler needs, and ``auto`` asks them in order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from capture_cli import HERE, STUB_NSYS, TOY, profkit

from profkit.capture import device, profilers
from profkit.capture.device import TorchProbe
from profkit.capture.options import Options
from profkit.errors import ProfkitError
from profkit.runs import run_dir

#: What a new profiler adds to the registry, in the capture's process and in its workers.
REGISTERED = """
import sys
sys.path.append({here!r})
from profkit.capture import profilers
from toy_profiler import Toy
profilers.PROFILERS.insert(0, Toy)
"""
W = Options("w")
CUDA = TorchProbe(torch="2.9", cuda_version="13.0", cuda=True)
ROCM = TorchProbe(torch="2.9", cuda_version=None, cuda=True)
ROCPROFV3 = str(HERE / "stub_rocprofv3.py")


@pytest.fixture
def toy(tmp_path: Path) -> dict[str, str]:
    """An environment in which every Python knows the toy profiler."""
    pytest.importorskip("torch", reason="workloads run torch")
    (tmp_path / "sitecustomize.py").write_text(REGISTERED.format(here=str(HERE)))
    # Before what the tests themselves import profkit from.
    return {"PYTHONPATH": f"{tmp_path}:{Path(profilers.__file__).parents[3]}"}


def test_a_profiler_is_one_file_and_one_line(tmp_path: Path, toy: dict[str, str]) -> None:
    done = profkit("capture", TOY, "--profiler", "toy", "-o", "run", cwd=tmp_path, **toy)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("profiler: toy 1 (as asked)\n")
    record = run_dir.load(tmp_path / "run").record
    assert (record.profiler.name, record.profiler.ranges, record.timed, record.warmup) == ("toy", "toy", False, 0)

    layers = profkit("layers", "run", "--format", "json", cwd=tmp_path)
    assert layers.returncode == 0, layers.stderr
    ledger = json.loads(layers.stdout)["runs"][0]["ledger"]
    assert ledger["ops"] == ledger["in_layers"] == 3 * record.workload.layers


def test_auto_doctor_and_help_know_it(tmp_path: Path, toy: dict[str, str]) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        done = profkit("capture", TOY, "-o", "run", cwd=tmp_path, **toy)
        assert done.stdout.startswith("profiler: toy 1 (it is a toy)\n"), done.stderr
    states = json.loads(profkit("doctor", "--format", "json", cwd=tmp_path, **toy).stdout)["profilers"]
    assert states[0] == {"name": "toy", "usable": True, "version": "1", "says": "counts ranges"}
    assert "auto, toy, nsys," in profkit("capture", "--help", cwd=tmp_path, **toy).stdout


def test_it_refuses_what_it_does_not_take(tmp_path: Path, toy: dict[str, str]) -> None:
    for option, message in (
        (("--run-bodies",), "--profiler toy does not go with --run-bodies; that needs dispatch."),
        (("--nproc", "2"), "--profiler toy does not go with --nproc; that needs nsys, torch or dispatch."),
        (("--graph-level",), "--profiler toy does not go with --graph-level; that needs nsys."),
    ):
        done = profkit("capture", TOY, "--profiler", "toy", *option, "-o", "run", cwd=tmp_path, **toy)
        assert done.returncode == 2
        assert message in done.stderr


@pytest.mark.parametrize(
    ("torch", "options", "nsys", "rocprofv3", "name", "why"),
    [
        (CUDA, W, str(STUB_NSYS), "", "nsys", "it is here and names the layer of every launch exactly"),
        (
            CUDA,
            Options("w", nproc=2),
            str(STUB_NSYS),
            "",
            "nsys",
            "it is here and names the layer of every launch exactly",
        ),
        (CUDA, W, "no/nsys", ROCPROFV3, "torch", "nsys cannot be used: nsys --version does not run"),
        (ROCM, W, str(STUB_NSYS), ROCPROFV3, "rocprofv3", "it is here (1.1.0) and the GPU is AMD's"),
        (
            ROCM,
            W,
            str(STUB_NSYS),
            "no/rocprof",
            "torch",
            "rocprofv3 cannot be used: rocprof --version does not",
        ),
        (ROCM, Options("w", nproc=2), "", ROCPROFV3, "torch", "--profiler rocprofv3 does not go with --nproc"),
        (
            TorchProbe("2.9"),
            W,
            str(STUB_NSYS),
            "",
            "dispatch",
            "there is no CUDA device; launches are counted",
        ),
        (
            CUDA,
            Options("w", run_bodies=True),
            str(STUB_NSYS),
            "",
            "dispatch",
            "--profiler nsys does not go with --run-bodies; that needs dispatch",
        ),
    ],
)
def test_auto_takes_the_best_for_the_device_and_says_why(
    monkeypatch: pytest.MonkeyPatch, torch: TorchProbe, options: Options, nsys: str, rocprofv3: str, name: str, why: str
) -> None:
    monkeypatch.setattr(device, "probe_torch", lambda: torch)
    monkeypatch.setenv("PROFKIT_NSYS", nsys)
    monkeypatch.setenv("PROFKIT_ROCPROFV3", rocprofv3)
    found, said = profilers.choose(options)
    assert (found.name, said[: len(why)]) == (name, why)


def test_auto_that_finds_none_says_what_is_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "probe_torch", lambda: TorchProbe("2.9"))
    with pytest.raises(ProfkitError, match="--profiler dispatch does not go with --graph-level; that needs nsys"):
        profilers.choose(Options("w", graph_level=True))


def test_auto_without_torch_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "probe_torch", lambda: TorchProbe(problem="torch is not installed."))
    with pytest.raises(ProfkitError, match="No profiler can run a workload here: torch is not installed"):
        profilers.choose(W)


@pytest.mark.parametrize(("floor_of", "name"), [("nsys", "nsys"), ("rocprofv3", "torch"), ("torch", "torch")])
def test_the_floor_is_recorded_by_the_captures_own_profiler_where_that_can(
    monkeypatch: pytest.MonkeyPatch, floor_of: str, name: str
) -> None:
    monkeypatch.setenv("PROFKIT_NSYS", str(STUB_NSYS))
    monkeypatch.setenv("PROFKIT_ROCPROFV3", ROCPROFV3)
    assert profilers.for_floor_of(profilers.get(floor_of).find()).name == name
