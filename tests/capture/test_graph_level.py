"""The step at graph level: read from an export of whole graphs, or reported as not measured."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from capture_cli import STUB_NSYS, TOY, names, profkit

from profkit.capture import graph_level
from profkit.capture.floor import traced_options
from profkit.capture.profilers.nsys import Nsys
from profkit.errors import ProfkitError
from profkit.readers import nsight_systems


def export(path: Path, rows: Sequence[tuple[int, int]]) -> Path:
    """An export that holds whole graphs, each from start to end."""
    with sqlite3.connect(path) as database:
        database.execute('CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, "end" INTEGER, graphId INTEGER)')
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?, ?, 1)", rows)
    return path


def test_each_row_is_one_replay_in_order_and_one_without_an_end_is_none(tmp_path: Path) -> None:
    rows = [(5_000, 9_500), (1_000, 4_250), (10_000, 0)]
    assert graph_level.step_times_us(export(tmp_path / "x.sqlite", rows)) == [3.25, 4.5]


def test_an_export_of_an_nsys_that_writes_no_whole_graphs_says_so(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.sqlite") as database:
        database.execute("CREATE TABLE NVTX_EVENTS (start INTEGER)")
    with pytest.raises(ProfkitError, match="nsys 2024 and later"):
        graph_level.step_times_us(tmp_path / "x.sqlite")


def test_median_and_quartiles() -> None:
    content = graph_level.summarise([100.0, 102.0, 101.0, 109.0, 100.5], 5)
    assert {name: content[name] for name in ("unit", "replays", "median", "p25", "p75", "min", "max")} == {
        "unit": "us", "replays": 5, "median": 101.0, "p25": 100.5, "p75": 102.0, "min": 100.0, "max": 109.0,
    }  # fmt: skip
    assert graph_level.summarise([7.0], 1)["median"] == 7.0


@pytest.mark.parametrize("count", [0, 4, 6])
def test_another_number_of_rows_than_of_replays_is_no_measurement(count: int) -> None:
    with pytest.raises(ProfkitError, match=f"recorded {count} whole graphs of 5 replays"):
        graph_level.summarise([100.0] * count, 5)


def test_what_fails_is_a_warning_with_its_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a recording without whole graphs, or a machine without a GPU
    monkeypatch.delenv("STUB_NSYS_FAULT", raising=False)
    stub = Nsys(nsight_systems.check(STUB_NSYS))
    (found,) = graph_level.measure(traced_options(stub), stub, [tmp_path])
    assert found.content is None
    (warning,) = found.warnings
    assert warning["code"] == "graph-level-not-measured"
    assert "could not be timed: " in warning["message"]


def test_it_was_not_asked_for() -> None:
    assert (graph_level.GraphLevel().content, graph_level.GraphLevel().warnings) == (None, [])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([TOY, "--profiler", "dispatch"], "--graph-level needs nsys, and dispatch would record"),
        (["--", "true"], "belong to a workload, not to a command"),
    ],
)
def test_it_needs_nsys_and_a_workload(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = profkit("capture", "--graph-level", "-o", "run", *arguments, cwd=tmp_path, PROFKIT_NSYS=str(STUB_NSYS))
    assert done.returncode == 2
    assert said in done.stderr
    assert names(tmp_path) == []


def test_whole_graphs_are_recorded_with_the_same_flags_but_one() -> None:
    found = Nsys(nsight_systems.Nsys(Path("/opt/nsys"), "2025.3.1.90"))
    node, graph = (found.command(["w"], Path("run"), window=True, graph_trace=level) for level in ("node", "graph"))
    assert set(graph) ^ set(node) == {"--cuda-graph-trace=node", "--cuda-graph-trace=graph"}
