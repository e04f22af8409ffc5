"""What a workload's code returns to a sweep, held against `model.workload`: what does not fit is its own fault."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.model.workload import Parameter, Problem, Tunable
from profkit.sweep.check import passing

if TYPE_CHECKING:
    import torch

#: Configurations are stored as 64-bit integers.
_LARGEST = 2**63
#: A longer text is not quoted.
_SHOWN = 60


def fault(workload: str, what: str) -> ProfkitError:
    """The error that a workload returned something else than its interface asks for."""
    return ProfkitError(f"{workload}: {what}. Mend the workload; profkit/model/workload.py says what each field is.")


def check_tunable(workload: str, tunable: Any) -> Tunable:
    """`tunable` as it is, where reports can show its names and a sweep can take its values.

    Raises:
        ProfkitError: it is no `Tunable`, has no parameters, or names that are no texts or values that are no integers.
    """
    if not isinstance(tunable, Tunable):
        raise fault(workload, f"tunable is {_shown(tunable)}, not a profkit.model.workload.Tunable")
    if not isinstance(tunable.parameters, Mapping) or not tunable.parameters:
        raise fault(
            workload, f"tunable.parameters is {_shown(tunable.parameters)}; a sweep needs at least one parameter"
        )
    for name, parameter in tunable.parameters.items():
        _check_text(workload, "a parameter's name", name)
        if not isinstance(parameter, Parameter):
            raise fault(workload, f"parameter {name} is {_shown(parameter)}, not a Parameter")
        _check_text(workload, f"the help of parameter {name}", parameter.help)
        if not isinstance(parameter.values, (tuple, list, range)) or not parameter.values:
            raise fault(workload, f"parameter {name} has the values {_shown(parameter.values)}; it needs at least one")
        for value in parameter.values:
            check_integer(workload, f"a value of parameter {name}", value)
    if not isinstance(tunable.regions, Mapping):
        raise fault(workload, f"tunable.regions is {_shown(tunable.regions)}, not a mapping of names to shapes")
    for name, shapes in tunable.regions.items():
        _check_text(workload, "a region's name", name)
        if not name:
            raise fault(workload, "a region's name is empty")
        if not isinstance(shapes, Mapping):
            raise fault(workload, f"region {name} is {_shown(shapes)}, not a mapping of shapes to values")
        for shape, value in shapes.items():
            _check_text(workload, f"a shape's name in region {name}", shape)
            if isinstance(value, str):
                _check_text(workload, f"shape {shape} of region {name}", value)
            else:
                check_integer(workload, f"shape {shape} of region {name}", value)
    return tunable


def check_problem(workload: str, region: str, problem: Any) -> Problem:
    """`problem` as it is, where its known entries, least bytes and tolerance are of use.

    Raises:
        ProfkitError: they are not, or it is no `Problem`.
    """
    if not isinstance(problem, Problem):
        raise fault(workload, f"building region {region} gave {_shown(problem)}, not a profkit.model.workload.Problem")
    of = f"of region {region}"
    if not isinstance(problem.known, Mapping):
        raise fault(workload, f"known {of} is {_shown(problem.known)}, not a mapping of tables to configurations")
    for table, entry in problem.known.items():
        _check_text(workload, f"a known table's name {of}", table)
        if not isinstance(entry, Mapping):
            raise fault(workload, f"known {of}: the entry of {table} is {_shown(entry)}, not a configuration")
        for name, value in entry.items():
            _check_text(workload, f"a parameter's name in known {of}, table {table}", name)
            check_integer(workload, f"known {of}: {name} in the entry of {table}", value)
    least = problem.least_bytes
    if least is not None:
        check_integer(workload, f"least_bytes {of}", least)
        if least < 0:
            raise fault(workload, f"least_bytes {of} is {_shown(least)}, less than nothing")
    tolerance: Any = problem.tolerance
    if (
        not isinstance(tolerance, (tuple, list))
        or len(tolerance) != 2
        or not all(_is_number(value) and math.isfinite(value) and value >= 0 for value in tolerance)
    ):
        raise fault(workload, f"tolerance {of} is {_shown(tolerance)}, not rtol and atol, each finite and not negative")
    return problem


def check_tensors(workload: str, region: str, what: str, found: Any) -> dict[str, torch.Tensor]:
    """`found` as a dictionary, where it holds something that can be compared.

    Args:
        what: `found` is, ``outputs()`` or ``reference()``.

    Raises:
        ProfkitError: no mapping of names to tensors, none in it, or one without elements.
    """
    import torch

    of = f"{what} of region {region}"
    if not isinstance(found, Mapping):
        raise fault(workload, f"{of} gave {_shown(found)}, not a mapping of names to tensors")
    if not found:
        raise fault(workload, f"{of} is empty, so any configuration would pass")
    for name, tensor in found.items():
        _check_text(workload, f"a name in {of}", name)
        if not isinstance(tensor, torch.Tensor):
            raise fault(workload, f"{of}: {name} is {_shown(tensor)}, not a tensor")
        if not tensor.numel():
            raise fault(workload, f"{of}: {name} has no elements, so any configuration would pass")
    return dict(found)


def check_rejection(workload: str, region: str, why: Any) -> str | None:
    """The reason that `Problem.rejects` gave, None where it gave none.

    Raises:
        ProfkitError: it gave something else than a sentence or None.
    """
    if why is None:
        return None
    if not isinstance(why, str) or not why.strip():
        raise fault(workload, f"rejects() of region {region} gave {_shown(why)}, not a sentence or None")
    return printable(why)


def check_poisoned(
    workload: str,
    region: str,
    outputs: Mapping[str, torch.Tensor],
    reference: Mapping[str, torch.Tensor],
    tolerance: tuple[float, float],
) -> None:
    """Refuse outputs that are right although nothing has run since they were poisoned.

    Raises:
        ProfkitError: names those that are.
    """
    names = passing(outputs, reference, tolerance)
    if names:
        raise ProfkitError(
            f"{workload}, region {region}: poison() leaves outputs that pass the check ({', '.join(names)}), so a "
            "configuration that writes nothing would pass. Let poison() write what the reference does not hold, and "
            "reference() return tensors of its own that are not all NaN."
        )


def check_integer(workload: str, what: str, value: Any) -> None:
    """Refuse what is no integer of 64 bits.

    Raises:
        ProfkitError: names `what`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not -_LARGEST <= value < _LARGEST:
        raise fault(workload, f"{what} is {_shown(value)}, not an integer of 64 bits")


def printable(text: str) -> str:
    """`text` with half of a pair of surrogates, which no encoding can write, replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _check_text(workload: str, what: str, value: Any) -> None:
    if not isinstance(value, str) or printable(value) != value:
        raise fault(workload, f"{what} is {_shown(value)}, not a text that can be written")


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (
        isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST
    )


def _shown(value: Any) -> str:
    """A value for a message: itself where it is plain and short, else its type."""
    plain = value is None or isinstance(value, (bool, float)) or (isinstance(value, int) and abs(value) < 2**64)
    empty = isinstance(value, (tuple, list, dict)) and not value
    if plain or empty or (isinstance(value, str) and len(value) <= _SHOWN):
        return ascii(value)
    return f"an object of type {type(value).__name__}"
