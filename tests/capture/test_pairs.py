"""Repeated captures: arms in turns, each repetition whole, what stalled marked and counted, nothing overwritten."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from capture_cli import HERE, TOY, names, profkit

from profkit.model.run import RepetitionRecord
from profkit.runs import run_dir

#: Many processes that import torch: `make test-all` runs them, `make test` does not.
pytestmark = pytest.mark.slow

pytest.importorskip("torch", reason="workers import torch")

AGAINST = ("capture", TOY, "--variant", "unfused", "--against", "fused", "--pairs", "2", "--profiler", "dispatch")
CONTROL = ("capture", TOY, "--variant", "fused", "--against", "fused", "--pairs", "2", "--profiler", "dispatch")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An A/A control of two pairs, recorded once; what the command said lies beside it."""
    home = tmp_path_factory.mktemp("control")
    done = profkit(*CONTROL, "-o", "session", cwd=home)
    assert done.returncode == 0, done.stderr
    (home / "stdout").write_text(done.stdout)
    (home / "stderr").write_text(done.stderr)
    return home


@pytest.fixture
def control(recorded: Path, tmp_path: Path) -> Path:
    """A copy of the A/A control that a test may change."""
    shutil.copytree(recorded / "session", tmp_path / "session")
    return tmp_path / "session"


def edit(run: Path, **fields: Any) -> None:
    """Change fields of a run.json."""
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, **fields}))


def test_the_first_arm_alternates(recorded: Path) -> None:
    runs = run_dir.find(recorded / "session")
    by_time = sorted(runs, key=lambda run: run.trace_path.stat().st_mtime_ns)
    assert [run.path.relative_to(recorded / "session").as_posix() for run in by_time] == [
        "fused/0/0",
        "fused-2/0/0",
        "fused-2/1/0",
        "fused/1/0",
    ]
    assert [run.record.repetition.sequence for run in by_time] == list(range(4))


def test_an_arm_against_itself_gets_a_name_of_its_own_and_the_same_variant(recorded: Path) -> None:
    assert names(recorded / "session") == ["capture.json", "fused", "fused-2"]
    runs = run_dir.find(recorded / "session")
    assert {run.record.workload.variant for run in runs} == {"fused"}
    assert run_dir.load(recorded / "session" / "fused-2" / "1" / "0").record.repetition == RepetitionRecord(
        arm="fused-2", pair=1, sequence=2
    )


def test_plain_lines_say_what_runs_and_how_long_is_left(recorded: Path) -> None:
    lines = (recorded / "stderr").read_text().splitlines()
    assert lines[0::2] == [
        "repetition 1 of 4: fused, pair 0",
        "repetition 2 of 4: fused-2, pair 0",
        "repetition 3 of 4: fused-2, pair 1",
        "repetition 4 of 4: fused, pair 1",
    ]
    assert all(line.startswith("  took ") and line.endswith(" s left") for line in lines[1::2])


def test_the_summary_counts_and_names_what_is_next(recorded: Path) -> None:
    summary = (recorded / "stdout").read_text()
    assert "toy_workload.py:TOY fused against fused-2, 3 layers" in summary
    assert "recorded: 4 of 4 repetitions, 4 of them now in" in summary
    assert "not timed" in summary
    assert "set aside: 0 of 4 repetitions\n" in summary
    assert summary.endswith("next: profkit diff session\n")


def test_the_plan_names_no_directory_of_this_machine(recorded: Path) -> None:
    text = (recorded / "session" / "capture.json").read_text()
    assert json.loads(text)["schema"] == "profkit.capture/1"
    assert json.loads(text)["plan"]["workload"] == "toy_workload.py:TOY"
    assert str(HERE) not in text


def test_a_finished_capture_is_left_as_it_is(control: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in control.rglob("*.json") if path.name != "capture.json"}
    done = profkit(*CONTROL, "-o", control, cwd=control.parent)
    assert done.returncode == 0, done.stderr
    assert "recorded: 4 of 4 repetitions, none of them now\n" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_compilation_inside_the_window_sets_a_repetition_aside_with_a_count(control: Path) -> None:
    stalled = control / "fused" / "1" / "0"
    edit(stalled, compiles={"before": 1, "inside": [{"name": "late_kernel", "seconds": 0.5}]})
    done = profkit(*CONTROL, "-o", control, cwd=control.parent)
    assert "set aside: 1 of 4 repetitions\n  fused, pair 1: compiled-inside-window: 1 compilation ran" in done.stdout
    marked = {run.path.relative_to(control).as_posix(): run.record.set_aside for run in run_dir.find(control)}
    assert marked.pop("fused/1/0").code == "compiled-inside-window"
    assert set(marked.values()) == {None}
    assert names(stalled) == ["dispatch.json", "run.json"]


