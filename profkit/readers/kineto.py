"""torch.profiler (Kineto) JSON of CUDA and ROCm → Trace.

Times become integer nanoseconds: `ts` plus `baseTimeNanoseconds` where the file has it, so traces with it are on the
Unix epoch and traces of several ranks on one clock. GPU rows name their device where host rows name their process;
the process is that of the call with the same correlation id. Host rows beside the launches become ranges: the user's
in domain "", operators in ``cpu_op``, Python frames and modules in ``python_function``. `gpu_user_annotation` rows are
projections of user ranges and are left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.errors import ProfkitError
from profkit.model.scope import LAYER
from profkit.model.trace import ANNOTATION, NONE, OP_KINDS, Diagnostic, Info, Process, Trace
from profkit.model.wording import are, counted, were
from profkit.readers.events import RANGE_DOMAINS, Columns, EventRows, nests
from profkit.readers.json_stream import ArrayStream
from profkit.readers.rows import (
    Texts,
    api_index,
    broken_rows,
    call_name,
    ids,
    integers,
    microseconds_to_ns,
    streams_of_contexts,
)

#: In the arguments of every event of legacy rocprof's JSON, which is a Chrome trace like Kineto's.
LEGACY_ROCPROF_KEY = b'"BeginNs"'
_SNIFF_KEYS = re.compile(rb'"(?:traceEvents|deviceProperties|distributedInfo|baseTimeNanoseconds)"\s*:')
_EVENT = re.compile(rb'"ph"\s*:\s*"[A-Za-z]"')

#: Categories of GPU activities, today's and those of 2021 (PyTorch 1.8), to kinds of op.
_OP_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
_OP_KINDS |= {"Kernel": "kernel", "Memcpy": "memcpy", "Memset": "memset"}
#: API calls; ROCm's are recorded as cuda_runtime too.
_CALLS = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "Runtime", "Driver"})
_RANGE_DOMAINS = {"user_annotation": "", "cpu_op": "cpu_op", "Operator": "cpu_op", "python_function": "python_function"}


#: Times of old traces are whole microseconds, start and duration each.
_SLACK_NS = 2000


class _Args(msgspec.Struct, gc=False):
    """Untyped, since a key means another thing on other rows: a HIP call's ``stream`` is a pointer's text."""

    correlation: Any = None
    context: Any = None
    #: Of JAX's profiler, whose events are like these and have no category.
    hlo_module: Any = None
    device: Any = None
    stream: Any = None
    kernel: Any = None
    finished: Any = None
    #: What PyTorch's annotations of graph kernels say: a text, and keys that programs give.
    name: Any = None
    layer: Any = None
    module_fqn: Any = None
    graph: Any = msgspec.field(name="graph id", default=None)
    node: Any = msgspec.field(name="graph node id", default=None)


class _DetailArgs(_Args, gc=False):
    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(name="registers per thread", default=None)
    shared_memory: Any = msgspec.field(name="shared memory", default=None)
    bytes: Any = None


_ABSENT = msgspec.Raw(b"")
_NO_ARGS = _DetailArgs()


class _Event(msgspec.Struct, gc=False):
    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = _ABSENT
    dur: msgspec.Raw = _ABSENT
    args: _Args | None = None


class _DetailEvent(_Event, gc=False):
    args: _DetailArgs | None = None


def sniff(head: bytes, path: Path) -> bool:
    """Whether a file that begins with `head` (decompressed) is Kineto's: an object with `traceEvents`, or events."""
    text = head.lstrip()
    if text[:1] == b"[":
        return _EVENT.search(text) is not None
    return text[:1] == b"{" and LEGACY_ROCPROF_KEY not in text and _SNIFF_KEYS.search(text) is not None


def read(path: Path, *, detail: bool = False) -> Trace:
    """See `profkit.readers.Reader`."""
    stream: ArrayStream[_Event] = ArrayStream(path, "traceEvents", _DetailEvent if detail else _Event)
    reader = _Reader(detail=detail)
    for batch in stream.batches():
        reader.add(batch)
    if not reader.found and reader.is_jax:
        raise ProfkitError(
            f"{path} is a trace of JAX's profiler, which names no launch of a kernel. Record under nsys profile "
            "--cuda-graph-trace=node, or rocprofv3, with a range named layers.N around each layer."
        )
    if not reader.found:
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
    return reader.trace(path, _read_header(path, stream.header), notes)


