"""AMD's rocprofv3: its command line, and what it leaves: files of its own for each process.

Written after its documentation and source (ROCprofiler-SDK 0.4 to 1.3); it has not been run on AMD hardware.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from profkit.capture.profilers.profiler import COMMAND, GraphTrace, Kept, Profiler, State
from profkit.errors import ProfkitError
from profkit.readers.installed import Installed, Program

if TYPE_CHECKING:
    from profkit.capture.device import TorchProbe
    from profkit.capture.options import Options, Recording
    from profkit.model.run import VersionsRecord

ROCPROFV3 = Program(
    name="rocprofv3",
    variable="PROFKIT_ROCPROFV3",
    places=("opt/rocm/bin/rocprofv3", "opt/rocm-*/bin/rocprofv3"),
    says=re.compile(r"^\s*version: *(\d+\.\d+(?:\.\d+)*)", re.MULTILINE),
    # ROCm 6.2, the first release with rocprofv3.
    minimum=(0, 4),
    title="rocprofv3 of ROCprofiler-SDK",
    oldest="0.4 (ROCm 6.2) is the oldest that profkit reads",
    absent="not in /opt/rocm*/bin. Install rocprofiler-sdk of ROCm 6.2 or later, or set PROFKIT_ROCPROFV3 to the "
    "program.",
)
#: ROCm 7.0, the first that writes rocpd; that format alone can say which node of a graph an op is.
ROCPD_MINIMUM = (1, 0)

#: Kernels and copies, the HIP calls that launch them, and roctx ranges.
_TRACE_FLAGS = ("--kernel-trace", "--memory-copy-trace", "--hip-trace", "--marker-trace")
#: Where it writes, below its working directory.
_DIRECTORY = "rocprofv3"
#: The name of each process's files; the readers take the process from it.
_NAME = "%pid%"
_DATABASE, _KERNELS = "_results.db", "_kernel_trace.csv"


@dataclass(frozen=True)
class Rocprofv3(Profiler):
    """A rocprofv3 that can record; its version is that of ROCprofiler-SDK."""

    tool: Installed

    name = "rocprofv3"
    vendors = frozenset({"amd"})
    takes = frozenset({COMMAND})

    @classmethod
    def find(cls, options: Options | None = None) -> Self:
        return cls(ROCPROFV3.find())

    @property
    def reason(self) -> str:
        return f"it is here ({self.tool.version}) and the GPU is AMD's"

    def state(self, torch: TorchProbe) -> State:
        if torch.vendor != "amd":
            why = torch.problem or f"torch {torch.torch} finds no AMD GPU. Install a ROCm build of torch."
            says = "rocprofv3 is here, for `profkit capture --profiler rocprofv3 -- CMD`; workloads cannot run under it"
            return State(False, self.tool.version, f"{says}: {why}")
        says = f"ranges by roctx, {self._output_format} files; not tried by the project on AMD hardware"
        return State(True, self.tool.version, says)

    @property
    def _output_format(self) -> str:
        return "rocpd" if self.tool.release >= ROCPD_MINIMUM else "csv"

    def command(
        self, program: Sequence[str], work: Path, *, window: bool, graph_trace: GraphTrace = "node"
    ) -> list[str]:
        """See `Profiler`; it records all of the program, and has no window.

        Each process writes files of its own, named after its id, so that none overwrites another's.
        """
        output = ["-d", str(work / _DIRECTORY), "-o", _NAME]
        return [str(self.tool.path), *self.arguments, *output, "--", *program]

    def keep(self, recording: Recording, directory: Path, *, keep_report: bool) -> Kept:
        """Moves the files of all processes; the trace is that of the process with the most recorded."""
        files = sorted(path for path in (recording.work / _DIRECTORY).rglob("*") if path.is_file())
        traces = [path for path in files if path.name.endswith(_DATABASE)]
        traces = traces or [path for path in files if path.name.endswith(_KERNELS)]
        if not traces:
            raise ProfkitError(
                f"rocprofv3 ended with {recording.ended} and left no trace of a GPU: the program launched no kernel, "
                "or ended without running its exit handlers (killed, or os._exit). `profkit doctor` checks rocprofv3."
            )
        largest = max(traces, key=lambda path: path.stat().st_size).name
        for path in files:
            path.rename(directory / path.name)
        if len(traces) == 1:
            return Kept(largest)
        from profkit.model.run import MessageRecord

        others = "'DIR/*" + (_DATABASE if largest.endswith(_DATABASE) else _KERNELS) + "'"
        message = (
            f"{len(traces)} processes were recorded, each in files of its own; the run's trace is {largest}, the "
            f"largest. For the others: profkit layers {others}."
        )
        return Kept(largest, [MessageRecord(code="several-processes", message=message)])

    @property
    def arguments(self) -> list[str]:
        return [*_TRACE_FLAGS, "--output-format", self._output_format]

    def version(self, versions: VersionsRecord) -> str:
        return self.tool.version
