"""The reader of dispatch recordings: exact tables for a small recording, one clear error for a broken one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.model.trace import LAUNCHES, NODES, OPS, RANGES
from profkit.readers import dispatch
from profkit.readers.dispatch import SCHEMA, Recording


def write(path: Path, recording: Recording) -> Path:
    recording.write(path, run_bodies=False, torch="2.0", triton=None)
    return path


def two_layers() -> Recording:
    recording = Recording()
    for layer in range(2):
        with recording.scope(f"layers.{layer}.mla"):
            recording.launch("aten.mm.default", "kernel", "aten")
            recording.launch("pack_kernel", "kernel", "triton", (56, 12, 1))
    recording.launch("aten.copy_.default", "memcpy", "aten")
    return recording


def test_ops_keep_their_order_and_have_no_duration(tmp_path: Path) -> None:
    trace = dispatch.read(write(tmp_path / "d.json", two_layers()))
    assert list(trace.ops["name"]) == [*["aten.mm.default", "pack_kernel"] * 2, "aten.copy_.default"]
    assert list(trace.ops["kind"]) == ["kernel"] * 4 + ["memcpy"]
    assert (trace.ops["start"] == trace.ops["end"]).all()
    assert trace.ops["start"].is_monotonic_increasing
    assert trace.info.timed is False
    assert trace.info.format == "profkit dispatch"


def test_nodes_are_created_inside_the_ranges_and_before_the_launch(tmp_path: Path) -> None:
    trace = dispatch.read(write(tmp_path / "d.json", two_layers()))
    created = trace.nodes.set_index("node")["created"][list(trace.ops["node"])].to_list()
    for layer, opened in enumerate(trace.ranges.itertuples()):
        assert opened.text == f"layers.{layer}.mla"
        assert [opened.start < at < opened.end for at in created] == [at // 2 == layer for at in range(5)]
    (launch,) = trace.launches.itertuples()
    assert launch.api == "graph"
    assert max(*created, trace.ranges["end"].max()) < launch.start
    assert launch.end < trace.ops["start"].min()
    assert set(trace.ops["correlation"]) == {launch.correlation}


def test_grids_are_read_on_request(tmp_path: Path) -> None:
    trace = dispatch.read(write(tmp_path / "d.json", two_layers()), detail=True)
    assert list(trace.ops["grid_x"]) == [-1, 56, -1, 56, -1]
    assert list(trace.ops["grid_y"]) == [-1, 12, -1, 12, -1]


def test_a_recording_without_launches_is_an_empty_trace(tmp_path: Path) -> None:
    trace = dispatch.read(write(tmp_path / "d.json", Recording()))
    assert len(trace.ops) == len(trace.nodes) == len(trace.ranges) == 0


@pytest.mark.parametrize("recording", [two_layers(), Recording()])
def test_tables_have_the_columns_and_dtypes_of_the_model(tmp_path: Path, recording: Recording) -> None:
    trace = dispatch.read(write(tmp_path / "d.json", recording))
    for frame, schema in ((trace.ops, OPS), (trace.launches, LAUNCHES), (trace.ranges, RANGES), (trace.nodes, NODES)):
        assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == dict(schema)


def test_content_is_recognised_and_other_json_is_not(tmp_path: Path) -> None:
    path = write(tmp_path / "d.json", two_layers())
    assert dispatch.sniff(path.read_bytes(), path)
    assert not dispatch.sniff(b'{"schemaVersion": 1, "traceEvents": []}', path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "schema is 'list'"),
        ('{"schema": "profkit.dispatch/9"}', "schema is 'profkit.dispatch/9'"),
        (json.dumps({"schema": SCHEMA, "torch": "2", "ranges": []}), "not a whole .*`ops`"),
        (json.dumps({"schema": SCHEMA, "torch": "2", "ranges": [], "ops": [{"order": 1}]}), "not a whole"),
        (json.dumps({"schema": SCHEMA, "torch": "2", "ranges": 3, "ops": []}), "not a whole"),
    ],
)
def test_a_broken_file_is_one_error_that_names_it(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "d.json"
    path.write_text(text)
    with pytest.raises(ProfkitError, match=message) as caught:
        dispatch.read(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_one_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ProfkitError, match=r"absent\.json: no such file"):
        dispatch.read(tmp_path / "absent.json")
