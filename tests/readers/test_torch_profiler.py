"""What the installed PyTorch writes is read: the format is recorded here, not remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.readers import read

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_of_the_installed_torch(tmp_path: Path, name: str) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for layer in range(3):
            with torch.profiler.record_function(f"layers.{layer}"), torch.profiler.record_function("mla"):
                torch.ones(4, 4).add_(1)
    profiler.export_chrome_trace(str(tmp_path / name))

    trace = read(tmp_path / name)

    own = trace.ranges[trace.ranges["domain"] == ""]
    assert own["text"].tolist() == ["layers.0", "mla", "layers.1", "mla", "layers.2", "mla"]
    assert own["nested"].all()
    operators = trace.ranges[trace.ranges["text"] == "aten::add_"]
    outer = own[own["text"] == "mla"]
    assert (operators["start"].to_numpy() >= outer["start"].to_numpy()).all()
    assert (operators["end"].to_numpy() <= outer["end"].to_numpy()).all()
    assert trace.info.vendor == "none"
