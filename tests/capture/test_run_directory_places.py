"""Where a capture may write: what stands there already is never lost, and nothing half done stays."""

from __future__ import annotations

import os
import signal
import stat
import sys
from pathlib import Path

import pytest
from capture_cli import STUB_NSYS, TOY, names, profkit, start, wait_until

from profkit.errors import ProfkitError
from profkit.model.run import RunRecord
from profkit.runs import run_dir

NSYS = {"PROFKIT_NSYS": str(STUB_NSYS)}


def recorded(path: Path) -> Path:
    """A run directory at `path`."""
    with run_dir.new(path) as directory:
        (directory / "t.json").write_text("{}")
        run_dir.write_record(directory, RunRecord(trace="t.json", files=["t.json"]))
    return path


@pytest.mark.parametrize("force", [False, True])
def test_what_appears_while_it_records_is_left_and_the_recording_is_kept_beside_it(tmp_path: Path, force: bool) -> None:
    def make() -> None:
        with run_dir.new(tmp_path / "run", force=force) as directory:
            (directory / "made").touch()
            (tmp_path / "run").mkdir()
            (tmp_path / "run" / "mine").touch()

    with pytest.raises(ProfkitError, match="It appeared meanwhile; what was made is in ") as raised:
        make()
    assert names(tmp_path / "run") == ["mine"]
    (kept,) = [path for path in tmp_path.iterdir() if path.name != "run"]
    assert str(raised.value).endswith(f"is in {kept}.")
    assert names(kept) == ["made"]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("target", ["there", "nowhere"])
def test_a_link_is_refused_before_anything_is_recorded(tmp_path: Path, force: bool, target: str) -> None:
    recorded(tmp_path / "there")
    (tmp_path / "run").symlink_to(tmp_path / target)
    with pytest.raises(ProfkitError, match="is a link"), run_dir.new(tmp_path / "run", force=force):
        raise AssertionError
    assert (tmp_path / "run").is_symlink()


@pytest.mark.parametrize("stranger", ["notes.txt", "run.json"])
def test_force_replaces_a_run_and_nothing_that_is_not_of_one(tmp_path: Path, stranger: str) -> None:
    run = recorded(tmp_path / "run")
    with run_dir.new(run, force=True) as directory:
        (directory / "new").touch()
    assert names(run) == ["new"]
    run.rename(tmp_path / "other")
    run = recorded(tmp_path / "run")
    (run / stranger).write_text("mine")
    with pytest.raises(ProfkitError, match="is not a run directory"), run_dir.new(run, force=True):
        raise AssertionError
    assert (run / stranger).read_text() == "mine"


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o700), (0o022, 0o755)])
def test_directories_have_the_mode_that_the_user_chose(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        run = recorded(tmp_path / "run")
    finally:
        os.umask(before)
    assert stat.S_IMODE(run.stat().st_mode) == mode


def test_what_a_killed_capture_left_is_removed_by_the_next_and_one_that_runs_is_left_alone(tmp_path: Path) -> None:
    program = "import pathlib, time; pathlib.Path('up').touch(); time.sleep(600)"
    waits = ("capture", "-o", "run", "--", sys.executable, "-c", program)
    killed = start(*waits, cwd=tmp_path, **NSYS)
    wait_until((tmp_path / "up").exists)
    (left,) = tmp_path.glob(".run.*.part")
    done = profkit("capture", "-o", "run", "--", "true", cwd=tmp_path, **NSYS)
    assert done.returncode == 0, done.stderr
    assert left.exists()
    pid = int(next(left.glob("work.*/pid")).read_text())
    killed.kill()
    os.kill(pid, signal.SIGKILL)
    killed.communicate(timeout=30)
    done = profkit("capture", "-o", "run", "--force", "--", "true", cwd=tmp_path, **NSYS)
    assert done.returncode == 0, done.stderr
    assert names(tmp_path) == ["run", "up"]


@pytest.mark.parametrize(("fault", "message"), [("empty", "is empty"), ("random", "of no format that profkit knows")])
def test_an_export_that_cannot_be_read_is_no_run(tmp_path: Path, fault: str, message: str) -> None:
    done = profkit("capture", "-o", "run", "--", "true", cwd=tmp_path, **NSYS, STUB_NSYS_FAULT=fault)
    assert done.returncode == 2
    assert message in done.stderr
    assert names(tmp_path) == []


def test_a_command_that_used_no_gpu_is_told_so_and_not_to_count_layers(tmp_path: Path) -> None:
    done = profkit("capture", "-o", "run", "--", "true", cwd=tmp_path, **NSYS)
    assert done.returncode == 0
    assert "warning: no-gpu-work: The trace holds no kernel and no copy" in done.stderr
    assert "profkit layers" not in done.stderr


def test_of_captures_into_one_place_at_once_one_is_there_and_the_others_say_so(tmp_path: Path) -> None:
    waits = ("sh", "-c", "touch up.$$; until [ -e go ]; do sleep 0.01; done")
    running = [start("capture", "-o", "run", "--", *waits, cwd=tmp_path, **NSYS) for _ in range(3)]
    wait_until(lambda: len(list(tmp_path.glob("up.*"))) == 3)
    (tmp_path / "go").touch()
    errors = [one.communicate(timeout=60)[1] for one in running]
    assert sorted(one.returncode for one in running) == [0, 2, 2]
    assert [error.count("It appeared meanwhile; what was made is in ") for error in errors].count(1) == 2
    assert "Traceback" not in "".join(errors)
    directories = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert len(directories) == 3
    assert all(run_dir.is_run(path) for path in directories)


def test_a_directory_that_is_gone_is_held_by_nobody(tmp_path: Path) -> None:
    with run_dir.held(tmp_path / "gone") as is_ours:
        assert not is_ours
    with run_dir.held(tmp_path) as is_ours, run_dir.held(tmp_path) as is_theirs:
        assert (is_ours, is_theirs) == (True, False)


@pytest.mark.parametrize("target", ["there", "nowhere"])
def test_a_repeated_capture_refuses_a_link_too(tmp_path: Path, target: str) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "pool").symlink_to(tmp_path / target)
    done = profkit("capture", TOY, "--variant", "fused", "--pairs", "2", "-o", "pool", cwd=tmp_path)
    assert done.returncode == 2
    assert "pool is a link" in done.stderr
    assert names(tmp_path) == ["pool", "there"]


@pytest.mark.parametrize("path", ["", ".", "..", "/"])
def test_what_names_no_directory_to_make_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProfkitError, match="is no name of a directory to make"), run_dir.new(Path(path), force=True):
        raise AssertionError


def test_only_what_has_a_parts_name_is_taken_for_one(tmp_path: Path) -> None:
    (tmp_path / ".run.mine.part").mkdir()
    (tmp_path / ".run.0123abcd.part").mkdir()
    recorded(tmp_path / "run")
    assert names(tmp_path) == [".run.mine.part", "run"]
