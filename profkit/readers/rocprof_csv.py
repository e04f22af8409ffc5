"""CSV of rocprofv3 (all header generations) and of its predecessor rocprof → Trace.

One run is several files with one prefix: kernels, copies, API calls, markers, agents. Any of them opens the run.
A kernel row names no process; it is that of the API rows beside it, else the number that the file name begins with.

rocprofv3 writes quoted names without escaping a quote inside them. A row with such a name is mended from its shape:
the header gives the number of fields on both sides of the one free text, and no other field holds a comma.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from profkit.errors import ProfkitError
from profkit.model.trace import LAUNCH_APIS, NONE, Diagnostic, Trace
from profkit.model.wording import counted, have, were
from profkit.readers.files import whole
from profkit.readers.rocm import RocmRows, copy_name, is_marker_range, kernel_name, mapped, record_with
from profkit.readers.rows import Texts, call_name, ids, launch_api

#: What a file holds, by the columns that only such files have; checked in this order. The value is the free text.
_ROLES: dict[str, tuple[frozenset[str], str]] = {
    "kernels": (frozenset({"kernel_name", "start_timestamp", "end_timestamp"}), "kernel_name"),
    "rocprof v2": (frozenset({"kernel_name", "begin_timestamp", "end_timestamp"}), "kernel_name"),
    "rocprof v1": (frozenset({"kernelname", "beginns", "endns"}), "kernelname"),
    "copies": (frozenset({"direction", "start_timestamp", "end_timestamp"}), "direction"),
    "calls": (frozenset({"domain", "function", "start_timestamp", "end_timestamp"}), "function"),
    "agents": (frozenset({"node_id", "agent_type", "product_name"}), "product_name"),
}
#: More than any writer's: each counter has one.
_MOST_COLUMNS = 10_000
#: The kinds of file in one run, as rocprofv3 names them after the prefix.
_KINDS = "kernel|memory_copy|marker_api|marker|hip_api|hip_runtime_api|hip_compiler_api|hip|hip_runtime|hip_compiler"
_NAME = re.compile(rf"^(?P<prefix>.+)_(?:(?:{_KINDS}|\w+_api)_trace|agent_info)\.csv(?:\.gz)?$")
_COMPANIONS = re.compile(rf"^(?:(?:{_KINDS})_trace|agent_info)\.csv(?:\.gz)?$")


def header_of(line: bytes) -> list[str]:
    """Column names in lower case with underscores: writers differ in case (``VGPR_Count``, ``Vgpr_Count``)."""
    text = line.decode("utf-8", errors="replace").strip()
    return [name.strip().strip('"').lower().replace("-", "_").replace(" ", "_") for name in text.split(",")]


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
    named = _NAME.match(path.name)
    if (first := _part(path)) is None:
        raise ProfkitError(f"{path} is no CSV of rocprofv3 with kernels, copies, API calls or markers.")
    others = map(_part, _companions(path, named["prefix"]) if named else [])
    parts = [first, *(part for part in others if part is not None)]
    rows = RocmRows(detail=detail)
    run = _Run(parts, named["prefix"] if named else "", rows)
    run.read()
    if not rows.found:
        raise ProfkitError(
            f"{path}: no kernel, copy, launch or marker in this file. Open the kernel_trace.csv of the same run, or "
            f"record with: {record_with('csv')}"
        )
    profiler = "rocprof" if run.of("rocprof v1", "rocprof v2") else "rocprofv3"
    return rows.rocm_trace(path, f"{profiler} csv", profiler, run.agents, "csv")


def _companions(path: Path, prefix: str) -> list[Path]:
    """The other files of the run; of one that lies there packed and unpacked, the unpacked."""
    start, own = prefix + "_", path.name.removesuffix(".gz")
    siblings = sorted((p for p in path.parent.iterdir() if p.name.startswith(start)), reverse=True)
    others = {p.name.removesuffix(".gz"): p for p in siblings if _COMPANIONS.match(p.name.removeprefix(start))}
    return sorted(p for name, p in others.items() if name != own)


def _part(path: Path) -> _Part | None:
    """The file at `path`, None where it is no file of rocprofv3 or rocprof.

    Raises:
        ProfkitError: unreadable, or a row that does not fit the header, with its line.
    """
    head, _, body = whole(path).partition(b"\n")
    role = role_of(head)
    return None if role is None else _Part(path, role, header_of(head), body)


class _Part:
    """One file of a run: its columns as texts, converted on demand.

    Args:
        path: the file.
        role: a key of `_ROLES`.
        names: of its columns.
        body: all but its header.
    """

    def __init__(self, path: Path, role: str, names: list[str], body: bytes) -> None:
        self.path, self.role, self.names = path, role, names
        self.mended_rows = 0
        if len(names) > _MOST_COLUMNS:
            raise ProfkitError(f"{path}, line 1: {len(names):,} columns are none of rocprofv3's. Copy it again.")
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ProfkitError(f"{path}, line 1: column {twice[0]} stands there twice. Record or copy it again.")
        self._free = self.names.index(_ROLES[role][1])
        try:
            body.decode()
        except UnicodeDecodeError:
            body = body.decode(errors="replace").encode()
        self._columns = self._parse(body)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def first_of(self, *names: str) -> str:
        """The first of `names` that the file has, else the first: writers differ in their names for one thing."""
        return next((name for name in names if name in self), names[0])

    def coded(self, name: str) -> tuple[npt.NDArray[np.int32], list[str]]:
        """Column `name` as codes into its distinct texts."""
        encoded = self._columns[name].combine_chunks().dictionary_encode()
        chunk = encoded.chunk(0) if hasattr(encoded, "chunk") else encoded
        codes = chunk.indices.to_numpy(zero_copy_only=False)
        return np.asarray(codes, np.int32), [str(v) for v in chunk.dictionary.to_pylist()]

    def texts(self, name: str, texts: Texts, rename: Callable[[str], str] = str) -> npt.NDArray[np.int32]:
        """The codes of column `name` in `texts`; `rename` is applied to each distinct text."""
        codes, labels = self.coded(name)
        return texts.codes([rename(label) for label in labels])[codes]

    def integers(self, name: str, default: int = NONE) -> npt.NDArray[np.int64]:
        """Column `name`; `default` where it is absent or empty.

        Raises:
            ProfkitError: a field is no integer, with its line.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if name not in self._columns:
            return np.full(len(self), default, np.int64)
        column = self._columns[name]
        filled = pc.if_else(pc.equal(column, ""), str(default), column)
        try:
            return np.asarray(pc.cast(filled, pa.int64()).to_numpy(), np.int64)
        except pa.ArrowInvalid:
            values = filled.to_pylist()
        row = next((i for i, v in enumerate(values) if not _is_int64(v)), 0)
        if header_of(values[row].encode()) == [name]:
            raise ProfkitError(
                f"{self.path}, line {row + 2}: the header stands here again, so several processes wrote this file. "
                "Record one file per process: rocprofv3 -o NAME_%pid%."
            )
        raise ProfkitError(
            f"{self.path}, line {row + 2}: {name} is {values[row]!r}, expected an integer. Record or copy it again."
        )

    def _parse(self, body: bytes) -> dict[str, Any]:
        import pyarrow as pa

        if _is_plain(body):
            with contextlib.suppress(pa.ArrowInvalid):
                return self._columns_of(body)
        try:
            return self._columns_of(self._mended(body))
        except pa.ArrowInvalid as error:
            reason = " ".join(str(error).split())[:200]
            raise ProfkitError(f"{self.path} is no table ({reason}). Mend it, or record the run again.") from None

    def _columns_of(self, body: bytes) -> dict[str, Any]:
        import pyarrow as pa
        import pyarrow.csv as pacsv

        if not body.strip():
            return {name: pa.chunked_array([[]], pa.string()) for name in self.names}
        parsed = pacsv.read_csv(
            io.BytesIO(body),
            read_options=pacsv.ReadOptions(column_names=self.names),
            parse_options=pacsv.ParseOptions(newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(self.names, pa.string()), strings_can_be_null=False
            ),
        )
        return {name: parsed.column(name) for name in self.names}

    def _mended(self, body: bytes) -> bytes:
        """`body` with inner quotes doubled, as CSV wants them."""
        lines = body.decode().split("\n")
        return "\n".join(self._mended_line(n, line.rstrip("\r")) for n, line in enumerate(lines, 2) if line).encode()

    def _mended_line(self, number: int, line: str) -> str:
        if self._fits(line):
            return line
        if "\r" in line:
            raise self._bad_row(number, "has a line end inside a field")
        left, right = self._free, len(self.names) - self._free - 1
        before = line.split(",", left)
        after = before[-1].rsplit(",", right)
        text = after[0]
        # A name that was quoted and does not end with its quote has fields behind it that the header does not have.
        if len(before) != left + 1 or len(after) != right + 1 or text.startswith('"') > text.endswith('"'):
            found = len(next(csv.reader([line])))
            raise self._bad_row(number, f"has {found} fields, the header has {len(self.names)}")
        if len(text) > 1 and text.startswith('"') and text.endswith('"'):
            text = text[1:-1]
        if any(field.count('"') not in (0, 2) for field in before[:-1] + after[1:]):
            raise self._bad_row(number, "has a quote inside a field that holds no free text")
        self.mended_rows += 1
        quoted = '"' + text.replace('"', '""') + '"'
        return ",".join([*before[:-1], quoted, *after[1:]])

    def _fits(self, line: str) -> bool:
        """Whether `line` is CSV as it stands: another writer than rocprofv3 doubles the quotes inside fields."""
        try:
            return len(next(csv.reader([line], strict=True))) == len(self.names)
        except csv.Error:
            return False

    def _bad_row(self, number: int, what: str) -> ProfkitError:
        return ProfkitError(f"{self.path}, line {number}: the row {what}. Mend the line, or record the run again.")


