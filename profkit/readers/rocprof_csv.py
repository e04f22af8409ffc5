"""CSV of rocprofv3 (all header generations) and of its predecessor rocprof → Trace.

One run is several files with one prefix: kernels, copies, API calls, markers, agents. Any of them opens the run.
A kernel row names no process; it is that of the API rows beside it, else the number that the file name begins with.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from profkit.errors import ProfkitError
from profkit.model.trace import LAUNCH_APIS, NONE, OP_KINDS, Diagnostic, Trace
from profkit.model.wording import counted, have, were
from profkit.readers import rocm
from profkit.readers.csv_table import CsvTable, header_of
from profkit.readers.rocm_tables import RocmRows
from profkit.readers.rows import Texts, call_name, launch_api

#: What a file holds, by the columns that only such files have; checked in this order. The value is the free text.
_ROLES: dict[str, tuple[frozenset[str], str]] = {
    "kernels": (frozenset({"kernel_name", "start_timestamp", "end_timestamp"}), "kernel_name"),
    "rocprof v2": (frozenset({"kernel_name", "begin_timestamp", "end_timestamp"}), "kernel_name"),
    "rocprof v1": (frozenset({"kernelname", "beginns", "endns"}), "kernelname"),
    "copies": (frozenset({"direction", "start_timestamp", "end_timestamp"}), "direction"),
    "calls": (frozenset({"domain", "function", "start_timestamp", "end_timestamp"}), "function"),
    "agents": (frozenset({"node_id", "agent_type", "product_name"}), "product_name"),
}
#: The kinds of file in one run, as rocprofv3 names them after the prefix.
_KINDS = "kernel|memory_copy|marker_api|marker|hip_api|hip_runtime_api|hip_compiler_api|hip|hip_runtime|hip_compiler"
_NAME = re.compile(rf"^(?P<prefix>.+)_(?:(?:{_KINDS}|\w+_api)_trace|agent_info)\.csv$")
_COMPANIONS = re.compile(rf"^(?:(?:{_KINDS})_trace|agent_info)\.csv$")


@dataclass
class _Run:
    """The files of one run that share a prefix."""

    prefix: str
    parts: list[tuple[str, CsvTable]] = field(default_factory=list)

    def of(self, *roles: str) -> list[CsvTable]:
        return [t for role, t in self.parts if role in roles]


def role_of(line: bytes) -> str | None:
    """What a file with the header `line` holds; None where it is no file of rocprofv3 or rocprof."""
    names = set(header_of(line))
    return next((role for role, (needed, _) in _ROLES.items() if needed <= names), None)


def sniff(head: bytes, path: Path) -> bool:
    """Whether a file that begins with `head` holds kernels, copies or API calls of rocprofv3 or rocprof."""
    return role_of(head.partition(b"\n")[0]) not in (None, "agents")


def read(path: Path, *, detail: bool = False) -> Trace:
    """Read the run that the file at `path` belongs to.

    Args:
        path: one CSV file; others of the run are found beside it by their common prefix.
        detail: also read `OP_DETAIL` (grid in workgroups, block in work-items, VGPRs, bytes of LDS).

    Raises:
        ProfkitError: a row that does not fit, or nothing that profkit reads.
    """
    return _read([path], _companions(path), detail=detail)


def read_many(paths: Sequence[Path], *, detail: bool = False) -> Trace:
    """Read the files `paths` as one recording, e.g. those of several processes; see `read`."""
    return _read(list(paths), [], detail=detail)


def _companions(path: Path) -> list[Path]:
    """The other files with the prefix of `path`; none for a file without a prefix."""
    named = _NAME.match(path.name)
    if named is None:
        return []
    start = named["prefix"] + "_"
    siblings = sorted(p for p in path.parent.iterdir() if p.name.startswith(start) and p != path)
    return [p for p in siblings if _COMPANIONS.match(p.name.removeprefix(start))]


def _read(paths: list[Path], companions: list[Path], *, detail: bool) -> Trace:
    runs: dict[str, _Run] = {}
    for path in paths + companions:
        role = role_of(_first_line(path))
        if role is None:
            if path in companions:
                continue
            raise ProfkitError(f"{path} is no CSV of rocprofv3 with kernels, copies, API calls or markers.")
        named = _NAME.match(path.name)
        prefix = named["prefix"] if named else ""
        run = runs.setdefault(f"{path.parent}/{prefix}" if prefix else str(path), _Run(prefix))
        run.parts.append((role, CsvTable(path, _ROLES[role][1])))
    reader = _Reader(detail=detail)
    for run in runs.values():
        reader.add(run)
    first = paths[0]
    if not reader.rows.found:
        raise ProfkitError(
            f"{first}: no kernel, copy, launch or marker in this file. Open the kernel_trace.csv of the same run, or "
            "record with: rocprofv3 --kernel-trace --hip-trace --marker-trace --output-format csv -- CMD"
        )
    return reader.rows.trace(str(first), reader.format, reader.profiler, reader.agents)


def _first_line(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.readline()
    except OSError as error:
        raise ProfkitError(f"{path} cannot be read: {error.strerror}.") from None


class _Reader:
    def __init__(self, *, detail: bool) -> None:
        self.rows = RocmRows(detail=detail)
        self.agents: dict[int, str] = {}
        self.format, self.profiler = "rocprofv3 csv", "rocprofv3"
        self._guids = Texts()
        self._detail = detail

    def add(self, run: _Run) -> None:
        """Add the rows of one run. Its API calls come first: they tell which threads belong to which process."""
        owners = _Owners(run, self._guids)
        for part in run.of("calls"):
            self._calls(part, owners.of_calls(part))
        for part in run.of("kernels", "rocprof v1", "rocprof v2"):
            self._kernels(part, owners.of_ops(part))
        for part in run.of("copies"):
            self._copies(part, owners.of_ops(part))
        for part in run.of("agents"):
            self._agents(part)
        if run.of("rocprof v1", "rocprof v2"):
            self.format, self.profiler = "rocprof csv", "rocprof"
        mended = sum(t.mended_rows for _, t in run.parts)
        if mended:
            message = f"{counted(mended, 'row')} {have(mended)} quotes inside a name and {were(mended)} mended."
            self.rows.note(Diagnostic("mended-quotes", message))
        if owners.by_thread:
            unknown = f"the process of {counted(owners.unknown, 'op')} is not certain"
            told = unknown if owners.unknown else "their threads tell them apart"
            self.rows.note(
                Diagnostic(
                    "mixed-processes",
                    f"The files of {owners.count} processes are one, and {told}. "
                    "Record one file per process: rocprofv3 -o NAME_%pid%.",
                )
            )

    def _kernels(self, part: CsvTable, pid: npt.NDArray[np.int64]) -> None:
        # The column names of rocprofv3, of rocprof v2 and of rocprof v1.
        start = next(n for n in ("start_timestamp", "begin_timestamp", "beginns") if n in part)
        end = next(n for n in ("end_timestamp", "endns") if n in part)
        name = "kernel_name" if "kernel_name" in part else "kernelname"
        device = self._agent_column(part, next((n for n in ("agent_id", "gpu_id") if n in part), ""))
        columns: dict[str, npt.NDArray[Any]] = {
            "start": part.integers(start),
            "end": part.integers(end),
            "kind": np.full(len(part), OP_KINDS.index("kernel"), np.int64),
            "name": part.texts(name, self.rows.op_names),
            "device": device,
            "stream": part.integers("stream_id" if "stream_id" in part else "queue_id"),
            "correlation": part.integers("correlation_id"),
        }
        if self._detail:
            columns |= _launch_shape(part)
        self.rows.add_ops(pid, columns)

    def _copies(self, part: CsvTable, pid: npt.NDArray[np.int64]) -> None:
        directions = Texts()
        codes = part.texts("direction", directions)
        names = self.rows.op_names.codes([rocm.copy_name(d) for d in directions.labels()])
        from_device = np.array([d.endswith("DEVICE_TO_HOST") for d in directions.labels()], bool)
        source = self._agent_column(part, "source_agent_id")
        target = self._agent_column(part, "destination_agent_id")
        columns: dict[str, npt.NDArray[Any]] = {
            "start": part.integers("start_timestamp"),
            "end": part.integers("end_timestamp"),
            "kind": np.full(len(part), OP_KINDS.index("memcpy"), np.int64),
            "name": names[codes] if len(codes) else np.empty(0, np.int32),
            "device": np.where(from_device[codes], source, target) if len(codes) else target,
            "stream": part.integers("stream_id"),
            "correlation": part.integers("correlation_id"),
        }
        self.rows.add_ops(pid, columns)

    def _calls(self, part: CsvTable, pid: npt.NDArray[np.int64]) -> None:
        domains, functions = Texts(), Texts()
        domain, function = part.texts("domain", domains), part.texts("function", functions)
        if not len(part):
            return
        start, end = part.integers("start_timestamp"), part.integers("end_timestamp")
        thread, correlation = part.integers("thread_id"), part.integers("correlation_id")

        is_hip = np.array([d.startswith("HIP") for d in domains.labels()])[domain]
        apis = [launch_api(f) for f in functions.labels()]
        api = np.array([NONE if a is None else LAUNCH_APIS.index(a) for a in apis])[function]
        chosen = is_hip & (api != NONE)
        names = self.rows.call_names.codes([call_name(f) for f in functions.labels()])[function]
        times = {"start": start, "end": end, "thread": thread}
        launches: dict[str, npt.NDArray[Any]] = {**times, "correlation": correlation, "api": api, "name": names}
        self.rows.add_launches(pid[chosen], {n: c[chosen] for n, c in launches.items()})

        is_marker = np.array([rocm.is_marker_range(d, "") for d in domains.labels()])[domain]
        is_range = np.array([rocm.is_marker_range("MARKER_CORE", f) for f in functions.labels()])[function]
        # A mark has one time; it is a point and no range.
        chosen = is_marker & is_range & (start != end)
        texts = self.rows.texts.codes(functions.labels())[function]
        ranges: dict[str, npt.NDArray[Any]] = {**times, "text": texts}
        self.rows.add_ranges(pid[chosen], {n: c[chosen] for n, c in ranges.items()})

    def _agents(self, part: CsvTable) -> None:
        kinds, names = Texts(), Texts()
        kind = [kinds.labels()[c] for c in part.texts("agent_type", kinds).tolist()]
        name = [names.labels()[c] for c in part.texts("product_name", names).tolist()]
        index = part.integers("logical_node_id" if "logical_node_id" in part else "node_id").tolist()
        self.agents |= {i: n for i, k, n in zip(index, kind, name, strict=True) if k == "GPU" and n}

    def _agent_column(self, part: CsvTable, column: str) -> npt.NDArray[np.int64]:
        if column not in part:
            return np.full(len(part), NONE, np.int64)
        labels = Texts()
        codes = part.texts(column, labels)
        indices = np.array([rocm.agent_index(a) for a in labels.labels()], np.int64)
        return indices[codes] if len(codes) else np.empty(0, np.int64)


class _Owners:
    """Which process each row of a run belongs to. Ids below `NONE` stand for processes known by a guid alone."""

    def __init__(self, run: _Run, guids: Texts) -> None:
        self.unknown = 0
        #: Whether only threads told the process of some op.
        self.by_thread = False
        self._guids = guids
        self._by_thread: dict[int, int] = {}
        self._by_guid: dict[int, int] = {}
        pids: set[int] = set()
        for part in run.of("calls", "rocprof v1", "rocprof v2"):
            own = part.integers(_pid_column(part))
            known = set(np.unique(own).tolist()) - {NONE}
            pids |= known
            thread = part.integers("thread_id" if "thread_id" in part else "tid")
            for tid, pid in np.unique(np.stack([thread, own]), axis=1).T.tolist():
                # Processes of several containers may share thread ids, which then tell nothing.
                self._by_thread[tid] = pid if self._by_thread.get(tid, pid) == pid else NONE
            if "guid" in part:
                pairs = np.unique(np.stack([part.texts("guid", guids), own]), axis=1)
                self._by_guid |= dict(zip(pairs[0].tolist(), pairs[1].tolist(), strict=True))
        named = int(run.prefix) if run.prefix.isdecimal() else NONE
        self.count = len(pids)
        #: The process of every row, where there is only one.
        self._only: int | None = named if not pids else next(iter(pids)) if len(pids) == 1 else None

    def of_calls(self, part: CsvTable) -> npt.NDArray[np.int64]:
        """The process of each API row."""
        return part.integers(_pid_column(part), default=NONE if self._only is None else self._only)

    def of_ops(self, part: CsvTable) -> npt.NDArray[np.int64]:
        """The process of each op: its own column, its guid, the run's only process, or that of its thread."""
        if _pid_column(part) in part:
            return self.of_calls(part)
        if "guid" in part:
            guid = part.texts("guid", self._guids).astype(np.int64)
            return _mapped(guid, {g: self._by_guid.get(g, NONE - 1 - g) for g in np.unique(guid).tolist()})
        if self._only is not None:
            return np.full(len(part), self._only, np.int64)
        self.by_thread = True
        pid = _mapped(part.integers("thread_id"), self._by_thread)
        self.unknown += int((pid == NONE).sum())
        return pid


