"""The output that the README shows is what the command prints."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

import profkit
from profkit.reporters import diff, terminal

ROOT = Path(__file__).parents[2]


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def test_the_readme_shows_the_demos_output() -> None:
    runs = ROOT / "traces" / "dcp-combine"
    printed = io.StringIO()
    report = diff.report(profkit.diff(runs / "eager", runs / "fused"))
    terminal.render(report, Console(file=printed, width=100, highlight=False))
    blocks = (ROOT / "README.md").read_text(encoding="utf-8").split("```\n")
    shown = next(block for block in blocks if block.startswith("CONFIRMED"))
    assert lines(shown) == lines(printed.getvalue())