class _Run:
    """The files of one run; `read` adds their rows.

    Owners of rows below `NONE` stand for processes that are known by a guid alone.
    """

    def __init__(self, parts: list[_Part], prefix: str, rows: RocmRows) -> None:
        self._parts, self._rows = parts, rows
        self.agents: dict[int, str] = {}
        self._guids = Texts()
        self._pid_by_thread: dict[int, int] = {}
        self._pid_by_guid: dict[int, int] = {}
        #: Ops whose process only their threads could tell, and did not; None where threads were not needed.
        self._unknown: int | None = None
        pids: set[int] = set()
        for part in self.of("calls", "rocprof v1", "rocprof v2"):
            own = part.integers(_pid_column(part))
            pids |= set(np.unique(own).tolist()) - {NONE}
            thread = part.integers(part.first_of("thread_id", "tid"))
            for tid, pid in np.unique(np.stack([thread, own]), axis=1).T.tolist():
                # Processes of several containers may share thread ids, which then tell nothing.
                self._pid_by_thread[tid] = pid if self._pid_by_thread.get(tid, pid) == pid else NONE
            if "guid" in part:
                pairs = np.unique(np.stack([part.texts("guid", self._guids), own]), axis=1)
                self._pid_by_guid |= dict(zip(pairs[0].tolist(), pairs[1].tolist(), strict=True))
        self._processes = len(pids)
        named = int(prefix) if prefix.isdecimal() and len(prefix) < 19 else NONE
        #: The process of every row, where there is only one.
        self._only: int | None = named if not pids else next(iter(pids)) if len(pids) == 1 else None

    def of(self, *roles: str) -> list[_Part]:
        """The files with one of `roles`."""
        return [part for part in self._parts if part.role in roles]

    def read(self) -> None:
        """Add the rows of all files."""
        for part in self.of("calls"):
            self._calls(part)
        for part in self.of("kernels", "rocprof v1", "rocprof v2"):
            self._kernels(part)
        for part in self.of("copies"):
            self._copies(part)
        for part in self.of("agents"):
            self._agents(part)
        mended = sum(part.mended_rows for part in self._parts)
        if mended:
            message = f"{counted(mended, 'row')} {have(mended)} quotes inside a name and {were(mended)} mended."
            self._rows.notes.append(Diagnostic("mended-quotes", message))
        if self._unknown is not None:
            unknown = f"the process of {counted(self._unknown, 'op')} is not certain"
            told = unknown if self._unknown else "their threads tell them apart"
            self._rows.notes.append(
                Diagnostic(
                    "mixed-processes",
                    f"The files of {self._processes} processes are one, and {told}. "
                    "Record one file per process: rocprofv3 -o NAME_%pid%.",
                )
            )

    def _kernels(self, part: _Part) -> None:
        # The column names of rocprofv3, of rocprof v2 and of rocprof v1.
        columns: dict[str, npt.NDArray[Any]] = {
            "start": part.integers(part.first_of("start_timestamp", "begin_timestamp", "beginns")),
            "end": part.integers(part.first_of("end_timestamp", "endns")),
            "name": part.texts(part.first_of("kernel_name", "kernelname"), self._rows.op_names, kernel_name),
            "device": _agent(part, part.first_of("agent_id", "gpu_id")),
            "stream": part.integers(part.first_of("stream_id", "queue_id")),
            "correlation": ids(part.integers("correlation_id")),
        }
        if self._rows.detail:
            columns |= _launch_shape(part)
        self._rows.add_ops("kernel", self._pids_of_ops(part), columns)

    def _copies(self, part: _Part) -> None:
        direction, directions = part.coded("direction")
        from_device = np.array([d.endswith("DEVICE_TO_HOST") for d in directions], np.bool_)[direction]
        source, target = _agent(part, "source_agent_id"), _agent(part, "destination_agent_id")
        columns: dict[str, npt.NDArray[Any]] = {
            "start": part.integers("start_timestamp"),
            "end": part.integers("end_timestamp"),
            "name": part.texts("direction", self._rows.op_names, copy_name),
            "device": np.where(from_device, source, target),
            "stream": part.integers("stream_id"),
            "correlation": ids(part.integers("correlation_id")),
        }
        self._rows.add_ops("memcpy", self._pids_of_ops(part), columns)

    def _calls(self, part: _Part) -> None:
        domain, domains = part.coded("domain")
        function, functions = part.coded("function")
        pid = self._pids_of_calls(part)
        start, end = part.integers("start_timestamp"), part.integers("end_timestamp")
        columns: dict[str, npt.NDArray[Any]] = {"start": start, "end": end, "thread": part.integers("thread_id")}

        is_hip = np.array([d.startswith("HIP") for d in domains], np.bool_)[domain]
        apis = [launch_api(f) for f in functions]
        api = np.array([NONE if a is None else LAUNCH_APIS.index(a) for a in apis], np.int8)[function]
        launches = columns | {
            "correlation": ids(part.integers("correlation_id")),
            "api": api,
            "name": part.texts("function", self._rows.call_names, call_name),
        }
        chosen = is_hip & (api != NONE)
        self._rows.add_launches(pid[chosen], {n: c[chosen] for n, c in launches.items()})

        is_marker = np.array([is_marker_range(d, "") for d in domains], np.bool_)[domain]
        is_range = np.array([is_marker_range("MARKER_CORE", f) for f in functions], np.bool_)[function]
        ranges = columns | {"text": part.texts("function", self._rows.texts)}
        # A mark has one time; it is a point and no range.
        chosen = is_marker & is_range & (start != end)
        self._rows.add_ranges(pid[chosen], {n: c[chosen] for n, c in ranges.items()})

    def _agents(self, part: _Part) -> None:
        kind, kinds = part.coded("agent_type")
        name, names = part.coded("product_name")
        index = part.integers(part.first_of("logical_node_id", "node_id"))
        for i, k, n in zip(index.tolist(), kind.tolist(), name.tolist(), strict=True):
            if kinds[k] == "GPU" and names[n]:
                self.agents[i] = names[n]

    def _pids_of_calls(self, part: _Part) -> npt.NDArray[np.int64]:
        return part.integers(_pid_column(part), default=NONE if self._only is None else self._only)

    def _pids_of_ops(self, part: _Part) -> npt.NDArray[np.int64]:
        """The process of each op: its own column, its guid, the run's only process, or that of its thread."""
        if _pid_column(part) in part:
            return self._pids_of_calls(part)
        if "guid" in part:
            guid = part.texts("guid", self._guids)
            return mapped(guid, {g: self._pid_by_guid.get(g, NONE - 1 - g) for g in range(len(self._guids.labels()))})
        if self._only is not None:
            return np.full(len(part), self._only, np.int64)
        pid = mapped(part.integers("thread_id"), self._pid_by_thread)
        self._unknown = (self._unknown or 0) + int((pid == NONE).sum())
        return pid


