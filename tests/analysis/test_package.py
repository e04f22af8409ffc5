"""The wheel: only `profkit` in it, with what it reads at run time, and the kernels where they are imported from."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from profkit._version import __version__

ROOT = Path(__file__).parents[2]


@pytest.mark.slow  # pip fetches what builds it
def test_the_wheel_puts_nothing_but_profkit_into_site_packages(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, timeout=600)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"profkit-{__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"profkit", f"profkit-{__version__}.dist-info"}
    packaged = {"py.typed", "codes.toml", "reporters/page.html.j2", "kernels/dcp/workload.py", "cli.py"}
    assert {f"profkit/{name}" for name in packaged} <= set(names)
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
