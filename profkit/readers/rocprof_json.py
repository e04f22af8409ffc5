"""JSON of rocprofv3 (``rocprofiler-sdk-tool``) → Trace. Of the metadata only the pid is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from profkit.errors import ProfkitError
from profkit.model.trace import NONE, Trace
from profkit.readers.files import whole
from profkit.readers.rocm import RocmRows, copy_name, is_marker_range, kernel_name
from profkit.readers.rows import api_index, call_name, integers

_KEY = re.compile(rb'"rocprofiler-sdk-tool"\s*:')
_GPU = 2  # rocprofiler_agent_type_t

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Handle(msgspec.Struct, gc=False, frozen=True):
    handle: int = NONE


class _Dim(msgspec.Struct, gc=False, frozen=True):
    x: Int64 = NONE
    y: Int64 = NONE
    z: Int64 = NONE


class _Correlation(msgspec.Struct, gc=False, frozen=True):
    internal: int = NONE


class _Dispatch(msgspec.Struct, gc=False, frozen=True):
    agent_id: _Handle = _Handle()
    queue_id: _Handle = _Handle()
    kernel_id: Int64 = NONE
    group_segment_size: Int64 = NONE
    workgroup_size: _Dim = _Dim()
    grid_size: _Dim = _Dim()


class _Record(msgspec.Struct, gc=False):
    """A record of any kind: kernel, copy, API call or marker. Graph ids are numbers or handles, by version."""

    kind: Int64 = NONE
    operation: Int64 = NONE
    thread_id: Int64 = NONE
    start_timestamp: Int64 = 0
    end_timestamp: Int64 = 0
    correlation_id: _Correlation = _Correlation()
    dispatch_info: _Dispatch = _Dispatch()
    stream_id: _Handle | None = None
    src_agent_id: _Handle = _Handle()
    dst_agent_id: _Handle = _Handle()
    graph_exec_id: int | _Handle = 0
    graph_node_id: int | _Handle = 0


class _Buffers(msgspec.Struct):
    kernel_dispatch: list[_Record] = []
    memory_copy: list[_Record] = []
    hip_api: list[_Record] = []
    marker_api: list[_Record] = []


class _Kind(msgspec.Struct):
    kind: str = ""
    operations: list[str] = []


class _Message(msgspec.Struct, gc=False):
    key: Int64
    value: str


class _Strings(msgspec.Struct):
    buffer_records: list[_Kind] = []
    marker_api: list[_Message] = []


class _Symbol(msgspec.Struct):
    kernel_id: Int64 = NONE
    kernel_name: str = ""
    formatted_kernel_name: str = ""
    demangled_kernel_name: str = ""
    arch_vgpr_count: Int64 = NONE


class _Agent(msgspec.Struct):
    id: _Handle = _Handle()
    type: Int64 = NONE
    node_id: Int64 = NONE
    logical_node_id: Int64 = NONE
    product_name: str = ""


class _Metadata(msgspec.Struct, frozen=True):
    pid: Int64 = NONE


class _Process(msgspec.Struct):
    metadata: _Metadata = _Metadata()
    agents: list[_Agent] = []
    strings: _Strings = msgspec.field(default_factory=_Strings)
    kernel_symbols: list[_Symbol] = []
    buffer_records: _Buffers = msgspec.field(default_factory=_Buffers)


class _Document(msgspec.Struct):
    processes: list[_Process] = msgspec.field(name="rocprofiler-sdk-tool")


def sniff(head: bytes, path: Path) -> bool:
    """See `profkit.readers.Reader`."""
    del path
    return head.lstrip()[:1] == b"{" and _KEY.search(head) is not None


def read(path: Path, *, detail: bool = False) -> Trace:
    """See `profkit.readers.Reader`; the file may hold several processes."""
    rows = RocmRows(detail=detail)
    agents: dict[int, str] = {}
    for process in _decode(path).processes:
        reader = _Reader(process, rows)
        reader.read()
        agents |= reader.agents
    return rows.rocm_trace(path, "rocprofv3 json", "rocprofv3", agents, "json")


def _decode(path: Path) -> _Document:
    text = whole(path)
    try:
        return msgspec.json.decode(text, type=_Document)
    except msgspec.ValidationError as error:
        raise ProfkitError(f"{path}: not the JSON that rocprofv3 writes ({error}).") from None
    except msgspec.DecodeError as error:
        raise ProfkitError(
            f"{path}: damaged or cut off within its {len(text)} bytes ({error}). Record it again and let rocprofv3 "
            "finish."
        ) from None


class _Reader:
    """Adds the records of one process."""

    def __init__(self, process: _Process, rows: RocmRows) -> None:
        self._process, self._rows = process, rows
        gpus = [a for a in process.agents if a.type == _GPU]
        self._devices = {a.id.handle: a.node_id if a.logical_node_id == NONE else a.logical_node_id for a in gpus}
        self.agents = {self._devices[a.id.handle]: a.product_name for a in gpus if a.product_name}
        self._owner = rows.new_owner(process.metadata.pid)

    def read(self) -> None:
        """Add ops, launches and ranges."""
        buffers = self._process.buffer_records
        self._kernels(buffers.kernel_dispatch)
        self._copies(buffers.memory_copy)
        self._launches(buffers.hip_api)
        self._markers(buffers.marker_api)

    def _kernels(self, records: list[_Record]) -> None:
        symbols = {s.kernel_id: s for s in self._process.kernel_symbols}
        names = {
            i: kernel_name(s.demangled_kernel_name or s.formatted_kernel_name or s.kernel_name)
            for i, s in symbols.items()
        }
        dispatches = [r.dispatch_info for r in records]
        columns = self._common(records)
        columns |= {
            "name": self._rows.op_names.codes([names.get(d.kernel_id, f"kernel {d.kernel_id}") for d in dispatches]),
            "device": integers([self._devices.get(d.agent_id.handle, NONE) for d in dispatches]),
            "stream": integers([(r.stream_id or r.dispatch_info.queue_id).handle for r in records]),
        }
        if self._rows.detail:
            for axis in "xyz":
                columns[f"grid_{axis}"] = _column(dispatches, f"grid_size.{axis}")
                columns[f"block_{axis}"] = _column(dispatches, f"workgroup_size.{axis}")
            registers = {i: s.arch_vgpr_count for i, s in symbols.items()}
            columns["registers"] = integers([registers.get(d.kernel_id, NONE) for d in dispatches])
            columns["shared_memory"] = _column(dispatches, "group_segment_size")
        self._rows.add_ops("kernel", self._owner, columns)

    def _copies(self, records: list[_Record]) -> None:
        def device(record: _Record) -> int:
            target = self._devices.get(record.dst_agent_id.handle, NONE)
            return self._devices.get(record.src_agent_id.handle, NONE) if target == NONE else target

        columns = self._common(records)
        columns |= {
            "name": self._rows.op_names.codes([copy_name(self._operation(r)[1]) for r in records]),
            "device": integers([device(r) for r in records]),
            "stream": integers([NONE if r.stream_id is None else r.stream_id.handle for r in records]),
        }
        self._rows.add_ops("memcpy", self._owner, columns)

    def _launches(self, records: list[_Record]) -> None:
        called = [(r, self._operation(r)[1]) for r in records]
        apis = {name: api_index(name) for _, name in called}
        chosen = [(r, name) for r, name in called if apis[name] != NONE]
        columns = self._common([r for r, _ in chosen])
        columns["api"] = integers([apis[name] for _, name in chosen])
        columns["name"] = self._rows.call_names.codes([call_name(name) for _, name in chosen])
        self._rows.add_launches(self._owner, columns)

    def _markers(self, records: list[_Record]) -> None:
        messages = {m.key: m.value for m in self._process.strings.marker_api}
        chosen = []
        for record in records:
            domain, call = self._operation(record)
            # A mark has one time; it is a point and no range.
            if is_marker_range(domain, call) and record.start_timestamp != record.end_timestamp:
                chosen.append((record, call, messages.get(record.correlation_id.internal, call)))
        columns = self._common([r for r, _, _ in chosen])
        columns["text"] = self._rows.texts.codes([text for _, _, text in chosen])
        columns["crosses"] = integers([call.startswith("roctxRangeSt") for _, call, _ in chosen])
        self._rows.add_ranges(self._owner, columns)

    def _operation(self, record: _Record) -> tuple[str, str]:
        """Domain and call of an API record, from the indices that it holds."""
        kinds = self._process.strings.buffer_records
        if not 0 <= record.kind < len(kinds):
            return "", f"operation {record.operation}"
        kind = kinds[record.kind]
        known = 0 <= record.operation < len(kind.operations)
        return kind.kind, kind.operations[record.operation] if known else f"operation {record.operation}"

    def _common(self, records: list[_Record]) -> dict[str, npt.NDArray[Any]]:
        # Correlation 0 and graph 0 stand for none.
        return {
            "start": _column(records, "start_timestamp"),
            "end": _column(records, "end_timestamp"),
            "thread": _column(records, "thread_id"),
            "correlation": integers([r.correlation_id.internal or NONE for r in records]),
            "graph": integers([_handle(r.graph_exec_id) or NONE for r in records]),
            "node": integers([_handle(r.graph_node_id) or NONE for r in records]),
        }


def _column(records: Sequence[object], attribute: str) -> npt.NDArray[np.int64]:
    """What `attribute`, a path of names, is of each record."""
    return integers(list(map(attrgetter(attribute), records)))


def _handle(value: int | _Handle) -> int:
    return value.handle if isinstance(value, _Handle) else value
