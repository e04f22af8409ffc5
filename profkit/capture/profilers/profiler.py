"""What a capture asks of a profiler. A new one is a file beside this one and a line in `profkit.capture.profilers`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

if TYPE_CHECKING:
    from pathlib import Path

    from profkit.capture.device import TorchProbe
    from profkit.capture.options import Job, Options, Recording
    from profkit.model.run import MessageRecord, ProfilerRecord, RunRecord, StepTimesRecord, VersionsRecord
    from profkit.model.workload import Scope, Step

GraphTrace = Literal["node", "graph"]
Vendor = Literal["nvidia", "amd", "none"]

#: What a profiler may take beside options: to record a command, and not only a step that profkit builds; and the
#: dispatch floor.
COMMAND, FLOOR = "a command", "the dispatch floor"


@dataclass(frozen=True)
class Kept:
    """What a recording left in the run directory: the name of the file that the readers open, warnings for run.json."""

    trace: str
    warnings: Sequence[MessageRecord] = ()


@dataclass(frozen=True)
class State:
    """What `profkit doctor` says of one profiler: whether it can record a workload here; what it gives, or what is
    wrong and how to mend it."""

    usable: bool
    #: None where it is not there.
    version: str | None
    says: str


class Profiler(ABC):
    """A profiler that is here; the class is what is known of it before it is looked for.

    One that runs a program under a tool of its own overrides `command`, `export` and `keep`; one that records inside
    the worker overrides `window` and names its `trace_file`; one that needs no GPU overrides `record`.
    """

    #: As for ``--profiler`` and in run.json.
    name: ClassVar[str]
    #: The vendors of the devices on which ``auto`` takes it; ``none`` is a machine without a GPU.
    vendors: ClassVar[frozenset[Vendor]]
    #: Whether its workers run on a GPU.
    needs_gpu: ClassVar[bool] = True
    #: Whether it records times. Else the step runs once, without warm-up, untraced process and floor.
    timed: ClassVar[bool] = True
    #: What its traces hold of a graph, for run.json; None where they hold no GPU work.
    graph_trace: ClassVar[GraphTrace | None] = "node"
    #: Of what not every profiler does: `COMMAND`, `FLOOR`, and the options ``--nproc``, ``--graph-level``,
    #: ``--run-bodies``, ``--nsys-args``.
    takes: ClassVar[frozenset[str]] = frozenset({"--nproc"})
    #: The files of a recording: the trace, that the readers open, and the tool's own report; "" where there is none of
    #: that name.
    trace_file: ClassVar[str] = ""
    report_file: ClassVar[str] = ""

    @classmethod
    @abstractmethod
    def find(cls, options: Options | None = None) -> Self:
        """The profiler as it will record what `options` say.

        Raises:
            ProfkitError: it cannot be used here (says why), or flags that it must not get.
        """

    @abstractmethod
    def state(self, torch: TorchProbe) -> State:
        """Whether it can be used here, tried as far as that goes; for `profkit doctor`."""

    @property
    @abstractmethod
    def reason(self) -> str:
        """Why ``auto`` takes it, one clause for the user."""

    # -- in the worker -------------------------------------------------------------------------------------------------

    @classmethod
    def record(cls, job: Job, build_on: Callable[[str], Step]) -> RunRecord:
        """Record the job's step, which `build_on` makes on ``cuda`` or ``cpu``; returns run.json as far as the worker
        knows it, see `profkit.capture.record.of_step`."""
        from profkit.capture.graph import record_traced

        scope, ranges = cls.scope(job.ranges_api)
        return record_traced(job, build_on, scope, ranges, cls.window(job))

    @classmethod
    def scope(cls, api: str) -> tuple[Scope, str]:
        """How ranges reach it, and the name and version of that for run.json; `api` is its `ranges_api`."""
        from profkit.capture.graph import torch_nvtx_range

        del api
        return torch_nvtx_range, "torch.cuda.nvtx"

    @classmethod
    def window(cls, job: Job) -> AbstractContextManager[None]:
        """The recorded part of the worker; as the CUDA profiler API marks it, unless the profiler has another way."""
        from profkit.capture.graph import cuda_profiler_window

        del job
        return cuda_profiler_window()

    # -- beside the worker ---------------------------------------------------------------------------------------------

    @property
    def ranges_api(self) -> str:
        """Which way to push ranges this version needs, where there is a choice."""
        return ""

    def command(
        self, program: Sequence[str], work: Path, *, window: bool, graph_trace: GraphTrace = "node"
    ) -> list[str]:
        """The command line that records `program` into the directory `work`: with `window` only what lies in `window`,
        each node of a graph or whole graphs."""
        del work, window, graph_trace
        return list(program)

    @property
    def environment(self) -> Mapping[str, str]:
        """What a worker's environment must hold."""
        return {}

    def export(self, recordings: Sequence[Recording]) -> None:
        """Make what the tool left into traces, all at once; the programs have ended.

        Raises:
            ProfkitError: nothing was recorded (says why, as far as the tool told), or an export fails.
        """
        del recordings

    def keep(self, recording: Recording, directory: Path, *, keep_report: bool) -> Kept:
        """Move an exported recording to `directory`, scrubbed as far as this profiler can.

        Args:
            keep_report: move the tool's own report too.

        Raises:
            ProfkitError: there is no trace.
        """
        for file in (self.trace_file, self.report_file if keep_report else ""):
            if file:
                (recording.work / file).rename(directory / file)
        return Kept(self.trace_file)

    def graph_times(self, recording: Recording, replays: int) -> StepTimesRecord:
        """The step in each replay, from an export of whole graphs; of a profiler that takes ``--graph-level``.

        Raises:
            ProfkitError: the export has none, or other than `replays`: something else is among them, or some are lost.
        """
        raise NotImplementedError

    @property
    def arguments(self) -> list[str]:
        """Its flags for run.json, without values that a user gave."""
        return []

    @abstractmethod
    def version(self, versions: VersionsRecord) -> str | None:
        """Its version for run.json, given the worker's ``versions``."""

    def description(self, recorded: RunRecord) -> ProfilerRecord:
        """The `profiler` field of run.json, from what the worker knows of it: versions, and what pushed its ranges."""
        from profkit.model.run import ProfilerRecord, VersionsRecord

        return ProfilerRecord(
            name=self.name,
            version=self.version(recorded.versions or VersionsRecord()),
            graph_trace=self.graph_trace,
            ranges=recorded.profiler.ranges if recorded.profiler else None,
            arguments=self.arguments,
        )
