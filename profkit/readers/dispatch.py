"""The dispatch profiler's file: which launches a step would make, in order, each with its ranges; and → Trace.

Schema ``profkit.dispatch/1``::

    schema      "profkit.dispatch/1"
    run_bodies  whether kernel bodies ran (in Triton's interpreter) or were skipped
    torch, triton   versions, triton null where absent
    ranges      [{text, start, end}]  on one clock that ticks once for each range opened, range closed and launch
    ops         [{order, name, kind, source, grid, scope}]
                order: its tick; kind: kernel or memcpy; source: aten (any torch operator) or triton;
                grid: a Triton launch's three sizes, else null; scope: the texts of the open ranges, outermost first

There are no times. An operator may launch several kernels on a GPU or none, so these are dispatch counts. The clock
gives an order and no durations: in the trace each launch is an op of one synthetic graph launch whose node was
"created" at the launch's tick, so that attribution by lineage finds the ranges that were open there; the ops
themselves start and end at order numbers after the last tick.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from profkit.errors import ProfkitError
from profkit.model.trace import LAUNCHES, NODES, NONE, OP_DETAIL, OPS, RANGES, Diagnostic, Info, Process, Trace, table
from profkit.readers.files import whole

SCHEMA = "profkit.dispatch/1"
_SCHEMA = re.compile(rb'"schema"\s*:\s*"profkit\.dispatch/1"')

#: The synthetic identities: one thread, one graph, one launch of it.
_THREAD = 1
_GRAPH = 1
_CORRELATION = 1

Tick = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Blocks = Annotated[int, msgspec.Meta(ge=NONE, le=(1 << 31) - 1)]


class Range(msgspec.Struct):
    """A range; `end` is 0 while it is open."""

    text: str
    start: Tick
    end: Tick


class Op(msgspec.Struct):
    """What the reader wants of a launch."""

    order: Tick
    name: str
    kind: Annotated[str, msgspec.Meta(pattern="^(kernel|memcpy|memset)$")]
    grid: tuple[Blocks, Blocks, Blocks] | None = None


class Launch(Op):
    """A launch as it is written."""

    source: str = "aten"
    scope: list[str] = []


@dataclass
class Recording:
    """What is recorded so far."""

    ops: list[Launch] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    _open: list[Range] = field(default_factory=list)
    _clock: int = 0

    def tick(self) -> int:
        """The next time on the recording's clock."""
        self._clock += 1
        return self._clock

    @contextmanager
    def scope(self, text: str) -> Iterator[None]:
        """A range around the block."""
        opened = Range(text, self.tick(), 0)
        self.ranges.append(opened)
        self._open.append(opened)
        try:
            yield
        finally:
            self._open.pop().end = self.tick()

    def launch(self, name: str, kind: str, source: str, grid: tuple[int, int, int] | None = None) -> None:
        """Record one launch in the ranges that are open."""
        self.ops.append(Launch(self.tick(), name, kind, grid, source, [opened.text for opened in self._open]))

    def write(self, file: Path, *, run_bodies: bool, torch: str | None, triton: str | None) -> None:
        """Write the file of a recording that is finished."""
        content = {"schema": SCHEMA, "run_bodies": run_bodies, "torch": torch, "triton": triton}
        file.write_bytes(msgspec.json.encode(content | {"ranges": self.ranges, "ops": self.ops}) + b"\n")


class _Document(msgspec.Struct):
    torch: str | None
    ranges: list[Range]
    ops: list[Op]


def sniff(head: bytes, path: Path) -> bool:
    """See `profkit.readers.Reader`."""
    del path
    return head.lstrip().startswith(b"{") and _SCHEMA.search(head) is not None


def content_of(path: Path) -> Any:
    """The file's JSON.

    Raises:
        ProfkitError: it is none.
    """
    try:
        return msgspec.json.decode(whole(path))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProfkitError(f"{path} is not valid JSON ({error}). Capture the run again.") from None


def read(path: Path, *, detail: bool = False) -> Trace:
    """See `profkit.readers.Reader`. `Info.timed` is false: every duration is 0, and only order and counts mean
    something; of launch shapes the grids of Triton launches are known."""
    content = content_of(path)
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = content.get("schema") if isinstance(content, dict) else type(content).__name__
        raise ProfkitError(f"{path}: schema is {found!r}, expected {SCHEMA!r}. Capture the run with this profkit.")
    try:
        document = msgspec.convert(content, _Document)
    except msgspec.ValidationError as error:
        raise ProfkitError(f"{path} is not a whole {SCHEMA} recording: {error}. Capture the run again.") from None
    return _trace(document, path, detail)


def _trace(document: _Document, path: Path, detail: bool) -> Trace:
    ops, ranges = document.ops, document.ranges
    count = len(ops)
    ticks = [op.order for op in ops]
    launched = max([*ticks, *(r.end for r in ranges)], default=0) + 1
    starts = np.arange(launched + 2, launched + 2 + count, dtype=np.int64)
    nodes = np.arange(1, count + 1, dtype=np.int64)
    columns: dict[str, Any] = {
        "start": starts,
        "end": starts,
        "kind": [op.kind for op in ops],
        "name": [op.name for op in ops],
        "process": 0,
        "device": 0,
        "stream": 0,
        "correlation": _CORRELATION,
        "graph": _GRAPH,
        "node": nodes,
    }
    schema = {**OPS, **OP_DETAIL} if detail else dict(OPS)
    if detail:
        grids = np.array([op.grid or (NONE, NONE, NONE) for op in ops], dtype=np.int32).reshape(count, 3)
        columns |= {f"grid_{axis}": grids[:, index] for index, axis in enumerate("xyz")}
    return Trace(
        ops=table(schema, columns),
        launches=table(
            LAUNCHES,
            {
                "start": [launched],
                "end": [launched + 1],
                "process": 0,
                "thread": _THREAD,
                "correlation": _CORRELATION,
                "api": ["graph"],
                "name": ["profkit dispatch"],
            },
        ),
        ranges=table(
            RANGES,
            {
                "start": [r.start for r in ranges],
                "end": [r.end for r in ranges],
                "process": 0,
                "thread": _THREAD,
                "text": [r.text for r in ranges],
                "nested": True,
            },
        ),
        nodes=table(NODES, {"process": np.zeros(count, dtype=np.int32), "node": nodes, "created": ticks, "thread": 1}),
        info=Info(
            source=path.name,
            format="profkit dispatch",
            vendor="none",
            profiler=f"torch {document.torch} dispatch",
            devices={},
            processes=(Process(pid=0),),
            graph_trace="node",
            timed=False,
            diagnostics=(
                Diagnostic("not-timed", "Launches were counted on the CPU and not timed; one operator is one launch."),
            ),
        ),
        set_aside=table(schema),
    )
