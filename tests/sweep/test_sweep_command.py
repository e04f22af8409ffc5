"""`profkit sweep` from the command line, on the CPU: results, resuming, refusals, and what it leaves behind."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from capture_cli import names, profkit, start, wait_until

import profkit as library

torch = pytest.importorskip("torch", reason="sweeps run torch")

HERE = Path(__file__).parent
SCALE = f"{HERE / 'cpu_tunable.py'}:SCALE"
#: Three small regions' worth of work: the first takes well under a second, none is screened out by chance.
QUICK = ("sweep", SCALE, "--device", "cpu", "--orders", "2", "--replays", "3", "--set", "repeats=4,40", "--screen", "0")
ALL = (*QUICK, "--region", "all", "-o", "out")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of all regions, with every kind of configuration; what the command said lies beside it."""
    home = tmp_path_factory.mktemp("sweep")
    done = profkit(*ALL, "--set", "chunks=1,2,16,32,64,128", "--format", "json", cwd=home)
    assert done.returncode == 0, done.stderr
    (home / "stdout").write_text(done.stdout)
    (home / "stderr").write_text(done.stderr)
    return home


def of(data: dict[str, Any], region: str, **parameters: int) -> dict[str, Any]:
    """One configuration of a region."""
    (found,) = (r for r in data["regions"] if r["name"] == region)
    return next(c for c in found["configurations"] if c["parameters"] == parameters)


def test_every_configuration_that_is_right_has_times_and_is_compared_with_known_entries(finished: Path) -> None:
    data = json.loads((finished / "stdout").read_text())
    quick, slow = (of(data, "large", chunks=1, repeats=repeats)["times"]["hot"] for repeats in (4, 60))
    # Fifteen times the work, by the least of each: what else this machine does cannot make that less.
    assert slow["min_us"] > 3 * quick["min_us"] > 0
    assert [len(entry["orders_us"]) for entry in (quick, slow)] == [2, 2]
    assert (quick["samples"], quick["copies"], slow["samples"], slow["copies"]) == (6, 1, 48, 8)
    assert set(quick["against"]) == {"slow", "fast"}
    assert quick["against"]["slow"]["ratio"] == pytest.approx(quick["us"] / slow["us"], rel=1e-3)
    assert slow["against"]["slow"] is None


def test_wrong_failing_and_rejected_configurations_are_listed_and_never_timed(finished: Path) -> None:
    data = json.loads((finished / "stdout").read_text())
    fates = {c: of(data, "small", chunks=c, repeats=4) for c in (16, 32, 64, 128)}
    assert {c: one["status"] for c, one in fates.items()} == {16: "rejected", 32: "failed", 64: "wrong", 128: "wrong"}
    assert all(one["times"] == {} and one["reason"] for one in fates.values())
    assert "/home" not in json.dumps(data)


def test_the_document_says_where_and_how(finished: Path) -> None:
    data = json.loads((finished / "stdout").read_text())
    assert data["schema"] == "profkit.sweep/2"
    workload = data["workload"]
    assert (workload["name"], workload["variant"], workload["source"]) == ("cpu_tunable.py:SCALE", "plain", "file")
    assert len(workload["sources"]["cpu_tunable.py"]) == 64
    assert (data["device"]["name"], data["seed"], len(data["planned"])) == ("cpu", 0, 3)
    assert data["versions"]["torch"] == torch.__version__
    assert "the host's clock" in data["protocol"]["methods"]["hot"]
    assert data["protocol"]["states"] == ["hot"]
    small = data["regions"][0]
    assert (small["name"], small["shapes"]) == ("small", {"size": 20_000, "other": 1})
    assert Counter(one["status"] for one in small["configurations"]) == {
        **{"timed": 5, "rejected": 2, "failed": 2, "wrong": 4}
    }


def test_the_directory_holds_the_plan_and_a_file_for_each_region(finished: Path) -> None:
    assert names(finished / "out") == ["regions", "sweep.json"]
    assert names(finished / "out" / "regions") == ["0000.small.json", "0001.large.json", "0002.large-2.json"]
    assert json.loads(msgspec.json.encode(library.load_sweep(finished / "out"))) == json.loads(
        (finished / "stdout").read_text()
    )


