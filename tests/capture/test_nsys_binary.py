"""Finding nsys, judging its version, and the exact command lines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from capture_cli import STUB_NSYS

from profkit.capture.profilers.nsys import Nsys
from profkit.errors import ProfkitError
from profkit.readers.installed import NSYS, Installed


@pytest.fixture(autouse=True)
def _no_nsys_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(NSYS.variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def install(path: Path) -> Path:
    """Make `path` the stub, run by this Python whatever PATH says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STUB_NSYS}" "$@"\n')
    path.chmod(0o755)
    return path


def test_places_are_searched_newest_first_after_path(tmp_path: Path) -> None:
    on_path = install(tmp_path / "bin" / "nsys")
    old = install(tmp_path / "opt/nvidia/nsight-systems/2024.6.2/bin/nsys")
    new = install(tmp_path / "opt/nvidia/nsight-systems/2025.10.1/bin/nsys")
    compute = install(tmp_path / "opt/nvidia/nsight-compute/2025.3.1/host/target-linux-x64/nsys")
    cuda = install(tmp_path / "usr/local/cuda-13.0/bin/nsys")
    assert list(NSYS.candidates(tmp_path)) == [on_path, new, old, compute, cuda]


def test_the_variable_is_taken_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "bin" / "nsys")
    monkeypatch.setenv(NSYS.variable, str(STUB_NSYS))
    assert list(NSYS.candidates(tmp_path)) == [STUB_NSYS]


@pytest.mark.parametrize(
    ("version", "release", "api"),
    [
        ("2023.4.4.54-234433681190v0", (2023, 4), "torch.cuda.nvtx"),
        ("2025.1.3.140-251335620677v0", (2025, 1), "torch.cuda.nvtx"),
        ("2025.3.2.0", (2025, 3), "nvtx"),
        ("2026.10.1.5-1", (2026, 10), "nvtx"),
    ],
)
def test_the_version_decides_which_ranges_are_pushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, release: tuple[int, int], api: str
) -> None:
    monkeypatch.setenv("STUB_NSYS_VERSION", version)
    found = NSYS.check(install(tmp_path / "nsys"))
    assert found.release == release
    assert Nsys(found).ranges_api == api


def test_an_old_nsys_is_refused_with_the_minimum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_NSYS_VERSION", "2023.3.3.42-1")
    with pytest.raises(ProfkitError, match=r"nsys 2023\.3\.3\.42 is too old: 2023\.4 is the oldest"):
        NSYS.check(install(tmp_path / "nsys"))


def test_an_old_nsys_on_path_does_not_hide_a_newer_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "bin" / "nsys"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho NVIDIA Nsight Systems version 2021.3.2.4\n")
    old.chmod(0o755)
    install(tmp_path / "opt/nvidia/nsight-systems/2025.3.1/bin/nsys")
    assert NSYS.find(tmp_path).version == "2025.3.1.90"


def test_no_nsys_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ProfkitError, match=r"nsys is not installed: .* PROFKIT_NSYS"):
        NSYS.find(tmp_path)


def test_a_program_that_is_no_nsys_is_refused() -> None:
    with pytest.raises(ProfkitError, match="named no version"):
        NSYS.check(Path("/bin/true"))


def test_a_workloads_window_covers_node_traces_and_outlives_the_recording() -> None:
    found = Nsys(Installed(Path("/opt/nsys"), "2025.3.1.90"))
    assert found.command(["python", "-m", "w"], Path("run"), window=True) == [
        "/opt/nsys",
        "profile",
        "--trace=cuda,nvtx",
        "--cuda-graph-trace=node",
        "--sample=none",
        "--cpuctxsw=none",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--force-overwrite=true",
        "--output=run/trace",
        "python",
        "-m",
        "w",
    ]


def test_recorded_arguments_leave_out_the_values_of_the_users_flags() -> None:
    found = Nsys(Installed(Path("/opt/nsys"), "2025.3.1.90"), ["--env-var=TOKEN=x", "-c", "nvtx"])
    recorded = found.arguments
    assert recorded[-2:] == ["--env-var", "-c"]
    assert "--cuda-graph-trace=node" in recorded
