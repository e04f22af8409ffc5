"""Which files a sweep takes for its workload, so that a change between two sittings is seen."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from capture_cli import profkit

from profkit.sweep.workload import source_digests

torch = pytest.importorskip("torch", reason="sweeps run torch")

HERE = Path(__file__).parent
WORKLOAD = f"""
import dataclasses, sys
sys.path.insert(0, {str(HERE)!r})
import cpu_tunable
import parts.helper
from parts.helper import FACTOR
W = cpu_tunable.SCALE
"""
QUICK = ("sweep", "wl.py:W", "--device", "cpu", "--orders", "1", "--replays", "1", "--only-known", "--shape", "size=64")


def workload(folder: Path) -> Path:
    """A workload in `folder` whose helper lies in a package below it."""
    (folder / "parts").mkdir()
    (folder / "parts" / "__init__.py").touch()
    (folder / "parts" / "helper.py").write_text("FACTOR = 1\n")
    (folder / "parts" / "unused.py").write_text("")
    (folder / "wl.py").write_text(WORKLOAD)
    return folder / "parts" / "helper.py"


def test_a_change_in_an_imported_module_of_the_folder_is_refused_and_named(tmp_path: Path) -> None:
    helper = workload(tmp_path)
    first = profkit(*QUICK, "-o", "out", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    # cpu_tunable is of another folder, and nothing of profkit/kernels is in it.
    sources = json.loads((tmp_path / "out" / "sweep.json").read_text())["workload"]["sources"]
    assert set(sources) == {"wl.py", "parts/__init__.py", "parts/helper.py"}
    (tmp_path / "parts" / "unused.py").write_text("CHANGED = True\n")
    same = profkit(*QUICK, "-o", "out", cwd=tmp_path)
    assert same.returncode == 0, same.stderr
    before = hashlib.sha256(helper.read_bytes()).hexdigest()
    helper.write_text("FACTOR = 2\n")
    changed = profkit(*QUICK, "-o", "out", cwd=tmp_path)
    assert changed.returncode == 2
    assert (
        f'out holds a sweep with other options: sources was {{"parts/helper.py": "{before}"}}, now '
        f'{{"parts/helper.py": "{hashlib.sha256(helper.read_bytes()).hexdigest()}"}}.' in changed.stderr
    )


def test_a_shipped_workload_is_all_files_of_the_kernels() -> None:
    found = source_digests("qsa-attention")
    kernels = HERE.parents[1] / "kernels"
    assert {"profkit/kernels/qsa/attention.py", "profkit/kernels/qsa/tables.py"} <= set(found)
    assert len(found) == len(list(kernels.rglob("*.py")))
    file = kernels / "qsa" / "tables.py"
    assert found["profkit/kernels/qsa/tables.py"] == hashlib.sha256(file.read_bytes()).hexdigest()


def test_installed_packages_in_the_folder_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / ".venv" / "site-packages"
    installed.mkdir(parents=True)
    for file in (installed / "sweep_test_installed.py", tmp_path / "sweep_test_own.py"):
        file.write_text("")
        monkeypatch.syspath_prepend(file.parent)
        __import__(file.stem)
    (tmp_path / "wl.py").write_text("")
    own = [name for name in source_digests(f"{tmp_path / 'wl.py'}:W") if not name.startswith("profkit/")]
    assert own == ["sweep_test_own.py", "wl.py"]
