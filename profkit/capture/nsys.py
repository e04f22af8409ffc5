"""Nsight Systems: finds the binary, checks its version, builds its command lines, and explains its failures."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from profkit.capture.process import describe_status, run, tail
from profkit.errors import ProfkitError

#: Names the binary where it is in none of the usual places.
BINARY_VARIABLE = "PROFKIT_NSYS"
#: The oldest whose exports have been seen to hold node events with their origin, which lineage needs.
MINIMUM = (2023, 4)
#: The oldest seen to record the ranges of the `nvtx` package (0.2.17); 2023.4 does not. torch's are recorded by both.
NVTX_PACKAGE_MINIMUM = (2025, 3)

REPORT_FILE = "trace.nsys-rep"
TRACE_FILE = "trace.sqlite"

#: Where installers put it, below the file system's root; the newest version is tried first.
_PLACES = (
    "opt/nvidia/nsight-systems/*/bin/nsys",
    "opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "opt/nvidia/nsight-systems-cli/*/target-linux-x64/nsys",
    "opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
    "usr/local/cuda*/bin/nsys",
)
#: Node-level graph tracing, ranges and nothing else; sampling would only slow the step.
_TRACE_FLAGS = ("--trace=cuda,nvtx", "--cuda-graph-trace=node", "--sample=none", "--cpuctxsw=none")
#: A workload's process opens the window itself and goes on after it, to digest its outputs.
_WINDOW_FLAGS = ("--capture-range=cudaProfilerApi", "--capture-range-end=stop")
_IMPORTER_FAILURES = ("unable to retrieve the importer version", "importer error status")


@dataclass(frozen=True)
class Nsys:
    """A usable nsys.

    Args:
        path: the binary.
        version: e.g. ``2025.3.1.90``, as it says itself, without the build's suffix.
    """

    path: Path
    version: str

    @property
    def release(self) -> tuple[int, int]:
        """(year, number) of the version."""
        year, number = self.version.split(".")[:2]
        return int(year), int(number)

    @property
    def nvtx_api(self) -> str:
        """The API whose ranges this version records: the `nvtx` package's, else torch's."""
        return "nvtx" if self.release >= NVTX_PACKAGE_MINIMUM else "torch.cuda.nvtx"


def candidates(root: Path = Path("/")) -> Iterator[Path]:
    """Where an nsys is, best first: only $PROFKIT_NSYS if that is set, else PATH, then installers' places."""
    named = os.environ.get(BINARY_VARIABLE)
    if named:
        yield Path(named)
        return
    on_path = shutil.which("nsys")
    if on_path:
        yield Path(on_path)
    for pattern in _PLACES:
        yield from sorted(root.glob(pattern), key=_version_key, reverse=True)


def _version_key(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]


def find(root: Path = Path("/")) -> Nsys:
    """The first nsys that runs and is new enough; installers' places are looked for below `root`.

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
        "nsys is not installed: it is not on PATH and not where installers of Nsight Systems, Nsight Compute or CUDA "
        f"put it. Install Nsight Systems {MINIMUM[0]}.{MINIMUM[1]} or later, or set {BINARY_VARIABLE} to the binary."
    )


def check(path: Path) -> Nsys:
    """Run ``nsys --version`` at `path`.

    Raises:
        ProfkitError: it does not start, fails, says no version, or is older than `MINIMUM`.
    """
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = error.strerror if isinstance(error, OSError) else "no answer within a minute"
        raise ProfkitError(f"{path.name} --version does not run: {reason}. Check {BINARY_VARIABLE} or PATH.") from None
    found = re.search(r"version (\d{4}\.\d+(?:\.\d+)*)", done.stdout)
    if done.returncode != 0 or found is None:
        raise ProfkitError(
            f"{path.name} --version ended with {describe_status(done.returncode)} and named no version. "
            f"Set {BINARY_VARIABLE} to a working nsys."
        )
    nsys = Nsys(path, found.group(1))
    if nsys.release < MINIMUM:
        raise ProfkitError(
            f"nsys {nsys.version} is too old: {MINIMUM[0]}.{MINIMUM[1]} is the oldest that records where a graph's "
            f"nodes were captured. Install a newer one, or set {BINARY_VARIABLE}."
        )
    return nsys


def profile_command(
    nsys: Nsys, output: Path, command: Sequence[str], *, window: bool, extra: Sequence[str] = ()
) -> list[str]:
    """The command line that runs `command` under nsys.

    Args:
        output: the report, without its suffix.
        window: record only what lies between cudaProfilerStart and cudaProfilerStop.
        extra: more flags, after ours, so that they win where nsys takes the last.
    """
    flags = [*_TRACE_FLAGS, *(_WINDOW_FLAGS if window else ("--trace-fork-before-exec=true",)), *extra]
    return [str(nsys.path), "profile", *flags, "--force-overwrite=true", f"--output={output}", *command]


def recorded_arguments(extra: Sequence[str] = ()) -> list[str]:
    """The tracing flags for run.json: ours, and the names (not the values) of the user's."""
    return [*_TRACE_FLAGS, *(text.partition("=")[0] for text in extra if text.startswith("-"))]


def export(nsys: Nsys, directory: Path, log: Path) -> None:
    """Export the report in `directory` to SQLite beside it.

    Raises:
        ProfkitError: there is no report (says why, as far as nsys told), or the export fails.
    """
    report = directory / REPORT_FILE
    if not report.exists():
        raise ProfkitError(_missing_report(directory, log))
    command = [str(nsys.path), "export", "--type=sqlite", "--force-overwrite=true"]
    status = run([*command, f"--output={directory / TRACE_FILE}", str(report)], log)
    if status != 0 or not (directory / TRACE_FILE).exists():
        raise ProfkitError(
            f"nsys export of the report failed ({describe_status(status)}): {tail(log)}. "
            "`profkit doctor` checks the installation."
        )


def _missing_report(directory: Path, log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace").lower()
    raw_only = any(directory.glob("*.qdstrm"))
    if raw_only or any(failure in text for failure in _IMPORTER_FAILURES):
        return (
            "nsys recorded, but its importer did not start and so wrote no report. As a rule libdw.so.1 or "
            "libelf.so.1 is missing: install the packages libdw1 and libelf1 (Debian, Ubuntu; elfutils-libs "
            "elsewhere), or put the libraries on LD_LIBRARY_PATH."
        )
    return f"nsys wrote no report: {tail(log)}. `profkit doctor` checks the installation."
