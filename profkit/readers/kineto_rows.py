"""Events of a Kineto trace to columns: which rows are ops, calls or ranges, and what they say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from profkit.model.trace import LAUNCH_APIS, NONE, OP_KINDS
from profkit.readers.rows import Texts, call_name, integers, launch_api, microseconds_to_ns

#: Categories of GPU activities, today's and those of 2021 (PyTorch 1.8), to kinds of op.
_OP_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
_OP_KINDS |= {"Kernel": "kernel", "Memcpy": "memcpy", "Memset": "memset"}
#: API calls; ROCm's are recorded as cuda_runtime too.
_CALLS = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "Runtime", "Driver"})
_RANGE_DOMAINS = {"user_annotation": "", "cpu_op": "cpu_op", "Operator": "cpu_op", "python_function": "python_function"}
DOMAINS = ("", "cpu_op", "python_function")


class _Args(msgspec.Struct, gc=False):
    """Untyped, since a key means another thing on other rows: a HIP call's ``stream`` is a pointer's text."""

    correlation: Any = None
    device: Any = None
    stream: Any = None
    kernel: Any = None
    finished: Any = None
    graph: Any = msgspec.field(name="graph id", default=None)
    node: Any = msgspec.field(name="graph node id", default=None)


class _DetailArgs(_Args, gc=False):
    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(name="registers per thread", default=None)
    shared_memory: Any = msgspec.field(name="shared memory", default=None)


_ABSENT = msgspec.Raw(b"")


class Event(msgspec.Struct, gc=False):
    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = _ABSENT
    dur: msgspec.Raw = _ABSENT
    args: _Args | None = None


class DetailEvent(Event, gc=False):
    args: _DetailArgs | None = None


_NO_ARGS = _Args()
_NO_DETAIL = _DetailArgs()
Columns = dict[str, list[npt.NDArray[Any]]]


class KinetoRows:
    """Columns of the rows seen so far, as lists of arrays; times without the base."""

    def __init__(self, *, detail: bool) -> None:
        self._detail = detail
        self.ops: Columns = defaultdict(list)
        self.calls: Columns = defaultdict(list)
        self.ranges: Columns = defaultdict(list)
        self.op_names, self.call_names, self.kernels, self.texts = Texts(), Texts(), Texts(), Texts()
        self.text_threads = Texts()
        #: By code of `call_names`: the API's index in `LAUNCH_APIS`, `NONE` for a call that launches nothing.
        self.apis: list[int] = []

    @property
    def found(self) -> bool:
        return bool(self.ops or self.calls or self.ranges)

    def add(self, events: Sequence[Event]) -> None:
        groups: dict[str | None, list[Event]] = defaultdict(list)
        for event in events:
            if event.ph == "X":
                groups[event.cat].append(event)
        for category, group in groups.items():
            if category in _OP_KINDS:
                self._add_ops(_OP_KINDS[category], group)
            elif category in _CALLS:
                self._add_calls(group)
            elif category in _RANGE_DOMAINS:
                self._add_ranges(_RANGE_DOMAINS[category], group)

    def _add_ops(self, kind: str, events: Sequence[Event]) -> None:
        none = _NO_DETAIL if self._detail else _NO_ARGS
        args = [e.args or none for e in events]
        columns = self.ops
        _add_times(columns, events)
        columns["kind"].append(np.full(len(events), OP_KINDS.index(kind), np.int8))
        columns["name"].append(self.op_names.codes([e.name or "" for e in events]))
        # Old traces give device and stream only as the row's pid and tid.
        devices = [e.pid if a.device is None else a.device for a, e in zip(args, events, strict=True)]
        streams = [e.tid if a.stream is None else a.stream for a, e in zip(args, events, strict=True)]
        columns["device"].append(integers(devices))
        columns["stream"].append(integers(streams))
        columns["correlation"].append(integers([a.correlation for a in args]))
        # 0 says that the op is in no graph.
        columns["graph"].append(integers([a.graph or NONE for a in args]))
        columns["node"].append(integers([a.node or NONE for a in args]))
        if self._detail:
            for name, values in _detail_columns(args).items():
                columns[name].append(values)

    def _add_calls(self, events: Sequence[Event]) -> None:
        columns = self.calls
        names = self.call_names.codes([call_name(e.name or "") for e in events])
        self.apis += [_api_index(label) for label in self.call_names.labels(len(self.apis))]
        api = np.array(self.apis, np.int8)[names]
        columns["correlation"].append(integers([e.args.correlation if e.args else None for e in events]))
        columns["pid"].append(integers([e.pid for e in events]))
        columns["api"].append(api)
        chosen = [events[i] for i in np.flatnonzero(api != NONE).tolist()]
        columns["name"].append(names[api != NONE])
        _add_times(columns, chosen)
        columns["thread"].append(self._threads(chosen))
        kernels = [e.args.kernel if e.args else "" for e in chosen]
        columns["kernel"].append(self.kernels.codes([k if isinstance(k, str) else "" for k in kernels]))

    def _add_ranges(self, domain: str, events: Sequence[Event]) -> None:
        columns = self.ranges
        _add_times(columns, events)
        columns["pid"].append(integers([e.pid for e in events]))
        columns["thread"].append(self._threads(events))
        columns["text"].append(self.texts.codes([e.name or "" for e in events]))
        columns["domain"].append(np.full(len(events), DOMAINS.index(domain), np.int8))
        columns["clipped"].append(np.array([e.args is not None and e.args.finished is False for e in events], bool))

    def _threads(self, events: Sequence[Event]) -> npt.NDArray[np.int64]:
        """Thread ids; a thread with a text for an id gets a number below `NONE`."""
        ids = [e.tid for e in events]
        if any(isinstance(i, str) for i in ids):
            codes = self.text_threads.codes([str(i) for i in ids])
            ids = [NONE - 1 - int(c) if isinstance(i, str) else i for i, c in zip(ids, codes, strict=True)]
        return integers(ids)


def _api_index(name: str) -> int:
    api = launch_api(name)
    return NONE if api is None else LAUNCH_APIS.index(api)


def _add_times(columns: Columns, events: Sequence[Event]) -> None:
    start, has_start = microseconds_to_ns(e.ts for e in events)
    duration, has_duration = microseconds_to_ns(e.dur for e in events)
    columns["start"].append(start)
    columns["duration"].append(duration)
    columns["valid"].append(has_start & has_duration)


def _detail_columns(args: Sequence[Any]) -> Mapping[str, npt.NDArray[np.int64]]:
    columns = {
        "registers": integers([a.registers for a in args]),
        "shared_memory": integers([a.shared_memory for a in args]),
    }
    for prefix in ("grid", "block"):
        # Three sizes; whatever else stands there says nothing.
        sizes = [value if isinstance(value := getattr(a, prefix), list) else () for a in args]
        for place, axis in enumerate("xyz"):
            columns[f"{prefix}_{axis}"] = integers([s[place] if len(s) > place else NONE for s in sizes])
    return columns
