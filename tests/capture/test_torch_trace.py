"""What the torch profiler exports is kept without what names the machine."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="exports a real trace")

from profkit.capture.torch_profiler import scrub, write_trace


def test_unknown_header_fields_are_dropped_and_known_ones_kept() -> None:
    trace = {
        "schemaVersion": 1,
        "baseTimeNanoseconds": 5,
        "traceName": "/home/somebody/run/trace.json",
        "host_name": "box17",
        "traceEvents": [],
    }
    assert scrub(trace) == {"schemaVersion": 1, "baseTimeNanoseconds": 5, "traceEvents": []}


def test_paths_in_arguments_lose_their_directories_and_names_stay() -> None:
    event = {
        "ph": "X",
        "name": "layers.0.mla/gemm",
        "ts": 1.5,
        "args": {"file": "/home/me/app.py(3)", "grid": [1, 1, 1]},
    }
    process = {"ph": "M", "name": "process_name", "args": {"name": "/usr/bin/python3"}}
    kept = scrub({"traceEvents": [event, process]})["traceEvents"]
    assert kept[0] == {**event, "args": {"file": "app.py(3)", "grid": [1, 1, 1]}}
    assert kept[1]["args"]["name"] == "python3"


def test_a_real_export_keeps_every_event_and_its_times(tmp_path: Path) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    with profile(activities=[ProfilerActivity.CPU]) as profiler, record_function("layers.0.mla"):
        torch.ones(4).add(1)
    raw = tmp_path / "raw.json"
    profiler.export_chrome_trace(str(raw))
    before = json.loads(raw.read_text())
    write_trace(scrub(json.loads(raw.read_text())), tmp_path / "trace.kineto.json.gz")
    packed = (tmp_path / "trace.kineto.json.gz").read_bytes()
    after = json.loads(gzip.decompress(packed))
    times = [(event["name"], event.get("ts"), event.get("dur")) for event in before["traceEvents"]]
    assert [(event["name"], event.get("ts"), event.get("dur")) for event in after["traceEvents"]] == times
    assert "layers.0.mla" in {name for name, _, _ in times}
    assert str(tmp_path) in raw.read_text()
    assert str(tmp_path) not in json.dumps(after)
    # No file name and no time in the gzip header either.
    assert packed[3] == 0
    assert packed[4:8] == bytes(4)
