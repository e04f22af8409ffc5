"""`profkit diff`: did the launches go, did anything else move, is the work still done?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from profkit import reporters
from profkit.comparison.compare import compare_sides
from profkit.comparison.model import Gates
from profkit.errors import Exit
from profkit.model.selection import Selection
from profkit.reporters.diff import answer
from profkit.runs.sides import two_sides


def diff(
    specs: Sequence[str],
    selection: Selection,
    gates: Gates,
    output_format: str,
    *,
    details: bool = False,
    html: Path | None = None,
) -> Exit:
    """Print the comparison of two runs, write it as a page where `html` names a file, and return its exit status.

    Args:
        specs: before and after, each one run or several of one side; or one directory that holds two arms.

    Raises:
        ProfkitError: bad input.
    """
    report = reporters.find(output_format, "diff")
    if html is not None:
        reporters.check_page(html, "jinja2")
    comparison = compare_sides(two_sides(specs), selection, gates, specs)
    told = answer(comparison, details=details)
    report.write(told)
    reporters.write_page(told, html)
    return comparison.exit_code
