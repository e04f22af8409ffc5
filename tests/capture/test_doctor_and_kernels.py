"""`profkit doctor` and `profkit kernels`: what is here, said without importing torch in the process that says it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from capture_cli import STUB_NSYS, environment, profkit

#: Makes torch and triton look absent to the process and to its children.
BLOCKER = "import sys\nfor name in ('torch', 'triton'): sys.modules[name] = None\n"


def states(stdout: str) -> dict[str, dict[str, object]]:
    found = json.loads(stdout)
    assert found["schema"] == "profkit.doctor/1"
    return {state["name"]: state for state in found["profilers"]}


def without_torch(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    return {"PYTHONPATH": str(tmp_path)}


def test_each_profiler_is_usable_or_says_how_to_mend_it(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="dispatch needs torch")
    done = profkit("doctor", "--format", "json", cwd=tmp_path, PROFKIT_NSYS=str(STUB_NSYS))
    assert done.returncode == 0, done.stderr
    found = states(done.stdout)
    assert list(found) == ["nsys", "rocprofv3", "torch", "dispatch"]
    assert found["dispatch"]["usable"] is True
    assert found["nsys"]["version"] == "2025.3.1.90"
    assert found["nsys"]["usable"] is found["torch"]["usable"] is torch.cuda.is_available()
    assert json.loads(done.stdout)["versions"]["torch"] == torch.__version__


@pytest.mark.parametrize(
    ("environment_more", "message"),
    [
        ({"PROFKIT_NSYS": "no/such/nsys"}, "does not run"),
        ({"PROFKIT_NSYS": str(STUB_NSYS), "STUB_NSYS_VERSION": "2022.4.2.1"}, "too old"),
        ({"PROFKIT_NSYS": str(STUB_NSYS), "STUB_NSYS_FAULT": "importer"}, "libdw1"),
        ({"PROFKIT_NSYS": str(STUB_NSYS), "STUB_NSYS_FAULT": "export"}, "export of the report failed"),
    ],
)
def test_a_broken_nsys_is_found_by_trying_it(tmp_path: Path, environment_more: dict[str, str], message: str) -> None:
    done = profkit("doctor", "--format", "json", cwd=tmp_path, **without_torch(tmp_path), **environment_more)
    assert states(done.stdout)["nsys"]["usable"] is False
    assert message in str(states(done.stdout)["nsys"]["says"])
    assert "Traceback" not in done.stderr


def test_nothing_usable_is_exit_status_2(tmp_path: Path) -> None:
    done = profkit("doctor", cwd=tmp_path, PROFKIT_NSYS="no/such/nsys", **without_torch(tmp_path))
    assert done.returncode == 2
    assert done.stderr == ""
    assert "Install profkit[gpu]" in done.stdout


def test_kernels_are_listed_without_torch(tmp_path: Path) -> None:
    done = profkit("kernels", cwd=tmp_path, **without_torch(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "dcp-combine" in done.stdout
    assert "--variant hoisted-pack" in done.stdout
    assert "--shape rows=56" in done.stdout


def test_kernels_as_json_hold_what_the_workload_says(tmp_path: Path) -> None:
    from profkit import kernels

    done = profkit("kernels", "--format", "json", cwd=tmp_path, **without_torch(tmp_path))
    (listed,) = [w for w in json.loads(done.stdout)["workloads"] if w["name"] == "dcp-combine"]
    workload = kernels.load("dcp-combine")
    assert listed["variants"] == dict(workload.variants)
    assert {name: shape["default"] for name, shape in listed["shapes"].items()} == {
        name: shape.default for name, shape in workload.shapes.items()
    }


def test_the_doctor_itself_never_imports_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from profkit.commands.doctor import doctor; doctor('text');"
        "sys.exit(any(name in sys.modules for name in ('torch', 'triton')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(PROFKIT_NSYS=str(STUB_NSYS)), check=False
    )
    assert done.returncode == 0


@pytest.mark.parametrize("name", ["doctor", "kernels"])
def test_an_unknown_format_is_one_error(tmp_path: Path, name: str) -> None:
    done = profkit(name, "--format", "yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "profkit: error: No format 'yaml'. Known: text, json.\n"
