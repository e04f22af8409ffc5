"""What a capture will run: the user's options, checked against the workload, and the profiler that was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profkit.capture import profilers
from profkit.capture.profilers import Asked, Profiler
from profkit.errors import ProfkitError, did_you_mean
from profkit.model.workload import Shape, ShapeValue, Workload
from profkit.number_ranges import check_number

#: Building a model-sized workload and compiling its kernels takes minutes at worst; a rank that hangs takes for ever.
RANK_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Options:
    """What the user asked for.

    Args:
        workload: a shipped name or ``path/file.py:name``.
        variant: None takes the workload's first.
        shapes: ``name=value`` texts.
        profiler: one of `profkit.capture.profilers.names`.
        replays: recorded replays of the graph.
        warmup: runs before the graph is captured, outside the recorded window; the first of them compiles kernels.
        seed: seeds every random input.
        run_bodies: the dispatch profiler executes kernel bodies (in Triton's interpreter) instead of skipping them.
        graph_level: with nsys, time the step at graph level too.
        nproc: ranks, a process and a GPU each; None for one process that is in no process group.
        rank_timeout_s: how long the processes of all ranks may take together, each time they are started.
    """

    workload: str
    variant: str | None = None
    shapes: Sequence[str] = ()
    profiler: str = "auto"
    replays: int = 20
    warmup: int = 3
    seed: int = 0
    run_bodies: bool = False
    graph_level: bool = False
    nproc: int | None = None
    rank_timeout_s: float = RANK_TIMEOUT_S

    @property
    def asked(self) -> Asked:
        """What of it only some profilers do."""
        return Asked(self.run_bodies, self.graph_level, self.nproc)


@dataclass(frozen=True)
class Plan:
    """`Options` with a profiler that can run.

    The worker resolves variant and shapes, so that a user's file is imported there and never in this process.

    Args:
        spec: the workload as the user gave it.
        name: the workload as run.json records it, without directories.
        source: ``shipped`` or ``file``.
        variant, shapes, warmup, seed, run_bodies, graph_level, nproc, rank_timeout_s: as in `Options`.
        replays: how many will be recorded; a profiler without times runs the step once.
        profiler: what records.
        why: why that profiler, one clause for the user.
    """

    spec: str
    name: str
    source: str
    variant: str | None
    shapes: Sequence[str]
    profiler: Profiler
    why: str
    replays: int
    warmup: int
    seed: int
    run_bodies: bool
    graph_level: bool = False
    nproc: int | None = None
    rank_timeout_s: float = RANK_TIMEOUT_S


def resolve_variant(workload: Workload, variant: str | None) -> str:
    """The variant to run; the workload's first where none is given.

    Raises:
        ProfkitError: the workload has no such variant.
    """
    if variant is None:
        return next(iter(workload.variants))
    if variant not in workload.variants:
        raise ProfkitError(
            f"{workload.name} has no variant {variant!r}.{did_you_mean(variant, workload.variants)} "
            "Choose one with --variant."
        )
    return variant


def resolve_shapes(workload: Workload, given: Sequence[str], processes: int = 1) -> dict[str, ShapeValue]:
    """Every shape of `workload`, with the user's ``name=value`` texts filled in.

    Args:
        processes: how many run the workload together; may change what is not given.

    Raises:
        ProfkitError: not ``name=value``, an unknown name, a value of the wrong type or outside the shape's choices, or
            one that does not go with that many processes.
    """
    defaults = {name: shape.default for name, shape in workload.shapes.items()}
    shapes: dict[str, ShapeValue] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ProfkitError(f"--shape {text!r} is not name=value, e.g. --shape rows=56.")
        if name in shapes:
            raise ProfkitError(f"--shape {name} is given twice. Give it once: a run has one value of each shape.")
        if name not in workload.shapes:
            raise ProfkitError(f"{workload.name} has no shape {name!r}.{did_you_mean(name, workload.shapes)}")
        shapes[name] = _parse(name, workload.shapes[name], value)
    if workload.job_shapes is not None:
        defaults |= workload.job_shapes(shapes, processes)
    return defaults | shapes


def _parse(name: str, shape: Shape, text: str) -> ShapeValue:
    value: ShapeValue = text
    if isinstance(shape.default, int):
        try:
            value = int(text)
        except ValueError:
            raise ProfkitError(f"--shape {name}={text}: expected an integer ({shape.help}).") from None
    if shape.choices and value not in shape.choices:
        known = ", ".join(str(choice) for choice in shape.choices)
        raise ProfkitError(f"--shape {name}={text}: not one of {known} ({shape.help}).")
    return value


def check_options(options: Options) -> None:
    """Refuse options that need no workload to be seen wrong.

    Raises:
        ProfkitError: an unknown profiler, an option that it does not take, or a number out of range.
    """
    profilers.check(options.profiler, options.asked)
    check_number("--replays", options.replays)
    check_number("--warmup", options.warmup)
    check_number("--nproc", options.nproc)
    check_number("--rank-timeout", options.rank_timeout_s)
