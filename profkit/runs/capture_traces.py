"""Reads the traces in which the capture of a trace's graphs was recorded (``--capture-trace``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from profkit import readers
from profkit.attribution import capture_manifest
from profkit.attribution.sequence import CaptureTrace
from profkit.errors import ProfkitError
from profkit.model.trace import Diagnostic, Trace


def read(spec: str, trace: Trace) -> tuple[list[CaptureTrace], list[Diagnostic]]:
    """Read what `spec` names: a capture trace, a directory of them, or the manifest that an engine wrote.

    Args:
        trace: the trace to be explained; captures of another rank than its own are left out.

    Returns:
        the capture traces, and what the user should know about the choice.

    Raises:
        ProfkitError: `spec` names nothing that can be read, or only captures of other ranks.
    """
    texts: Sequence[str] = trace.ranges["text"].cat.categories.tolist() if len(trace.ranges) else []
    files = capture_manifest.find(Path(spec), texts)
    notes = [Diagnostic("capture-traces", note) for note in files.notes]
    wanted = _ranks(trace)
    found: list[CaptureTrace] = []
    others: list[str] = []
    for path in files.paths:
        capture = readers.read(path)
        ranks = _ranks(capture)
        if wanted and ranks and not wanted & ranks:
            others.append(path.name)
        else:
            found.append(CaptureTrace(path.name, capture))
    shown = ", ".join(map(str, sorted(wanted)))
    if not found:
        raise ProfkitError(
            f"--capture-trace {spec}: {others[0]} is of another rank than the trace (rank {shown}). Give the capture "
            "trace of that rank."
        )
    if others:
        notes.append(
            Diagnostic("capture-traces", f"{len(others)} capture traces are not of rank {shown}: {others[0]} …")
        )
    return found, notes


def _ranks(trace: Trace) -> frozenset[int]:
    return frozenset(p.rank for p in trace.info.processes if p.rank is not None)