class _Reader:
    """Events of one file as rows; times without the base, and processes by their pids, until the header is known."""

    def __init__(self, *, detail: bool) -> None:
        self._rows = EventRows(detail=detail)
        #: Process and correlation id of the calls that launch nothing: they tell which processes there are.
        self._other_calls = Columns()
        self._pids = _Pids()
        self._text_threads = Texts()
        #: By code of `call_names`: the API's index in `LAUNCH_APIS`, `NONE` for a call that launches nothing.
        self._apis: list[int] = []
        self.is_jax = False

    @property
    def found(self) -> bool:
        return self._rows.found or "pid" in self._other_calls

    def add(self, events: Sequence[_Event]) -> None:
        groups: dict[str | None, list[_Event]] = defaultdict(list)
        for event in events:
            if event.ph == "X":
                groups[event.cat].append(event)
        self.is_jax |= any(e.args is not None and e.args.hlo_module is not None for e in groups[None])
        for category, group in groups.items():
            if category in _OP_KINDS:
                self._add_ops(_OP_KINDS[category], group)
            elif category in _CALLS:
                self._add_calls(group)
            elif category in _RANGE_DOMAINS:
                self._add_ranges(_RANGE_DOMAINS[category], group)

    def _add_ops(self, kind: str, events: Sequence[_Event]) -> None:
        args = [e.args or _NO_ARGS for e in events]
        columns = _times(events)
        columns["kind"] = np.full(len(events), OP_KINDS.index(kind), np.int8)
        columns["name"] = self._rows.op_names.codes([e.name or "" for e in events])
        # Old traces give device and stream only as the row's pid and tid.
        for column, place in (("device", "pid"), ("stream", "tid")):
            given = integers([getattr(a, column) for a in args])
            columns[column] = np.where(given == NONE, integers([getattr(e, place) for e in events]), given)
        columns["context"] = integers([0 if a.context is None else a.context for a in args])
        columns["owner"] = self._pids.of(e.pid for e in events)
        for column in ("correlation", "graph", "node"):
            columns[column] = ids(integers([getattr(a, column) for a in args]))
        columns[ANNOTATION] = self._rows.annotations.codes([_annotation(a) for a in args])
        if self._rows.detail:
            columns |= _launch_shape(args)
        self._rows.ops.add(columns)

    def _add_calls(self, events: Sequence[_Event]) -> None:
        names = self._rows.call_names.codes([call_name(e.name or "") for e in events])
        self._apis += [api_index(label) for label in self._rows.call_names.labels(len(self._apis))]
        api = np.array(self._apis, np.int8)[names]
        launching = api != NONE
        pid = self._pids.of(e.pid for e in events)
        correlation = ids(integers([e.args.correlation if e.args else None for e in events]))
        self._other_calls.add({"pid": pid[~launching], "correlation": correlation[~launching]})
        chosen = [events[i] for i in np.flatnonzero(launching).tolist()]
        kernels = [e.args.kernel if e.args else "" for e in chosen]
        self._rows.launches.add(
            {
                **_times(chosen),
                "pid": pid[launching],
                "thread": self._threads(chosen),
                "correlation": correlation[launching],
                "api": api[launching],
                "name": names[launching],
                "kernel": self._rows.kernels.codes([k if isinstance(k, str) else "" for k in kernels]),
            }
        )

    def _add_ranges(self, domain: str, events: Sequence[_Event]) -> None:
        self._rows.ranges.add(
            {
                **_times(events),
                "pid": self._pids.of(e.pid for e in events),
                "thread": self._threads(events),
                "text": self._rows.texts.codes([e.name or "" for e in events]),
                "domain": np.full(len(events), RANGE_DOMAINS.index(domain), np.int8),
                "clipped": np.array([e.args is not None and e.args.finished is False for e in events], np.bool_),
            }
        )

    def _threads(self, events: Sequence[_Event]) -> npt.NDArray[np.int64]:
        """Thread ids; a thread with a text for an id gets a number below `NONE`."""
        ids = [e.tid for e in events]
        if any(isinstance(i, str) for i in ids):
            codes = self._text_threads.codes([str(i) for i in ids])
            ids = [NONE - 1 - int(c) if isinstance(i, str) else i for i, c in zip(ids, codes, strict=True)]
        return integers(ids)

    def trace(self, path: Path, header: _Header, notes: Sequence[Diagnostic]) -> Trace:
        """The trace of the events added."""
        rows = self._rows
        rows.notes += [*notes, *header.notes]
        for columns in (rows.ops, rows.launches, rows.ranges):
            _move_times(columns, header.base_ns)
        rows.ops["stream"] = streams_of_contexts(rows.ops["device"], rows.ops["context"], rows.ops["stream"])
        hosts = self._host_pids()
        only = hosts[0] if len(hosts) == 1 else NONE
        op_pids = self._launching_pids(hosts)
        for columns, pids in (
            (rows.ops, op_pids),
            (rows.launches, rows.launches["pid"]),
            (rows.ranges, rows.ranges["pid"]),
        ):
            columns["process"] = rows.process(np.where(pids > 0, pids, only))
        self._mark_nested()
        info = Info(
            source=str(path),
            format="kineto",
            vendor=header.vendor or self._vendor(),
            profiler=header.profiler,
            devices=header.device_names(set(np.unique(rows.ops["device"]).tolist())),
            processes=tuple(Process(self._pids.number(pid), header.rank) for pid in rows.owners),
        )
        without_ops = "The trace holds host events only, no op of a GPU."
        return rows.trace(info, without_ops=without_ops, only_outer_calls=True)

    def _mark_nested(self) -> None:
        """Column `nested`. A ``record_function`` may end after the range that encloses its beginning: of two that cross
        one is left out, never a layer's for another's."""
        ranges = self._rows.ranges
        layered = np.array([LAYER.search(text) is not None for text in self._rows.texts.labels()], np.bool_)
        is_layer = layered[ranges["text"]] if len(ranges) else np.empty(0, np.bool_)
        mine = (ranges["domain"] == RANGE_DOMAINS.index("")) & ~ranges["broken"].astype(np.bool_)
        ranges["nested"] = np.where(mine, nests(ranges, np.where(mine, ~is_layer, -1), _SLACK_NS), True)
        crossing = int((~ranges["nested"]).sum())
        if crossing:
            message = f"{counted(crossing, 'range')} {are(crossing)} left out, since others of the thread are crossed."
            self._rows.notes.append(Diagnostic("crossing-ranges", message))

    def _calls(self, name: str) -> npt.NDArray[np.int64]:
        return np.concatenate([self._rows.launches[name], self._other_calls[name]])

    def _host_pids(self) -> list[int]:
        """The processes of API calls, else of ranges, most rows first. Frames of unknown processes have pid 0."""
        for pids in (self._calls("pid"), self._rows.ranges["pid"]):
            unique, counts = np.unique(pids[pids > 0], return_counts=True)
            if len(unique):
                return [int(p) for p in unique[np.argsort(-counts, kind="stable")]]
        return [NONE]

    def _launching_pids(self, hosts: Sequence[int]) -> npt.NDArray[np.int64]:
        """The process of each op: the only one, else the one whose call has the op's correlation id.

        In a merged file an id may belong to calls of several processes, or to none. Where the merger has written the
        rank into each pid, calls of the op's own rank alone count; other such ops go to pid `NONE`.
        """
        correlation = self._rows.ops["correlation"]
        if len(hosts) == 1:
            return np.full(len(correlation), hosts[0], np.int64)
        calls = pd.DataFrame({"id": self._calls("correlation"), "pid": self._calls("pid")})
        calls, ranks = calls[calls["id"] != NONE].drop_duplicates(), self._pids.ranks(self._rows.ops["owner"])
        calls["rank"] = self._pids.ranks(calls["pid"].to_numpy()) if (ranks != NONE).all() else NONE
        owners = calls.drop_duplicates(["rank", "id"], keep=False).set_index(["rank", "id"])["pid"]
        wanted = pd.MultiIndex.from_arrays([ranks if (ranks != NONE).all() else np.full_like(ranks, NONE), correlation])
        pids = owners.reindex(wanted, fill_value=NONE).to_numpy(np.int64)
        unknown = int((pids == NONE).sum())
        if unknown:
            message = (
                f"The process of {counted(unknown, 'op')} cannot be told: none or several of the file's "
                f"{len(hosts)} made such a launch."
            )
            self._rows.notes.append(Diagnostic("ambiguous-process", message))
        return pids

    def _vendor(self) -> str:
        """By the names of the calls, where the header does not tell."""
        names = self._rows.call_names.labels()
        if any(name.startswith("hip") for name in names):
            return "amd"
        return "nvidia" if len(self._rows.ops) or any(name.startswith("cu") for name in names) else "none"


