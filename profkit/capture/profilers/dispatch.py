"""The dispatch profiler: counts the launches of one step on the CPU, without a GPU and without times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from profkit._version import __version__
from profkit.capture.profilers.profiler import Profiler, State
from profkit.readers import DISPATCH_FILE

if TYPE_CHECKING:
    from profkit.capture.device import TorchProbe
    from profkit.capture.options import Job, Options
    from profkit.model.run import RunRecord, VersionsRecord
    from profkit.model.workload import Step


@dataclass(frozen=True)
class Dispatch(Profiler):
    """profkit's own; `run_bodies` as in `Options`, matrix products among them."""

    run_bodies: bool = False

    name = "dispatch"
    vendors = frozenset({"none"})
    needs_gpu = False
    timed = False
    takes = frozenset({"--nproc", "--run-bodies"})
    graph_trace = None
    trace_file = DISPATCH_FILE
    reason = "there is no CUDA device; launches are counted, not timed"

    @classmethod
    def find(cls, options: Options | None = None) -> Self:
        return cls(options is not None and options.run_bodies)

    def state(self, torch: TorchProbe) -> State:
        if torch.problem is not None:
            return State(False, None, torch.problem)
        says = "counts launches on the CPU, without times"
        if torch.triton is None:
            says += "; triton is not installed, so workloads with Triton kernels cannot be built"
        return State(True, torch.torch, says)

    @classmethod
    def record(cls, job: Job, build_on: Callable[[str], Step]) -> RunRecord:
        from profkit.capture.profilers.dispatch_step import record

        return record(job, build_on("cpu"))

    @property
    def environment(self) -> Mapping[str, str]:
        """Triton reads it when it is imported."""
        return {"TRITON_INTERPRET": "1"} if self.run_bodies else {}

    @property
    def arguments(self) -> list[str]:
        return ["--run-bodies"] if self.run_bodies else []

    def version(self, versions: VersionsRecord) -> str:
        """profkit's."""
        return __version__
