"""A repeated capture that stops, by an interrupt, a failure or its time limit, keeps what is finished and goes on."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import pytest
from capture_cli import HERE, TOY, command, environment, names, profkit, start, wait_until

from profkit.runs import run_dir

#: Many processes that import torch: `make test-all` runs them, `make test` does not.
pytestmark = pytest.mark.slow

pytest.importorskip("torch", reason="workers import torch")

ONE_ARM = ("capture", TOY, "--variant", "fused", "--pairs", "2", "--profiler", "dispatch", "-o", "session")
#: A workload that fails from its second repetition on, for as long as the file `broken` is there.
FAILS = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from toy_workload import TOY, Workload, build as build_toy

def build(context):
    if Path("broken").exists() and len(list(Path("session").glob("*/*/0/run.json"))) == 1:
        raise RuntimeError("out of luck at /home/somebody/weights.bin")
    return build_toy(context)

FAILS = Workload("fails", "", TOY.variants, TOY.shapes, build)
"""


def test_an_interrupt_keeps_what_is_finished_and_the_same_command_resumes(tmp_path: Path) -> None:
    first, second = (tmp_path / "session" / "fused" / str(pair) for pair in range(2))
    running = start(*ONE_ARM, cwd=tmp_path)
    wait_until(lambda: second.exists() and any(second.iterdir()))
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "interrupted: 1 of 2 repetitions are kept; the same command resumes" in errors
    assert "Traceback" not in errors
    assert names(second) == []
    before = (first / "0" / "run.json").stat().st_mtime_ns
    resumed = profkit(*ONE_ARM, cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert "repetition 2 of 2: fused, pair 1\n" in resumed.stderr
    assert "recorded: 2 of 2 repetitions, 1 of them now" in resumed.stdout
    assert (first / "0" / "run.json").stat().st_mtime_ns == before
    assert run_dir.load(second / "0").record.repetition.sequence == 1


def test_what_a_killed_capture_left_half_done_is_removed(tmp_path: Path) -> None:
    first = tmp_path / "session" / "fused" / "0"
    running = start(*ONE_ARM, cwd=tmp_path)
    wait_until(lambda: any(path.read_text() for path in first.glob(".0.*.part/work.*/0/*.pid")))
    worker = int(next(first.glob(".0.*.part/work.*/0/*.pid")).read_text())
    running.kill()
    running.communicate(timeout=30)
    os.kill(worker, signal.SIGKILL)
    assert any(name.endswith(".part") for name in names(first))
    resumed = profkit(*ONE_ARM, "--stop-after", "0.1", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert names(first) == ["0"]


def test_two_captures_never_record_into_one_directory(tmp_path: Path) -> None:
    running = start(*ONE_ARM, cwd=tmp_path)
    wait_until((tmp_path / "session" / "capture.json").exists)
    second = profkit(*ONE_ARM, cwd=tmp_path)
    assert second.returncode == 2
    assert "Another profkit is recording into session" in second.stderr
    running.send_signal(signal.SIGTERM)
    _, errors = running.communicate(timeout=30)
    assert running.returncode == 143
    assert "interrupted: 0 of 2 repetitions are kept" in errors


def test_a_failing_repetition_stops_it_and_those_before_stay(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text(FAILS.format(here=str(HERE)))
    (tmp_path / "broken").touch()
    arguments = ("capture", "fails.py:FAILS", "--variant", "fused", "--pairs", "2", "--profiler", "dispatch")
    failed = profkit(*arguments, "-o", "session", cwd=tmp_path)
    assert failed.returncode == 2
    error = failed.stderr.splitlines()[-1]
    assert "The workload failed: RuntimeError: out of luck at weights.bin" in error
    assert "This was fused, pair 1; 1 of 2 repetitions are kept in session, and the same command resumes." in error
    assert len(run_dir.find(tmp_path / "session")) == 1
    assert names(tmp_path / "session" / "fused" / "1") == ["0.log"]
    log = (tmp_path / "session" / "fused" / "1" / "0.log").read_text()
    assert "Traceback" in log
    assert not re.search(r"/\w+/\w+", log)
    (tmp_path / "broken").unlink()
    resumed = profkit(*arguments, "-o", "session", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert names(tmp_path / "session" / "fused" / "1") == ["0"]


def test_the_time_limit_ends_it_between_repetitions(tmp_path: Path) -> None:
    limited = profkit(*ONE_ARM, "--stop-after", "0.1", cwd=tmp_path)
    assert limited.returncode == 0, limited.stderr
    assert "recorded: 1 of 2 repetitions, 1 of them now" in limited.stdout
    assert "set aside: decided when all repetitions are there\n" in limited.stdout
    assert limited.stdout.endswith("next: the same command records the rest\n")
    assert len(run_dir.find(tmp_path / "session")) == 1


def test_a_plan_that_recorded_nothing_yet_may_be_changed(tmp_path: Path) -> None:
    wrong = [word if word != "fused" else "fuse" for word in ONE_ARM]
    failed = profkit(*wrong, cwd=tmp_path)
    assert failed.returncode == 2
    assert "Did you mean fused?" in failed.stderr
    right = profkit(*ONE_ARM, "--stop-after", "0.1", cwd=tmp_path)
    assert right.returncode == 0, right.stderr
    assert names(tmp_path / "session") == ["capture.json", "fused"]


def test_a_capture_that_is_refused_leaves_nothing_and_promises_no_resumption(tmp_path: Path) -> None:
    wrong = [word if word != "fused" else "fuse" for word in ONE_ARM]
    failed = profkit(*wrong, cwd=tmp_path)
    assert failed.returncode == 2
    assert "resumes" not in failed.stderr
    assert names(tmp_path) == []


@pytest.mark.parametrize("seconds", ["nan", "inf", "0"])
def test_a_time_limit_is_a_time(tmp_path: Path, seconds: str) -> None:
    failed = profkit(*ONE_ARM, "--stop-after", seconds, cwd=tmp_path)
    assert failed.returncode == 2
    assert f"--stop-after {seconds}: give a number of seconds above 0." in failed.stderr
    assert names(tmp_path) == []


def test_a_terminal_gets_a_bar(tmp_path: Path) -> None:
    terminal, stderr = pty.openpty()
    size = os.terminal_size((100, 24))
    environ = environment(COLUMNS=str(size.columns), LINES=str(size.lines), TERM="xterm")
    running = subprocess.Popen(
        command(*ONE_ARM, "--stop-after", "0.1"),
        cwd=tmp_path,
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        stdin=subprocess.DEVNULL,
    )
    os.close(stderr)
    shown = b""
    # Reading a terminal whose other end is closed is an error on Linux, not an empty read.
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(terminal)
    assert running.wait(timeout=60) == 0
    text = shown.decode(errors="replace")
    assert "fused, pair 0" in text
    assert "0/2" in text
    assert "1/2" in text
    assert "repetition 1 of 2" not in text
