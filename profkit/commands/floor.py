"""`profkit floor`: what a graph node costs on this machine when its kernel does nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError, did_you_mean
from profkit.runs.whole_files import write_whole

FORMATS = ("text", "json")


def floor(profiler: str, output: Path | None, output_format: str, *, force: bool) -> str:
    """Measure the dispatch floor; returns what to print.

    Args:
        output: takes the JSON, schema ``profkit.floor/1``; None writes no file.

    Raises:
        ProfkitError: an unknown format, a file that exists or cannot be written, no CUDA device, a failed measurement.
    """
    from profkit.capture import floor as measuring

    if output_format not in FORMATS:
        raise ProfkitError(f"No format {output_format!r}.{did_you_mean(output_format, FORMATS)}")
    if output is not None and output.exists() and not force:
        raise ProfkitError(f"{output} exists and will not be overwritten. Choose another -o, or add --force.")
    content = {"schema": measuring.SCHEMA, **measuring.measure(measuring.choose(profiler))}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    if output is not None:
        write_whole(output, text + "\n")
    return text if output_format == "json" else as_text(content)


def as_text(content: Mapping[str, Any]) -> str:
    """A small table: a row for each kernel; median and quartiles in µs."""
    profiler = content["profiler"]
    columns = {
        "untraced_per_node": "untraced, a node",
        "traced_duration": "traced, duration",
        "traced_gap": "traced, gap",
    }
    lines = [
        f"dispatch floor of {content['device']}; traced by {profiler['name']} {profiler['version']}",
        " ".join(f"{title:>22}" for title in ("us: median (quartiles)", *columns.values())),
    ]
    for kernel, title in (("empty", "empty kernel"), ("load_store", "one load and store")):
        cells = [_cell(content[kernel][column]) for column in columns]
        lines.append(" ".join(f"{cell:>22}" for cell in (title, *cells)))
    return "\n".join(lines)


def _cell(summary: Mapping[str, float]) -> str:
    return f"{summary['median']:.3f} ({summary['p25']:.3f}-{summary['p75']:.3f})"
