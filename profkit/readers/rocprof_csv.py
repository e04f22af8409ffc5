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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv

from profkit.errors import ProfkitError
from profkit.model.trace import NONE, Diagnostic, Trace
from profkit.model.wording import counted, have, were
from profkit.readers import ROCPROF_CSV
from profkit.readers.arrow import Arrays, Coded, Integers, Like, OneOf, Origin, Tables
from profkit.readers.files import whole
from profkit.readers.rocm import UNWRITTEN, RocmRows, copy_name, is_marker_range, kernel_name, mapped
from profkit.readers.rows import Texts, api_index, call_name

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


def _first(*sources: str) -> Integers:
    """A column that writers name differently, of which a file may have none."""
    return Integers(sources, NONE, optional=True)


#: The names of rocprofv3, of rocprof v2 and of rocprof v1.
_TIMES = {
    "start": Integers(("start_timestamp", "begin_timestamp", "beginns"), UNWRITTEN),
    "end": Integers(("end_timestamp", "endns"), 0),
}
_IDENTITY = {"pid": _first("process_id", "pid"), "thread": _first("thread_id", "tid")}
_ROW = {
    **_TIMES,
    **_IDENTITY,
    "stream": _first("stream_id", "queue_id"),
    "correlation": Integers(("correlation_id",), NONE, optional=True, zero_is_null=True),
}


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
    """See `profkit.readers.Reader`; the other files of the run are found beside this one by their common prefix."""
    if (first := _part(path)) is None:
        raise ProfkitError(f"{path} is no CSV of rocprofv3 with kernels, copies, API calls or markers.")
    named = ROCPROF_CSV.name.match(path.name)
    prefix = named[1] if named else ""
    others = map(_part, _companions(path, prefix) if prefix else [])
    parts = [first, *(part for part in others if part is not None)]
    rows = RocmRows(detail=detail)
    run = _Run(parts, prefix, rows)
    run.read()
    profiler = "rocprof" if run.of("rocprof v1", "rocprof v2") else "rocprofv3"
    return rows.rocm_trace(path, f"{profiler} csv", profiler, run.agents, "csv")


def _companions(path: Path, prefix: str) -> list[Path]:
    """The other files of the run; of one that lies there packed and unpacked, the unpacked."""
    found: dict[str, Path] = {}
    for other in sorted(path.parent.iterdir(), reverse=True):
        named = ROCPROF_CSV.name.match(other.name)
        if named is not None and named[1] == prefix and named[2] is not None:
            found[other.name.removesuffix(".gz")] = other
    found.pop(path.name.removesuffix(".gz"), None)
    return sorted(found.values())


def _part(path: Path) -> _Part | None:
    """The file at `path`, None where it is no file of rocprofv3 or rocprof.

    Raises:
        ProfkitError: unreadable, or a row that does not fit the header, with its line.
    """
    head, _, body = whole(path).partition(b"\n")
    role = role_of(head)
    return None if role is None else _Part(path, role, header_of(head), body)


class _Lines(Origin):
    def misfit(self, index: int, name: str, found: str, expected: str) -> ProfkitError:
        if header_of(found.strip("'").encode()) != [name]:
            return super().misfit(index, name, found, expected)
        return ProfkitError(
            f"{self.place}, line {self.row + index}: the header stands here again, so several processes wrote this "
            "file. Record one file per process: rocprofv3 -o NAME_%pid%."
        )


