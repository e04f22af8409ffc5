"""The torch profiler: records the window in the worker, and leaves a Kineto trace without paths or host names."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from profkit.capture.process import without_directories

TRACE_FILE = "trace.kineto.json.gz"

#: Top-level fields that say how to read the trace. Others may name the machine (traceName is the path it was written
#: to) and are left out.
_KEPT_FIELDS = frozenset(
    {
        "schemaVersion",
        "deviceProperties",
        "cuda_driver_version",
        "cuda_runtime_version",
        "cupti_version",
        "roctracer_version",
        "hip_driver_version",
        "hip_runtime_version",
        "distributedInfo",
        "displayTimeUnit",
        "baseTimeNanoseconds",
        "traceEvents",
    }
)


@contextmanager
def profiled(path: str) -> Iterator[None]:
    """Record the block with torch.profiler and write the scrubbed trace to `path` (gzip)."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    # torch sets the same for its own graphs: tearing CUPTI down makes later replays crash with some CUDA versions.
    os.environ["DISABLE_CUPTI_LAZY_REINIT"] = "1"
    os.environ["TEARDOWN_CUPTI"] = "0"
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        yield
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as directory:
        raw = Path(directory) / "raw.json"
        profiler.export_chrome_trace(str(raw))
        trace = json.loads(raw.read_text(encoding="utf-8", errors="replace"))
    write_trace(scrub(trace), Path(path))


def scrub(trace: dict[str, Any]) -> dict[str, Any]:
    """A Kineto trace without what names the machine: unknown header fields, and directories in process names and args.

    Names of kernels, calls and ranges stay as recorded.
    """
    kept = {key: value for key, value in trace.items() if key in _KEPT_FIELDS}
    for event in kept.get("traceEvents", []):
        arguments = event.get("args")
        if isinstance(arguments, dict):
            for key, value in arguments.items():
                if isinstance(value, str):
                    arguments[key] = without_directories(value)
    return kept


def write_trace(trace: dict[str, Any], path: Path) -> None:
    """Write `trace` as gzipped JSON; the gzip header holds no file name and no time."""
    with path.open("wb") as file, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
        packed.write(json.dumps(trace, separators=(",", ":"), ensure_ascii=False).encode("utf-8"))