class _Pids:
    """Process ids, of which mergers of several ranks' files make texts: ``[TP01] 81`` in SGLang's."""

    #: A text's id is its place among the texts, beyond all pids.
    _FIRST = 1 << 40
    _FORM = re.compile(r"(.*\D)(\d{1,18})", re.DOTALL)

    def __init__(self) -> None:
        self._texts, self._ranks = Texts(), Texts()

    def of(self, pids: Iterable[Any]) -> npt.NDArray[np.int64]:
        """One id a pid."""
        given = list(pids)
        numbers = integers(given)
        texts = [i for i, pid in enumerate(given) if isinstance(pid, str) and not pid.isdecimal()]
        numbers[texts] = self._FIRST + self._texts.codes([given[i] for i in texts]).astype(np.int64)
        return numbers

    def number(self, ident: int) -> int:
        """The pid: of a text the number at its end."""
        if ident < self._FIRST:
            return ident
        found = self._FORM.fullmatch(self._texts.labels()[ident - self._FIRST])
        return int(found[2]) if found else NONE

    def ranks(self, idents: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """What tells the rank: of a text a code of what stands before its number, `NONE` of a number."""
        codes, unique = pd.factorize(idents)
        labels = self._texts.labels()
        texts = [labels[i - self._FIRST] if i >= self._FIRST else "" for i in unique.tolist()]
        ranks = self._ranks.codes([found[1] if (found := self._FORM.fullmatch(text)) else text for text in texts])
        return np.where(unique >= self._FIRST, ranks.astype(np.int64), NONE)[codes]


def _annotation(args: _Args) -> str:
    """The path that an annotation of a graph's op names: its module, else its text, under its layer where that has
    none; "" without one."""
    if not args.node:
        return ""
    told = next((text for text in (args.module_fqn, args.name) if isinstance(text, str)), "")
    layer = str(args.layer)
    if args.layer is None or not layer.isdecimal() or LAYER.search(told):
        return told
    return f"layers.{layer}/{told}" if told else f"layers.{layer}"


def _times(events: Sequence[_Event]) -> dict[str, npt.NDArray[Any]]:
    start, has_start = microseconds_to_ns(e.ts for e in events)
    duration, has_duration = microseconds_to_ns(e.dur for e in events)
    return {"start": start, "duration": duration, "valid": has_start & has_duration}


def _move_times(columns: Columns, base_ns: int) -> None:
    """`start`, `end` and `broken` of rows that have `start`, `duration` and `valid`.

    Zero times are judged before the base is added.
    """
    start, duration = columns["start"], columns["duration"]
    latest = int(np.iinfo(np.int64).max) - max(base_ns, 0)
    invalid = ~columns["valid"].astype(np.bool_) | (duration > latest - np.maximum(start, 0)) | (start > latest)
    start, duration = np.where(invalid, 0, start), np.where(invalid, 0, duration)
    columns["broken"] = invalid | broken_rows(start, start + duration)
    columns["start"] = start + np.where(invalid, 0, base_ns)
    columns["end"] = columns["start"] + duration


def _launch_shape(args: Sequence[Any]) -> dict[str, npt.NDArray[np.int64]]:
    columns = {
        "registers": integers([a.registers for a in args]),
        "shared_memory": integers([a.shared_memory for a in args]),
        "bytes": integers([a.bytes for a in args]),
    }
    for prefix in ("grid", "block"):
        # Three integers; whatever else stands there says nothing.
        sizes = [value if _is_size(value := getattr(a, prefix)) else (NONE, NONE, NONE) for a in args]
        for place, axis in enumerate("xyz"):
            columns[f"{prefix}_{axis}"] = integers([s[place] for s in sizes])
    return columns


def _is_size(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(type(size) is int for size in value)


# -- what stands beside the events ------------------------------------------------------------------------------------

_AMD_KEYS = ("roctracer_version", "rocprofiler_version", "hip_runtime_version", "hip_driver_version")
_NVIDIA_KEYS = ("cupti_version", "cuda_runtime_version", "cuda_driver_version")
_TRACERS = {"cupti_version": "CUPTI", "roctracer_version": "roctracer", "rocprofiler_version": "rocprofiler"}
#: Nothing else of the header is looked at: it also has paths and users.
_HEADER_KEYS = (*_AMD_KEYS, *_NVIDIA_KEYS, "baseTimeNanoseconds", "distributedInfo", "deviceProperties", "metadata")


@dataclass(frozen=True)
class _Header:
    """Identity facts of one file.

    Args:
        base_ns: nanoseconds to add to every event's time; 0 where the events are absolute.
        rank: of the process; None where nothing says it.
        vendor: ``nvidia`` or ``amd``; None where the header does not tell.
        profiler: name and the tracing library's version.
        devices: id and name of the devices that the process saw; names may be empty.
        notes: what was unreadable.
    """

    base_ns: int
    rank: int | None
    vendor: str | None
    profiler: str
    devices: Mapping[int, str]
    notes: tuple[Diagnostic, ...]

    def device_names(self, used: set[int]) -> dict[int, str]:
        """Names of the devices in `used`, or of all where that is empty.

        ROCm numbers devices otherwise in events than in the header; one name for all settles it.
        """
        names = {i: n for i, n in self.devices.items() if n and (i in used or not used)}
        kinds = set(self.devices.values()) - {""}
        if len(kinds) == 1:
            name = kinds.pop()
            names |= {i: name for i in used if i >= 0}
        return dict(sorted(names.items()))


def _read_header(path: Path, raw: Mapping[str, msgspec.Raw]) -> _Header:
    """The facts in the top-level values `raw`; what a wrapper put under ``metadata`` counts where it is not at the top.

    Raises:
        ProfkitError: `baseTimeNanoseconds` is no integer, or a value is malformed.
    """
    values: dict[str, Any] = {}
    for key in _HEADER_KEYS:
        if key in raw:
            try:
                values[key] = msgspec.json.decode(raw[key])
            except msgspec.DecodeError as error:
                raise ProfkitError(f"{path}: {key} is malformed ({error}). Copy or record it again.") from None
    nested = values.get("metadata")
    for key, value in nested.items() if isinstance(nested, dict) else ():
        values.setdefault(key, value)
    base = values.get("baseTimeNanoseconds", 0)
    base = int(base) if isinstance(base, str) and re.fullmatch(r"-?[0-9]{1,19}", base) else base
    if not isinstance(base, int) or abs(base) >= 1 << 62:
        raise ProfkitError(f"{path}: baseTimeNanoseconds is {base!r}, expected nanoseconds as an integer.")
    rank, notes = _rank(values.get("distributedInfo"))
    versions = ((name, values.get(key)) for key, name in _TRACERS.items())
    tracer = next((f"{name} {version}" for name, version in versions if isinstance(version, int | float | str)), None)
    amd, nvidia = (any(key in values for key in keys) for keys in (_AMD_KEYS, _NVIDIA_KEYS))
    return _Header(
        base_ns=base,
        rank=rank,
        vendor="amd" if amd else "nvidia" if nvidia else None,
        profiler=f"torch.profiler ({tracer})" if tracer else "torch.profiler",
        devices=_devices(values.get("deviceProperties")),
        notes=notes,
    )


def _rank(info: Any) -> tuple[int | None, tuple[Diagnostic, ...]]:
    rank = info.get("rank") if isinstance(info, dict) else None
    if rank is None:
        return None, ()
    if isinstance(rank, str) and re.fullmatch(r"[0-9]{1,9}", rank):
        rank = int(rank)
    if isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0:
        return rank, ()
    return None, (
        Diagnostic("rank-unreadable", f"distributedInfo gives the rank as {rank!r}; it is taken as unknown."),
    )


def _devices(properties: Any) -> dict[int, str]:
    if not isinstance(properties, list):
        return {}
    rows = [p for p in properties if isinstance(p, dict) and isinstance(p.get("id"), int)]
    return {p["id"]: p["name"] if isinstance(p.get("name"), str) else "" for p in rows}
