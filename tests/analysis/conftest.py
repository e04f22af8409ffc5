"""The one fixture that every test of the analysis uses."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Writes, reads, counts and compares exports in a directory of the test's own."""
    return Bench(tmp_path)
