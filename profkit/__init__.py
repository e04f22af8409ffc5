"""profkit: per-layer launch accounting for CUDA-graph and HIP-graph replays.

``profkit.open(path)`` reads a trace, ``profkit.census(trace)`` counts it, ``profkit.diff(before, after)`` compares two;
``profkit.load_sweep(path)`` reads the results of a sweep.
Importing this package is cheap: each function imports what it needs when it is called.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from profkit._version import __version__

if TYPE_CHECKING:
    from profkit.accounting import Census
    from profkit.comparison.model import Comparison
    from profkit.sweep.results import Sweep
    from profkit.trace import Trace

__all__ = ["__version__", "census", "diff", "load_sweep", "open"]


def open(path: str | os.PathLike[str], *, detail: bool = True) -> Trace:
    """Read the trace at `path`: a run directory or a trace file of any supported format.

    Args:
        detail: also read launch shapes (grid, block, registers, shared memory) where the format has them.

    Raises:
        profkit.errors.ProfkitError: no such file, an unknown format, or a damaged file.
    """
    from profkit import runs
    from profkit.readers import detect

    return detect.read(runs.one(str(Path(path)), "open").trace, detail=detail)


def census(
    trace: Trace | str | os.PathLike[str],
    *,
    layers: str | None = None,
    scope: str | None = None,
    steps: str | None = None,
    graph: str | None = None,
) -> Census:
    """Count launches and time per layer.

    Args:
        trace: from `open`, or a path.
        layers, scope, steps: regular expressions, as the options of ``profkit layers``.
        graph: the id of the kind of step to report.

    Raises:
        profkit.errors.ProfkitError: bad input, or a selection that matches nothing.
    """
    from profkit.accounting import Selection, take_census

    whole = open(trace, detail=False) if isinstance(trace, str | os.PathLike) else trace
    return take_census(whole, Selection(layers=layers, scope=scope, steps=steps, graph=graph))


def diff(
    before: Trace | Census | str | os.PathLike[str],
    after: Trace | Census | str | os.PathLike[str],
    *,
    layers: str | None = None,
    scope: str | None = None,
    steps: str | None = None,
    graph: str | None = None,
    expect_removed: int | None = None,
) -> Comparison:
    """Compare two runs. Paths of run directories bring output digests and untraced step times with them.

    Args:
        before, after: traces, censuses or paths; a census keeps its own selection.
        layers, scope, steps, graph: see `census`.
        expect_removed: a gate, as ``--expect-removed``.

    Raises:
        profkit.errors.ProfkitError: bad input, or a selection that matches nothing.
    """
    from profkit import runs
    from profkit.accounting import Census, Selection, take_census
    from profkit.comparison.compare import compare
    from profkit.comparison.model import Gates, Input

    selection = Selection(layers=layers, scope=scope, steps=steps, graph=graph)

    def side(value: Trace | Census | str | os.PathLike[str], name: str) -> Input:
        if isinstance(value, Census):
            return Input(name, value, identity=str(id(value)))
        if isinstance(value, str | os.PathLike):
            run = runs.one(str(Path(value)), name)
            return Input(run.label, runs.census_of(run, selection), run.record, str(run.trace.resolve()))
        return Input(name, take_census(value, selection), identity=str(id(value)))

    return compare(side(before, "before"), side(after, "after"), Gates(expect_removed=expect_removed))


def load_sweep(path: str | os.PathLike[str]) -> Sweep:
    """Read the results of ``profkit sweep``: its directory, finished or not, or its JSON.

    Raises:
        profkit.errors.ProfkitError: neither, or damaged.
    """
    from profkit.sweep import results

    return results.load(path)
