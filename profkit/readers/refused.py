"""Files that profilers write and that cannot tell launches per layer: recognised, and refused with what to record."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.readers import SQLITE_MAGIC
from profkit.readers.kineto import LEGACY_ROCPROF_KEY
from profkit.readers.rocm import record_with
from profkit.readers.rocprof_csv import header_of

SUPPORTED = (
    "profkit reads nsys reports (.nsys-rep, SQLite and parquet exports), torch.profiler traces (.json, .json.gz), "
    "rocprofv3 output (rocpd, CSV, JSON), rocprof's results.csv, and run directories of profkit capture"
)
_NSYS_ADVICE = "open the report itself (.nsys-rep), or export it: nsys export -t sqlite REPORT.nsys-rep"
_ROCM_ADVICE = f"record with: {record_with('rocpd csv')}"
_KERNELS_ALONE = f"Open its results.csv for kernels alone, or {_ROCM_ADVICE}"
_KERNEL_TRACE = f"Open the kernel_trace.csv of the same run, or {_ROCM_ADVICE}"

#: The header may follow lines that nsys prints before it.
_PREAMBLE_LINES = 40

#: Patterns that are all found, and what then stands after the path. The first row that fits is said.
_Rows = Sequence[tuple[Sequence[str], str]]

#: In the first 64 KiB, which hold the schema.
_DATABASES: _Rows = (
    (
        (r"CREATE TABLE (?:IF NOT EXISTS )?[\"'`\[]?(?:KERN|OPS|HIP|HSA|COPY)\b", "BeginNs"),
        "is a database of the legacy rocprof: it has no correlation of launches and kernels that layers could come "
        f"from. {_KERNELS_ALONE}",
    ),
)
_JSON: _Rows = (
    (
        (LEGACY_ROCPROF_KEY.decode(),),
        f"is the JSON of the legacy rocprof, which names no launch of a kernel. {_KERNELS_ALONE}",
    ),
    (
        ('"frame"', '"metrics"', '"children"'),
        "is a tree of Triton's Proton: sums without times, so launches cannot be told apart. Instead, record with "
        "torch.profiler and export_chrome_trace, or under nsys.",
    ),
    (
        ('"batch_size"', '"mode"', '"file"'),
        "lists capture traces and is none itself: open the files that it names.",
    ),
)
#: In the names of a header, as `header_of` gives them, with a comma before and after each.
_CSV: _Rows = (
    (
        # The reports of nsys stats have times in units that --timeunit chooses, such as "Total Time (ns)".
        (r"_\((ns|us|µs|ms|s|nsec|usec|msec|sec)\),", ",(name|instances|num_calls|corrid|range|count|operation),"),
        f"is a table of nsys stats, which has no graph nodes and no processes: {_NSYS_ADVICE}",
    ),
    (
        (",name,", ",calls,", ",(averagens|totaldurationns),"),
        f"holds sums per kernel or call (a *_stats.csv of rocprof), no single launch. {_KERNEL_TRACE}",
    ),
    *(
        (names, f"is a file of rocprofv3 without kernels. {_KERNEL_TRACE}")
        for names in ((",node_id,", ",agent_type,"), (",kind,", ",operation,", ",start_timestamp,"))
    ),
    *(
        (names, f"names kernels but not their times (counters, or rocprof without --timestamp on): {_ROCM_ADVICE}")
        for names in ((",kernelname,",), (",kernel_name,", ",dispatch_id,"))
    ),
)


#: What is no trace yet, by how it begins.
_WRAPPED: Sequence[tuple[bytes, str]] = (
    (b"PK\x03\x04", "is a zip archive. Unpack it, and give the trace in it."),
    (b"\x28\xb5\x2f\xfd", "is compressed by Zstandard. Unpack it with zstd -d, or pack it with gzip."),
    (b"\xfd7zXZ\x00", "is compressed by xz. Unpack it with xz -d, or pack it with gzip."),
    (b"BZh", "is compressed by bzip2. Unpack it with bzip2 -d, or pack it with gzip."),
    (
        b"version https://git-lfs.github.com/spec/",
        "is a Git LFS pointer and not the file. Fetch that with git lfs pull.",
    ),
    *((mark, "is a text in UTF-16. Save it in UTF-8.") for mark in (b"\xff\xfe", b"\xfe\xff")),
)


def refuse(head: bytes, path: Path) -> ProfkitError:
    """Why the file that begins with `head` (decompressed) is not read, for files that no reader accepts.

    Args:
        head: the first 64 KiB.
        path: for the message.

    Returns:
        The error to raise: for a known format what to record instead, for others what profkit reads.
    """
    text = head.lstrip()
    if not text:
        return ProfkitError(f"{path} is empty. {SUPPORTED}.")
    for begins, what in _WRAPPED:
        if head.startswith(begins):
            return ProfkitError(f"{path} {what}")
    if head.startswith(SQLITE_MAGIC):
        rows, texts = _DATABASES, [head.decode("latin-1")]
    elif text[:1] in (b"{", b"["):
        rows, texts = _JSON, [text.decode("latin-1")]
    else:
        rows, texts = _CSV, [f",{','.join(header_of(line))}," for line in text.splitlines()[:_PREAMBLE_LINES]]
    for searched in texts:
        for patterns, what in rows:
            if all(re.search(pattern, searched) for pattern in patterns):
                return ProfkitError(f"{path} {what}")
    return ProfkitError(f"{path} is of no format that profkit knows. {SUPPORTED}.")
