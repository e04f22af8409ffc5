"""The public interface of a workload: all that `profkit capture` asks of the code it runs.

The shipped kernels and a user's own ``path/to/file.py:name`` implement this and nothing else. A workload is described
by data (`Workload`); building it for one variant gives a `Step`, the work of one forward pass as layers of callables.
This module imports neither torch nor triton, so that `profkit kernels` can list workloads where they are absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from profkit.errors import ProfkitError, did_you_mean

if TYPE_CHECKING:
    import torch

#: ``scope("pack")`` opens a named range for the code in its ``with`` block; ranges nest.
Scope = Callable[[str], AbstractContextManager[None]]


def no_ranges(_name: str) -> nullcontext[None]:
    """A scope that marks nothing; for warm-up and for untraced runs."""
    return nullcontext()


#: Which inputs a step works on: the ones that are timed, or the ones whose outputs are digested. The two differ in
#: content and never in shape or address, so a captured graph serves both.
InputSet = Literal["timing", "digest"]

ShapeValue = int | str


@dataclass(frozen=True)
class Shape:
    """One option of a workload, set on the command line with ``--shape name=value``.

    Args:
        default: its value where the user gives none; also fixes the type (int or str).
        help: what it is, with its unit.
        choices: the values allowed; empty means any.
    """

    default: ShapeValue
    help: str
    choices: tuple[ShapeValue, ...] = ()


@dataclass(frozen=True)
class BuildContext:
    """What a workload is built for.

    Args:
        variant: one of the workload's variants.
        shapes: every shape of the workload, with the user's values filled in.
        device: a torch device string, ``"cuda"`` or ``"cpu"``.
        seed: seeds every random input; the same seed gives the same bits in every variant.
        rank, world_size: this process among those of ``--nproc``; 0 of 1 without it. With ``--nproc`` the default
            process group of torch.distributed is made before the workload is built: NCCL on GPUs, gloo on CPUs.
    """

    variant: str
    shapes: Mapping[str, ShapeValue]
    device: str
    seed: int
    rank: int = 0
    world_size: int = 1

    def int_shape(self, name: str) -> int:
        """The integer shape called `name`."""
        value = self.shapes[name]
        if not isinstance(value, int):
            raise TypeError(f"shape {name} is {value!r}, expected an integer")
        return value


@dataclass(frozen=True)
class Layer:
    """One layer of a step.

    `run` launches the layer's work on the current stream. It must be capturable (no synchronisation, no allocation
    whose address outlives the capture other than through torch) and must launch the same kernels every time.

    Args:
        number: the layer's index in the model, from 0.
        kind: what sort of layer it is, e.g. ``"mla"``; the layer's range is named ``layers.{number}.{kind}``.
        run: called with a `Scope`; opens ranges inside the layer and does the work.
    """

    number: int
    kind: str
    run: Callable[[Scope], None]

    @property
    def scope(self) -> str:
        """The text of the layer's range."""
        return f"layers.{self.number}.{self.kind}"


@dataclass(frozen=True)
class References:
    """What a step's outputs must be, within a tolerance: for variants that rightly differ in their last bits.

    Where two runs' outputs differ in bits, `profkit diff` holds both against these.

    Args:
        compute: the right outputs on the digest inputs, by the names and in the shapes of `Step.outputs`; an output may
            be left out, and then its bits alone decide. Computed by other means than the step's kernels, in at least
            fp32; called once, after `Step.refresh` with the digest inputs.
        rtol, atol: an element may be off by ``atol + rtol * |reference|``. Choose inputs on which lost work shows as
            more than that.
    """

    compute: Callable[[], Mapping[str, torch.Tensor]]
    rtol: float
    atol: float


