"""The recordings made on an H200: what the tool must find in them."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from bench import SHARED, launches_by_layer, profkit

from profkit import readers
from profkit.counting.count import take_census

H200 = SHARED / "h200"
pytestmark = pytest.mark.skipif(not H200.is_dir(), reason="no h200 recordings beside the repository")

EAGER_2023, EAGER_2025 = H200 / "toy_eager.nsys2023.sqlite", H200 / "toy_eager.nsys2025.sqlite"
FUSED, GRAPH_LEVEL = H200 / "toy_fused.nsys2025.sqlite", H200 / "toy_graphmode.nsys2023.sqlite"


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """Plain SQL, without profkit."""
    db = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


@pytest.mark.parametrize(("path", "launches"), [(EAGER_2023, 11), (EAGER_2025, 11), (FUSED, 2)])
def test_24_layers_by_lineage(path: Path, launches: int) -> None:
    census = take_census(readers.read(path))
    assert launches_by_layer(census) == dict.fromkeys(range(24), launches)
    assert census.methods["lineage"] == 24 * launches * 20
    assert census.ledger.unattributed == 0


@pytest.mark.parametrize("path", [EAGER_2023, EAGER_2025, FUSED])
def test_counts_and_times_are_those_of_plain_sql(path: Path) -> None:
    sql = 'SELECT COUNT(*), SUM("end" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL'
    ((ops, ns),) = query(path, sql)
    ((in_graph, graph_ns),) = query(path, f"{sql} WHERE graphNodeId IS NOT NULL AND graphNodeId != 0")
    census = take_census(readers.read(path))
    assert (census.ledger.ops, census.ledger.ns["ops"]) == (ops, ns)
    assert (census.ledger.in_layers, census.ledger.ns["in_layers"]) == (in_graph, graph_ns)


def test_the_layer_of_every_kernel_is_that_of_a_plain_walk() -> None:
    # GIVEN nodes, clones and ranges walked in Python, without profkit
    events = query(EAGER_2025, "SELECT graphNodeId, originalGraphNodeId, start FROM CUDA_GRAPH_NODE_EVENTS")
    nodes = {node: (origin, created) for node, origin, created in events}
    ranges = query(EAGER_2025, "SELECT start, \"end\", text FROM NVTX_EVENTS WHERE text LIKE 'layer.%'")

    def layer(node: int) -> int:
        origin, created = nodes[node]
        while origin is not None:
            origin, created = nodes[origin]
        (text,) = [t for s, e, t in ranges if s <= created < e]
        return int(text.split(".")[1])

    sql = 'SELECT graphNodeId, SUM("end" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId > 0 GROUP BY 1'
    expected: dict[int, int] = {}
    for node, ns in query(EAGER_2025, sql):
        expected[layer(node)] = expected.get(layer(node), 0) + ns

    # THEN the census has the same nanoseconds in the same layers
    layers = take_census(readers.read(EAGER_2025)).chosen.layers
    assert dict(zip(layers["number"], layers["kernel_ns"], strict=True)) == expected


def test_the_diff_finds_nine_removed_and_cannot_tell_the_work() -> None:
    result = profkit("diff", EAGER_2025, FUSED, "--format", "json")
    data = json.loads(result.stdout)
    assert (result.returncode, data["verdict"], data["work"]) == (3, "inconclusive", "unknown")
    assert len(data["removed"]) == 9
    assert all((f["launches_before"], f["launches_after"]) == (1, 0) for f in data["removed"])
    assert len(data["unchanged"]) == 2
    assert data["net"]["launches_per_step"] == -9 * 24


def test_the_diff_can_be_judged_on_launches_alone() -> None:
    assert profkit("diff", EAGER_2025, FUSED, "--expect-removed", "9").returncode == 0
    assert profkit("diff", EAGER_2025, FUSED, "--expect-removed", "8").returncode == 1


def test_the_recordings_of_two_profiler_versions_have_the_same_launches() -> None:
    data = json.loads(profkit("diff", EAGER_2023, EAGER_2025, "--format", "json").stdout)
    assert data["removed"] == data["added"] == data["moved"] == []
    assert data["net"]["launches_per_step"] == 0


@pytest.mark.parametrize("command", ["layers", "diff"])
def test_a_graph_level_recording_is_refused_with_the_flag_to_use(command: str) -> None:
    result = profkit(command, GRAPH_LEVEL, *([FUSED] if command == "diff" else []))
    assert result.returncode == 3
    assert "--cuda-graph-trace=node" in result.stdout + result.stderr


def test_a_capture_before_the_recording_says_so_and_is_not_placed_by_lineage() -> None:
    # GIVEN nodes whose creation was recorded, and no range of that time
    census = take_census(readers.read(H200 / "toy_late.nsys2025.sqlite"))
    assert "lineage" not in census.methods
    assert "capture-without-ranges" in [d.code for d in census.diagnostics]
