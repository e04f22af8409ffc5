"""A report opens through an installed nsys, whose export is kept beside it; without one the error says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from profkit import readers
from profkit.errors import ProfkitError
from profkit.readers import nsys_report
from profkit.readers.installed import NSYS

#: What a report of 2025.3 begins with; its command line follows.
HEAD = b"NVIDIA Tegra Profiler Report 2025@3@1@90-253135822126v0.\n\x0b"
EXPORT_SQL = """
CREATE TABLE StringIds (id INTEGER, value TEXT);
INSERT INTO StringIds VALUES (1, 'kernel_{n}');
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, demangledName INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 1);
"""
#: An nsys that exports kernel_1, kernel_2, …: the number of exports so far. It checks its command line strictly.
STUB = """#!{python}
import pathlib, sqlite3, sys
calls = pathlib.Path({calls!r})
if sys.argv[1:] == ["--version"]:
    sys.exit(print("NVIDIA Nsight Systems version {version}-1"))
command, kind, force, output, report = sys.argv[1:]
assert [command, kind, force] == ["export", "--type=sqlite", "--force-overwrite=true"], sys.argv
assert output.startswith("--output=") and pathlib.Path(report).read_bytes().startswith(b"NVIDIA Tegra"), sys.argv
calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
database = sqlite3.connect(output.removeprefix("--output="))
database.executescript({sql!r}.replace("{{n}}", str(len(calls.read_text()))))
database.close()
sys.stderr.write({says!r})
sys.exit({status})
"""
_VARIABLE = os.environ.get(NSYS.variable)


@pytest.fixture(autouse=True)
def _no_nsys_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(NSYS.variable, str(tmp_path / "no-nsys"))


def install(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *, version: str = "2025.3.2.4", says: str = "", status: int = 0
) -> Path:
    """Make the stub the nsys of this test; returns the file that counts its exports."""
    path, calls = folder / "nsys", folder / "calls"
    text = STUB.format(
        python=sys.executable, calls=str(calls), version=version, sql=EXPORT_SQL, says=says, status=status
    )
    path.write_text(text)
    path.chmod(0o755)
    monkeypatch.setenv(NSYS.variable, str(path))
    return calls


def report(folder: Path, name: str = "run.nsys-rep") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(HEAD + bytes(100))
    return path


def notes(path: Path) -> list[str]:
    return [d.code for d in readers.read(path).info.diagnostics]


def age(path: Path, seconds: int) -> None:
    now = path.stat().st_mtime
    os.utime(path, (now - seconds, now - seconds))


def test_a_report_is_exported_once_and_then_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = install(monkeypatch, tmp_path)
    path = report(tmp_path / "d")

    first, second = readers.read(path), readers.read(path)

    assert [d.code for d in first.info.diagnostics] == ["exported"]
    assert [d.code for d in second.info.diagnostics] == ["export-reused"]
    assert first.ops["name"].tolist() == second.ops["name"].tolist() == ["kernel_1"]
    assert first.info.source == str(path)
    assert first.info.format == "nsys report"
    assert calls.read_text() == "x"
    assert sorted(p.name for p in path.parent.iterdir()) == ["run.nsys-rep", "run.sqlite"]


def test_an_export_beside_needs_no_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tmp_path)
    path = report(tmp_path / "d")
    readers.read(path)
    monkeypatch.setenv(NSYS.variable, str(tmp_path / "no-nsys"))

    assert notes(path) == ["export-reused"]


def test_an_older_export_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tmp_path)
    path = report(tmp_path / "d")
    readers.read(path)
    age(path.with_suffix(".sqlite"), 60)

    assert readers.read(path).ops["name"].tolist() == ["kernel_2"]
    assert notes(path) == ["export-reused"]


def test_recognised_by_content_not_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tmp_path)

    assert notes(report(tmp_path / "d", "old.qdrep")) == ["exported"]
    assert notes(report(tmp_path / "d", "run.sqlite")) == ["export-not-kept"]


def test_another_file_of_that_name_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tmp_path)
    path = report(tmp_path / "d")
    other = path.with_suffix(".sqlite")
    other.write_text("notes of mine")
    age(other, 60)

    trace = readers.read(path)

    assert [d.code for d in trace.info.diagnostics] == ["export-not-kept"]
    assert trace.ops["name"].tolist() == ["kernel_1"]
    assert other.read_text() == "notes of mine"


def test_beside_a_directory_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a report in a directory where not even root can make files
    calls = install(monkeypatch, tmp_path)
    with report(tmp_path / "d").open("rb") as file:
        path = Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")
        if not path.exists():
            pytest.skip("no /proc here")

        first, second = readers.read(path), readers.read(path)

    # THEN it is exported each time, and says so
    assert [d.code for d in (*first.info.diagnostics, *second.info.diagnostics)] == ["export-not-kept"] * 2
    assert calls.read_text() == "xx"
    assert first.ops["name"].tolist() == ["kernel_1"]


def test_without_nsys_the_error_gives_the_command_and_the_version(tmp_path: Path) -> None:
    with pytest.raises(ProfkitError) as caught:
        readers.read(report(tmp_path / "d", "my run.nsys-rep"))

    assert "is a report of nsys 2025.3.1.90" in str(caught.value)
    assert "nsys export -t sqlite 'my run.nsys-rep'" in str(caught.value)
    assert caught.value.exit_code == 2


def test_an_nsys_that_is_too_old_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = install(monkeypatch, tmp_path, version="2023.4.4.54")

    with pytest.raises(ProfkitError, match=r"nsys 2023\.4\.4\.54 opens no report of a newer one: 2025\.3 or later"):
        readers.read(report(tmp_path / "d"))
    assert not calls.exists()


TOO_NEW = (
    "Exportation error: Report was created in Nsight Systems version (2025.3.9.1-266), newer than your current version "
    "(2025.3.2.4-1).\nPlease update your Nsight Systems to the latest version to view this report.\n"
)


@pytest.mark.parametrize(
    ("says", "message"),
    [
        (TOO_NEW, r"was written by nsys 2025\.3\.9\.1, which the nsys 2025\.3\.2\.4 here is too old to open"),
        ("[99%]\rExportation error: bad magic\n", r"cannot export it \(Exportation error: bad magic\)\. Copy"),
        ("", r"cannot export it \(exit status 1\)"),
    ],
)
def test_a_failed_export_is_one_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, message: str
) -> None:
    install(monkeypatch, tmp_path, says=says, status=1)
    path = report(tmp_path / "d")

    with pytest.raises(ProfkitError, match=message):
        readers.read(path)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_the_command_line_in_a_report_is_not_shown(tmp_path: Path) -> None:
    """F24: behind the version stands how the profiler was called."""
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(HEAD + b"/home/someone/serve --token SECRET")

    assert nsys_report.report_version(path) == "2025.3.1.90"
    with pytest.raises(ProfkitError) as caught:
        readers.read(path)
    assert "SECRET" not in str(caught.value)


def test_a_report_without_a_version_is_left_to_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tmp_path, version="2023.4.4.54")
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"NVIDIA Tegra Profiler Report\n" + bytes(100))

    assert notes(path) == ["exported"]


def test_a_real_report_of_an_nsys_that_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if _VARIABLE is None:
        monkeypatch.delenv(NSYS.variable)
    else:
        monkeypatch.setenv(NSYS.variable, _VARIABLE)
    try:
        found = NSYS.find()
    except ProfkitError as error:
        pytest.skip(f"no nsys: {error}")
    path = tmp_path / "run.nsys-rep"
    flags = ["-t", "nvtx", "--sample=none", "--cpuctxsw=none", "-o", str(path.with_suffix(""))]
    done = subprocess.run([found.path, "profile", *flags, "true"], capture_output=True, timeout=120, check=False)
    if not path.exists():
        pytest.skip(f"nsys {found.version} here writes no report (exit status {done.returncode})")

    trace = readers.read(path)

    assert nsys_report.report_version(path) in (None, found.version)
    assert trace.info.profiler == f"Nsight Systems {found.version}"
    assert notes(path) == ["export-reused"]