class _Part(Tables):
    """One file of a run, which is a table.

    Args:
        path: the file.
        role: a key of `_ROLES`.
        names: of its columns.
        body: all but its header.
    """

    def __init__(self, path: Path, role: str, names: list[str], body: bytes) -> None:
        super().__init__(path, [role])
        self.role, self._header = role, names
        self.mended_rows = 0
        if len(names) > _MOST_COLUMNS:
            raise ProfkitError(f"{path}, line 1: {len(names):,} columns are none of rocprofv3's. Copy it again.")
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ProfkitError(f"{path}, line 1: column {twice[0]} stands there twice. Record or copy it again.")
        self.free = _ROLES[role][1]
        self._place_of_free = names.index(self.free)
        try:
            body.decode()
        except UnicodeDecodeError:
            body = body.decode(errors="replace").encode()
        self._parsed = self._parse(body)

    def has(self, *names: str) -> bool:
        """Whether it has one of these columns."""
        return bool(self.columns(self.role) & set(names))

    def rows(self, integers: Mapping[str, Integers], *texts: str) -> tuple[Arrays, dict[str, Coded]]:
        """Whole columns; all texts of a column that is absent are NULL."""
        columns, coded = self.read(self.role, integers, [name for name in texts if self.has(name)])
        absent = Coded(np.full(self._parsed.num_rows, NONE, np.int32), [])
        return columns, {name: coded.get(name, absent) for name in texts}

    def _names(self, table: str) -> list[str]:
        return self._header

    def _origin(self, table: str) -> Origin:
        return _Lines(str(self.path), row=2, unit="line")

    def _batches(
        self, table: str, integers: Sequence[str], texts: Sequence[str], where: OneOf | Like | None
    ) -> Iterator[pa.RecordBatch]:
        yield from self._parsed.select(list(dict.fromkeys([*integers, *texts]))).to_batches()

    def _parse(self, body: bytes) -> pa.Table:
        if _is_plain(body):
            with contextlib.suppress(pa.ArrowInvalid):
                return self._table_of(body)
        try:
            return self._table_of(self._mended(body))
        except pa.ArrowInvalid as error:
            reason = " ".join(str(error).split())[:200]
            raise ProfkitError(f"{self.path} is no table ({reason}). Mend it, or record the run again.") from None

    def _table_of(self, body: bytes) -> pa.Table:
        """All columns as texts; an empty field is NULL."""
        types = dict.fromkeys(self._header, pa.string())
        if not body.strip():
            return pa.table({name: pa.array([], kind) for name, kind in types.items()})
        return pacsv.read_csv(
            io.BytesIO(body),
            read_options=pacsv.ReadOptions(column_names=self._header),
            parse_options=pacsv.ParseOptions(newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True),
        )

    def _mended(self, body: bytes) -> bytes:
        """`body` with inner quotes doubled, as CSV wants them."""
        lines = body.decode().split("\n")
        return "\n".join(self._mended_line(n, line.rstrip("\r")) for n, line in enumerate(lines, 2) if line).encode()

    def _mended_line(self, number: int, line: str) -> str:
        if self._fits(line):
            return line
        if "\r" in line:
            raise self._bad_row(number, "has a line end inside a field")
        left, right = self._place_of_free, len(self._header) - self._place_of_free - 1
        before = line.split(",", left)
        after = before[-1].rsplit(",", right)
        text = after[0]
        # A name that was quoted and does not end with its quote has fields behind it that the header does not have.
        if len(before) != left + 1 or len(after) != right + 1 or text.startswith('"') > text.endswith('"'):
            found = len(next(csv.reader([line])))
            raise self._bad_row(number, f"has {found} fields, the header has {len(self._header)}")
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
            return len(next(csv.reader([line], strict=True))) == len(self._header)
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
            columns, texts = part.rows(_IDENTITY, "guid")
            own = columns["pid"]
            pids |= set(np.unique(own).tolist()) - {NONE}
            for tid, pid in np.unique(np.stack([columns["thread"], own]), axis=1).T.tolist():
                # Processes of several containers may share thread ids, which then tell nothing.
                self._pid_by_thread[tid] = pid if self._pid_by_thread.get(tid, pid) == pid else NONE
            if part.has("guid"):
                pairs = np.unique(np.stack([texts["guid"].codes_in(self._guids), own]), axis=1)
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
        detail = _launch_shape(part) if self._rows.detail else {}
        columns, texts = part.rows(_ROW | detail, part.free, "agent_id", "gpu_id", "guid")
        columns["name"] = texts[part.free].codes_in(self._rows.op_names, kernel_name)
        columns["device"] = np.maximum(*(_agent(part, name, texts[name]) for name in ("agent_id", "gpu_id")))
        self._rows.add_ops("kernel", self._owners(part, columns, texts), columns)

    def _copies(self, part: _Part) -> None:
        columns, texts = part.rows(_ROW, "direction", "source_agent_id", "destination_agent_id", "guid")
        from_device = texts["direction"].mapped(lambda direction: direction.endswith("DEVICE_TO_HOST"), of_null=False)
        source, target = (_agent(part, name, texts[name]) for name in ("source_agent_id", "destination_agent_id"))
        columns["name"] = texts["direction"].codes_in(self._rows.op_names, copy_name)
        columns["device"] = np.where(from_device, source, target)
        self._rows.add_ops("memcpy", self._owners(part, columns, texts), columns)

    def _calls(self, part: _Part) -> None:
        columns, texts = part.rows(_ROW, "domain", "function", "guid")
        pid, function = self._owners(part, columns, texts), texts["function"]

        is_hip = texts["domain"].mapped(lambda domain: domain.startswith("HIP"), of_null=False)
        columns["api"] = function.mapped(api_index, of_null=NONE)
        columns["name"] = function.codes_in(self._rows.call_names, call_name)
        chosen = is_hip & (columns["api"] != NONE)
        self._rows.add_launches(pid[chosen], {name: values[chosen] for name, values in columns.items()})

        is_marker = texts["domain"].mapped(lambda domain: is_marker_range(domain, ""), of_null=False)
        is_range = function.mapped(lambda name: is_marker_range("MARKER_CORE", name), of_null=True)
        columns["text"] = function.codes_in(self._rows.texts)
        # A mark has one time; it is a point and no range.
        chosen = is_marker & is_range & (columns["start"] != columns["end"])
        self._rows.add_ranges(pid[chosen], {name: values[chosen] for name, values in columns.items()})

    def _agents(self, part: _Part) -> None:
        columns, texts = part.rows({"index": _first("logical_node_id", "node_id")}, "agent_type", "product_name")
        named = (texts[name].tolist() for name in ("agent_type", "product_name"))
        rows = zip(columns["index"].tolist(), *named, strict=True)
        self.agents |= {index: name for index, kind, name in rows if kind == "GPU" and name}

    def _owners(self, part: _Part, columns: Arrays, texts: Mapping[str, Coded]) -> npt.NDArray[np.int64]:
        """The process of each row: its own column, its guid, the run's only process, or that of its thread."""
        if part.has(*_IDENTITY["pid"].sources):
            return np.where(columns["pid"] == NONE, NONE if self._only is None else self._only, columns["pid"])
        if part.has("guid"):
            guid = texts["guid"].codes_in(self._guids)
            return mapped(guid, {g: self._pid_by_guid.get(g, NONE - 1 - g) for g in range(len(self._guids.labels()))})
        if self._only is not None:
            return np.full(len(columns["pid"]), self._only, np.int64)
        pid = mapped(columns["thread"], self._pid_by_thread)
        if part.role != "calls":
            self._unknown = (self._unknown or 0) + int((pid == NONE).sum())
        return pid


