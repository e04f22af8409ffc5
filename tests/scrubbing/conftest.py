"""What every test of scrubbing may ask for."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded import copy_of_run


@pytest.fixture
def nsys_run(tmp_path: Path) -> Path:
    """A copy of the shipped eager run, recorded by nsys."""
    return copy_of_run("dcp-combine/fused", tmp_path / "source")


@pytest.fixture
def torch_run(tmp_path: Path) -> Path:
    """A copy of the shipped fused run, recorded by torch.profiler."""
    return copy_of_run("dcp-combine-torch/fused", tmp_path / "source")
