"""Random recordings for property tests: everything that a process can do to an accountant."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from nsys_builder import START_END, Kernel, Range, Rows
from recording import Op, Recording

OPS = st.builds(
    Op,
    name=st.sampled_from(["gemm", "fill", "pack", "DtoD"]),
    ns=st.integers(0, 3000),
    scope=st.sampled_from(["", "combine", "combine/mask"]),
    kind=st.sampled_from(["kernel", "kernel", "kernel", "memcpy", "memset"]),
    stream=st.sampled_from([7, 7, 8]),
)


@st.composite
def process(draw: st.DrawFn, pid: int) -> Rows:
    """A process with warm-up, one or two graphs of a few layers, losses, eager work, orphans and broken rows."""
    recording = Recording(pid, jitter_ns=draw(st.sampled_from([0, 300])), seed=draw(st.integers(0, 99)))
    for _ in range(draw(st.integers(1, 2))):
        layers = draw(st.lists(st.lists(OPS, min_size=1, max_size=4), max_size=3))
        before = draw(st.lists(OPS, max_size=2))

        def step(layers: list[list[Op]] = layers, before: list[Op] = before) -> None:
            for op in before:
                recording.launch(op)
            for i, ops in enumerate(layers):
                with recording.range(f"layers.{i}"):
                    for op in ops:
                        recording.launch(op)

        if draw(st.booleans()):
            step()
        with recording.range("capture"), recording.capture() as graph:
            step()
        graph = recording.clone(graph)
        recording.replay(graph, draw(st.integers(0, 4)))
        recording.replay(graph, draw(st.integers(0, 1)), lose=draw(st.integers(0, 2)))
    for op in draw(st.lists(OPS, max_size=2)):
        recording.launch(op)
    for orphan in range(draw(st.integers(0, 2))):
        recording.rows.kernels.append(Kernel("orphan", 5_000 + orphan, 6_000, 900_000 + orphan, pid=pid))
    recording.rows.kernels += [Kernel("broken", 0, 0, pid=pid)] * draw(st.integers(0, 2))
    recording.rows.ranges.append(Range("request", 10, None, pid, pid, START_END))
    return recording.rows


def sound(rows: Rows) -> bool:
    """Whether a recording holds an op that is not broken: others are refused."""
    return any(kernel.name != "broken" for kernel in rows.kernels)


TRACES = st.one_of(process(100), st.tuples(process(100), process(200)).map(lambda pair: pair[0] + pair[1])).filter(
    lambda rows: sound(rows) or not rows.kernels
)
#: An example takes some 50 ms and shrinking one takes minutes: a failing example is shown as drawn.
EXAMPLES = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=(HealthCheck.too_slow,),
)
