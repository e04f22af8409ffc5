"""The torch profiler: records the window in the worker, and leaves a Kineto trace without what names the machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from profkit.scrub import kineto

TRACE_FILE = "trace.kineto.json.gz"


class _Recorded(Protocol):
    """What is asked of a torch profiler that has stopped."""

    def export_chrome_trace(self, path: str) -> object: ...


@contextmanager
def profiled(path: Path) -> Iterator[None]:
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
    export(profiler, path)


def export(profiler: _Recorded, path: Path) -> None:
    """Write what `profiler` recorded to `path` (gzip), as `profkit scrub` would leave it."""
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        raw = Path(directory) / "raw.json.gz"
        profiler.export_chrome_trace(str(raw))
        kineto.scrub(raw, path)
