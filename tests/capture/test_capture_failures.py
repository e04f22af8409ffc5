"""A workload that goes wrong: one clear error, exit status 2, no directory, nothing left running."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import pytest
from capture_cli import HERE, TOY, command, environment, names, profkit

from profkit.capture import process

torch = pytest.importorskip("torch", reason="workers import torch")

FAULTY = HERE / "faulty_workloads.py"


@pytest.mark.parametrize(
    ("name", "message", "left"),
    [
        ("RAISES", "The workload failed: RuntimeError: no such weights: model.bin. Full log: run.log", ["run.log"]),
        ("REFUSES", "rows must be even. Set --shape rows=2.", []),
        ("KILLED", "ended (SIGKILL) without a result: about to be killed. Full log: run.log", ["run.log"]),
        ("SEGFAULT", "The dispatch process ended (SIGSEGV) without a result: ", ["run.log"]),
        ("TWINS", "needs layers with distinct numbers, found [0, 0]", []),
        ("ABSENT", "ABSENT", []),
    ],
)
def test_a_failing_workload_is_one_error_and_no_directory(
    tmp_path: Path, name: str, message: str, left: list[str]
) -> None:
    done = profkit("capture", f"{FAULTY}:{name}", "--profiler", "dispatch", "-o", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("profkit: error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert names(tmp_path) == left


def test_the_log_of_a_crash_holds_the_traceback(tmp_path: Path) -> None:
    profkit("capture", f"{FAULTY}:RAISES", "--profiler", "dispatch", "-o", "run", cwd=tmp_path)
    log = (tmp_path / "run.log").read_text()
    assert "Traceback" in log
    assert "and a second line" in log


def test_the_log_of_a_worker_that_a_signal_ended_says_where_it_was(tmp_path: Path) -> None:
    profkit("capture", f"{FAULTY}:SEGFAULT", "--profiler", "dispatch", "-o", "run", cwd=tmp_path)
    log = (tmp_path / "run.log").read_text()
    assert "Segmentation fault" in log
    assert "in _segfault" in log


def test_a_disk_that_takes_no_more_is_said(tmp_path: Path) -> None:
    """A limit on the size of files fails writes as a full disk does: of all that is larger than a worker's job."""
    arguments = command("capture", TOY, "--profiler", "dispatch", "--shape", "layers=40", "-o", "run")
    limited = ["sh", "-c", 'ulimit -f 4; exec "$@"', "sh", *arguments]
    done = subprocess.run(
        limited, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert "OSError: [Errno 27] File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
    assert not [name for name in names(tmp_path) if name.endswith(".part")]


def test_a_process_that_had_no_room_for_its_last_words_did_not_print_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a warning of long ago\n")
    assert process.tail(log) == "a warning of long ago"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        said = process.tail(log)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert said == f"{tmp_path} cannot be written to any more: File too large"
    assert names(tmp_path) == ["log"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="shows what is said without a CUDA device")
def test_torch_without_a_device_says_what_to_use_instead(tmp_path: Path) -> None:
    done = profkit("capture", TOY, "--profiler", "torch", "-o", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert "finds no CUDA device here. Use --profiler dispatch" in done.stderr
    assert names(tmp_path) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="shows the choice without a CUDA device")
def test_auto_counts_without_a_device_and_says_why(tmp_path: Path) -> None:
    done = profkit("capture", TOY, "-o", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "profiler: dispatch" in done.stdout
    assert "there is no CUDA device" in done.stdout


def test_an_unwritable_place_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = profkit("capture", TOY, "--profiler", "dispatch", "-o", "file/run", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("profkit: error: Cannot write to file")
