"""Running a workload's step without a profiler: its outputs' bits, its ranges, its launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

import torch
from dcp_oracle import bits

from profkit.capture.profilers.dispatch_step import record_step
from profkit.model.workload import BuildContext, InputSet, ShapeValue, Step, Workload

#: Shapes of the DCP workloads that the interpreter runs quickly.
SMALL: dict[str, ShapeValue] = {
    **{"rows": 8, "requests": 6, "heads": 4, "ranks": 4, "head_dim": 16},
    **{"layers": 2, "gemm_in": 16, "gemm_out": 8},
}


def small_context(
    workload: Workload, variant: str, device: str = "cpu", seed: int = 0, **shapes: ShapeValue
) -> BuildContext:
    """A context of small shapes, `shapes` put over them."""
    defaults = {name: shape.default for name, shape in workload.shapes.items()}
    return BuildContext(variant, {**defaults, **SMALL, **shapes}, device, seed)


def run(step: Step, inputs: InputSet = "digest") -> dict[str, torch.Tensor]:
    """The outputs' bits after one run."""
    step.refresh(inputs)
    step.run(lambda name: nullcontext())
    return {name: bits(tensor).clone() for name, tensor in step.outputs().items()}


def same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def opened_ranges(step: Step) -> list[str]:
    """The path of every range that one run opens, in order."""
    opened: list[str] = []
    path: list[str] = []

    @contextmanager
    def scope(name: str) -> Iterator[None]:
        path.append(name)
        opened.append("/".join(path))
        yield
        path.pop()

    step.run(scope)
    return opened


def launches(step: Step) -> Counter[str]:
    """How many launches each path of ranges holds, by the dispatch profiler; the step's device is the CPU."""
    step.refresh("timing")
    return Counter("/".join(op.scope) for op in record_step(step, run_bodies=False).ops)


def replays(step: Step) -> Iterator[tuple[InputSet, bool]]:
    """A CUDA graph captured with the timing inputs, replayed with other inputs: after each replay, which inputs it had
    and whether its outputs are those of a run without a graph."""
    sets: tuple[InputSet, ...] = ("timing", "digest")
    expected = {inputs: run(step, inputs) for inputs in sets}
    graph = torch.cuda.CUDAGraph()
    step.refresh("timing")
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        step.run(lambda name: nullcontext())
    for inputs in ("digest", *sets):
        step.refresh(inputs)
        graph.replay()
        torch.cuda.synchronize()
        yield inputs, same({name: bits(tensor) for name, tensor in step.outputs().items()}, expected[inputs])


def captured_graph_follows_refreshed_inputs(step: Step) -> bool:
    """Whether a CUDA graph captured with the timing inputs gives the outputs of either input set when replayed."""
    return all(equal for _, equal in replays(step))
