"""What the readers of all formats share: texts to codes, times to nanoseconds, which rows are sound, which host calls
launch, what a serving engine's range text names, and what to say of a recording as a whole."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.errors import ProfkitError
from profkit.model.trace import LAUNCH_APIS, NONE, Diagnostic, Trace, joint_key
from profkit.model.wording import are, counted, have

#: Characters of a decimal that the vectorised parser reads; longer ones (a float's 17 digits and more) go to `Decimal`.
_WIDTH = 24
_INT64_MAX = int(np.iinfo(np.int64).max)


class Texts:
    """Distinct texts in order of appearance; columns hold their codes."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def codes(self, texts: Sequence[str]) -> npt.NDArray[np.int32]:
        """One code a text; new texts get the next codes."""
        for text in dict.fromkeys(texts):
            self._codes.setdefault(text, len(self._codes))
        return np.fromiter(map(self._codes.__getitem__, texts), np.int32, len(texts))

    def labels(self, first: int = 0) -> list[str]:
        """The texts with codes from `first` on."""
        return list(self._codes)[first:]


def microseconds_to_ns(values: Iterable[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Decimal microseconds, as the bytes of a JSON number or string, to nanoseconds.

    Exact up to three decimals. Further decimals round to the nearest nanosecond: they are the noise of a float. A
    float64 would not do, since its spacing at 100 days of microseconds is 2 ns.

    Args:
        values: bytes-like objects, e.g. ``msgspec.Raw``; quotes are dropped.

    Returns:
        Nanoseconds, and which values are valid; invalid ones (empty, null, not finite, beyond int64) hold 0.
    """
    parts = list(values)
    if not parts:
        return np.empty(0, np.int64), np.empty(0, np.bool_)
    texts = b"\n".join(parts).replace(b'"', b"").split(b"\n")
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    width = min(int(lengths.max(initial=1)), _WIDTH) or 1
    cells = np.array(texts, dtype=f"S{width}").view(np.uint8).reshape(len(texts), width).T.copy()

    value = np.zeros(len(texts), np.int64)
    digits = np.zeros(len(texts), np.int8)
    decimals = np.zeros(len(texts), np.int8)
    dots = np.zeros(len(texts), np.int8)
    plain = lengths <= width
    for place, cell in enumerate(cells):
        digit = cell - np.uint8(ord("0"))
        is_digit = digit < 10
        is_dot = cell == ord(".")
        value = np.where(is_digit, value * 10 + digit, value)
        digits += is_digit
        decimals += is_digit & (dots > 0)
        dots += is_dot
        plain &= is_digit | is_dot | (cell == 0) | ((cell == ord("-")) & (place == 0))
    scale = np.array([1000, 100, 10, 1], np.int64)[np.clip(decimals, 0, 3)]
    # 18 digits cannot overflow, nor can 19 that start below 9 ("1661203462598738.125").
    lead = np.where(cells[0] == ord("-"), cells[min(1, width - 1)], cells[0])
    fits = (digits <= 18) | ((digits == 19) & (lead < ord("9")))
    plain &= fits & (digits > 0) & (decimals <= 3) & (dots <= 1)
    plain &= value <= _INT64_MAX // scale
    ns = np.where(plain, value * scale, 0)
    ns = np.where(cells[0] == ord("-"), -ns, ns)
    for index in np.flatnonzero(~plain):
        exact = _decimal_ns(texts[index])
        if exact is not None:
            ns[index], plain[index] = exact, True
    return ns, plain


def _decimal_ns(text: bytes) -> int | None:
    try:
        value = Decimal(text.decode("ascii"))
    except (InvalidOperation, UnicodeDecodeError):
        return None
    if not value.is_finite() or value.adjusted() > 18:
        return None
    ns = round(value * 1000)
    return ns if -_INT64_MAX <= ns <= _INT64_MAX else None


#: No row of a recording lasts longer: one day. Profilers write a row when it has ended, and their recordings last
#: seconds to minutes, so even a kernel that never leaves the GPU stays far below. A start or end that was never
#: written, or that is of another clock, is off by all of that clock's time: decades, where it counts from 1970.
LONGEST_NS = 24 * 3600 * 10**9


def broken_rows(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Rows that a recorder left without times (start = end = 0, or end before start) or with times that cannot be:
    longer than `LONGEST_NS`."""
    # Without a sign, no difference of two int64 overflows where the end is not before the start.
    long = (end.astype(np.uint64) - start.astype(np.uint64)) > np.uint64(LONGEST_NS)
    return np.asarray((end < start) | ((start == 0) & (end == 0)) | long, np.bool_)


def split_broken(ops: pd.DataFrame, broken: npt.NDArray[np.bool_]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The sound rows of `ops` by process, start and end, and the broken ones."""
    set_aside = ops[broken].reset_index(drop=True) if broken.any() else ops.iloc[:0]
    if broken.any():
        ops = ops[~broken].reset_index(drop=True)
    process, start, end = (ops[name].to_numpy() for name in ("process", "start", "end"))
    if not len(ops) or _is_sorted(process, start, end):
        return ops, set_aside
    # Kernels and copies of one process are sorted runs already, which a stable sort merges.
    one = (process == process[0]).all()
    order = np.argsort(start, kind="stable") if one else np.lexsort((start, process))
    if not _is_sorted(process[order], start[order], end[order]):
        order = np.lexsort((end, start, process))
    return ops.iloc[order].reset_index(drop=True), set_aside


def _is_sorted(*keys: npt.NDArray[Any]) -> bool:
    """Whether the rows with these keys, the first one first, are in order."""
    tied = np.ones(len(keys[0]) - 1, np.bool_)
    for key in keys:
        if (tied & (key[1:] < key[:-1])).any():
            return False
        tied &= key[1:] == key[:-1]
    return True


def sound_launches(launches: pd.DataFrame, broken: npt.NDArray[np.bool_], *, only_outer: bool = True) -> pd.DataFrame:
    """`launches` with valid times, by process and start.

    Args:
        only_outer: of those that share a process and a correlation id, keep the first: a runtime call and the driver
            call under it may share one.
    """
    launches = launches[~broken].sort_values(["process", "start"], kind="stable", ignore_index=True)
    if not only_outer:
        return launches
    inner = launches.duplicated(["process", "correlation"]) & (launches["correlation"] != NONE)
    return launches[~inner].reset_index(drop=True)


def sorted_ranges(ranges: pd.DataFrame) -> pd.DataFrame:
    """`ranges` by process, thread and start, outer ones first."""
    keys = ["process", "thread", "start", "end"]
    return ranges.sort_values(keys, ascending=[True, True, True, False], kind="stable", ignore_index=True)


def set_aside_note(ops: int, others: int, total_ops: int) -> list[Diagnostic]:
    """What to say about rows without valid times; nothing where there are none."""
    rows = (ops, f"{ops} of {counted(total_ops, 'op')}", "set aside"), (others, counted(others, "host row"), "left out")
    return [
        Diagnostic("set-aside", f"{what} {have(count)} no valid times and {are(count)} {done}.")
        for count, what, done in rows
        if count
    ]


def graph_trace(ops: pd.DataFrame, launches: pd.DataFrame) -> str:
    """`Info.graph_trace`: ``node`` where graph nodes, or the ops of a graph launch, are recorded one by one."""
    graphs = launches.loc[launches["api"] == "graph", "correlation"]
    in_graph = (ops["node"] != NONE) | ops["correlation"].isin(graphs[graphs != NONE])
    return "node" if bool(in_graph.any()) else "unknown"


def integers(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Python values as int64; `NONE` for what is no integer of 64 bits, and unsigned ones wrapped."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.fromiter(map(_int, values), np.int64, len(values))


def ids(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Correlation ids, where a profiler writes 0 for none, or graphs, where it says that an op is in none."""
    return np.where(values == 0, NONE, values)


def streams_of_contexts(
    device: npt.NDArray[Any], context: npt.NDArray[np.int64], stream: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """`stream` as the identity of a stream on its device: contexts number theirs by themselves, and where two of one
    device have the same number, the context counts too."""
    whole = pd.DataFrame({"device": device, "context": context, "stream": stream}).drop_duplicates()
    if not whole.duplicated(["device", "stream"]).any():
        return stream
    return (context & 0xFFFF) << 32 | (stream & 0xFFFFFFFF)


def _int(value: Any) -> int:
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) <= 20 else NONE
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or not -(1 << 63) <= value < 1 << 64:
        return NONE
    # Thread ids are 64 bits without a sign.
    return value - (1 << 64) if value >= 1 << 63 else value


#: What CUPTI appends to a call's name: the API version, and the per-thread default stream's variants, in either order.
_ABI_SUFFIX = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")

#: Host functions run on the CPU, so they are no launch of GPU work.
_LAUNCHING: Mapping[str, re.Pattern[str]] = {
    "graph": re.compile(r"(?:cuda|cu|hip)GraphLaunch$"),
    "kernel": re.compile(r"(?:cuda|cu|hip|hipExt|hipDrv|hipModule|hipExtModule|hipHccModule)Launch(?!HostFunc)"),
    "memcpy": re.compile(r"(?:cuda|cu|hip|hipDrv)Memcpy"),
    "memset": re.compile(r"(?:cuda|cu|hip|hipDrv)Memset"),
}


def call_name(recorded: str) -> str:
    """`recorded` without its ABI suffix: ``cudaGraphLaunch_v10000`` is ``cudaGraphLaunch``."""
    return _ABI_SUFFIX.sub("", recorded)


def launch_api(recorded: str) -> str | None:
    """One of `profkit.model.trace.LAUNCH_APIS`, or None for a call that launches nothing."""
    name = call_name(recorded)
    return next((api for api, pattern in _LAUNCHING.items() if pattern.match(name)), None)


def api_index(recorded: str) -> int:
    """`launch_api` as an index into `LAUNCH_APIS`, `NONE` for None."""
    api = launch_api(recorded)
    return NONE if api is None else LAUNCH_APIS.index(api)


_REPR = re.compile(r"^\{.*?['\"]Module['\"]: ?(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")", re.DOTALL)
_SHAPES = re.compile(r"^(\S+) (?:in|out)=[\[(].*", re.DOTALL)


def module_path(text: str) -> str:
    """The module's path where `text` is that of a serving engine's layer hook, otherwise `text` unchanged.

    SGLang and vLLM register forward hooks that open one range a module. The text is either the repr of a dictionary,
    ``{'Module': 'model.layers.3.self_attn', 'TrainableParams': {…}, 'Inputs': [[2048, 7168]]}``, or the path with the
    shapes of the inputs, ``model.layers.3.self_attn in=[2048,7168]``. The shapes change from step to step and the
    module does not, so the path alone makes ranges of several steps comparable.
    """
    if text.startswith("{"):
        found = _REPR.match(text)
        return (found[1] or found[2] or text) if found else text
    found = _SHAPES.match(text)
    return found[1] if found else text


_IDENTITY = ["process", "device", "stream", "start", "end", "correlation", "node", "name", "kind"]


def without_duplicates(trace: Trace) -> Trace:
    """`trace` with every repetition of a row set aside, and a diagnostic that counts them.

    One launch cannot run twice on one stream at one moment.
    """
    ops = trace.ops
    start, end = ops["start"].to_numpy(), ops["end"].to_numpy()
    # Ops are sorted by start, so only rows beside one of the same start can be repetitions; zero-length ones (counts
    # without times among them) may share a moment.
    beside = np.zeros(len(ops), dtype=np.bool_)
    same = (start[1:] == start[:-1]) & (end[1:] > start[1:])
    beside[1:] |= same
    beside[:-1] |= same
    rows = np.flatnonzero(beside)
    if not len(rows):
        return trace
    repeated = rows[ops.iloc[rows].duplicated(_IDENTITY).to_numpy()]
    if not len(repeated):
        return trace
    keep = np.ones(len(ops), dtype=np.bool_)
    keep[repeated] = False
    message = (
        f"{counted(len(repeated), 'op')} {are(len(repeated))} in the recording twice, equal in every respect; one of "
        "each is set aside."
    )
    return replace(
        trace,
        ops=ops[keep].reset_index(drop=True),
        set_aside=pd.concat([trace.set_aside, ops.iloc[repeated]], ignore_index=True),
        info=replace(trace.info, diagnostics=(*trace.info.diagnostics, Diagnostic("duplicate-rows", message))),
    )


#: An op that still runs when so many later ones of its stream have begun lasts too long, if it lasts so many times as
#: long as others of its name: a programmatic launch overlaps the next, and a wait for others may be long.
_OVERTAKEN, _TIMES = 4, 100


def impossible_durations(trace: Trace) -> Diagnostic | None:
    """What to say of ops that reach over the later ones of their stream; None where there are none."""
    ops = trace.ops
    process, device, stream, start, end = (
        ops[name].to_numpy() for name in ("process", "device", "stream", "start", "end")
    )
    order = np.lexsort((start, stream, device, process))
    one, later = order[:-_OVERTAKEN], order[_OVERTAKEN:]
    same = (process[one] == process[later]) & (device[one] == device[later]) & (stream[one] == stream[later])
    over = np.unique(one[same & (start[later] > start[one]) & (end[one] > start[later])])
    if not len(over):
        return None
    names, length = ops["name"].cat.codes.to_numpy(), end - start
    usual = pd.Series(length).groupby(names).median()
    long = over[length[over] > _TIMES * usual.loc[names[over]].to_numpy()]
    if not len(long):
        return None
    worst = int(long[np.argmax(length[long])])
    return Diagnostic(
        "impossible-duration",
        f"{counted(len(long), 'op')} {have(len(long))} a duration that cannot be: {ops['name'][worst]} lasts "
        f"{length[worst] / 1e3:.1f} µs, others of its name {usual.loc[names[worst]] / 1e3:.1f} µs, and later ops of "
        "its stream begin before it ends. Sums and means of these layers are wrong. Record again.",
    )


def refuse_broken(trace: Trace) -> None:
    """Refuse a trace none of whose ops has valid times.

    Raises:
        ProfkitError: it is one.
    """
    if len(trace.set_aside) and not len(trace.ops):
        raise ProfkitError(
            f"{trace.info.source}: none of its {counted(len(trace.set_aside), 'op')} has valid times: they end before "
            "they start, last longer than a day, or start and end at 0. Record again."
        )


#: So many replays that ran the same less than another did have not lost it, each by itself.
_NO_LOSS = 3
#: A graph whose replays run more different things than this runs other things each time.
_CONTENTS = 16


def with_epochs(trace: Trace) -> Trace:
    """`trace` with a number for each epoch of a graph whose replays ran other ops from some replay on: it was updated
    (``cudaGraphExecUpdate``), or its number was given to another graph."""
    ops = trace.ops
    node, correlation = ops["node"].to_numpy(), ops["correlation"].to_numpy()
    # An nsys node id holds its graph's id in the upper half; exports before 2025.5 have no column for it.
    graph = np.where((ops["graph"] == NONE) & (node != NONE), node >> 32, ops["graph"])
    rows = np.flatnonzero((graph != NONE) & (correlation != NONE))
    process = ops["process"].to_numpy()
    # In order of time, since the ops are.
    replay, first = pd.factorize(joint_key(process[rows], correlation[rows]))
    if len(first) < 2:
        return trace
    rows = rows[np.argsort(replay, kind="stable")]
    begins = np.r_[0, np.cumsum(np.bincount(replay))[:-1]]
    # The sum of one random number a name: equal exactly where the replays ran the same, in whatever order.
    random = np.random.default_rng(0).integers(1 << 63, size=len(ops["name"].cat.categories), dtype=np.uint64)
    name = ops["name"].cat.codes.to_numpy()[rows]
    content = np.add.reduceat(random[name], begins)
    of_graph, graphs = pd.factorize(joint_key(process[rows[begins]], graph[rows[begins]]))
    renamed, free = ops["graph"].to_numpy().copy(), int(graph.max()) + 1
    notes: list[Diagnostic] = []
    ends = np.r_[begins[1:], len(rows)]
    for which in range(len(graphs)):
        mine = np.flatnonzero(of_graph == which)
        codes, unique = pd.factorize(content[mine])
        if not 1 < len(unique) <= _CONTENTS:
            continue
        one_each = [int(mine[np.flatnonzero(codes == code)[0]]) for code in range(len(unique))]
        bags = [
            Counter(zip(*(of[begins[i] : ends[i]].tolist() for of in (name, node[rows])), strict=True))
            for i in one_each
        ]
        for later in _epochs(codes, bags)[1:]:
            number = int(graph[rows[begins[mine[0]]]])
            for index in mine[later:].tolist():
                renamed[rows[begins[index] : ends[index]]] = free
            message = (
                f"Graph {number} ran other ops from its replay {later + 1} on: it was updated, or its number was given "
                f"to another. From there on it is called graph {free}."
            )
            notes.append(Diagnostic("graph-updated", message))
            free += 1
    if not notes:
        return trace
    info = replace(trace.info, diagnostics=(*trace.info.diagnostics, *notes))
    return replace(trace, ops=ops.assign(graph=renamed), info=info)


def _epochs(content: npt.NDArray[np.int64], bags: Sequence[Counter[tuple[int, int]]]) -> list[int]:
    """The first replay of each epoch. What ran in one of them ran in no other.

    Args:
        content: what each replay ran, an index into `bags`; in order of time.
        bags: how often each name and node ran.
    """
    counts = np.bincount(content)
    # Neither lost rows nor doubled ones make an epoch. An update leaves all nodes of a graph in it, so where they are
    # known fewer are always lost.
    has_nodes = any(node != NONE for bag in bags for _, node in bag)
    damaged = [
        any(bag < other or (counts[i] < _NO_LOSS and bag > other) for other in bags)
        and (has_nodes or counts[i] < _NO_LOSS)
        for i, bag in enumerate(bags)
    ]
    whole = np.flatnonzero(~np.array(damaged)[content])
    last = np.zeros(len(bags), np.int64)
    last[content[whole]] = whole
    until = np.maximum.accumulate(last[content[whole]])
    return [0, *whole[1:][until[:-1] == whole[:-1]].tolist()]


#: Kernels of NCCL and RCCL, and the all-reduce kernels of vLLM, SGLang and TensorRT-LLM. Fewer names than those of
#: `roles.is_collective`, on purpose: here a name alone must prove that another process took part. A copy between two
#: devices, an operator of torch or a kernel that is called after a collective runs in one process too.
_NEEDS_PEERS = re.compile(
    r"\b(?:nccl|rccl)(?:Dev)?Kernel|cross_device_reduce|(?:one|two)shotAllReduceKernel", re.IGNORECASE
)
_ADVICE = {
    "nvidia": "nsys: record the launcher with --trace-fork-before-exec=true, or each worker with -o NAME_%p",
    "amd": "rocprofv3: record one file per process, -o NAME_%pid%",
}


def needs_peers(name: str) -> bool:
    """Whether an op of this recorded name cannot have run without another process."""
    return _NEEDS_PEERS.search(name) is not None


def missing_peers(trace: Trace) -> Diagnostic | None:
    """What to say of a trace of one process of several: collectives ran, and only one process is there. None where
    nothing hints at any.

    Each profiler writes such files where it follows one process only, or where the others' output went to another file
    or was overwritten (vllm#5132, rocm-systems#7472).
    """
    ops = trace.ops
    names: list[str] = ops["name"].unique().tolist()
    if not any(needs_peers(name) for name in names):
        return None
    if ops[["process", "device"]].drop_duplicates().shape[0] > 1:
        return None
    advice = _ADVICE.get(trace.info.vendor, "record every rank")
    return Diagnostic(
        "one-of-several-processes",
        "Collectives ran, so other processes took part, and this file holds one of them. Give their files too, as "
        f"several runs; if there are none, they were not recorded or overwrote one another ({advice}).",
    )
