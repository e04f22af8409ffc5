"""The registry of trace formats, and `read`, which picks one by a file's content, never by its name.

An entry of `FORMATS` says all that the rest of profkit must know of a format; what a recording tells is in its `Info`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from profkit.errors import ProfkitError
from profkit.readers.files import begins

if TYPE_CHECKING:
    from profkit.model.trace import Trace

#: How much of a file tells its format: the first is enough for most; the headers of jobs with many process groups, and
#: keys in another order, push what tells it far into the file.
HEAD_BYTES = (64 << 10, 16 << 20)
SQLITE_MAGIC = b"SQLite format 3\x00"
#: The name of the dispatch profiler's file; here, so that the command line can know it without the tables.
DISPATCH_FILE = "dispatch.json"


class Reader(Protocol):
    """What a format's module has."""

    def sniff(self, head: bytes, path: Path) -> bool:
        """Whether the file that begins with `head` (decompressed) is of this format; of a directory `head` is empty."""
        ...

    def read(self, path: Path, *, detail: bool = False) -> Trace:
        """The file's trace; `detail` adds `OP_DETAIL` where the format has it: grid in blocks (workgroups), block in
        threads (work-items), registers (VGPRs) a thread, bytes of shared memory (LDS).

        Raises:
            ProfkitError: damaged, without a column that is needed, or nothing in it that profkit reads.
        """
        ...


@dataclass(frozen=True)
class Files:
    """Of a format that writes several files for one process.

    Args:
        name: matches their names; group 1 is what those of one process share. Each opens the whole.
        shown: how the name of the one ends that stands for all where it is there.
    """

    name: re.Pattern[str]
    shown: str


@dataclass(frozen=True)
class Format:
    """What the rest of profkit must know of a format.

    Args:
        names: `Info.format` of its traces.
        module: a `Reader`, imported only where a file may be of this format.
        begins: what its files begin with; any file, where only `Reader.sniff` can tell.
        directory: matches files of a directory that is a trace as a whole.
        files: where it writes several for one process.
        whole_graphs: its profiler can record graphs as a whole, without their nodes, and does so unless told otherwise.
        own: of profkit's dispatch profiler, which runs operators on the CPU and counts them.
    """

    names: tuple[str, ...]
    module: str
    begins: tuple[bytes, ...] = (b"",)
    directory: str | None = None
    files: Files | None = None
    whole_graphs: bool = False
    own: bool = False


#: rocprofv3's CSV files. Group 2 is the kind of those that are read: API calls and markers, kernels, copies, agents.
ROCPROF_CSV = Files(
    re.compile(
        r"^(.*?)_?(?:((?:hip(?:_runtime|_compiler)?(?:_api)?|marker(?:_api)?|kernel|memory_copy)_trace|agent_info)|"
        r"(?:(?:hsa(?:_[a-z]+)*|rccl|roc[a-z]+)_api|memory_allocation|scratch_memory|counter_collection)_trace)"
        r"\.csv(?:\.gz)?$"
    ),
    shown="kernel_trace.csv",
)

#: In the order in which they are tried: a surer and commoner one first.
FORMATS = [
    Format(
        ("nsys sqlite", "nsys parquet"),
        "profkit.readers.nsys",
        (SQLITE_MAGIC, b"PAR1"),
        directory="*.parquet",
        whole_graphs=True,
    ),
    Format(("nsys report",), "profkit.readers.nsys_report", (b"NVIDIA Tegra Profiler Report",), whole_graphs=True),
    Format(("profkit dispatch",), "profkit.readers.dispatch", own=True),
    Format(("rocpd",), "profkit.readers.rocpd", (SQLITE_MAGIC,)),
    Format(("rocprofv3 json",), "profkit.readers.rocprof_json"),
    Format(("kineto",), "profkit.readers.kineto"),
    Format(("rocprofv3 csv", "rocprof csv"), "profkit.readers.rocprof_csv", files=ROCPROF_CSV),
]


def format_of(trace_format: str) -> Format:
    """The entry of an `Info.format`; one that says nothing for traces that no reader made."""
    return next((entry for entry in FORMATS if trace_format in entry.names), Format((trace_format,), module=""))


def read(path: Path, *, detail: bool = False) -> Trace:
    """Read the trace at `path`, whatever its format.

    Args:
        path: a file; for Parquet exports of nsys also their directory.
        detail: also read launch shapes (grid, block, registers, shared memory) where the format has them.

    Raises:
        ProfkitError: no such file, an unknown format, a format that cannot carry layers, or a damaged file.
    """
    # Here, so that what captures ask of this package needs no tables.
    from profkit.readers import rows

    try:
        trace = rows.with_epochs(rows.without_duplicates(_reader(path).read(path, detail=detail)))
    except RecursionError:
        raise ProfkitError(f"{path} is nested too deeply to be a trace. Export it again.") from None
    rows.refuse_broken(trace)
    notes = [note for note in (rows.missing_peers(trace), rows.impossible_durations(trace)) if note is not None]
    return replace(trace, info=replace(trace.info, diagnostics=(*trace.info.diagnostics, *notes)))


def recognised(path: Path) -> bool:
    """Whether a file is of a format that profkit reads, by how it begins."""
    try:
        _reader(path)
    except ProfkitError:
        return False
    return True


def is_whole_directory(directory: Path) -> bool:
    """Whether the files of `directory` may be one trace together."""
    return any(entry.directory and any(directory.glob(entry.directory)) for entry in FORMATS)


def parts_in(directory: Path) -> list[Path]:
    """The files in `directory` of formats that write several for one process; of one process or of several."""
    patterns = [entry.files.name for entry in FORMATS if entry.files is not None]
    return sorted(path for path in directory.iterdir() if any(p.match(path.name) for p in patterns))


def without_companions(paths: Sequence[Path]) -> list[Path]:
    """`paths` with one file for each process, where a format writes several; each opens them all."""
    kept: dict[tuple[Path, str], Path] = {}
    for path in paths:
        key, shown = (path, ""), False
        for files in (entry.files for entry in FORMATS if entry.files is not None):
            if (found := files.name.match(path.name)) is not None:
                key, shown = (path.parent, found[1]), path.name.removesuffix(".gz").endswith(files.shown)
        if key not in kept or shown:
            kept[key] = path
    return list(kept.values())


def _reader(path: Path) -> Reader:
    for entry in FORMATS if path.is_dir() else ():
        if entry.directory and any(path.glob(entry.directory)):
            reader = cast(Reader, import_module(entry.module))
            if reader.sniff(b"", path):
                return reader
    head = b""
    for size in HEAD_BYTES:
        read_before, head = len(head), begins(path, size)
        if not head:
            raise ProfkitError(f"{path} is empty.")
        if len(head) == read_before:
            break
        for entry in FORMATS:
            if head.startswith(entry.begins):
                reader = cast(Reader, import_module(entry.module))
                if reader.sniff(head, path):
                    return reader
    from profkit.readers import refused

    raise refused.refuse(head[: HEAD_BYTES[0]], path)