def test_other_options_are_refused_and_every_difference_is_named(control: Path) -> None:
    arguments = [*CONTROL, "--seed", "1", "--shape", "layers=2", "-o", str(control)]
    arguments[arguments.index("--pairs") + 1] = "4"
    arguments[arguments.index("--against") + 1] = "lossy"
    done = profkit(*arguments, cwd=control.parent)
    assert done.returncode == 2
    for difference in (
        "arms was fused and fused-2, now fused and lossy",
        "pairs was 2, now 4",
        'shapes was {}, now {"layers": "2"}',
        "seed was 0, now 1",
    ):
        assert difference in done.stderr
    assert len(run_dir.find(control)) == 4


def test_a_workload_that_changed_since_is_refused(tmp_path: Path, control: Path) -> None:
    changed = tmp_path / "toy_workload.py"
    changed.write_text(Path(TOY.rpartition(":")[0]).read_text() + "\n# changed\n")
    arguments = [f"{changed}:TOY" if word == TOY else word for word in CONTROL]
    done = profkit(*arguments, "-o", control, cwd=tmp_path)
    assert done.returncode == 2
    assert "workload_sha256 was " in done.stderr


def test_force_starts_over_and_touches_nothing_else(control: Path) -> None:
    (control / "notes.txt").write_text("mine")
    one_arm = ("capture", TOY, "--variant", "lossy", "--pairs", "1", "--profiler", "dispatch", "--force")
    done = profkit(*one_arm, "-o", control, cwd=control.parent)
    assert done.returncode == 0, done.stderr
    assert names(control) == ["capture.json", "lossy", "notes.txt"]
    assert "recorded: 1 of 1 repetitions" in done.stdout
    assert done.stdout.endswith(f"next: profkit layers {control}\n")


@pytest.mark.parametrize("place", ["fused", "fused/0", "fused/0/0"])
@pytest.mark.parametrize("name", ["notes.txt", "training.log", "link", "mine.part/notes.txt"])
def test_force_removes_no_arm_that_holds_something_else(control: Path, place: str, name: str) -> None:
    mine = control / place / name
    mine.parent.mkdir(exist_ok=True)
    if name == "link":
        mine.symlink_to(control.parent)
    else:
        mine.write_text("mine")
    before = sorted(control.rglob("*"))
    one_arm = ("capture", TOY, "--variant", "lossy", "--pairs", "1", "--profiler", "dispatch", "--force")
    done = profkit(*one_arm, "-o", control, cwd=control.parent)
    assert done.returncode == 2
    assert f"{control / place}" in done.stderr
    assert "holds more than runs" in done.stderr
    assert sorted(control.rglob("*")) == before


def test_what_is_no_repeated_capture_is_not_touched_even_by_force(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data").write_text("mine")
    done = profkit(*AGAINST, "--force", "-o", "other", cwd=tmp_path)
    assert done.returncode == 2
    assert "other exists and holds no repeated capture (no capture.json)" in done.stderr
    assert names(tmp_path / "other") == ["data"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([TOY, "--pairs", "2"], "Give --variant"),
        ([TOY, "--variant", "fused", "--pairs", "0"], "--pairs 0: give a whole number"),
        ([TOY, "--variant", "fused", "--pairs", "2", "--stop-after", "0"], "--stop-after 0: give a number of seconds"),
        ([TOY, "--stop-after", "5"], "--stop-after belongs to repeated captures"),
        (["dcp-combine", "--against", "fuse"], "no variant 'fuse'. Did you mean fused?"),
        (["no/such.py:TOY", "--variant", "a", "--pairs", "2"], "no/such.py cannot be read: No such file"),
        ([TOY, "--variant", "a/b", "--pairs", "2"], "'a/b' cannot name an arm's directory"),
        (["--pairs", "2", "--", "true"], "belong to a workload, not to a command"),
    ],
)
def test_misuse_is_one_error_and_leaves_nothing(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = profkit("capture", "--profiler", "dispatch", "-o", "session", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert names(tmp_path) == []
