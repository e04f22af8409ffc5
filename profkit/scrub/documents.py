"""profkit's own JSON documents, run.json and dispatch recordings, by their documented fields; others stay behind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from profkit.errors import ProfkitError
from profkit.model.run import RunRecord, Version, form
from profkit.readers.dispatch import SCHEMA, Range, content_of
from profkit.scrub.fields import field

_RUN = field(RunRecord)
_NOTES = field(dict[str, bool | int | float])


def scrub_record(run: RunRecord, trace_name: str, trace_sha256: Mapping[str, str]) -> RunRecord:
    """run.json of a scrubbed run.

    Args:
        trace_name: the scrubbed trace.
        trace_sha256: of all files beside it, from `profkit.runs.run_dir.trace_digests`.

    Returns:
        The record in which a text that is not what its field is for is None. A profiler's arguments are kept for
        workloads alone and notes in words for shipped ones alone: others are the user's.

    Raises:
        ProfkitError: what it cannot do without would be left behind.
    """
    kept: dict[str, Any] = _RUN(msgspec.to_builtins(run))
    if (run.workload is None or run.workload.source != "shipped") and run.digests is not None:
        kept["digests"]["notes"] = _NOTES(run.digests.notes)
    if run.workload is None and run.profiler is not None:
        kept["profiler"]["arguments"] = []
    kept |= {"trace": trace_name, "files": sorted(trace_sha256), "trace_sha256": trace_sha256}
    try:
        return msgspec.convert(kept, RunRecord)
    except msgspec.ValidationError as error:
        raise ProfkitError(f"run.json of {run.trace} cannot be scrubbed: {error}. Capture the run again.") from None


class _Op(msgspec.Struct):
    order: int
    name: str
    kind: Annotated[str, form("kernel|memcpy|memset")]
    source: Annotated[str, form("aten|triton")]
    grid: list[int]
    scope: list[str]


class _Recording(msgspec.Struct):
    """What is kept of a dispatch recording; see `profkit.readers.dispatch`."""

    run_bodies: bool
    torch: Version
    triton: Version
    ranges: list[Range]
    ops: list[_Op]


_RECORDING = field(_Recording)


def scrub(source: Path, target: Path) -> None:
    """Write the dispatch recording `source` without unknown fields to the new file `target`.

    Raises:
        ProfkitError: the source is no JSON.
    """
    target.write_text(json.dumps({"schema": SCHEMA, **_RECORDING(content_of(source))}), encoding="utf-8")
