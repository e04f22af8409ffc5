"""Recording with Nsight Systems: its command lines, the export of what it recorded, and why it recorded nothing.

Which nsys is used, and the names that captures need of `profkit.readers.nsight_systems`, come from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from profkit.capture.process import describe_status, started, tail, wait
from profkit.errors import ProfkitError
from profkit.readers.nsight_systems import BINARY_VARIABLE, MINIMUM, Nsys, candidates, check, export_command, find

__all__ = [
    "BINARY_VARIABLE",
    "MINIMUM",
    "REPORT_FILE",
    "TRACE_FILE",
    "GraphTrace",
    "Nsys",
    "candidates",
    "check",
    "export",
    "find",
    "profile_command",
    "recorded_arguments",
]

GraphTrace = Literal["node", "graph"]
REPORT_FILE = "trace.nsys-rep"
TRACE_FILE = "trace.sqlite"

#: Node-level graph tracing, ranges and nothing else; sampling would only slow the step.
_TRACE_FLAGS = ("--trace=cuda,nvtx", "--cuda-graph-trace=node", "--sample=none", "--cpuctxsw=none")
#: Whole graphs alone: for the time of a step that is traced without its nodes.
_GRAPH_LEVEL_FLAGS = ("--trace=cuda,nvtx", "--cuda-graph-trace=graph", "--sample=none", "--cpuctxsw=none")
#: A workload's process opens the window itself and goes on after it, to digest its outputs.
_WINDOW_FLAGS = ("--capture-range=cudaProfilerApi", "--capture-range-end=stop")
_IMPORTER_FAILURES = ("unable to retrieve the importer version", "importer error status")


def profile_command(
    nsys: Nsys,
    output: Path,
    command: Sequence[str],
    *,
    window: bool,
    extra: Sequence[str] = (),
    graph_trace: GraphTrace = "node",
) -> list[str]:
    """The command line that runs `command` under nsys.

    Args:
        output: the report, without its suffix.
        window: record only what lies between cudaProfilerStart and cudaProfilerStop.
        extra: more flags, after ours, so that they win where nsys takes the last.
        graph_trace: record each node of a graph, or whole graphs.
    """
    level = _TRACE_FLAGS if graph_trace == "node" else _GRAPH_LEVEL_FLAGS
    flags = [*level, *(_WINDOW_FLAGS if window else ("--trace-fork-before-exec=true",)), *extra]
    return [str(nsys.path), "profile", *flags, "--force-overwrite=true", f"--output={output}", *command]


def recorded_arguments(extra: Sequence[str] = ()) -> list[str]:
    """The tracing flags for run.json: ours, and the names (not the values) of the user's."""
    return [*_TRACE_FLAGS, *(text.partition("=")[0] for text in extra if text.startswith("-"))]


def export(nsys: Nsys, reports: Sequence[tuple[Path, Path]]) -> None:
    """Export reports to SQLite beside them, all at once.

    Args:
        reports: the directory of each, and the log that its recording and its export write to.

    Raises:
        ProfkitError: there is no report (says why, as far as nsys told), or an export fails.
    """
    for directory, log in reports:
        if not (directory / REPORT_FILE).exists():
            raise ProfkitError(_missing_report(directory, log))
    with ExitStack() as stack:
        exports = [
            stack.enter_context(started(export_command(nsys, directory / REPORT_FILE, directory / TRACE_FILE), log))
            for directory, log in reports
        ]
        for (directory, log), child in zip(reports, exports, strict=True):
            status = wait(child)
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
