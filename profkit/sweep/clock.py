"""How a sweep times: the host's clock for torch's CPU operators, or event nodes inside CUDA graphs."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from profkit.errors import ProfkitError
from profkit.sweep.records import State

Run = Callable[[], None]
#: torch.cuda is only partly annotated; through this name strict type checking leaves its calls alone.
_cuda: Any = torch.cuda

#: A sample lasts at least about so long, in µs, but has no fewer and no more runs than these. Hot it is one bracket,
#: whose edges then weigh little: an event pair's are about a microsecond. Evicted it is a mean over several brackets.
_SAMPLES: Mapping[State, tuple[float, int, int]] = {"hot": (300.0, 1, 100), "evicted": (1000.0, 1, 5)}
#: Bytes written before an evicted run, in sizes of the L2 cache: once would leave lines that its hashing spared.
EVICTION_L2_SIZES = 2
#: A run that must move so many sizes of the L2 cache evicts its own data; docs/sweep.md has the measurements.
BEYOND_L2_SIZES = 4


def runs_in_a_sample(state: State, fastest_us: float) -> int:
    """How many runs are one sample, the same for every configuration of a region; the fastest takes about so long."""
    target_us, fewest, most = _SAMPLES[state]
    return max(fewest, min(most, math.ceil(target_us / max(fastest_us, 1e-3))))


@dataclass(frozen=True)
class Sample:
    """Runs that are ready to be timed, again and again.

    Args:
        replay: does them as they are timed; may return before they have ended.
        run_us: what one took, in µs.
    """

    replay: Run
    run_us: Callable[[], float]


class Clock:
    """Times runs; this one torch's CPU operators.

    Attributes:
        methods: state to a clause that says how it is timed.
    """

    methods: Mapping[State, str] = {
        "hot": "the host's clock around back-to-back runs on the CPU, after an untimed one, divided by their number; "
        "nothing is subtracted"
    }

    def nothing(self) -> None:
        """A run that does nothing; timed like any other it shows what the method itself takes."""

    def left_out(self, state: State, least_bytes: int | None) -> str | None:
        """Why `state` need not be timed where ``hot`` is, for a problem of such `least_bytes`; None where it must."""
        return None

    def synchronize(self) -> None:
        """Wait for the device.

        Raises:
            RuntimeError: something that ran on it has failed.
        """

    @contextmanager
    def region(self) -> Iterator[None]:
        """Around all that is done for one region: at its end the region's memory is given back."""
        yield
        gc.collect()

    def prepare(self, run: Run, state: State, runs: int) -> Sample:
        """Make `runs` runs a sample; `run` has run before, so that nothing compiles now."""

        def replay() -> None:
            for _ in range(runs):
                run()

        def run_us() -> float:
            run()
            begun_ns = time.perf_counter_ns()
            replay()
            return (time.perf_counter_ns() - begun_ns) / 1e3 / runs

        return Sample(replay, run_us)

    def sample_us(self, samples: Sequence[Sample]) -> list[float]:
        """Take each, in this order; returns what one run of each took, in µs."""
        return [sample.run_us() for sample in samples]


class GpuClock(Clock):
    """Times runs on a CUDA device, on a stream of its own, inside `region`.

    Events are recorded by nodes of the graph (``external=True``), so that neither the launch of the graph nor the
    eviction is in the time.

    Raises:
        ProfkitError: torch is too old for such events.
    """

    def __init__(self) -> None:
        from profkit.capture.floor_kernels import element_pair, launch_chain
        from profkit.capture.graph import SPIN_CYCLES

        self._launch_chain, self._spin_cycles = launch_chain, SPIN_CYCLES
        self._event()
        self._stream = _cuda.Stream()
        self._pool: Any = None
        self._l2_bytes = int(_cuda.get_device_properties(_cuda.current_device()).L2_cache_size)
        evicting_bytes = EVICTION_L2_SIZES * self._l2_bytes
        self._lines = torch.empty(evicting_bytes // 4, dtype=torch.int32, device="cuda")
        self._elements = element_pair("cuda")
        # Now, so that it is compiled before it is captured.
        self.nothing()
        torch.cuda.synchronize()
        self.methods = {
            "hot": "event nodes inside a CUDA graph around back-to-back runs, after an untimed one, divided by their "
            "number; nothing is subtracted",
            "evicted": "event nodes inside a CUDA graph around each run, after a write of "
            f"{evicting_bytes / 2**20:.0f} MiB ({EVICTION_L2_SIZES} x L2), mean over the runs; nothing is subtracted",
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
        # A kernel of one program without a body.
        self._launch_chain("empty", self._elements, 1)

    def left_out(self, state: State, least_bytes: int | None) -> str | None:
        if state != "evicted" or least_bytes is None or least_bytes < BEYOND_L2_SIZES * self._l2_bytes:
            return None
        return (
            f"a run moves {least_bytes / 2**20:,.0f} MiB, at least {BEYOND_L2_SIZES} x L2, and so evicts its own data: "
            "hot stands for both (--state evicted times it)"
        )

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    @contextmanager
    def region(self) -> Iterator[None]:
        # One pool for all graphs of a region: they run one after the other, and each writes what it reads there.
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

    def prepare(self, run: Run, state: State, runs: int) -> Sample:
        graph = torch.cuda.CUDAGraph()
        brackets = [(self._event(), self._event()) for _ in range(1 if state == "hot" else runs)]
        in_a_bracket = runs if state == "hot" else 1
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            if state == "hot":
                run()
            for start, end in brackets:
                if state == "evicted":
                    self._lines.zero_()
                start.record()
                for _ in range(in_a_bracket):
                    run()
                end.record()

        def run_us() -> float:
            return sum(float(start.elapsed_time(end)) for start, end in brackets) * 1e3 / runs

        return Sample(graph.replay, run_us)

    def sample_us(self, samples: Sequence[Sample]) -> list[float]:
        # A spinning kernel hides the first launch, and each sample the next.
        _cuda._sleep(self._spin_cycles)
        for sample in samples:
            sample.replay()
        torch.cuda.synchronize()
        return super().sample_us(samples)
