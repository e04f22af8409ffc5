"""The traces in which a graph's capture was recorded: what ``--capture-trace`` names, a manifest of serving engines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profkit import readers
from profkit.attribution.method import CaptureTrace
from profkit.errors import ProfkitError
from profkit.model.trace import Diagnostic, Trace
from profkit.model.wording import listed
from profkit.readers.files import whole


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
    files = find(Path(spec), texts)
    notes = [Diagnostic("capture-traces", note) for note in files.notes]
    wanted = _ranks(trace)
    found: list[CaptureTrace] = []
    foreign: list[str] = []
    for path in files.paths:
        capture = readers.read(path)
        ranks = _ranks(capture)
        if wanted and ranks and not wanted & ranks:
            foreign.append(path.name)
        else:
            found.append(CaptureTrace(path.name, capture))
    shown = ", ".join(map(str, sorted(wanted)))
    if not found:
        raise ProfkitError(
            f"--capture-trace {spec}: {foreign[0]} is of another rank than the trace (rank {shown}). Give the capture "
            "trace of that rank."
        )
    if foreign:
        notes.append(
            Diagnostic("capture-traces", f"{len(foreign)} capture traces are not of rank {shown}: {foreign[0]} …")
        )
    return found, notes


def _ranks(trace: Trace) -> frozenset[int]:
    return frozenset(p.rank for p in trace.info.processes if p.rank is not None)


#: vLLM and SGLang list their capture traces here: [{"file", "batch_size", "mode"}, …].
MANIFEST = "execution_details.json"
_TRACE_SUFFIXES = (".json", ".json.gz", ".sqlite", ".db", ".nsys-rep", ".csv")
#: How the two engines name the batch of a step.
_BATCH = re.compile(r"(?:execute_|capture_|bs=|batch[_ ]size[=: ])(\d+)")


@dataclass(frozen=True)
class CaptureFiles:
    """Capture traces to read.

    Args:
        paths: the files.
        notes: what the user should know about the choice, one sentence each.
    """

    paths: Sequence[Path]
    notes: Sequence[str]


def find(spec: Path, texts: Iterable[str]) -> CaptureFiles:
    """The capture traces that `spec` names.

    Args:
        spec: a capture trace, a directory of them, or a manifest.
        texts: the range texts of the trace to be explained; where they name batch sizes that the manifest has, only
            captures of these are read.

    Raises:
        ProfkitError: nothing there, no trace among it, or a manifest that is damaged or names files that are not there.
    """
    if not spec.exists():
        raise ProfkitError(
            f"--capture-trace {spec}: no such file or directory. Give a capture trace, the directory that the engine "
            f"wrote them to, or its {MANIFEST}."
        )
    if not spec.is_dir() and spec.name != MANIFEST:
        return CaptureFiles((spec,), ())
    manifest = spec / MANIFEST if spec.is_dir() else spec
    present = sorted(p for p in manifest.parent.iterdir() if p.name.endswith(_TRACE_SUFFIXES) and p.name != MANIFEST)
    if manifest.exists():
        return _listed(manifest, present, texts)
    if not present:
        raise ProfkitError(f"--capture-trace {spec}: the directory holds neither {MANIFEST} nor a trace file.")
    return CaptureFiles(tuple(present), (f"{spec} has no {MANIFEST}; all {len(present)} traces in it are read.",))


def _listed(manifest: Path, present: Sequence[Path], texts: Iterable[str]) -> CaptureFiles:
    entries = _entries(manifest)
    missing = [e["file"] for e in entries if not _is_beside(manifest, Path(e["file"]))]
    if missing:
        there = listed([p.name for p in present]) or "none"
        raise ProfkitError(
            f"{manifest} names {len(missing)} capture traces that are not beside it, such as {missing[0]}. Trace files "
            f"there: {there}. Copy the missing ones, or give the right one itself with --capture-trace."
        )
    notes: list[str] = []
    unlisted = [p.name for p in present if p.name not in {Path(e["file"]).name for e in entries}]
    if unlisted:
        notes.append(f"{len(unlisted)} traces beside {manifest.name} are not in it and not read: {unlisted[0]} …")
    batches = {int(m) for text in texts for m in _BATCH.findall(text)}
    fitting = [e for e in entries if e.get("batch_size") in batches]
    if fitting and len(fitting) < len(entries):
        shown = ", ".join(str(e["batch_size"]) for e in fitting)
        notes.append(
            f"Of {len(entries)} capture traces, those of batch size {shown} are read, as the trace's ranges say."
        )
    return CaptureFiles(tuple(manifest.parent / e["file"] for e in fitting or entries), tuple(notes))


def _is_beside(manifest: Path, file: Path) -> bool:
    """Whether `file`, as the manifest names it, is in its directory or below; another place is another recording's."""
    return not file.is_absolute() and ".." not in file.parts and (manifest.parent / file).is_file()


def _entries(manifest: Path) -> list[dict[str, Any]]:
    advice = "It should list objects with a file name each; give the capture trace itself with --capture-trace."
    try:
        entries: Any = json.loads(whole(manifest))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ProfkitError(f"{manifest} cannot be read: {error}. {advice}") from None
    sound = isinstance(entries, list) and all(isinstance(e, dict) and isinstance(e.get("file"), str) for e in entries)
    if not sound or not entries:
        raise ProfkitError(f"{manifest} lists no capture traces. {advice}")
    listed: list[dict[str, Any]] = entries
    return listed
