"""The step at graph level: read from an export of whole graphs, or reported as not measured."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from capture_cli import STUB_NSYS, TOY, names, profkit

from profkit.capture.floor import graph_level, workers_under
from profkit.capture.options import Recording
from profkit.capture.profilers.nsys import Nsys
from profkit.capture.record import step_times
from profkit.errors import ProfkitError
from profkit.model.run import MessageRecord, StepTimesRecord
from profkit.readers.installed import NSYS, Installed


def export(path: Path, rows: Sequence[tuple[int, int]]) -> Path:
    """An export that holds whole graphs, each from start to end."""
    with sqlite3.connect(path) as database:
        database.execute('CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, "end" INTEGER, graphId INTEGER)')
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?, ?, 1)", rows)
    return path


def graph_times(trace: Path, replays: int) -> StepTimesRecord:
    """What is read of the export `trace`, which has the name that it has in a recording."""
    return Nsys(Installed(Path("nsys"), "2025.3.1")).graph_times(Recording(trace.parent, trace), replays)


def test_each_row_is_one_replay_in_order_and_one_without_an_end_is_none(tmp_path: Path) -> None:
    rows = [(5_000, 9_500), (1_000, 4_250), (10_000, 0)]
    assert graph_times(export(tmp_path / "trace.sqlite", rows), 2).samples == [3.25, 4.5]


def test_an_export_of_an_nsys_that_writes_no_whole_graphs_says_so(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "trace.sqlite") as database:
        database.execute("CREATE TABLE NVTX_EVENTS (start INTEGER)")
    with pytest.raises(ProfkitError, match="nsys 2024 and later"):
        graph_times(tmp_path / "trace.sqlite", 1)


def test_median_and_quartiles() -> None:
    times = step_times([100.0, 102.0, 101.0, 109.0, 100.5], "by hand")
    assert (times.unit, times.method, times.replays) == ("us", "by hand", 5)
    assert (times.median, times.p25, times.p75, times.min, times.max) == (101.0, 100.5, 102.0, 100.0, 109.0)
    assert step_times([7.0], "by hand").median == 7.0


@pytest.mark.parametrize("count", [0, 4, 6])
def test_another_number_of_rows_than_of_replays_is_no_measurement(tmp_path: Path, count: int) -> None:
    rows = [(1_000 * number, 1_000 * number + 100) for number in range(count)]
    with pytest.raises(ProfkitError, match=f"recorded {count} whole graphs of 5 replays"):
        graph_times(export(tmp_path / "trace.sqlite", rows), 5)


def test_what_fails_is_a_warning_with_its_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a recording without whole graphs, or a machine without a GPU
    monkeypatch.delenv("STUB_NSYS_FAULT", raising=False)
    stub = Nsys(NSYS.check(STUB_NSYS))
    (found,) = graph_level(workers_under(stub), tmp_path)
    assert isinstance(found, MessageRecord)
    assert found.code == "graph-level-not-measured"
    assert "could not be timed: " in str(found.message)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([TOY, "--profiler", "dispatch"], "--profiler dispatch does not go with --graph-level; that needs nsys"),
        (["--", "true"], "belong to a workload, not to a command"),
    ],
)
def test_it_needs_nsys_and_a_workload(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = profkit("capture", "--graph-level", "-o", "run", *arguments, cwd=tmp_path, PROFKIT_NSYS=str(STUB_NSYS))
    assert done.returncode == 2
    assert said in done.stderr
    assert names(tmp_path) == []


def test_whole_graphs_are_recorded_with_the_same_flags_but_one() -> None:
    found = Nsys(Installed(Path("/opt/nsys"), "2025.3.1.90"))
    node, graph = (found.command(["w"], Path("run"), window=True, graph_trace=level) for level in ("node", "graph"))
    assert set(graph) ^ set(node) == {"--cuda-graph-trace=node", "--cuda-graph-trace=graph"}
