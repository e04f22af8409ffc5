"""The torch profiler: records the window in the worker, and leaves a Kineto trace without what names the machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from profkit.capture.profilers.profiler import FLOOR, Profiler, State

if TYPE_CHECKING:
    from profkit.capture.device import TorchProbe
    from profkit.capture.options import Job, Options
    from profkit.model.run import VersionsRecord
    from profkit.model.workload import Scope


@dataclass(frozen=True)
class TorchProfiler(Profiler):
    """torch.profiler, which comes with torch: what the worker finds missing is said there."""

    name = "torch"
    vendors = frozenset({"nvidia", "amd"})
    takes = frozenset({"--nproc", FLOOR})
    trace_file = "trace.kineto.json.gz"
    reason = "it comes with torch"

    @classmethod
    def find(cls, options: Options | None = None) -> Self:
        return cls()

    def state(self, torch: TorchProbe) -> State:
        if not torch.cuda:
            return State(False, torch.torch, torch.without_gpu)
        return State(True, torch.torch, "layers by the order of the captured launches")

    @classmethod
    def scope(cls, api: str) -> tuple[Scope, str]:
        from torch.profiler import record_function

        return record_function, "torch.profiler.record_function"

    @classmethod
    @contextmanager
    def window(cls, job: Job) -> Iterator[None]:
        """Record the block and write the scrubbed trace to the job's trace file."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        # torch sets the same for its own graphs: tearing CUPTI down makes later replays crash with some CUDA versions.
        os.environ["DISABLE_CUPTI_LAZY_REINIT"] = "1"
        os.environ["TEARDOWN_CUPTI"] = "0"
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            yield
            torch.cuda.synchronize()
        export(profiler, job.directory / cls.trace_file)

    def version(self, versions: VersionsRecord) -> str | None:
        """torch's."""
        return versions.torch


def export(profiler: Any, path: Path) -> None:
    """Write what a torch profiler that has stopped recorded to `path` (gzip), as `profkit scrub` would leave it."""
    import tempfile

    from profkit.scrub import kineto

    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        raw = Path(directory) / "raw.json.gz"
        profiler.export_chrome_trace(str(raw))
        kineto.scrub(raw, path)
