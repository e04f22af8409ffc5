"""Finding workloads: the shipped ones, without torch, and a user's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from profkit import kernels
from profkit.errors import ProfkitError
from profkit.model.workload import Workload

ROOT = Path(__file__).parents[2]

LIST_WITHOUT_TORCH = """
import sys
sys.modules["torch"] = sys.modules["triton"] = None
from profkit import kernels
from profkit.errors import ProfkitError
from profkit.model.workload import BuildContext
for name, workload in kernels.WORKLOADS.items():
    print(name, *workload.variants)
try:
    kernels.get("dcp-combine").build(BuildContext("eager", {}, "cpu", 0))
except ProfkitError as error:
    print(error)
"""

OWN = """
from __future__ import annotations
from dataclasses import dataclass
import own_helper
from profkit.model.workload import Step, Workload

@dataclass
class Sizes:
    rows: int

mine = Workload("mine", "a test", {"only": "one"}, {}, lambda context: Step([], lambda inputs: None, dict))
number = own_helper.NUMBER
"""


def test_listing_needs_neither_torch_nor_triton_and_building_says_what_to_install() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    child = subprocess.run(
        [sys.executable, "-c", LIST_WITHOUT_TORCH], env=environment, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    *listed, error = child.stdout.splitlines()
    assert "dcp-combine eager fused fused-planar fused-padded hoisted hoisted-pack dropped" in listed
    assert "dcp-ag-rs eager fused dropped" in listed
    assert "dsa-candidates old new bounded one-kernel hoisted" in listed
    assert "mla-step eager fused fused-planar fused-padded hoisted hoisted-pack dropped" in listed
    assert [line.split()[0] for line in listed] == list(kernels.WORKLOADS)
    assert "needs torch" in error
    assert "profkit[gpu]" in error


def test_every_shipped_workload_goes_by_its_own_name() -> None:
    assert list(kernels.WORKLOADS)
    for name, workload in kernels.WORKLOADS.items():
        assert isinstance(workload, Workload)
        assert workload.name == name
        assert kernels.load(name) is kernels.get(name) is workload


def test_an_unknown_name_lists_the_shipped_ones() -> None:
    with pytest.raises(ProfkitError, match=r"'nothing'.*dcp-combine.*file\.py:name"):
        kernels.load("nothing")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_helper.py").write_text("NUMBER = 3\n")
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def test_a_users_own_file_may_import_its_neighbours(own: Path) -> None:
    workload = kernels.load(f"{own}:mine")
    assert workload.name == "mine"
    assert list(workload.variants) == ["only"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProfkitError, match=r"gone\.py is not a file"):
        kernels.load(f"{tmp_path / 'gone.py'}:mine")


def test_a_file_without_a_name(own: Path) -> None:
    with pytest.raises(ProfkitError, match=r"own\.py:name"):
        kernels.load(str(own))


def test_an_attribute_that_is_not_there(own: Path) -> None:
    with pytest.raises(ProfkitError, match=r"no attribute 'yours'\. It has: mine"):
        kernels.load(f"{own}:yours")


def test_an_attribute_that_is_no_workload(own: Path) -> None:
    with pytest.raises(ProfkitError, match=r"number in .* is of type int"):
        kernels.load(f"{own}:number")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise ValueError('no such size')", "raised ValueError when it was imported: no such size"),
        ("import surely_absent_module", "raised ModuleNotFoundError.*surely_absent_module"),
        ("def broken(:\n    pass", "raised SyntaxError"),
        ("raise BaseException('odd')", "raised BaseException when it was imported: odd"),
        ("raise SystemExit('not a script')", "raised SystemExit.*not a script"),
    ],
)
def test_a_file_that_raises_when_imported(own: Path, text: str, message: str) -> None:
    own.write_text(text)
    with pytest.raises(ProfkitError, match=message):
        kernels.load(f"{own}:mine")
