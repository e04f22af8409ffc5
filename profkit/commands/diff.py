"""`profkit diff`: did the launches go, did anything else move, is the work still done?"""

from __future__ import annotations

import json
from collections.abc import Sequence

from profkit import runs
from profkit.accounting import Selection
from profkit.commands.output import FORMATS, require_format, write
from profkit.comparison.compare import compare
from profkit.comparison.model import Comparison, Gates, Input
from profkit.errors import Exit, ProfkitError


def diff(specs: Sequence[str], selection: Selection, gates: Gates, output_format: str) -> Exit:
    """Print the comparison of two runs and return its exit status.

    Args:
        specs: before and after; or one directory that holds two arms.

    Raises:
        ProfkitError: bad input.
    """
    require_format(output_format, FORMATS)
    before, after = two_sides(specs)
    same = before.trace.resolve() == after.trace.resolve()
    names = ["same"] * 2 if same else runs.identities([before, after])
    census_before = runs.census_of(before, selection)
    census_after = census_before if same else runs.census_of(after, selection)
    comparison = compare(
        Input(before.label, census_before, before.record, names[0]),
        Input(after.label, census_after, after.record, names[1]),
        gates,
    )
    render(comparison, output_format)
    return comparison.exit_code


def two_sides(specs: Sequence[str]) -> tuple[runs.RunFile, runs.RunFile]:
    """The run before and the run after.

    Raises:
        ProfkitError: not two of them.
    """
    if len(specs) == 1:
        found = runs.find(specs[0])
        arms = dict.fromkeys(run.label.split("/")[0] for run in found)
        if len(found) != 2 or len(arms) != 2:
            shown = ", ".join(arms) or "none"
            raise ProfkitError(
                f"{specs[0]} holds {len(found)} runs of {len(arms)} arms ({shown}); one directory can be compared "
                "where it holds two arms of one run each. Name the two runs: profkit diff BEFORE AFTER."
            )
        return found[0], found[1]
    if len(specs) != 2:
        raise ProfkitError(f"A diff takes two runs, before and after; {len(specs)} were given.")
    before, after = runs.one(specs[0], "BEFORE"), runs.one(specs[1], "AFTER")
    if before.label == after.label:
        # One name for both sides would make the report unreadable.
        before, after = (
            runs.RunFile(spec, run.trace, run.record) for spec, run in zip(specs, (before, after), strict=True)
        )
    return before, after


def render(comparison: Comparison, output_format: str) -> None:
    """Print `comparison`."""
    if output_format == "text":
        from profkit.reporters import terminal

        terminal.print_diff(comparison, terminal.console())
        return
    if output_format == "md":
        from profkit.reporters import markdown

        write(markdown.diff(comparison))
        return
    from profkit.reporters import diff_data

    data = diff_data.report(comparison)
    if output_format == "json":
        write(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        from profkit.reporters import csv_text

        write(csv_text.diff(data))
