"""What the torch profiler exports is kept without what names the machine."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="exports a real trace")

from profkit.capture.profilers.torch_profiler import TorchProfiler, export


def test_a_real_export_keeps_its_ranges_and_times_and_no_path(tmp_path: Path) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    secret = "/home/somebody/token=hunter2"
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        with record_function("layers.0.mla"):
            torch.ones(4).add(1)
        with record_function(secret):
            torch.ones(4)
    raw = tmp_path / "raw.json.gz"
    profiler.export_chrome_trace(str(raw))
    recorded = gzip.decompress(raw.read_bytes()).decode()
    before = json.loads(recorded)

    class Saved:
        """A profiler that has exported: torch does so once."""

        def export_chrome_trace(self, path: str) -> None:
            shutil.copyfile(raw, path)

    export(Saved(), tmp_path / TorchProfiler.trace_file)
    packed = (tmp_path / TorchProfiler.trace_file).read_bytes()
    text = gzip.decompress(packed).decode()
    after = json.loads(text)

    def spans(trace: dict[str, list[dict[str, object]]]) -> list[tuple[object, object]]:
        return [(event["ts"], event["dur"]) for event in trace["traceEvents"] if event["ph"] == "X"]

    assert spans(after) == spans(before)
    assert "layers.0.mla" in {event["name"] for event in after["traceEvents"]}
    assert "traceName" in recorded
    assert secret in recorded
    for part in ("traceName", "somebody", "hunter2", "python3"):
        assert part not in text
    # No file name and no time in the gzip header either.
    assert packed[3] == 0
    assert packed[4:8] == bytes(4)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []
