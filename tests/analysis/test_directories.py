"""A directory of traces, as profilers and serving engines leave them, is a run: of ranks, where names tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench import Bench, profkit
from recording import step_recording

BEFORE, AFTER = "gemm:3000 mask:900 pack:1300", "gemm:3000 pack:1300"


def traces(bench: Bench, name: str, layer: str, *files: str) -> Path:
    directory = bench.directory / name
    directory.mkdir()
    for number, file in enumerate(files):
        rows = step_recording([layer] * 2, jitter_ns=5, seed=number, pid=100 + number).rows
        bench.path(rows).rename(directory / file)
    return directory


def layers_of(directory: Path) -> dict[str, Any]:
    done = profkit("layers", directory, "--format", "json")
    assert done.returncode == 0, done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    return data


@pytest.mark.parametrize(
    "files",
    [
        ("dp0_pp0_tp0_ep0_rank0.17.sqlite", "dp0_pp0_tp1_ep1_rank1.17.sqlite"),
        ("1764.5-TP-0.sqlite", "1764.5-TP-1.sqlite"),
        ("run_pp0_tp3.sqlite", "run_pp1_tp3.sqlite"),
    ],
)
def test_names_tell_ranks(bench: Bench, files: tuple[str, ...]) -> None:
    data = layers_of(traces(bench, "profiles", BEFORE, *files))
    assert [(run["run"], run["rank"]) for run in data["runs"]] == [(f"profiles/{f}", i) for i, f in enumerate(files)]
    assert len(data["jobs"]) == 1


def test_the_ranks_of_a_directory_are_one_run_in_a_diff(bench: Bench) -> None:
    files = [f"host.rank{rank}.sqlite" for rank in range(3)]
    before, after = traces(bench, "before", BEFORE, *files), traces(bench, "after", AFTER, *files)
    done = profkit("diff", before, after, "--expect-removed", "1", "--format", "json")
    data = json.loads(done.stdout)
    assert (data["verdict"], data["samples"], len(data["ranks"])) == ("confirmed", "replays", 3)


def test_a_second_window_of_every_rank_is_a_job_of_its_own(bench: Bench) -> None:
    files = [f"rank{rank}.{window}.sqlite" for rank in range(2) for window in (11, 12)]
    data = layers_of(traces(bench, "profiles", BEFORE, *files))
    assert [run["rank"] for run in data["runs"]] == [0, 0, 1, 1]
    assert len(data["jobs"]) == 2


@pytest.mark.parametrize("files", [("a.sqlite", "b.sqlite"), ("rank0.1.sqlite", "rank0.2.sqlite", "rank1.1.sqlite")])
def test_where_names_do_not_tell_every_file_is_a_run(bench: Bench, files: tuple[str, ...]) -> None:
    data = layers_of(traces(bench, "profiles", BEFORE, *files))
    assert len(data["runs"]) == len(files)
    assert data["jobs"] == []


def test_what_is_no_trace_is_named(bench: Bench) -> None:
    directory = traces(bench, "profiles", BEFORE, "one.sqlite")
    (directory / "notes.txt").write_text("it was a warm day", encoding="utf-8")
    (run,) = layers_of(directory)["runs"]
    assert [w["message"] for w in run["warnings"] if w["code"] == "files-not-read"] == [
        "1 file in profiles is no trace and not read: notes.txt."
    ]


def test_the_trace_of_a_servers_front_beside_its_ranks_is_named_and_left(bench: Bench) -> None:
    files = ("dp0_pp0_tp0_rank0.179.sqlite", "vm_2477.async_llm.179.sqlite")
    (run,) = layers_of(traces(bench, "profiles", BEFORE, *files))["runs"]
    assert run["run"] == f"profiles/{files[0]}"
    assert [w["message"] for w in run["warnings"] if w["code"] == "files-not-read"] == [
        f"1 file in profiles is of no rank, as others are, and not read: {files[1]}."
    ]


def test_a_directory_without_a_trace_is_one_error(bench: Bench) -> None:
    directory = bench.directory / "empty"
    directory.mkdir()
    (directory / "notes.txt").write_text("nothing", encoding="utf-8")
    done = profkit("layers", directory)
    assert (done.returncode, done.stdout) == (2, "")
    assert "holds no run.json (looked three levels deep) and no trace; its files are of no format" in done.stderr


def test_a_capture_trace_may_be_a_run_directory(bench: Bench) -> None:
    rows = step_recording([BEFORE] * 3).rows
    run = bench.run_directory(rows, "start")
    trace = bench.path(rows)
    texts = [profkit("layers", trace, "--capture-trace", given).stdout for given in (run, run / "trace.sqlite")]
    assert texts[0] == texts[1]