def test_progress_is_shown_beside_the_results(finished: Path) -> None:
    said = (finished / "stderr").read_text()
    assert "region 2 of 3: large\n" in said
    assert "large: checking 13 configurations\n" in said
    assert "timing 5 of 13 configurations\n" in said


def test_the_same_command_again_measures_nothing(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "out", tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.json")}
    done = profkit(*ALL, "--set", "chunks=1,2,16,32,64,128", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (finished / "stdout").read_text()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.json")} == before


def test_a_sweep_that_is_there_is_reported_without_torch(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nfor name in ('torch', 'triton'): sys.modules[name] = None\n"
    )
    path = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    text = profkit("sweep", finished / "out", "--html", "maps.html", cwd=tmp_path, **path)
    assert text.returncode == 0, text.stderr
    assert "cpu_tunable.py:SCALE, variant plain, on cpu" in text.stdout
    assert "large-2 (size=50000 other=1): 13 configurations" in text.stdout
    assert (tmp_path / "maps.html").read_text().startswith("<!DOCTYPE html>")
    table = profkit("sweep", finished / "out", "--format", "csv", cwd=tmp_path, **path)
    assert len(list(csv.DictReader(io.StringIO(table.stdout)))) == 3 * 13
    again = profkit("sweep", finished / "out", "--html", "maps.html", cwd=tmp_path, **path)
    assert (again.returncode, again.stdout) == (2, "")
    assert "maps.html exists and will not be overwritten" in again.stderr


def test_options_for_measuring_are_refused_where_a_sweep_is_only_reported(finished: Path, tmp_path: Path) -> None:
    ignored = ("--region", "small", "--orders", "3", "--set", "chunks=1", "--seed", "0", "--only-known", "-o", "new")
    done = profkit("sweep", finished / "out", *ignored, "--format", "csv", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is only reported. Leave --region, --set, --only-known, --orders, --seed, --output out.\n" in done.stderr


def test_a_directory_without_a_sweep_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = profkit("sweep", "empty", cwd=tmp_path)
    assert done.returncode == 2
    assert "empty is a directory and holds no sweep (no sweep.json)." in done.stderr


def test_results_are_printed_although_the_html_cannot_be_written_after_all(finished: Path, tmp_path: Path) -> None:
    # GIVEN a name that is no longer than names may be, and no room for that of its part
    name = f"{'m' * 245}.html"
    done = profkit("sweep", finished / "out", "--html", name, "--format", "csv", cwd=tmp_path)
    assert done.returncode == 2
    assert f"Cannot write {name}: " in done.stderr
    assert len(list(csv.DictReader(io.StringIO(done.stdout)))) == 3 * 13


@pytest.mark.slow
def test_another_plan_in_the_same_directory_is_refused_and_force_replaces_it(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "out", tmp_path / "out")
    other = (*QUICK, "--region", "small", "--seed", "3", "-o", "out")
    refused = profkit(*other, cwd=tmp_path)
    assert refused.returncode == 2
    assert "out holds a sweep with other options: regions was " in refused.stderr
    assert "seed was 0, now 3" in refused.stderr
    assert len(names(tmp_path / "out" / "regions")) == 3
    forced = profkit(*other, "--force", cwd=tmp_path)
    assert forced.returncode == 0, forced.stderr
    assert names(tmp_path / "out" / "regions") == ["0000.small.json"]


@pytest.mark.slow
def test_an_interrupt_keeps_finished_regions_and_the_same_command_resumes(tmp_path: Path) -> None:
    running = start(*ALL, cwd=tmp_path)
    first, second = (tmp_path / "out" / "regions" / f"000{n}" for n in ("0.small.json", "1.large.json"))
    wait_until(first.exists)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=30)
    assert running.returncode == 130
    kept = len(names(tmp_path / "out" / "regions"))
    assert f"interrupted: {kept} of 3 regions are kept; the same command resumes" in errors
    assert "Traceback" not in errors
    before = first.stat().st_mtime_ns
    (tmp_path / "out" / "regions" / ".0001.large.json.0a.part").write_text("half a reg")
    resumed = profkit(*ALL, cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert first.stat().st_mtime_ns == before
    assert second.exists()
    assert len(names(tmp_path / "out" / "regions")) == 3


@pytest.mark.slow
def test_the_time_limit_ends_it_between_regions(tmp_path: Path) -> None:
    done = profkit(*ALL, "--stop-after", "0.01", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert names(tmp_path / "out" / "regions") == ["0000.small.json"]
    assert "1 of 3 regions are finished; the same command with -o out measures the rest." in " ".join(
        done.stdout.split()
    )


@pytest.mark.slow
def test_what_a_workload_prints_is_no_part_of_the_results(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        f"import os, sys\nsys.path.insert(0, {str(HERE)!r})\nfrom cpu_tunable import SCALE\n"
        "print('hello')\nos.write(1, b'there')\n"
    )
    arguments = (*QUICK[:1], "loud.py:SCALE", *QUICK[2:], "--shape", "size=100", "--format", "json")
    done = profkit(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["regions"][0]["name"] == "size=100"
    assert "hello" in done.stderr
    assert "there" in done.stderr


def test_a_region_in_which_nothing_can_be_timed_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / "none.py").write_text(
        f"import dataclasses, sys\nsys.path.insert(0, {str(HERE)!r})\nimport cpu_tunable\n"
        "def build(context):\n"
        "    return dataclasses.replace(cpu_tunable.build_problem(context), known={}, run=lambda c: None)\n"
        "tunable = dataclasses.replace(cpu_tunable.SCALE.tunable, build=build)\n"
        "NONE = dataclasses.replace(cpu_tunable.SCALE, tunable=tunable)\n"
    )
    done = profkit(*QUICK[:1], "none.py:NONE", *QUICK[2:], cwd=tmp_path)
    assert done.returncode == 3
    assert "4 configurations: 4 WRONG" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--region", "smal"), "scale has no region 'smal'. Did you mean small?"),
        (("--format", "xml"), "--format 'xml' is unknown. There are: text, json, csv."),
        (("--stop-after", "0"), "--stop-after 0: give a number of seconds above 0."),
        (("-o", "full"), "full exists and holds no sweep (no sweep.json)."),
        (("--html", "nowhere/x.html"), "Cannot write nowhere/x.html: nowhere is no directory that can be written to."),
        (("--html", "full", "--force"), "--html full is a directory. Give a file."),
        (("--html", "/dev/null", "--force"), "--html /dev/null is a device or a pipe, which cannot be replaced."),
    ],
)
def test_misuse_is_one_error(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    done = profkit(*QUICK, *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("profkit: error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert names(tmp_path) == ["full"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="shows what is said without a CUDA device")
def test_without_a_device_it_is_one_error_and_nothing_is_left(tmp_path: Path) -> None:
    done = profkit("sweep", SCALE, "-o", "out", "--jobs", "1", cwd=tmp_path)
    assert done.returncode == 2
    assert "finds no CUDA device here" in done.stderr
    assert "--device cpu times workloads of torch's CPU operators" in done.stderr
    assert names(tmp_path) == []


@pytest.mark.parametrize("file", ["sweep.json", "regions/0001.large.json"])
@pytest.mark.parametrize("damage", ["cut", "field"])
@pytest.mark.parametrize("form", ["text", "json", "csv", "html"])
def test_a_damaged_file_is_one_error_that_says_what_to_do(
    file: str, damage: str, form: str, finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished / "out", tmp_path / "out")
    damaged = tmp_path / "out" / file
    if damage == "cut":
        os.truncate(damaged, 100)
    else:
        content = json.loads(damaged.read_text())
        del content["parameters" if file == "sweep.json" else "configurations"]
        damaged.write_text(json.dumps(content))
    options = ("--html", "maps.html") if form == "html" else ("--format", form)
    done = profkit("sweep", "out", *options, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"profkit: error: out/{file} is not ")
    assert done.stderr.count("\n") == 1
    mend = "Sweep again: " if file == "sweep.json" else "Remove it, and the same command measures the region again."
    assert mend in done.stderr
    assert names(tmp_path) == ["out"]


def test_a_sweep_of_an_earlier_version_is_refused_with_the_way_out(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished / "out", tmp_path / "out")
    (tmp_path / "out" / "sweep.json").write_text('{"schema": "profkit.sweep-plan/1", "plan": {}, "facts": {}}')
    for command in (("sweep", "out"), ALL):
        done = profkit(*command, cwd=tmp_path)
        assert done.returncode == 2
        assert "sweep.json: schema is 'profkit.sweep-plan/1', expected 'profkit.sweep/2'. Sweep again: " in done.stderr
