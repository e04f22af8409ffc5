"""A run.json beside another trace than its own: what `layers`, `diff` and the Python interface say of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from bench import profkit

import profkit as api
from profkit.errors import ProfkitError
from profkit.model.run import RunRecord
from profkit.runs import run_dir
from profkit.runs.run_dir import replaced_trace, trace_digests

RUNS = Path(__file__).parents[2] / "traces" / "dcp-combine"


def test_digests_are_of_the_files_as_stored(tmp_path: Path) -> None:
    for name in ("trace.sqlite", "trace.nsys-rep"):
        (tmp_path / name).write_bytes(b"abc")
    # FIPS 180-2's example
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    files = ["trace.nsys-rep", "trace.sqlite"]
    assert trace_digests(tmp_path, "trace.sqlite", files) == {"trace.sqlite": abc}
    assert trace_digests(tmp_path, "trace.nsys-rep", files) == {"trace.nsys-rep": abc, "trace.sqlite": abc}


def test_a_file_that_is_gone_or_another_is_named(tmp_path: Path) -> None:
    files = ["1_kernel_trace.csv", "1_marker_api_trace.csv"]
    for name in files:
        (tmp_path / name).write_text(name)
    record = RunRecord(trace=files[0], trace_sha256=trace_digests(tmp_path, files[0], files))
    assert replaced_trace(tmp_path, record) is None
    assert replaced_trace(tmp_path, RunRecord(trace=files[0])) is None
    (tmp_path / files[1]).write_text("another")
    assert str(replaced_trace(tmp_path, record)).startswith("1_marker_api_trace.csv is not the file that was captured")
    (tmp_path / files[1]).unlink()
    assert str(replaced_trace(tmp_path, record)).startswith("1_marker_api_trace.csv is missing")


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """The fused run's trace beside the eager run's run.json."""
    shutil.copy(RUNS / "fused" / "trace.sqlite", tmp_path)
    for name in ("run.json", "outputs.npz"):
        shutil.copy(RUNS / "eager" / name, tmp_path)
    return tmp_path


def test_a_run_json_of_another_recording_proves_no_work(mixed: Path) -> None:
    done = profkit("diff", RUNS / "eager", mixed, "--format", "json")
    data = json.loads(done.stdout)
    assert (done.returncode, data["verdict"], data["work"]) == (3, "inconclusive", "unknown")
    assert {"trace-replaced", "digests-of-another-trace"} <= {reason["code"] for reason in data["reasons"]}
    assert "trace-replaced" in {warning["code"] for warning in data["after"]["warnings"]}

    comparison = api.diff(RUNS / "eager", mixed)
    assert (comparison.verdict, comparison.work) == ("inconclusive", "unknown")


def test_the_same_recording_under_its_own_run_json_is_not_accused(mixed: Path) -> None:
    data = json.loads(profkit("diff", RUNS / "fused", mixed, "--format", "json").stdout)
    codes = [[warning["code"] for warning in data[side]["warnings"]] for side in ("before", "after")]
    assert ["trace-replaced" in said for said in codes] == [False, True]


def test_layers_says_so(mixed: Path) -> None:
    (run,) = json.loads(profkit("layers", mixed, "--format", "json").stdout)["runs"]
    assert [w["code"] for w in run["warnings"]].count("trace-replaced") == 1


def test_a_digest_of_a_file_elsewhere_is_refused(mixed: Path) -> None:
    content = json.loads((mixed / "run.json").read_text())
    (mixed / "run.json").write_text(json.dumps({**content, "trace_sha256": {"../trace.sqlite": "0" * 64}}))
    with pytest.raises(ProfkitError, match=r"'trace_sha256' must name a file in the same directory"):
        run_dir.load(mixed)


@pytest.mark.parametrize("name", ["..", "", ".", "/etc", "a/b"])
def test_a_trace_elsewhere_is_refused(mixed: Path, name: str) -> None:
    content = json.loads((mixed / "run.json").read_text())
    (mixed / "run.json").write_text(json.dumps({**content, "trace": name}))
    with pytest.raises(ProfkitError, match=r"'trace' must name a file in the same directory"):
        run_dir.load(mixed)
