"""What a workload does to the process that sweeps it: its output and its exit status stay profkit's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from capture_cli import names, profkit

torch = pytest.importorskip("torch", reason="sweeps run torch")

HERE = Path(__file__).parent
WORKLOAD = f"""
import dataclasses, os, sys
sys.path.insert(0, {str(HERE)!r})
import cpu_tunable

def build(context):
    made = cpu_tunable.build_problem(context)
    def run(configuration):
        if configuration["chunks"] == 2:
            ODD
        made.run(configuration)
    return dataclasses.replace(made, run=run)

tunable = dataclasses.replace(cpu_tunable.SCALE.tunable, build=build)
W = dataclasses.replace(cpu_tunable.SCALE, tunable=tunable)
"""
QUICK = (
    "sweep",
    "odd.py:W",
    "--device",
    "cpu",
    "--orders",
    "1",
    "--replays",
    "1",
    "--shape",
    "size=64",
    "--screen",
    "0",
)


@pytest.mark.parametrize(
    ("odd", "status"),
    [
        ("sys.stdout.close()", "timed"),
        ("sys.stdout = None", "timed"),
        ("print('hello'); os.write(1, b'there')", "timed"),
        ("os.close(1) if os.path.exists('/proc/self/fd/1') else None", "timed"),
        ("os._exit(1)", "failed"),
        ("os._exit(0)", "failed"),
        ("raise BaseException('base')", "failed"),
    ],
)
def test_the_answer_is_whole_and_the_status_is_its_own(odd: str, status: str, tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(WORKLOAD.replace("ODD", odd))
    done = profkit(*QUICK, "--set", "chunks=1,2", "--set", "repeats=4", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (region,) = json.loads(done.stdout)["regions"]
    (found,) = (one for one in region["configurations"] if one["parameters"]["chunks"] == 2)
    assert found["status"] == status
    if "_exit" in odd:
        assert found["reason"] == f"SystemExit: {odd.removesuffix(';')}"


@pytest.mark.parametrize("odd", ["os._exit(1)", "sys.stdout.close(); sys.stderr.close(); raise KeyError('x')"])
def test_a_workload_that_ends_the_process_when_it_is_built_is_an_error(odd: str, tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(WORKLOAD.replace("    made = ", f"    {odd}\n    made = ").replace("ODD", "pass"))
    done = profkit(*QUICK, "-o", "out", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "The workload failed building region size=64: " in done.stderr
    assert names(tmp_path / "out" / "regions") == []
