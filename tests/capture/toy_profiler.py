"""A profiler in one file: it notes each range that a step opens, in the dispatch profiler's format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from profkit.capture.profilers.profiler import Profiler, State
from profkit.readers import DISPATCH_FILE
from profkit.readers.dispatch import Recording

if TYPE_CHECKING:
    from profkit.capture.device import TorchProbe
    from profkit.capture.options import Job, Options
    from profkit.model.run import RunRecord, VersionsRecord
    from profkit.model.workload import Step


@dataclass(frozen=True)
class Toy(Profiler):
    name = "toy"
    vendors = frozenset({"none"})
    needs_gpu = False
    timed = False
    takes = frozenset()
    trace_file = DISPATCH_FILE
    reason = "it is a toy"

    @classmethod
    def find(cls, options: Options | None = None) -> Self:
        return cls()

    def state(self, torch: TorchProbe) -> State:
        return State(True, "1", "counts ranges")

    def version(self, versions: VersionsRecord) -> str:
        return "1"

    @classmethod
    def record(cls, job: Job, build_on: Callable[[str], Step]) -> RunRecord:
        from profkit.capture.record import of_step

        recording = Recording()

        @contextmanager
        def scope(name: str) -> Iterator[None]:
            with recording.scope(name):
                recording.launch(name, "kernel", "aten")
                yield

        step = build_on("cpu")
        step.refresh("timing")
        step.run(scope)
        recording.write(job.directory / DISPATCH_FILE, run_bodies=False, torch="0", triton=None)
        return of_step(job, step, "toy", has_outputs=False)