def _agent(part: _Part, column: str, texts: Coded) -> npt.NDArray[np.int64]:
    """Numbers of agents: 4 for ``Agent 4`` and for ``4``; `NONE` without a number.

    Raises:
        ProfkitError: a number that can be no agent's, with its line.
    """
    numbers = [found[1] if (found := re.search(r"([0-9]+)$", label)) else str(NONE) for label in texts.labels]
    for code, number in enumerate(numbers):
        if len(number) > 9:
            line = int(np.flatnonzero(texts.codes == code)[0]) + 2
            raise ProfkitError(
                f"{part.path}, line {line}: {column} is {texts.labels[code]!r}, expected the number of an agent. "
                "Record or copy it again."
            )
    return np.array([*map(int, numbers), NONE], np.int64)[texts.codes]


def _launch_shape(part: _Part) -> dict[str, Integers]:
    """`OP_DETAIL` of a kernel table. rocprof v1 and v2 give totals, which stand in the first axis."""
    shape = {
        "registers": _first("vgpr_count", "arch_vgpr"),
        "shared_memory": _first("lds_block_size", "group_segment_size", "lds"),
    }
    for axis in "xyz":
        if part.has("grd"):
            one = Integers((), 1)
            grid, block = (_first("grd"), _first("wgr")) if axis == "x" else (one, one)
        else:
            grid, block = _first(f"grid_size_{axis}"), _first(f"workgroup_size_{axis}")
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