def _pid_column(part: CsvTable) -> str:
    return "process_id" if "process_id" in part else "pid"


def _mapped(values: npt.NDArray[np.int64], mapping: dict[int, int]) -> npt.NDArray[np.int64]:
    unique, inverse = np.unique(values, return_inverse=True)
    return np.array([mapping.get(v, NONE) for v in unique.tolist()], np.int64)[inverse]


def _launch_shape(part: CsvTable) -> dict[str, npt.NDArray[np.int64]]:
    """`OP_DETAIL` of a kernel table. rocprof v1 and v2 give totals, which stand in the first axis."""
    shape: dict[str, npt.NDArray[np.int64]] = {}
    for axis in "xyz":
        if "grd" in part:
            ones = np.ones(len(part), np.int64)
            grid, group = (part.integers("grd"), part.integers("wgr")) if axis == "x" else (ones, ones)
        else:
            grid, group = part.integers(f"grid_size_{axis}"), part.integers(f"workgroup_size_{axis}")
        shape |= {f"grid_{axis}": rocm.blocks(grid, group), f"block_{axis}": group}

    def first(*names: str) -> npt.NDArray[np.int64]:
        return part.integers(next((n for n in names if n in part), names[0]))

    return shape | {
        "registers": first("vgpr_count", "arch_vgpr"),
        "shared_memory": first("lds_block_size", "group_segment_size", "lds"),
    }
