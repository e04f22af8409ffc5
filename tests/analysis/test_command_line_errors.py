"""What a user does wrong: exit status 2 and one message on standard error, never a traceback."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench import Bench, Output, profkit, profkit_process
from recording import step_recording, step_trace

from profkit import readers
from profkit.errors import ProfkitError


def assert_error(result: Output) -> str:
    """One message on standard error, exit status 2; returns the message."""
    assert result.returncode == 2
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines, "the error goes to standard error"
    assert lines[0].startswith("profkit: error: ")
    assert "Traceback" not in result.stderr
    assert "internal error" not in result.stderr
    return result.stderr


def text_file(path: Path) -> None:
    """A file that is no trace."""
    path.write_text("hello\n", encoding="utf-8")


def truncated(path: Path) -> None:
    """The first 6000 bytes of an export."""
    step_trace(path, ["gemm pack"] * 30)
    path.write_bytes(path.read_bytes()[:6000])


def other_database(path: Path) -> None:
    """A database that no profiler wrote."""
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE t (a)")
    db.commit()
    db.close()


INPUTS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "directory without run.json": Path.mkdir,
    "empty file": Path.touch,
    "text file": text_file,
    "binary garbage": lambda path: path.write_bytes(random.Random(3).randbytes(5000)),
    "truncated sqlite": truncated,
    "sqlite header only": lambda path: path.write_bytes(b"SQLite format 3\x00"),
    "another database": other_database,
    "damaged gzip": lambda path: path.write_bytes(b"\x1f\x8b\x08\x00garbage"),
}


@pytest.mark.parametrize("make", list(INPUTS.values()), ids=list(INPUTS))
@pytest.mark.parametrize("command", ["layers", "diff"])
def test_an_unusable_input_is_an_error_that_names_it(
    bench: Bench, command: str, make: Callable[[Path], object]
) -> None:
    path = bench.directory / "input"
    make(path)
    good = bench.path(step_recording(["gemm"] * 2).rows)
    said = assert_error(profkit(command, *([good] if command == "diff" else []), path))
    assert str(path) in said


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file here that even root cannot read")
def test_an_unreadable_file_is_an_error() -> None:
    assert "cannot be read" in assert_error(profkit("layers", "/proc/self/mem"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--layers", "("], "not a regular expression", id="broken --layers"),
        pytest.param(["--scope", "["], "not a regular expression", id="broken --scope"),
        pytest.param(["--steps", "*"], "not a regular expression", id="broken --steps"),
        pytest.param(["--layers", "zzz"], "layers.#.mla", id="--layers that matches nothing"),
        pytest.param(["--scope", "zzz"], "combine", id="--scope that matches nothing"),
        pytest.param(["--steps", "zzz"], "replay", id="--steps that matches nothing"),
        pytest.param(["--graph", "zzz"], "graph 2", id="--graph that there is not"),
        pytest.param(["--format", "zzz"], "text, json, csv, md", id="--format that there is not"),
    ],
)
def test_an_option_that_fits_nothing_says_what_there_is(bench: Bench, arguments: list[str], said: str) -> None:
    path = bench.path(step_recording(["gemm combine/pack"] * 2).rows)
    assert said in assert_error(profkit("layers", path, *arguments))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_diff_takes_two(bench: Bench, count: int) -> None:
    path = bench.path(step_recording(["gemm"] * 2).rows)
    result = profkit("diff", *[path] * count)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_a_glob_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    assert "matches nothing" in assert_error(profkit("layers", tmp_path / "*.sqlite"))


@pytest.mark.parametrize(
    "record",
    [
        pytest.param({"workload": "dcp"}, id="workload is text"),
        pytest.param({"workload": {"name": "w", "shapes": [1]}}, id="shapes are a list"),
        pytest.param({"untraced": [1]}, id="untraced is a list"),
        pytest.param({"untraced": {"median": "fast"}}, id="a time is text"),
        pytest.param({"digests": {"outputs": ["x"]}}, id="outputs are a list"),
        pytest.param({"digests": {"outputs": {"a": "b"}, "notes": "n"}}, id="notes are text"),
        pytest.param({"digests": {"references": {"rtol": 0.1, "atol": 0.1}}}, id="references of nothing"),
        pytest.param({"device": "H200"}, id="device is text"),
        pytest.param({"trace": 5}, id="trace is a number"),
        pytest.param({"trace": "../other"}, id="trace leaves the directory"),
        pytest.param({"schema": "profkit.run/99"}, id="another schema"),
        pytest.param({"trace": "gone.sqlite"}, id="the trace is missing"),
    ],
)
def test_a_run_json_that_profkit_did_not_write_is_an_error(bench: Bench, record: dict[str, Any]) -> None:
    rows = step_recording(["gemm"] * 2).rows
    good, bad = bench.run_directory(rows, "good"), bench.run_directory(rows, "bad", **record)
    assert "run.json" in assert_error(profkit("diff", good, bad))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": 1}', "\x00"])
def test_a_run_json_that_is_no_record_is_an_error(bench: Bench, text: str) -> None:
    directory = bench.run_directory(step_recording(["gemm"] * 2).rows, "bad")
    (directory / "run.json").write_text(text, encoding="utf-8")
    assert "run.json" in assert_error(profkit("layers", directory))


def test_untraced_times_of_zero_do_no_harm(bench: Bench) -> None:
    rows = step_recording(["gemm"] * 2).rows
    runs = [bench.run_directory(rows, n, untraced={"median": 0.0}) for n in ("a", "b")]
    assert profkit("diff", *runs).returncode in (0, 2)


def test_a_schema_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    path = step_trace(tmp_path / "damaged.sqlite", ["gemm"])
    content = path.read_bytes().replace(b"CREATE TABLE StringIds", b"CREATE TABEL StringIds")
    path.write_bytes(content.replace(b"StringIds", b"Str\xd0ngIds"))
    with pytest.raises(ProfkitError):
        readers.read(path)


def test_damaged_databases_are_errors_or_read(tmp_path: Path) -> None:
    # GIVEN an export with bytes overwritten, or cut, in 60 ways
    whole = step_trace(tmp_path / "whole.sqlite", ["gemm combine/pack"] * 12).read_bytes()
    mixed = random.Random(7)
    path = tmp_path / "damaged.sqlite"
    refused = 0
    for number in range(60):
        content = bytearray(whole)
        for _ in range(30):
            content[mixed.randrange(100, len(content))] = mixed.randrange(256)
        path.write_bytes(content if number % 3 else whole[: mixed.randrange(16, len(whole))])
        try:
            readers.read(path)
        except ProfkitError:
            refused += 1
    assert refused > 10


# -- exit statuses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "arguments", "status"),
    [
        pytest.param("gemm fill mask pack", [], 0, id="neutral"),
        pytest.param("gemm pack:1900", ["--expect-removed", "2"], 0, id="confirmed"),
        pytest.param("gemm pack:1900", ["--expect-removed", "3"], 1, id="refuted"),
        pytest.param("gemm pack", [], 3, id="inconclusive"),
        pytest.param("gemm pack", ["--expect-removed", "2"], 0, id="launches alone"),
    ],
)
def test_the_exit_status_is_the_verdict(bench: Bench, after: str, arguments: list[str], status: int) -> None:
    sides = [step_recording([layer] * 2, jitter_ns=4, seed=i) for i, layer in enumerate(("gemm fill mask pack", after))]
    result = profkit("diff", *(bench.path(s.rows) for s in sides), *arguments)
    assert (result.returncode, result.stderr) == (status, "")


def test_layers_of_a_trace_without_layers_prints_what_it_has_and_ends_with_3(bench: Bench) -> None:
    path = bench.path(step_recording(["gemm pack"] * 2, layer_range="block {i}").rows)
    result = profkit("layers", path, "--format", "json")
    assert result.returncode == 3
    assert json.loads(result.stdout)["runs"][0]["ledger"]["ops"] == 16
    assert "layers.N" in result.stderr


def test_the_installed_entry_point_behaves_the_same(bench: Bench) -> None:
    # GIVEN a process of its own, as a user runs it
    missing = profkit_process("layers", bench.directory / "missing")
    assert_error(missing)


def test_a_directory_of_two_arms_is_compared(bench: Bench) -> None:
    (bench.directory / "both").mkdir()
    for arm, layer in (("eager", "gemm fill pack"), ("fused", "gemm pack:1900")):
        bench.run_directory(step_recording([layer] * 2, jitter_ns=3).rows, f"both/{arm}")
    result = profkit("diff", bench.directory / "both", "--expect-removed", "1")
    assert result.returncode == 0
    assert result.stdout.startswith("CONFIRMED")
    assert "before: eager" in result.stdout
