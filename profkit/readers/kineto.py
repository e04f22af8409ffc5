"""torch.profiler (Kineto) JSON of CUDA and ROCm → Trace.

Times become integer nanoseconds: `ts` plus `baseTimeNanoseconds` where the file has it, so traces with it are on the
Unix epoch and traces of several ranks on one clock. GPU rows name their device where host rows name their process;
the process is that of the call with the same correlation id. Host rows beside the launches become ranges: the user's
in domain "", operators in ``cpu_op``, Python frames and modules in ``python_function``. `gpu_user_annotation` rows are
projections of user ranges and are left out.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.errors import ProfkitError
from profkit.model.trace import (
    LAUNCH_APIS,
    LAUNCHES,
    NODES,
    NONE,
    OP_DETAIL,
    OP_KINDS,
    OPS,
    RANGES,
    Diagnostic,
    Info,
    Process,
    Trace,
    categorical,
    table,
)
from profkit.model.wording import are, counted, were
from profkit.readers.json_stream import GZIP_MAGIC, ArrayStream
from profkit.readers.kineto_header import Header, read_header
from profkit.readers.kineto_rows import DOMAINS, Columns, DetailEvent, Event, KinetoRows
from profkit.readers.rows import (
    broken_rows,
    graph_trace,
    joined,
    module_path,
    set_aside_note,
    sorted_ranges,
    split_broken,
)
from profkit.readers.unsupported import LEGACY_ROCPROF_KEY

_SNIFF_KEYS = re.compile(rb'"(?:traceEvents|deviceProperties|distributedInfo|baseTimeNanoseconds)"\s*:')
_EVENT = re.compile(rb'\{[^{}]*"ph"\s*:\s*"[A-Za-z]"')
#: Headers of jobs with many process groups push the events far into the file.
_SNIFF_LIMIT = 16 << 20


def sniff(head: bytes, path: Path) -> bool:
    """Whether a file that begins with `head` (decompressed) is Kineto's: an object with `traceEvents`, or events."""
    text = head.lstrip()
    if text[:1] == b"[":
        return _EVENT.search(text[:4096]) is not None
    if text[:1] != b"{" or LEGACY_ROCPROF_KEY in text:
        return False
    if _SNIFF_KEYS.search(text):
        return True
    if len(head) < 1 << 16:
        return False
    with path.open("rb") as raw:
        zipped = raw.read(2) == GZIP_MAGIC
    with gzip.open(path, "rb") if zipped else path.open("rb") as file:
        return b'"traceEvents"' in file.read(_SNIFF_LIMIT)


def read(path: Path, *, detail: bool = False) -> Trace:
    """Read the trace at `path` (JSON, plain or gzipped).

    Args:
        path: the file.
        detail: also read `OP_DETAIL` (grid and block in blocks and threads, registers, bytes of shared memory).

    Raises:
        ProfkitError: truncated or malformed, or nothing in it that profkit reads.
    """
    stream: ArrayStream[Event] = ArrayStream(path, "traceEvents", DetailEvent if detail else Event)
    rows = KinetoRows(detail=detail)
    for batch in stream.batches():
        rows.add(batch)
    if not rows.found:
        raise ProfkitError(
            f"{path}: no GPU activity, API call or range among its events. Record with "
            "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])."
        )
    notes = []
    if stream.not_finite:
        notes.append(
            Diagnostic(
                "not-finite",
                f"{counted(stream.not_finite, 'value')} {were(stream.not_finite)} NaN or infinite and "
                f"{are(stream.not_finite)} read as absent.",
            )
        )
    if stream.invalid_utf8:
        notes.append(Diagnostic("invalid-utf8", "Some names are not UTF-8; the characters concerned are replaced."))
    return _Builder(path, rows, read_header(path, stream.header), notes, detail=detail).trace()