@dataclass(frozen=True)
class Step:
    """One forward pass, ready to run: what is captured into one graph and replayed.

    Args:
        layers: in the order in which they run.
        refresh: restores every input that the step overwrites and selects an input set; called before each run or
            replay, on the current stream, outside what is counted. Contents change, addresses never do.
        outputs: the tensors whose bits say whether the work was done, by name; read after a run or replay. Every
            layer must be in it. Names start with the layer's scope, e.g. ``layers.3.mla/out``.
        once: work done once a step before the layers; its ranges are not layers. None where there is none.
        notes: facts about the inputs worth recording beside a run, e.g. the share of rows that the mask hits.
        references: what the outputs must be within a tolerance; None where equal work gives equal bits.
    """

    layers: Sequence[Layer]
    refresh: Callable[[InputSet], None]
    outputs: Callable[[], Mapping[str, torch.Tensor]]
    once: Callable[[Scope], None] | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    references: References | None = None

    def run(self, scope: Scope) -> None:
        """Run the whole step once on the current stream, each layer inside its range."""
        if self.once is not None:
            self.once(scope)
        for layer in self.layers:
            with scope(layer.scope):
                layer.run(scope)


@dataclass(frozen=True)
class Workload:
    """A workload that `profkit capture` can run.

    Args:
        name: as given on the command line.
        summary: one line.
        variants: name to one-line description; the first is the baseline.
        shapes: name to `Shape`.
        build: makes a `Step` on the context's device. May import torch and triton; this module's importers may not.
        tunable: the launch configuration that `profkit sweep` can vary; None where there is none.
        job_shapes: given the shapes that the user set and the number of processes, what other defaults hold then;
            raises ProfkitError where the two do not go together. None where the number of processes changes nothing.
    """

    name: str
    summary: str
    variants: Mapping[str, str]
    shapes: Mapping[str, Shape]
    build: Callable[[BuildContext], Step]
    tunable: Tunable | None = None
    job_shapes: Callable[[Mapping[str, ShapeValue], int], Mapping[str, ShapeValue]] | None = None


#: One launch configuration: a value for every parameter of the `Tunable`.
Configuration = Mapping[str, int]


@dataclass(frozen=True)
class Parameter:
    """One number of a launch configuration.

    Args:
        values: what a sweep tries where the user names none, ascending.
        help: what it is, with its unit.
    """

    values: Sequence[int]
    help: str


@dataclass(frozen=True)
class Problem:
    """One problem, its inputs on the device, ready to be run under any configuration.

    Args:
        run: launches the work under a configuration on the current stream. It must be capturable into a CUDA graph, and
            running it again must give the same outputs (it may not consume its own inputs).
        outputs: what the last run wrote, by name.
        reference: what it must have written, by the same names, in tensors of its own and of the outputs' kind (float,
            integer, complex or bool); computed by other means, in at least fp32. Called once.
        poison: makes every output differ from the reference beyond the tolerance, so that a configuration that writes
            nothing cannot pass for the one before; that it does is checked.
        rejects: why a configuration cannot be run here (a clear sentence), or None.
        known: the configurations that known tables choose for this problem, by the table's name, e.g. ``"sm_90"``.
        least_bytes: the fewest bytes that must move through device memory, or None where that says nothing.
        tolerance: rtol and atol of the comparison with the reference; ``(0, 0)`` means equal values, zeros of one
            sign, NaN equal to NaN.
    """

    run: Callable[[Configuration], None]
    outputs: Callable[[], Mapping[str, torch.Tensor]]
    reference: Callable[[], Mapping[str, torch.Tensor]]
    poison: Callable[[], None]
    rejects: Callable[[Configuration], str | None]
    known: Mapping[str, Configuration] = field(default_factory=dict)
    least_bytes: int | None = None
    tolerance: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Tunable:
    """A workload's kernel with a launch configuration to choose.

    Args:
        parameters: name to `Parameter`, in the order in which a configuration is printed.
        regions: named problems, each a set of values for the workload's shapes; what is not named has its default.
        build: makes the `Problem` for a context. Its variant is the workload's first unless the user gives one.
    """

    parameters: Mapping[str, Parameter]
    regions: Mapping[str, Mapping[str, ShapeValue]]
    build: Callable[[BuildContext], Problem]


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
