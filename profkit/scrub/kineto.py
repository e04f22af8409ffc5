"""A torch.profiler trace by an allowlist: categories, fields of events, arguments, and what stands in the header.

Numbers come along as they are written, digit by digit: a microsecond with nine digits before the point and three after
it is no float. Texts are names of events and a few arguments; both are filtered (`profkit.scrub.fields`).
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from profkit.model.run import form
from profkit.readers.files import Input
from profkit.readers.json_stream import ArrayStream
from profkit.scrub.fields import Field, field, kept_text

_CATEGORIES = frozenset(
    {
        *("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset", "cuda_sync", "cuda_event", "overhead"),
        *("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "Runtime", "Driver", "cpu_instant_event"),
        *("user_annotation", "gpu_user_annotation", "cpu_op", "Operator", "python_function", "Trace"),
        *("ac2g", "fwdbwd", "forward_backward", "async_cpu_to_gpu", "async_gpu"),
    }
)
_PHASES = frozenset({"X", "B", "E", "b", "e", "s", "t", "f", "i", "I", "M", "C"})
#: Ids in words that PyTorch itself writes; any other gets a number, since it may be a host's or a user's name.
_OWN_IDS = frozenset({"", "Spans", "Traces", "PyTorch Profiler", "Trace PyTorch Profiler"})
_PLAIN_ID = re.compile(r"-?\d{1,20}|0x[0-9a-fA-F]{1,16}")
_MERGED_PID = re.compile(r"(.*\D)(\d{1,18})", re.DOTALL)
_TIME = re.compile(rb'"?-?\d{1,25}(?:\.\d{1,25})?(?:[eE][-+]?\d{1,2})?"?')
_LANE = re.compile(r"(?:stream|thread) -?\d{1,20}")

_Backend = Annotated[
    str,
    form(
        r"(?:(?:cpu|cuda|hip):)?(?:nccl|gloo|mpi|ucc|rccl|undefined)(?:,(?:cpu|cuda|hip):(?:nccl|gloo|mpi|ucc|rccl))?"
    ),
]
_Version = float | Annotated[str, form(r"\d{1,9}(?:\.\d{1,9}){0,4}")]
_DEVICE_NUMBERS = (
    *("id", "totalGlobalMem", "computeMajor", "computeMinor", "maxThreadsPerBlock", "maxThreadsPerMultiprocessor"),
    *("regsPerBlock", "regsPerMultiprocessor", "warpSize", "sharedMemPerBlock", "sharedMemPerBlockOptin"),
    *("sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiprocessor", "numSms"),
)
_Device = msgspec.defstruct("_Device", [*((name, float) for name in _DEVICE_NUMBERS), ("name", str)])
_Distributed = msgspec.defstruct("_Distributed", [("backend", _Backend), ("rank", _Version), ("world_size", _Version)])

_HEADER: Mapping[str, Field] = {
    "schemaVersion": field(float),
    "deviceProperties": field(list[_Device]),  # type: ignore[valid-type]
    **dict.fromkeys(
        (
            *("cupti_version", "cuda_runtime_version", "cuda_driver_version", "roctracer_version"),
            *("rocprofiler_version", "hip_runtime_version", "hip_driver_version"),
        ),
        field(_Version),
    ),
    "distributedInfo": field(_Distributed),
    "displayTimeUnit": field(Annotated[str, form("ms|ns")]),
    "baseTimeNanoseconds": field(float | Annotated[str, form(r"-?\d{1,19}")]),
}

#: Arguments that are numbers, truth values and lists of them. Addresses, inputs' values and call stacks are not.
_NUMBERS = frozenset(
    {
        *("correlation", "External id", "external id", "device", "context", "stream", "queued", "cid", "cbid"),
        *("grid", "block", "registers per thread", "shared memory", "blocks per SM", "warps per SM", "finished"),
        *("est. achieved occupancy %", "graph id", "graph node id", "bytes", "memory bandwidth (GB/s)", "kind"),
        *("Record function id", "Sequence number", "Fwd thread id", "Ev Idx", "Profiler Event Index", "Op count"),
        *("Trace iteration", "Python id", "Python parent id", "Python module id", "Input Dims", "Input Strides"),
        *("Device Id", "Device Type", "Bytes", "Total Allocated", "Total Reserved", "num_warps", "num_stages"),
    }
)
_Count = float | Annotated[str, form(r"\d{1,20}")]
#: The few arguments that are texts. A HIP call's ``stream`` is a pointer, ``bytes`` and ``kind`` are numbers in quotes.
_TEXTS: Mapping[str, Field] = {
    # The last two of these, and layer, are annotations of a graph's kernels.
    **dict.fromkeys(("kernel", "kernel_name", "name", "module_fqn"), field(str)),
    "layer": field(_Count),
    "kernel_backend": field(Annotated[str, form("triton|aten|cutlass|ck|cpp")]),
    "kind": field(float | Annotated[str, form(r"\d{1,3}|[HDP]to[HDP]|Dispatch (?:Kernel|Task)|CopyDevice\w{0,20}")]),
    "stream": field(float | Annotated[str, form(r"0x[0-9a-f]{1,16}|\d{1,20}")]),
    **dict.fromkeys(("bytes", "size", "correlation", "device"), field(_Count)),
}

_NUMERIC = re.compile(rb"[\[\]\d\s,.eE+-]+|true|false|null|\[(?:\s*(?:true|false|null)\s*,?)*\]")


def _lane(value: Any) -> str | None:
    found = _LANE.match(value) if isinstance(value, str) else None
    return None if found is None else found[0]


#: Events of metadata to the argument that is kept of them.
_METADATA: Mapping[str, tuple[str, Field]] = {
    **dict.fromkeys(("process_sort_index", "thread_sort_index"), ("sort_index", field(float))),
    "process_labels": ("labels", field(Annotated[str, form(r"CPU|GPU \d{1,4}")])),
    "thread_name": ("name", _lane),
}


class _Event(msgspec.Struct, gc=False, omit_defaults=True):
    """The fields that an event may keep."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    dur: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    id: Any = None
    bp: Any = None
    s: Any = None
    args: dict[str, msgspec.Raw] | None = None


