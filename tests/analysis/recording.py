"""A process under the profiler, simulated: its ranges, captures, clones, replays and eager launches become rows.

`step_trace` is the usual case in one call.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nsys_builder import Kernel, Launch, Node, Range, Rows, write


@dataclass(frozen=True)
class Op:
    """One launch of a layer. `scope` is the path of ranges below the layer, joined by ``/``."""

    name: str
    ns: int = 1000
    scope: str = ""
    kind: str = "kernel"
    stream: int = 7


def ops(text: str) -> list[Op]:
    """Ops from a line: ``gemm:3000 combine/mask/fill:900 combine/+DtoD:2000 pack@8`` (``scope/name:ns@stream``; ``+``
    marks a memcpy, ``0`` followed by a name a memset)."""
    found = []
    for word in text.split():
        rest, _, stream = word.partition("@")
        path, _, ns = rest.partition(":")
        scope, _, name = path.rpartition("/")
        kind = "memcpy" if name.startswith("+") else "memset" if name.startswith("0") else "kernel"
        found.append(Op(name.lstrip("+0"), int(ns or 1000), scope, kind, int(stream or 7)))
    return found


@dataclass
class Graph:
    """Nodes in order: (node id, op)."""

    id: int
    nodes: list[tuple[int, Op]]


class Recording:
    """Plays one process; `rows` is what the profiler saw.

    Args:
        pid: also the number of its first thread.
        seed: for `jitter_ns`, by which replayed durations vary (normal, standard deviation).
    """

    def __init__(self, pid: int = 100, *, start_ns: int = 1_000_000, jitter_ns: float = 0, seed: int = 0) -> None:
        self.pid = self.tid = pid
        self.rows = Rows()
        self.now = start_ns
        self.jitter_ns, self._random = jitter_ns, random.Random(seed)
        self._free: dict[int, int] = {}
        self._correlation = itertools.count(1)
        self._graph_ids = itertools.count(1)
        self._capturing: Graph | None = None

    def tick(self, ns: int = 100) -> int:
        """Let host time pass; returns the time before."""
        before, self.now = self.now, self.now + ns
        return before

    @contextmanager
    def range(self, text: str, *, domain: int = 0, registered: bool = False) -> Iterator[None]:
        """A push/pop range around the block."""
        start, tid = self.tick(), self.tid
        yield
        self.rows.ranges.append(Range(text, start, self.tick(), tid, self.pid, domain=domain, registered=registered))

    @contextmanager
    def thread(self, tid: int) -> Iterator[None]:
        """Run the block on another thread."""
        before, self.tid = self.tid, tid
        yield
        self.tid = before

    @contextmanager
    def capture(self) -> Iterator[Graph]:
        """Stream capture: what `launch` launches becomes nodes."""
        self._capturing = graph = Graph(next(self._graph_ids), [])
        yield graph
        self._capturing = None

    def launch(self, op: Op) -> None:
        """Launch `op` within its scope's ranges: eagerly, or into the graph that is being captured."""
        if op.scope:
            head, _, rest = op.scope.partition("/")
            with self.range(head):
                self.launch(replace(op, scope=rest))
            return
        correlation = next(self._correlation)
        call = {"kernel": "cudaLaunchKernel_v7000", "memcpy": "cudaMemcpyAsync_v3020"}.get(op.kind, "cudaMemsetAsync")
        self.rows.launches.append(Launch(call, self.tick(), correlation, self.tid, self.pid))
        if self._capturing is None:
            self._run(op, correlation, None, None)
            return
        node = (self._capturing.id << 32) + len(self._capturing.nodes)
        self._capturing.nodes.append((node, op))
        self.rows.nodes.append(Node(node, self.tick(), None, self.tid, self.pid))

    def launch_all(self, text: str) -> None:
        """`launch` each of `ops(text)`."""
        for op in ops(text):
            self.launch(op)

    def clone(self, graph: Graph) -> Graph:
        """Instantiate (or clone) `graph`: nodes of a new graph, each naming its origin."""
        new = Graph(next(self._graph_ids), [])
        for origin, op in graph.nodes:
            node = (new.id << 32) + len(new.nodes)
            new.nodes.append((node, op))
            self.rows.nodes.append(Node(node, self.tick(), origin, self.tid, self.pid))
        return new

    def replay(self, graph: Graph, times: int = 1, *, range_text: str | None = "replay", lose: int = 0) -> None:
        """Launch an instantiated graph; the last `lose` ops leave no record."""
        for _ in range(times):
            if range_text is not None:
                with self.range(range_text):
                    self.replay(graph, range_text=None, lose=lose)
                continue
            correlation = next(self._correlation)
            self.rows.launches.append(Launch("cudaGraphLaunch_v10000", self.tick(), correlation, self.tid, self.pid))
            for node, op in graph.nodes[: len(graph.nodes) - lose]:
                self._run(op, correlation, node, graph.id)
            self.synchronize()

    def synchronize(self) -> None:
        """Let every stream finish."""
        self.now = max([self.now, *self._free.values()]) + 100

    def _run(self, op: Op, correlation: int, node: int | None, graph: int | None) -> None:
        ns = max(0, round(op.ns + self._random.gauss(0, self.jitter_ns))) if self.jitter_ns else op.ns
        start = max(self.now, self._free.get(op.stream, 0)) + 10
        self._free[op.stream] = start + ns
        self.rows.kernels.append(
            Kernel(op.name, start, start + ns, correlation, node, graph, op.stream, 0, self.pid, op.kind)
        )


def step_recording(
    layers: Sequence[str | Sequence[Op]],
    *,
    layer_range: str = "layers.{i}.mla",
    replays: int = 4,
    clones: int = 1,
    outside: str = "",
    warm_up: bool = False,
    pid: int = 100,
    jitter_ns: float = 0,
    seed: int = 0,
) -> Recording:
    """A captured step of some layers, instantiated and replayed.

    Args:
        layers: the ops of each layer, as for `ops`.
        layer_range: the range around each layer, ``{i}`` its number.
        clones: how often the graph is cloned one after another; the last clone is replayed.
        outside: ops captured before the layers, in no layer.
        warm_up: run the layers eagerly once before capturing.
    """
    recording = Recording(pid, jitter_ns=jitter_ns, seed=seed)

    def step() -> None:
        recording.launch_all(outside)
        for i, layer in enumerate(layers):
            with recording.range(layer_range.format(i=i)):
                for op in ops(layer) if isinstance(layer, str) else layer:
                    recording.launch(op)

    if warm_up:
        step()
        recording.synchronize()
    with recording.range("capture"), recording.capture() as graph:
        step()
    for _ in range(clones):
        graph = recording.clone(graph)
    recording.replay(graph, replays)
    return recording


def step_trace(path: Path, layers: Sequence[str | Sequence[Op]], **options: Any) -> Path:
    """`step_recording`, written to `path`; `generation` and `gpus` go to `nsys_trace`, the rest to the recording."""
    file_options = {k: options.pop(k) for k in ("generation", "gpus", "strings", "extra_sql") if k in options}
    return write(path, step_recording(layers, **options).rows, **file_options)
