"""AMD's rocprofv3: finds it, checks its version, builds its command line, and gathers the files that it left.

Written after its documentation and source (ROCprofiler-SDK 0.4 to 1.3); it has not been run on AMD hardware.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from profkit.errors import ProfkitError

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
DIRECTORY = "rocprofv3"
#: The name of each process's files; the readers take the process from it.
_NAME = "%pid%"
_DATABASE, _KERNELS = "_results.db", "_kernel_trace.csv"


@dataclass(frozen=True)
class Rocprofv3:
    """A usable rocprofv3.

    Args:
        path: the program.
        version: of ROCprofiler-SDK, e.g. ``1.1.0``.
    """

    path: Path
    version: str

    @property
    def release(self) -> tuple[int, int]:
        """(major, minor) of the version."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)

    @property
    def output_format(self) -> str:
        """``rocpd`` where this version has it, else ``csv``."""
        return "rocpd" if self.release >= ROCPD_MINIMUM else "csv"


@dataclass(frozen=True)
class Recorded:
    """The files of one recording.

    Args:
        trace: the file that the readers open: that of the process with the most recorded.
        files: all of them, by name.
        processes: how many processes wrote some.
    """

    trace: str
    files: Sequence[str]
    processes: int

    @property
    def warnings(self) -> list[dict[str, str]]:
        """For run.json."""
        if self.processes == 1:
            return []
        several = "'DIR/*" + (_DATABASE if self.trace.endswith(_DATABASE) else _KERNELS) + "'"
        message = (
            f"{self.processes} processes were recorded, each in files of its own; the run's trace is {self.trace}, the "
            f"largest. For the others: profkit layers {several}."
        )
        return [{"code": "several-processes", "message": message}]


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


def find(root: Path = Path("/")) -> Rocprofv3:
    """The first rocprofv3 that runs and is new enough; ROCm's directories are looked for below `root`.

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


def check(path: Path) -> Rocprofv3:
    """Run ``rocprofv3 --version`` at `path`.

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
    rocprof = Rocprofv3(path, found.group(1))
    if rocprof.release < MINIMUM:
        raise ProfkitError(
            f"rocprofv3 of ROCprofiler-SDK {rocprof.version} is too old: {MINIMUM[0]}.{MINIMUM[1]} (ROCm 6.2) is the "
            f"oldest that profkit reads. Install a newer one, or set {BINARY_VARIABLE}."
        )
    return rocprof


def profile_command(rocprof: Rocprofv3, directory: Path, command: Sequence[str]) -> list[str]:
    """The command line that runs `command` under rocprofv3.

    Each process writes files of its own to `directory`, named after its id, so that none overwrites another's.
    """
    output = ["-d", str(directory), "-o", _NAME]
    return [str(rocprof.path), *recorded_arguments(rocprof), *output, "--", *command]


def recorded_arguments(rocprof: Rocprofv3) -> list[str]:
    """The tracing flags, also for run.json."""
    return [*_TRACE_FLAGS, "--output-format", rocprof.output_format]


def gather(source: Path, target: Path) -> Recorded:
    """Move what rocprofv3 wrote below `source` to the directory `target`.

    Raises:
        ProfkitError: no process recorded a kernel trace.
    """
    files = sorted(path for path in source.rglob("*") if path.is_file())
    traces = [path for path in files if path.name.endswith(_DATABASE)]
    traces = traces or [path for path in files if path.name.endswith(_KERNELS)]
    if not traces:
        raise ProfkitError(
            "rocprofv3 left no trace of a GPU: the program launched no kernel, or ended without running its exit "
            "handlers (killed, or os._exit). `profkit doctor` checks rocprofv3."
        )
    largest = max(traces, key=lambda path: path.stat().st_size)
    for path in files:
        path.rename(target / path.name)
    return Recorded(largest.name, [path.name for path in files], len(traces))
