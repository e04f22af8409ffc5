"""Files that profilers write and that cannot tell launches per layer: recognised, and refused with what to record."""

from __future__ import annotations

import re
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.readers.csv_table import header_of

SUPPORTED = (
    "profkit reads nsys reports (.nsys-rep, SQLite and parquet exports), torch.profiler traces (.json, .json.gz), "
    "rocprofv3 output (rocpd, CSV, JSON), rocprof's results.csv, and run directories of profkit capture"
)
_NSYS_ADVICE = "open the report itself (.nsys-rep), or export it: nsys export -t sqlite REPORT.nsys-rep"
_ROCM_ADVICE = "record with: rocprofv3 --kernel-trace --hip-trace --marker-trace --output-format rocpd csv -- CMD"
_TORCH_ADVICE = "record with torch.profiler and export_chrome_trace, or under nsys"

_SQLITE_MAGIC = b"SQLite format 3\x00"
#: The header may follow lines that nsys prints before it.
_PREAMBLE_LINES = 40
#: In the arguments of every event of legacy rocprof's JSON, which is a Chrome trace like Kineto's.
LEGACY_ROCPROF_KEY = b'"BeginNs"'
#: Tables of legacy rocprof's database.
_LEGACY_TABLES = frozenset({b"KERN", b"OPS", b"HIP", b"HSA", b"COPY"})


def refuse(head: bytes, path: Path) -> ProfkitError:
    """Why the file that begins with `head` (decompressed) is not read, for files that no reader accepts.

    Args:
        head: the first 64 KiB.
        path: for the message.

    Returns:
        The error to raise: for a known format what to record instead, for others what profkit reads.
    """
    text = head.lstrip(b"\xef\xbb\xbf").lstrip()
    if not text:
        return ProfkitError(f"{path} is empty. {SUPPORTED}.")
    if head.startswith(_SQLITE_MAGIC):
        return _refuse_sqlite(head, path) or _unknown(path)
    if text[:1] in (b"{", b"["):
        return _refuse_json(text, path) or _unknown(path)
    return _refuse_csv(text, path) or _unknown(path)


def _refuse_sqlite(head: bytes, path: Path) -> ProfkitError | None:
    tables = set(re.findall(rb"CREATE TABLE (?:IF NOT EXISTS )?[\"'`\[]?(\w+)", head))
    if tables & _LEGACY_TABLES and b"BeginNs" in head:
        return ProfkitError(
            f"{path} is a database of the legacy rocprof: it has no correlation of launches and kernels that layers "
            f"could come from. Open its results.csv for kernels alone, or {_ROCM_ADVICE}"
        )
    return None


def _refuse_json(text: bytes, path: Path) -> ProfkitError | None:
    if LEGACY_ROCPROF_KEY in text:
        return ProfkitError(
            f"{path} is the JSON of the legacy rocprof, which names no launch of a kernel. "
            f"Open its results.csv for kernels alone, or {_ROCM_ADVICE}"
        )
    if b'"frame"' in text and b'"metrics"' in text and b'"children"' in text:
        return ProfkitError(
            f"{path} is a tree of Triton's Proton: sums without times, so launches cannot be told apart. "
            f"Instead, {_TORCH_ADVICE}."
        )
    if b'"batch_size"' in text and b'"mode"' in text and b'"file"' in text:
        return ProfkitError(f"{path} lists capture traces and is none itself: open the files that it names.")
    return None


def _refuse_csv(text: bytes, path: Path) -> ProfkitError | None:
    for line in text.splitlines()[:_PREAMBLE_LINES]:
        names = set(header_of(line))
        if _is_nsys_stats(names):
            return ProfkitError(
                f"{path} is a table of nsys stats, which has no graph nodes and no processes: {_NSYS_ADVICE}"
            )
        if {"name", "calls", "averagens"} <= names or {"name", "calls", "totaldurationns"} <= names:
            return ProfkitError(
                f"{path} holds sums per kernel or call (a *_stats.csv of rocprof), no single launch. Open the "
                f"kernel_trace.csv of the same run, or {_ROCM_ADVICE}"
            )
        if {"node_id", "agent_type"} <= names or {"kind", "operation", "start_timestamp"} <= names:
            return ProfkitError(
                f"{path} is a file of rocprofv3 without kernels. Open the kernel_trace.csv of the same run, or "
                f"{_ROCM_ADVICE}"
            )
        if "kernelname" in names or ("kernel_name" in names and "dispatch_id" in names):
            return ProfkitError(
                f"{path} names kernels but not their times (counters, or rocprof without --timestamp on): "
                f"{_ROCM_ADVICE}"
            )
    return None


def _is_nsys_stats(names: set[str]) -> bool:
    """Reports of nsys stats have times in units that `--timeunit` chooses, such as ``Total Time (ns)``."""
    timed = {n for n in names if re.search(r"_\((ns|us|µs|ms|s|nsec|usec|msec|sec)\)$", n)}
    return bool(timed) and bool(names & {"name", "instances", "num_calls", "corrid", "range", "count", "operation"})


def _unknown(path: Path) -> ProfkitError:
    return ProfkitError(f"{path} is of no format that profkit knows. {SUPPORTED}.")