class _Builder:
    def __init__(self, path: Path, rows: KinetoRows, header: Header, notes: list[Diagnostic], *, detail: bool) -> None:
        self._path, self._rows, self._header, self._notes, self._detail = path, rows, header, notes, detail
        self._notes += header.notes
        self._pids: dict[int, int] = {}
        self._hosts = self._host_pids()

    def trace(self) -> Trace:
        ops, broken = self._ops()
        launches, dropped_launches = self._launches()
        ranges, dropped_ranges = self._ranges()
        sound, set_aside = split_broken(ops, broken)
        self._notes += set_aside_note(len(set_aside), dropped_launches + dropped_ranges, len(ops))
        if not len(ops):
            self._notes.append(Diagnostic("no-gpu-activity", "The trace holds host events only, no op of a GPU."))
        rank = self._header.rank
        info = Info(
            source=str(self._path),
            format="kineto",
            vendor=self._vendor(ops),
            profiler=self._header.profiler,
            devices=self._header.device_names(set(ops["device"].unique().tolist())),
            processes=tuple(Process(pid, rank) for pid in self._pids),
            graph_trace=graph_trace(sound, launches),
            diagnostics=tuple(self._notes),
        )
        return Trace(sound, launches, ranges, table(NODES), info, set_aside)

    def _ops(self) -> tuple[pd.DataFrame, npt.NDArray[np.bool_]]:
        schema = {**OPS, **(OP_DETAIL if self._detail else {})}
        columns = self._rows.ops
        start, end, broken = self._times(columns)
        correlation = joined(columns["correlation"], "int64")
        whole: dict[str, Any] = {
            "start": start,
            "end": end,
            "kind": categorical(joined(columns["kind"], "int8"), OP_KINDS),
            "name": self._rows.op_names.column(joined(columns["name"], "int32")),
            "process": self._launching_process(correlation),
        }
        whole |= {name: joined(columns[name], dtype) for name, dtype in schema.items() if name not in whole}
        return table(schema, whole), broken

    def _launches(self) -> tuple[pd.DataFrame, int]:
        columns = self._rows.calls
        start, end, broken = self._times(columns)
        api = joined(columns["api"], "int8")
        launching = api != NONE
        whole = {
            "start": start,
            "end": end,
            "process": self._process(joined(columns["pid"], "int64")[launching]),
            "thread": joined(columns["thread"], "int64"),
            "correlation": joined(columns["correlation"], "int64")[launching],
            "api": categorical(api[launching], LAUNCH_APIS),
            "name": self._rows.call_names.column(joined(columns["name"], "int32")),
            "kernel": self._rows.kernels.column(joined(columns["kernel"], "int32")),
        }
        launches = table(LAUNCHES, whole)[~broken].sort_values(["process", "start"], kind="stable", ignore_index=True)
        # A runtime call and the driver call under it may share a correlation id: the outer one is the launch.
        inner = launches.duplicated(["process", "correlation"]) & (launches["correlation"] != NONE)
        return launches[~inner].reset_index(drop=True), int(broken.sum())

    def _ranges(self) -> tuple[pd.DataFrame, int]:
        columns = self._rows.ranges
        start, end, broken = self._times(columns)
        whole = {
            "start": start,
            "end": end,
            "process": self._process(joined(columns["pid"], "int64")),
            "thread": joined(columns["thread"], "int64"),
            "text": self._rows.texts.column(joined(columns["text"], "int32"), rename=module_path),
            "domain": categorical(joined(columns["domain"], "int8"), DOMAINS),
            "nested": np.ones(len(start), bool),
            "clipped": joined(columns["clipped"], "bool"),
        }
        return sorted_ranges(table(RANGES, whole)[~broken]), int(broken.sum())

    def _times(self, columns: Columns) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Start, end, and which rows have no valid ones. Zero times are judged before the base is added."""
        start, duration = joined(columns["start"], "int64"), joined(columns["duration"], "int64")
        latest = int(np.iinfo(np.int64).max) - max(self._header.base_ns, 0)
        invalid = ~joined(columns["valid"], "bool") | (duration > latest - np.maximum(start, 0)) | (start > latest)
        start, duration = np.where(invalid, 0, start), np.where(invalid, 0, duration)
        broken = invalid | broken_rows(start, start + duration)
        base = np.where(invalid, 0, self._header.base_ns)
        return start + base, start + duration + base, broken

    def _host_pids(self) -> list[int]:
        """The processes of API calls, else of ranges, most rows first. Frames of unknown processes have pid 0."""
        for columns in (self._rows.calls, self._rows.ranges):
            pids = joined(columns["pid"], "int64")
            unique, counts = np.unique(pids[pids > 0], return_counts=True)
            if len(unique):
                return [int(p) for p in unique[np.argsort(-counts, kind="stable")]]
        return [NONE]

    def _process(self, pids: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        only = self._hosts[0] if len(self._hosts) == 1 else NONE
        codes, unique = pd.factorize(np.where(pids > 0, pids, only))
        index = np.array([self._pids.setdefault(int(pid), len(self._pids)) for pid in unique], np.int32)
        return index[codes] if len(codes) else np.empty(0, np.int32)

    def _launching_process(self, correlation: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """The process of each op: the only one, else the one whose call has the op's correlation id.

        In a merged file an id may belong to calls of several processes, or to none: such ops go to pid `NONE`.
        """
        if len(self._hosts) == 1:
            return self._process(np.full(len(correlation), self._hosts[0], np.int64))
        columns = self._rows.calls
        calls = pd.DataFrame({"id": joined(columns["correlation"], "int64"), "pid": joined(columns["pid"], "int64")})
        pairs = calls[calls["id"] != NONE].drop_duplicates()
        owners = pairs.drop_duplicates("id", keep=False).set_index("id")["pid"]
        pids = owners.reindex(correlation, fill_value=NONE).to_numpy(np.int64)
        unknown = int((pids == NONE).sum())
        if unknown:
            message = (
                f"The process of {counted(unknown, 'op')} cannot be told: none or several of the file's "
                f"{len(self._hosts)} made such a launch."
            )
            self._notes.append(Diagnostic("ambiguous-process", message))
        return self._process(pids)

    def _vendor(self, ops: pd.DataFrame) -> str:
        if self._header.vendor is not None:
            return self._header.vendor
        if any(name.startswith("hip") for name in self._rows.call_names.labels()):
            return "amd"
        return "nvidia" if len(ops) or any(n.startswith("cu") for n in self._rows.call_names.labels()) else "none"
