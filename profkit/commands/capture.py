"""`profkit capture`: a workload, or any command, recorded under a profiler into a run directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profkit.capture.plan import Options
from profkit.errors import ProfkitError


def capture_workload(options: Options, output: Path, *, force: bool) -> str:
    """Capture a workload; returns the summary to print."""
    from profkit.capture import workload_run

    finished = workload_run.capture(options, output, force=force)
    return summarise(finished.path, finished.record, f" ({finished.why})")


def capture_command(command: Sequence[str], nsys_args: str, output: Path, *, force: bool) -> tuple[str, int]:
    """Capture any command; returns the summary to print and the command's exit status."""
    from profkit.capture import command_run

    if not command:
        raise ProfkitError("Nothing to run after `--`. Give a command: profkit capture -o DIR -- python app.py")
    finished = command_run.capture(command, nsys_args, output, force=force)
    return summarise(finished.path, finished.record, ""), finished.exit_code


def summarise(path: Path, record: Mapping[str, Any], why: str) -> str:
    """A few lines about a finished capture: profiler, directory, times, warnings, and what to do next."""
    profiler, workload, untraced = record["profiler"], record["workload"], record["untraced"]
    lines = [f"profiler: {profiler['name']} {profiler['version']}{why}"]
    if workload is not None:
        what = f"{workload['name']} {workload['variant']}, {workload['layers']} layers"
        lines.append(f"workload: {what}, {record['replays']} replays on {record['device']['name']}")
    if untraced is not None:
        spread = f"quartiles {untraced['p25']:.1f} to {untraced['p75']:.1f}"
        lines.append(f"untraced: {untraced['median']:.1f} us a step (median of {untraced['replays']}, {spread})")
    if not record["timed"]:
        lines.append("not timed: launches were counted on the CPU, one for each operator; there are no times")
    lines += [f"warning: {warning['code']}: {warning['message']}" for warning in record["warnings"]]
    lines += [f"run directory: {path}", f"next: profkit layers {path}"]
    return "\n".join(lines)
