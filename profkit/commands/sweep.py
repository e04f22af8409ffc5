"""`profkit sweep`: times the launch configurations of a workload, and reports a sweep that is there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profkit import reporters
from profkit.errors import Exit, ProfkitError
from profkit.runs.whole_files import write_whole

if TYPE_CHECKING:
    from profkit.sweep.plan import Options
    from profkit.sweep.records import Sweep

#: Options that a sweep which is there already is reported by; the others are for measuring.
_OF_REPORTS = ("--format", "--html", "--force")


@dataclass(frozen=True)
class Report:
    """Where a sweep's results go.

    Args:
        output_format: of standard output, a report of `sweep`.
        html: takes the heat maps; None writes none.
    """

    output_format: str
    html: Path | None

    def check(self, *, force: bool) -> None:
        """Refuse before any work what could not be written after it.

        Raises:
            ProfkitError: an unknown format, an HTML file that exists or cannot be written, or no plotly.
        """
        reporters.find(self.output_format, "sweep")
        if self.html is None:
            return
        # A link that leads nowhere is something that is there too.
        if os.path.lexists(self.html) and not force:
            raise ProfkitError(
                f"{self.html} exists and will not be overwritten. Choose another --html, or add --force."
            )
        reporters.check_page(self.html, "plotly", force=force)


def sweep(
    options: Options,
    output: Path | None,
    report: Report,
    *,
    force: bool,
    stop_after_s: float | None,
    given: Sequence[str],
) -> Exit:
    """Sweep `options.workload`, or report the sweep in a directory of that name.

    Args:
        output: see `profkit.sweep.run.sweep`, as for `force` and `stop_after_s`.
        given: the options that the user gave, e.g. ``--region``.

    Returns:
        INCONCLUSIVE where some region has nothing that could be timed.

    Raises:
        ProfkitError: see `profkit.sweep.run.sweep`; a directory without a sweep, or options for measuring with one; or
            the report cannot be written.
    """
    from profkit import kernels
    from profkit.sweep import records

    report.check(force=force)
    directory = Path(options.workload)
    if records.is_sweep(directory):
        measuring = [option for option in given if option not in _OF_REPORTS]
        if measuring:
            raise ProfkitError(
                f"{directory} is a sweep that is there already, and is only reported. Leave {', '.join(measuring)} out."
            )
        return _write(records.load(directory), [], directory, report)
    if directory.is_dir() and options.workload not in kernels.WORKLOADS:
        raise ProfkitError(
            f"{directory} is a directory and holds no sweep (no {records.SWEEP_FILE}). Give one that "
            "`profkit sweep -o` has filled, or a workload: `profkit kernels` lists those that are shipped."
        )
    from profkit.sweep import run

    found, notes = run.sweep(options, output, force=force, stop_after_s=stop_after_s)
    return _write(found, notes, output, report)


def _write(sweep: Sweep, notes: list[str], directory: Path | None, report: Report) -> Exit:
    if len(sweep.regions) < len(sweep.planned):
        then = f"; the same command with -o {directory} measures the rest" if directory is not None else ""
        notes.append(f"{len(sweep.regions)} of {len(sweep.planned)} regions are finished{then}.")
    from profkit.reporters.sweep import answer

    reporters.find(report.output_format, "sweep").write(answer(sweep, notes))
    # Last, so that a full disk does not take with it what was measured.
    if report.html is not None:
        from profkit.reporters.sweep_html import page

        write_whole(report.html, page(sweep))
    return Exit.OK if all(region.timing for region in sweep.regions) else Exit.INCONCLUSIVE
