"""A torch.profiler trace without paths, host names and call stacks."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import msgspec

from profkit.errors import ProfkitError

#: Keys of the file that accounting needs; the rest (trace names, ids, unknown keys) stays behind.
_HEADER = (
    "schemaVersion",
    "deviceProperties",
    "cupti_version",
    "cuda_runtime_version",
    "cuda_driver_version",
    "roctracer_version",
    "hip_runtime_version",
    "hip_driver_version",
    "displayTimeUnit",
    "baseTimeNanoseconds",
)
_DISTRIBUTED = ("backend", "rank", "world_size")
_ARGUMENTS_LEFT_OUT = frozenset({"Call stack", "Module Hierarchy", "Process Group Ranks", "Process Group Description"})
#: Everything down to the last separator of an absolute or home-relative path.
_DIRECTORY = re.compile(r"(?:~|[A-Za-z]:)?[/\\](?:[^\s/\\:()\"']+[/\\])+")
_GZIP_MAGIC = b"\x1f\x8b"


def scrub(source: Path, target: Path) -> None:
    """Write `source` without what names its machine to the new file `target`, compressed if the source is.

    Raises:
        ProfkitError: the source is no JSON object with events.
    """
    data = source.read_bytes()
    compressed = data.startswith(_GZIP_MAGIC)
    try:
        content: Any = msgspec.json.decode(gzip.decompress(data) if compressed else data)
    except (msgspec.DecodeError, OSError, EOFError) as error:
        raise ProfkitError(f"{source} cannot be scrubbed: {error}.") from None
    if not isinstance(content, dict) or not isinstance(content.get("traceEvents"), list):
        raise ProfkitError(f"{source} cannot be scrubbed: it is no JSON object with traceEvents.")
    kept: dict[str, Any] = {k: content[k] for k in _HEADER if k in content}
    distributed = content.get("distributedInfo")
    if isinstance(distributed, dict):
        kept["distributedInfo"] = {k: distributed[k] for k in _DISTRIBUTED if k in distributed}
    kept["traceEvents"] = [_event(e) for e in content["traceEvents"]]
    text = msgspec.json.encode(kept)
    target.write_bytes(gzip.compress(text, mtime=0) if compressed else text)


def _event(event: Any) -> Any:
    if not isinstance(event, dict):
        return event
    clean = {k: _text(v) for k, v in event.items() if k != "args"}
    arguments = event.get("args")
    if isinstance(arguments, dict):
        clean["args"] = {k: _text(v) for k, v in arguments.items() if k not in _ARGUMENTS_LEFT_OUT}
    return clean


def _text(value: Any) -> Any:
    return _DIRECTORY.sub("", value) if isinstance(value, str) else value
