"""Times on a CUDA device: event nodes inside CUDA graphs, with the L2 cache hot or evicted before each run."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from profkit.capture.floor_kernels import element_pair, launch_chain
from profkit.capture.graph import SPIN_CYCLES
from profkit.errors import ProfkitError
from profkit.sweep.clock import Entry, Run
from profkit.sweep.plan import State

#: torch.cuda is only partly annotated; through this name strict type checking leaves its calls alone.
_cuda: Any = torch.cuda

#: Bytes written before an evicted run, in sizes of the L2 cache: once would leave lines that its hashing spared.
EVICTION_L2_SIZES = 2
#: A run that must move so many sizes of the L2 cache evicts its own data. On an H200 (2026-11-29) attention that moves
#: 4 and 8 sizes took as long hot as with other operands in each run, within 0.2 %. A copy of 8 sizes took 125.0 us hot
#: and 127.3 evicted: the difference may be the bracket of its own and the writing back of the evicting lines.
BEYOND_L2_SIZES = 4


@dataclass(frozen=True)
class Graph:
    """A captured sample.

    Args:
        graph: holds the runs and the event nodes.
        brackets: pairs of start and end events; each encloses `runs` runs.
    """

    graph: Any
    brackets: Sequence[tuple[Any, Any]]
    runs: int

    def replay(self) -> None:
        """See `profkit.sweep.clock.Entry`."""
        self.graph.replay()

    def run_us(self) -> float:
        """What one run took in the last replay, in µs: the mean over the brackets."""
        total_ms = sum(float(start.elapsed_time(end)) for start, end in self.brackets)
        return total_ms * 1e3 / (len(self.brackets) * self.runs)


class GpuClock:
    """See `profkit.sweep.clock.Clock`. Runs happen on a stream of its own, inside `region`.

    Events are recorded by nodes of the graph (``external=True``), so that neither the launch of the graph nor the
    eviction is in the time.

    Raises:
        ProfkitError: torch is too old for such events.
    """

    def __init__(self) -> None:
        self._event()
        self._stream = _cuda.Stream()
        self._pool: Any = None
        l2_bytes = int(_cuda.get_device_properties(_cuda.current_device()).L2_cache_size)
        self._l2_bytes = l2_bytes
        self._lines = torch.empty(EVICTION_L2_SIZES * l2_bytes // 4, dtype=torch.int32, device="cuda")
        self._elements = element_pair("cuda")
        # Now, so that it is compiled before it is captured.
        self.nothing()
        torch.cuda.synchronize()
        self.methods: Mapping[State, str] = {
            "hot": "event nodes inside a CUDA graph around back-to-back runs, after an untimed one, divided by their "
            "number; nothing is subtracted",
            "evicted": f"event nodes inside a CUDA graph around each run, after a write of "
            f"{EVICTION_L2_SIZES * l2_bytes / 2**20:.0f} MiB ({EVICTION_L2_SIZES} x L2), mean over the runs; nothing "
            "is subtracted",
        }

    def _event(self) -> Any:
        try:
            return _cuda.Event(enable_timing=True, external=True)
        except TypeError:
            raise ProfkitError(
                f"profkit sweep needs events inside CUDA graphs, which torch {torch.__version__} lacks. Install torch "
                "2.8 or later."
            ) from None

    def nothing(self) -> None:
        """See `profkit.sweep.clock.Clock`: a kernel of one program without a body."""
        launch_chain("empty", self._elements, 1)

    def left_out(self, state: State, least_bytes: int | None) -> str | None:
        """See `profkit.sweep.clock.Clock`."""
        if state != "evicted" or least_bytes is None or least_bytes < BEYOND_L2_SIZES * self._l2_bytes:
            return None
        return (
            f"a run moves {least_bytes / 2**20:,.0f} MiB, at least {BEYOND_L2_SIZES} x L2, and so evicts its own data: "
            "hot stands for both (--state evicted times it)"
        )

    def synchronize(self) -> None:
        """See `profkit.sweep.clock.Clock`."""
        torch.cuda.synchronize()

    @contextmanager
    def region(self) -> Iterator[None]:
        """See `profkit.sweep.clock.Clock`.

        The graphs of a region share one memory pool: they run one after the other, and each writes what it reads there.
        """
        self._pool = _cuda.graph_pool_handle()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            # Keeps the pool in use: torch refuses one whose graphs are all gone while a tensor still lies in it.
            keeper = self.prepare(self.nothing, "hot", 1)
            yield
        torch.cuda.synchronize()
        del keeper
        self._pool = None
        gc.collect()
        _cuda.empty_cache()

    def prepare(self, run: Run, state: State, runs: int) -> Graph:
        """See `profkit.sweep.clock.Clock`."""
        graph = torch.cuda.CUDAGraph()
        brackets = [(self._event(), self._event()) for _ in range(1 if state == "hot" else runs)]
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            if state == "hot":
                run()
            for start, end in brackets:
                if state == "evicted":
                    self._lines.zero_()
                start.record()
                for _ in range(runs if state == "hot" else 1):
                    run()
                end.record()
        return Graph(graph, brackets, runs if state == "hot" else 1)

    def sample_us(self, entries: Sequence[Entry]) -> list[float]:
        """See `profkit.sweep.clock.Clock`. A spinning kernel hides the first launch, and each sample the next."""
        _cuda._sleep(SPIN_CYCLES)
        for entry in entries:
            entry.replay()
        torch.cuda.synchronize()
        samples_us = []
        for entry in entries:
            assert isinstance(entry, Graph)
            samples_us.append(entry.run_us())
        return samples_us
