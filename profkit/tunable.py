"""The part of a workload's interface that `profkit sweep` uses: a kernel whose launch configuration can be chosen.

A workload offers it as `Workload.tunable`. Describing one imports neither torch nor triton; building a `Problem` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from profkit.workload import BuildContext, ShapeValue

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