def scrub(source: Path, target: Path) -> None:
    """Write `source` without what names its machine to the new file `target`, compressed if the source is.

    Raises:
        ProfkitError: the source is damaged, or no JSON with events.
    """
    with Input(source) as file:
        compressed = file.compressed
    stream = ArrayStream(source, "traceEvents", _Event)
    scrubber = _Scrubber()
    with target.open("wb") as raw:
        if compressed:
            # A gzip header without the file's name and time.
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
                _write(packed.write, stream, scrubber)
        else:
            _write(raw.write, stream, scrubber)


def _write(write: Callable[[bytes], object], stream: ArrayStream[_Event], scrubber: _Scrubber) -> None:
    encode = msgspec.json.Encoder().encode
    write(b'{"traceEvents":[')
    separator = b""
    for batch in stream.batches():
        for event in scrubber.events(batch):
            write(separator + encode(event))
            separator = b","
    write(b"]")
    # The header is complete once the events are read.
    for key, value in _header(stream.header).items():
        write(b"," + encode(key) + b":" + encode(value))
    write(b"}\n")


def _header(raw: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    """The kept values; what a wrapper put under ``metadata`` counts where it does not stand at the top."""
    values = {k: _decoded(raw[k]) for k in (*_HEADER, "metadata") if k in raw}
    nested = values.pop("metadata", None)
    for key, value in nested.items() if isinstance(nested, dict) else ():
        values.setdefault(key, value)
    # Null stands for what is not what its key is for: that the key is there may tell the vendor.
    return {key: field(values[key]) for key, field in _HEADER.items() if key in values}


class _Scrubber:
    """Events of one file; an id in words gets the same number everywhere in it."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def events(self, batch: Iterable[_Event]) -> Iterable[_Event]:
        """The events of `batch` that are kept, reduced."""
        for event in batch:
            if event.ph == "M":
                metadata = self._metadata(event)
                if metadata is not None:
                    yield metadata
            elif event.ph in _PHASES and (event.cat is None or event.cat in _CATEGORIES):
                yield self._activity(event)

    def _activity(self, event: _Event) -> _Event:
        return _Event(
            ph=event.ph,
            cat=event.cat,
            name=None if event.name is None else kept_text(event.name),
            pid=self._pid(event.pid),
            tid=self._id(event.tid),
            ts=_time(event.ts),
            dur=_time(event.dur),
            id=self._id(event.id),
            bp=event.bp if event.bp == "e" else None,
            s=event.s if event.s in ("g", "p", "t") else None,
            args=None if event.args is None else _arguments(event.args),
        )

    def _metadata(self, event: _Event) -> _Event | None:
        """Labels and order of processes and threads, for viewers; names of programs stay behind."""
        if event.name is None or event.name not in _METADATA:
            return None
        key, kept = _METADATA[event.name]
        value = kept(_decoded((event.args or {}).get(key)))
        if value is None:
            return None
        args = {key: msgspec.Raw(msgspec.json.encode(value))}
        pid, tid = self._pid(event.pid), self._id(event.tid)
        return _Event(ph="M", name=event.name, pid=pid, tid=tid, ts=_time(event.ts), args=args)

    def _pid(self, value: Any) -> Any:
        """Mergers of several ranks' files write the rank before the process's number."""
        if not isinstance(value, str) or value in _OWN_IDS or _PLAIN_ID.fullmatch(value):
            return self._id(value)
        found = _MERGED_PID.fullmatch(value)
        return f"{self._id(value)}." if found is None else f"{self._id(found[1])}: {found[2]}"

    def _id(self, value: Any) -> Any:
        if isinstance(value, str) and value not in _OWN_IDS and not _PLAIN_ID.fullmatch(value):
            return self._ids.setdefault(value, f"id {len(self._ids) + 1}")
        return value if isinstance(value, str | int | float) else None


def _time(raw: msgspec.Raw | msgspec.UnsetType) -> msgspec.Raw | msgspec.UnsetType:
    """A time as it is written; null for what is none, which readers take for a broken row."""
    if isinstance(raw, msgspec.UnsetType):
        return raw
    return raw if _TIME.fullmatch(bytes(raw)) else msgspec.Raw(b"null")


def _arguments(args: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    kept = {}
    for key, raw in args.items():
        if key in _NUMBERS and _as_written(raw):
            kept[key] = raw
        elif key in _TEXTS:
            value = _TEXTS[key](_decoded(raw))
            if value is not None:
                kept[key] = msgspec.Raw(msgspec.json.encode(value))
    return kept


def _as_written(raw: msgspec.Raw) -> bool:
    """Whether the JSON text `raw` is a number, a truth value, or lists of such."""
    return _NUMERIC.fullmatch(bytes(raw)) is not None


def _decoded(raw: msgspec.Raw | None) -> Any:
    """The value of a JSON text that nothing has looked into; None where there is none, or it is malformed."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(bytes(raw).decode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return None
