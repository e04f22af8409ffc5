"""profkit: per-layer launch accounting for CUDA-graph and HIP-graph replays.

``profkit.open(path)`` reads a trace, ``profkit.ranks(trace)`` tells several ranks in it apart,
``profkit.census(trace)`` counts it, ``profkit.diff(before, after)`` compares two; ``profkit.load_sweep(path)`` reads
the results of a sweep.
Importing this package is cheap: each function imports what it needs when it is called.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from profkit._version import __version__

if TYPE_CHECKING:
    from profkit.comparison.model import Comparison
    from profkit.model.census import Census
    from profkit.model.selection import SelectionOptions
    from profkit.model.trace import Trace
    from profkit.sweep.records import Sweep

__all__ = ["__version__", "census", "diff", "load_sweep", "open", "ranks"]


def open(path: str | os.PathLike[str], *, detail: bool = True) -> Trace:
    """Read the trace at `path`: a run directory or a trace file of any supported format.

    Args:
        detail: also read launch shapes (grid, block, registers, shared memory) where the format has them.

    Raises:
        profkit.errors.ProfkitError: no such file, an unknown format, or a damaged file.
    """
    from profkit import readers
    from profkit.runs import sides

    return readers.read(sides.one(str(Path(path)), "open").trace, detail=detail)


def ranks(trace: Trace | str | os.PathLike[str]) -> list[Trace]:
    """The ranks of a recording of several processes or devices, each as a trace of its own; of one rank itself alone.

    Args:
        trace: from `open`, or a path.

    Raises:
        profkit.errors.ProfkitError: bad input.
    """
    from profkit.counting.ranks import divided

    whole = open(trace, detail=False) if isinstance(trace, str | os.PathLike) else trace
    return [part for _, part in divided(whole)]


def census(trace: Trace | str | os.PathLike[str], **selection: Unpack[SelectionOptions]) -> Census:
    """Count launches and time per layer.

    Args:
        trace: from `open`, or a path.
        selection: which steps and layers, as the options of ``profkit layers``: the regular expressions `layers`,
            `scope`, `steps` and `anchor`; `anchor_every`, how often the anchor runs in a layer; `graph`, the id of
            the kind of step to report; `layer_kind`; `capture_trace` and `layers_from`, paths.

    Raises:
        profkit.errors.ProfkitError: bad input, several ranks in one trace, or a selection that matches nothing.
    """
    from profkit.errors import ProfkitError
    from profkit.model.selection import Selection
    from profkit.runs import sides

    parts = ranks(trace)
    if len(parts) > 1:
        source = parts[0].info.source
        raise ProfkitError(f"{source} holds {len(parts)} ranks. Count those of profkit.ranks(trace) one by one.")
    return sides.count(parts[0], Selection(**selection))


def diff(
    before: Trace | Census | str | os.PathLike[str],
    after: Trace | Census | str | os.PathLike[str],
    *,
    expect_removed: int | None = None,
    **selection: Unpack[SelectionOptions],
) -> Comparison:
    """Compare two runs. Paths of run directories bring output digests and untraced step times with them.

    Args:
        before, after: traces, censuses or paths; a census keeps its own selection.
        expect_removed: a gate, as ``--expect-removed``.
        selection: see `census`.

    Raises:
        profkit.errors.ProfkitError: bad input, or a selection that matches nothing.
    """
    from profkit.comparison.compare import compare_sides
    from profkit.comparison.model import Gates
    from profkit.model.selection import Selection
    from profkit.runs.sides import Loaded, Side, one

    def side(value: Trace | Census | str | os.PathLike[str], name: str) -> Side:
        run = one(str(Path(value)), name) if isinstance(value, str | os.PathLike) else Loaded(name, value)
        return Side(run.label, [run])

    both = side(before, "before"), side(after, "after")
    return compare_sides(both, Selection(**selection), Gates(expect_removed=expect_removed))


def load_sweep(path: str | os.PathLike[str]) -> Sweep:
    """Read the results of ``profkit sweep``: its directory, finished or not, or its JSON.

    Raises:
        profkit.errors.ProfkitError: neither, or damaged.
    """
    from profkit.sweep import records

    return records.load(path)
