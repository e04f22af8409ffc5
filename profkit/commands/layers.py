"""`profkit layers`: per-layer launch accounting of one or more runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from profkit import reporters
from profkit.counting.integrity import refusal_of
from profkit.errors import CannotTellError
from profkit.model.selection import Selection
from profkit.reporters.layers import answer
from profkit.runs.sides import Counted, count_runs, find


def layers(
    specs: Sequence[str],
    selection: Selection,
    output_format: str,
    floor_us: float | None = None,
    *,
    details: bool = False,
    html: Path | None = None,
) -> None:
    """Print the report of every run that `specs` name, and write it as a page where `html` names a file.

    Raises:
        ProfkitError: bad input.
        CannotTellError: a run has no layers to report; what it does have is printed first.
    """
    shown_as = reporters.find(output_format, "layers")
    if html is not None:
        reporters.check_page(html, "jinja2")
    named = [(spec, run) for spec in specs for run in find(spec)]
    labels = Counter(run.label for _, run in named)
    # Two runs of one name could not be told apart in the report.
    found = [replace(r, label=f"{spec.rstrip('/')}/{r.label}") if labels[r.label] > 1 else r for spec, r in named]
    counted = [part for run in found for part in count_runs(run, selection)]
    told = answer(counted, floor_us, details=details)
    shown_as.write(told)
    reporters.write_page(told, html)
    for run in counted:
        _require_layers(run)


def _require_layers(run: Counted) -> None:
    refusal = refusal_of(run.census)
    if refusal is not None:
        raise CannotTellError(refusal.code, f"{run.label}: {refusal.message}")
