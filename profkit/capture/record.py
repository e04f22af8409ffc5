"""run.json of a capture, put together from what the workers and the profiler said."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from profkit._version import __version__
from profkit.capture import digests
from profkit.capture.device import driver_version
from profkit.capture.floor import Floor
from profkit.capture.graph_level import GraphLevel
from profkit.capture.options import Options
from profkit.capture.profilers import Profiler
from profkit.model.run import ProfilerRecord, RankRecord, RepetitionRecord, RunRecord
from profkit.model.wording import counted


def workload_record(
    options: Options,
    profiler: Profiler,
    traced: Mapping[str, Any],
    untraced: Mapping[str, Any] | None,
    floor: Floor,
    graph_level: GraphLevel,
    *,
    trace: str,
    files: Sequence[str],
    trace_sha256: Mapping[str, str],
    repetition: RepetitionRecord | None,
    ranks: RankRecord | None = None,
) -> RunRecord:
    """run.json for a captured workload.

    Args:
        options: what ran.
        profiler: what recorded.
        traced: the profiled worker's result.
        untraced: the untraced worker's result, None without times.
        floor: asked for its measurement, which is made now if it was not before.
        graph_level: the step at graph level, if it was asked for.
        trace: the trace's file name.
        files: names of all files beside run.json.
        trace_sha256: from `profkit.runs.run_dir.trace_digests`.
        repetition: which of the repetitions of a repeated capture this is, None for a single one.
        ranks: which of a job's ranks this is, None for a process without a group.
    """
    outputs = traced["digests"]
    equal = None if untraced is None or outputs is None else untraced["digests"] == outputs
    content = {
        **_common(trace, files, trace_sha256),
        "workload": {
            "name": options.name,
            "variant": traced["variant"],
            "shapes": traced["shapes"],
            "layers": traced["layers"],
            "source": "file" if options.is_file else "shipped",
        },
        "command": None,
        "exit_code": None,
        "profiler": profiler.description(traced["ranges"], traced["versions"]),
        "timed": profiler.timed,
        "device": traced["device"],
        "versions": {"driver": driver_version() if profiler.timed else None, **traced["versions"]},
        "seed": options.seed,
        "warmup": options.warmup if profiler.timed else 0,
        "replays": options.replays,
        "compiles": traced["compiles"],
        "digests": None
        if outputs is None
        else {
            "inputs": "digest",
            "algorithm": digests.ALGORITHM,
            "outputs": outputs,
            "notes": traced["notes"],
            "references": traced["references"],
        },
        "untraced": None if untraced is None else untraced["untraced"],
        "untraced_digests_equal": equal,
        "graph_level": graph_level.content,
        "floor": floor.measured.content,
        "ranks": ranks,
        "repetition": repetition,
        "set_aside": None,
        "warnings": [*_warnings(traced, equal), *floor.measured.warnings, *graph_level.warnings],
    }
    return msgspec.convert(content, RunRecord)


def command_record(
    profiler: ProfilerRecord,
    program: str,
    argument_count: int,
    exit_code: int,
    *,
    trace: str,
    files: Sequence[str],
    trace_sha256: Mapping[str, str],
    warnings: Sequence[dict[str, str]],
) -> RunRecord:
    """run.json for ``capture -- CMD``: what is known of a program that profkit did not build.

    Args:
        profiler: the `profiler` field.
        program: the program's name, without its directory.
        argument_count: how many arguments it had; their text may hold secrets and is not kept.
        exit_code: the program's.
        trace: the trace's file name.
        files: names of all files beside run.json.
        trace_sha256: from `profkit.runs.run_dir.trace_digests`.
        warnings: of the recording.
    """
    warnings = list(warnings)
    if exit_code != 0:
        warnings.append({"code": "command-failed", "message": f"The command ended with exit status {exit_code}."})
    content = {
        **_common(trace, files, trace_sha256),
        "command": {"program": program, "arguments": argument_count},
        "exit_code": exit_code,
        "profiler": profiler,
        "timed": True,
        "versions": {"driver": driver_version()},
        "warnings": warnings,
    }
    return msgspec.convert(content, RunRecord)


def _common(trace: str, files: Sequence[str], trace_sha256: Mapping[str, str]) -> dict[str, Any]:
    return {
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "profkit": __version__,
        "commit": source_commit(),
        "trace": trace,
        "files": list(files),
        "trace_sha256": dict(trace_sha256),
    }


def _warnings(traced: Mapping[str, Any], digests_equal: bool | None) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    inside = traced["compiles"]["inside"]
    if inside:
        names = ", ".join(sorted({entry["name"] for entry in inside}))
        found.append(
            {
                "code": "compiled-inside-window",
                "message": f"{counted(len(inside), 'compilation')} ran inside the recorded window ({names}); its host "
                "times are not those of a warm step. Raise --warmup.",
            }
        )
    if not traced["compiles_watched"]:
        found.append(
            {
                "code": "compiles-not-watched",
                "message": "This triton has no compilation listener (3.4 and later do): compilations inside the "
                "window would not be seen.",
            }
        )
    references = traced["references"]
    if references is not None and (off := [n for n, o in references["outputs"].items() if not o["within"]]):
        found.append(
            {
                "code": "outputs-off-reference",
                "message": f"{len(off)} of {len(references['outputs'])} outputs are further from their reference than "
                f"rtol {references['rtol']:g}, atol {references['atol']:g} allow, e.g. {off[0]}: this variant computes "
                "something else.",
            }
        )
    if digests_equal is False:
        found.append(
            {
                "code": "digests-not-repeatable",
                "message": "The untraced process computed other output bits than the traced one; digests of this "
                "workload say nothing about whether work was kept.",
            }
        )
    return found


def source_commit() -> str | None:
    """The commit of the repository that profkit runs from, ``-dirty`` where it has changes; None outside one."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        head = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        status = subprocess.run(
            ["git", "-C", root, "--no-optional-locks", "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    if head.returncode != 0 or status.returncode != 0:
        return None
    return head.stdout.strip() + ("-dirty" if status.stdout.strip() else "")
