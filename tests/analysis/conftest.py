"""Helpers that every test of the analysis shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profkit.accounting import Census, Selection, take_census
from profkit.comparison.compare import compare
from profkit.comparison.model import Comparison, Gates, Input
from profkit.readers import detect

#: The files that came with the project's brief, beside the repository.
SHARED = Path(__file__).parents[2].parent / "shared"


def census_of(path: Path, **selection: Any) -> Census:
    """Read `path` and count it."""
    return take_census(detect.read(path), Selection(**selection))
