"""`profkit floor`: what a graph node costs on this machine when its kernel does nothing."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from profkit.errors import ProfkitError
from profkit.model.run import FLOOR_SCHEMA, FloorRecord
from profkit.runs.whole_files import write_whole


def floor(profiler: str, output: Path | None, output_format: str, *, force: bool) -> str:
    """Measure the dispatch floor; returns what to print.

    Args:
        output: takes the JSON, schema ``profkit.floor/1``; None writes no file.

    Raises:
        ProfkitError: a file that exists or cannot be written, no CUDA device, a failed measurement.
    """
    from profkit.capture import profilers
    from profkit.capture.floor import measure
    from profkit.capture.options import FLOOR_WORKLOAD, Options

    if output is not None and output.exists() and not force:
        raise ProfkitError(f"{output} exists and will not be overwritten. Choose another -o, or add --force.")
    try:
        content = measure(profilers.choose(Options(FLOOR_WORKLOAD, profiler=profiler), profilers.FLOOR)[0])
    except ProfkitError as error:
        raise ProfkitError(f"The dispatch floor cannot be measured: {error}") from None
    text = json.dumps({"schema": FLOOR_SCHEMA, **msgspec.to_builtins(content)}, indent=1, ensure_ascii=False)
    if output is not None:
        write_whole(output, text + "\n")
    return text if output_format == "json" else as_text(content)


def as_text(content: FloorRecord) -> str:
    """A small table: a row for each kernel; median and quartiles in µs."""
    profiler = content.profiler
    rows = [("us: median (quartiles)", "untraced, a node", "traced, duration", "traced, gap")]
    for title, kernel in (("empty kernel", content.empty), ("one load and store", content.load_store)):
        untraced, duration, gap = (
            f"{one.median:.3f} ({one.p25:.3f}-{one.p75:.3f})"
            for one in (kernel.untraced_per_node, kernel.traced_duration, kernel.traced_gap)
        )
        rows.append((title, untraced, duration, gap))
    traced_by = f"{profiler.name} {profiler.version}" if profiler else "unknown"
    table = (" ".join(f"{cell:>22}" for cell in row) for row in rows)
    return "\n".join([f"dispatch floor of {content.device}; traced by {traced_by}", *table])
