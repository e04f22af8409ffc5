"""AMD's rocprofv3: finds it, checks its version, builds its command line, and gathers the files that it left.

Written after its documentation and source (ROCprofiler-SDK 0.4 to 1.3); it has not been run on AMD hardware.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from profkit.capture.profilers.profiler import Asked, GraphTrace, Kept, Profiler, Recording, State
from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.capture.device import TorchProbe

#: Names the program where it is in none of the usual places.
BINARY_VARIABLE = "PROFKIT_ROCPROFV3"
#: ROCm 6.2, the first release with rocprofv3.
MINIMUM = (0, 4)
#: ROCm 7.0, the first that writes rocpd; that format alone can say which node of a graph an op is.
ROCPD_MINIMUM = (1, 0)

#: Where installers put it, below the file system's root; the newest version is tried first.
_PLACES = ("opt/rocm/bin/rocprofv3", "opt/rocm-*/bin/rocprofv3")
#: Kernels and copies, the HIP calls that launch them, and roctx ranges.
_TRACE_FLAGS = ("--kernel-trace", "--memory-copy-trace", "--hip-trace", "--marker-trace")
#: Where a capture has rocprofv3 write, below its working directory.
_DIRECTORY = "rocprofv3"
#: The name of each process's files; the readers take the process from it.
_NAME = "%pid%"
_DATABASE, _KERNELS = "_results.db", "_kernel_trace.csv"


@dataclass(frozen=True)
class Rocprofv3(Profiler):
    """A rocprofv3 that can record.

    Args:
        path: the program.
        sdk: the version of ROCprofiler-SDK, e.g. ``1.1.0``.
    """

    path: Path
    sdk: str

    name = "rocprofv3"
    vendors = frozenset({"amd"})
    takes = frozenset()
    records_commands = True

    @classmethod
    def find(cls, asked: Asked = Asked()) -> Self:
        """See `Profiler`."""
        del asked
        return cls(*find())

    @property
    def reason(self) -> str:
        """See `Profiler`."""
        return f"it is here ({self.sdk}) and the GPU is AMD's"

    def state(self, torch: TorchProbe) -> State:
        """See `Profiler`."""
        if torch.vendor != "amd":
            why = torch.problem or f"torch {torch.torch} finds no AMD GPU. Install a ROCm build of torch."
            says = "rocprofv3 is here, for `profkit capture --profiler rocprofv3 -- CMD`; workloads cannot run under it"
            return State(self.name, False, self.sdk, f"{says}: {why}")
        says = f"ranges by roctx, {self.output_format} files; not tried by the project on AMD hardware"
        return State(self.name, True, self.sdk, says)

    @property
    def output_format(self) -> str:
        """``rocpd`` where this version has it, else ``csv``."""
        return "rocpd" if release(self.sdk) >= ROCPD_MINIMUM else "csv"

    def command(
        self, program: Sequence[str], work: Path, *, window: bool, graph_trace: GraphTrace = "node"
    ) -> list[str]:
        """See `Profiler`; it records the whole program.

        Each process writes files of its own, named after its id, so that none overwrites another's.
        """
        del window, graph_trace
        output = ["-d", str(work / _DIRECTORY), "-o", _NAME]
        return [str(self.path), *self.arguments, *output, "--", *program]

    def keep(self, recording: Recording, directory: Path, *, keep_report: bool) -> Kept:
        """Moves the files of all processes; the trace is that of the process with the most recorded."""
        del keep_report
        files = sorted(path for path in (recording.work / _DIRECTORY).rglob("*") if path.is_file())
        traces = [path for path in files if path.name.endswith(_DATABASE)]
        traces = traces or [path for path in files if path.name.endswith(_KERNELS)]
        if not traces:
            raise ProfkitError(
                (f"{recording.ended}. " if recording.ended else "")
                + "rocprofv3 left no trace of a GPU: the program launched no kernel, or ended without running its exit "
                "handlers (killed, or os._exit). `profkit doctor` checks rocprofv3."
            )
        largest = max(traces, key=lambda path: path.stat().st_size)
        for path in files:
            path.rename(directory / path.name)
        return Kept(largest.name, _several(largest.name, len(traces)))

    @property
    def arguments(self) -> list[str]:
        """See `Profiler`."""
        return [*_TRACE_FLAGS, "--output-format", self.output_format]

    def version(self, versions: Mapping[str, str | None]) -> str:
        """See `Profiler`."""
        del versions
        return self.sdk


def _several(trace: str, processes: int) -> list[dict[str, str]]:
    """The warning of run.json where several processes were recorded."""
    if processes == 1:
        return []
    several = "'DIR/*" + (_DATABASE if trace.endswith(_DATABASE) else _KERNELS) + "'"
    message = (
        f"{processes} processes were recorded, each in files of its own; the run's trace is {trace}, the "
        f"largest. For the others: profkit layers {several}."
    )
    return [{"code": "several-processes", "message": message}]


def release(version: str) -> tuple[int, int]:
    """(major, minor) of a version."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def candidates(root: Path = Path("/")) -> Iterator[Path]:
    """Where a rocprofv3 is, best first: only $PROFKIT_ROCPROFV3 if that is set, else PATH, then ROCm's directories."""
    named = os.environ.get(BINARY_VARIABLE)
    if named:
        yield Path(named)
        return
    on_path = shutil.which("rocprofv3")
    if on_path:
        yield Path(on_path)
    for pattern in _PLACES:
        yield from sorted(root.glob(pattern), key=_version_key, reverse=True)


def _version_key(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.parents[1].name)]


def find(root: Path = Path("/")) -> tuple[Path, str]:
    """The first rocprofv3 that runs and is new enough, with its version; ROCm's directories lie below `root`.

    Raises:
        ProfkitError: none is there, or each one found cannot be used (says why for the first).
    """
    problems: list[str] = []
    for path in candidates(root):
        try:
            return check(path)
        except ProfkitError as error:
            problems.append(str(error))
    if problems:
        raise ProfkitError(problems[0])
    raise ProfkitError(
        "rocprofv3 is not installed: it is not on PATH and not in /opt/rocm*/bin. Install rocprofiler-sdk of ROCm 6.2 "
        f"or later, or set {BINARY_VARIABLE} to the program."
    )


def check(path: Path) -> tuple[Path, str]:
    """Run ``rocprofv3 --version`` at `path`; returns it with its version.

    Raises:
        ProfkitError: it does not start, fails, says no version, or is older than `MINIMUM`.
    """
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = error.strerror if isinstance(error, OSError) else "no answer within a minute"
        raise ProfkitError(f"{path.name} --version does not run: {reason}. Check {BINARY_VARIABLE} or PATH.") from None
    found = re.search(r"^\s*version: *(\d+\.\d+(?:\.\d+)*)", done.stdout, re.MULTILINE)
    if done.returncode != 0 or found is None:
        raise ProfkitError(
            f"{path.name} --version failed or named no version. Set {BINARY_VARIABLE} to a working rocprofv3."
        )
    version = found.group(1)
    if release(version) < MINIMUM:
        raise ProfkitError(
            f"rocprofv3 of ROCprofiler-SDK {version} is too old: {MINIMUM[0]}.{MINIMUM[1]} (ROCm 6.2) is the "
            f"oldest that profkit reads. Install a newer one, or set {BINARY_VARIABLE}."
        )
    return path, version
