"""A profiler in one file: it notes each range that a step opens, in the dispatch profiler's format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from profkit.capture.profilers.profiler import Profiler, State
from profkit.readers.dispatch_file import SCHEMA, TRACE_FILE, Recording

if TYPE_CHECKING:
    from profkit.capture.device import TorchProbe
    from profkit.capture.options import Job, Options
    from profkit.model.workload import Step


@dataclass(frozen=True)
class Toy(Profiler):
    name = "toy"
    vendors = frozenset({"none"})
    needs_gpu = False
    timed = False
    takes = frozenset()
    trace_file = TRACE_FILE
    reason = "it is a toy"

    @classmethod
    def find(cls, options: Options | None = None) -> Self:
        return cls()

    def state(self, torch: TorchProbe) -> State:
        return State(True, "1", "counts ranges")

    def version(self, versions: Mapping[str, str | None]) -> str:
        return "1"

    @classmethod
    def record(cls, job: Job, build_on: Callable[[str], Step]) -> dict[str, Any]:
        from profkit.capture.device import describe_device, describe_versions

        recording = Recording()

        @contextmanager
        def scope(name: str) -> Iterator[None]:
            recording.push(name)
            recording.launch(name, "kernel", "aten")
            yield
            recording.pop()

        step = build_on("cpu")
        step.refresh("timing")
        step.run(scope)
        content = {"schema": SCHEMA, "run_bodies": False, "torch": "0", "triton": None}
        Path(job.trace).write_text(json.dumps({**content, "ranges": recording.ranges, "ops": recording.ops}))
        return {
            **{"backend": None, "layers": len(step.layers), "notes": {}, "ranges": "toy", "digests": None},
            **{"compiles": {"before": 0, "inside": []}, "compiles_watched": True, "references": None},
            **{"device": describe_device(), "versions": describe_versions()},
        }