def _pid_column(part: _Part) -> str:
    return part.first_of("process_id", "pid")


def _is_int64(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]{1,19}", text) is not None and -(1 << 63) <= int(text) < 1 << 63


def _agent(part: _Part, column: str) -> npt.NDArray[np.int64]:
    """Numbers of agents: 4 for ``Agent 4`` and for ``4``; `NONE` without a number.

    Raises:
        ProfkitError: a number that can be no agent's, with its line.
    """
    if column not in part:
        return np.full(len(part), NONE, np.int64)
    codes, labels = part.coded(column)
    numbers = [found[1] if (found := re.search(r"(\d+)$", label)) else str(NONE) for label in labels]
    for code, number in enumerate(numbers):
        if len(number) > 9:
            line = int(np.flatnonzero(codes == code)[0]) + 2
            raise ProfkitError(
                f"{part.path}, line {line}: {column} is {labels[code]!r}, expected the number of an agent. "
                "Record or copy it again."
            )
    return np.array([int(number) for number in numbers], np.int64)[codes]


def _launch_shape(part: _Part) -> dict[str, npt.NDArray[np.int64]]:
    """`OP_DETAIL` of a kernel table. rocprof v1 and v2 give totals, which stand in the first axis."""
    shape = {
        "registers": part.integers(part.first_of("vgpr_count", "arch_vgpr")),
        "shared_memory": part.integers(part.first_of("lds_block_size", "group_segment_size", "lds")),
    }
    for axis in "xyz":
        if "grd" in part:
            ones = np.ones(len(part), np.int64)
            grid, block = (part.integers("grd"), part.integers("wgr")) if axis == "x" else (ones, ones)
        else:
            grid, block = part.integers(f"grid_size_{axis}"), part.integers(f"workgroup_size_{axis}")
        shape |= {f"grid_{axis}": grid, f"block_{axis}": block}
    return shape


def _is_plain(body: bytes) -> bool:
    """Whether every other quote opens a field and every other one closes it, so that no field has a quote inside."""
    text = np.frombuffer(b"\n" + body + b"\n", np.uint8)
    quotes = np.flatnonzero(text == ord('"'))
    before, after = text[quotes[::2] - 1], text[quotes[1::2] + 1]
    opens = (before == ord(",")) | (before == ord("\n"))
    closes = (after == ord(",")) | (after == ord("\n")) | (after == ord("\r"))
    return len(quotes) % 2 == 0 and bool(opens.all()) and bool(closes.all())
