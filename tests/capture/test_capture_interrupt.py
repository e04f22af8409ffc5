"""Interrupting a capture leaves no directory and no process, whatever it had started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from capture_cli import HERE, STUB_NSYS, alive, environment, names, start, wait_until

#: Many processes that import torch: `make test-all` runs them, `make test` does not.
pytestmark = pytest.mark.slow

pytest.importorskip("torch", reason="workers import torch")

HANGS = f"{HERE / 'faulty_workloads.py'}:HANGS"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupted_capture_leaves_nothing(tmp_path: Path, number: signal.Signals, status: int) -> None:
    running = start("capture", HANGS, "--profiler", "dispatch", "-o", "run", cwd=tmp_path)
    wait_until((tmp_path / "started").exists)
    worker, child = map(int, (tmp_path / "started").read_text().split())
    assert alive(worker)
    assert alive(child)
    assert any(name.endswith(".part") for name in names(tmp_path))
    running.send_signal(number)
    _, errors = running.communicate(timeout=30)
    assert running.returncode == status
    assert "Traceback" not in errors
    assert names(tmp_path) == ["started"]
    wait_until(lambda: not alive(worker) and not alive(child), timeout_s=5)


def test_a_program_that_left_the_session_and_ignores_sigterm_is_ended_too(tmp_path: Path) -> None:
    """As under nsys: the profiler runs the program in another session, and dies first."""
    program = (
        "import os, signal, subprocess, time, pathlib; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "child = subprocess.Popen(['sleep', '600']);"
        "pathlib.Path('child').write_text(str(child.pid));"
        "pathlib.Path('pid.part').write_text(str(os.getpid()));"
        "os.rename('pid.part', 'pid'); time.sleep(600)"
    )
    parent = (
        "import sys; from pathlib import Path; from profkit.capture import process;"
        "from profkit.capture.profilers.nsys import Nsys; from profkit.readers.installed import NSYS\n"
        "found = Nsys(NSYS.check(Path(sys.argv[1])));"
        "command = found.command([sys.executable, '-c', sys.argv[2]], Path(), window=True)\n"
        "with process.started(command, Path('log')) as child:\n"
        "    child.wait()"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", parent, str(STUB_NSYS), program],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until((tmp_path / "pid").exists)
    pid, child = int((tmp_path / "pid").read_text()), int((tmp_path / "child").read_text())
    assert os.getsid(pid) == pid
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors
    assert not alive(pid)
    assert not alive(child)
