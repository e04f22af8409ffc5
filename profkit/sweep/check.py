"""Whether what a configuration wrote is right, compared on the device with the workload's own reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from profkit.errors import ProfkitError
from profkit.model.workload import Configuration, Problem
from profkit.sweep.clock import Clock
from profkit.sweep.records import shown
from profkit.sweep.workload import code, fault, printable, reason_of

Tensors = Mapping[str, torch.Tensor]
#: Elements compared at once: a comparison in double takes some 40 bytes for each.
_CHUNK = 1 << 24


@dataclass(frozen=True)
class Attempts:
    """Tries configurations of one problem, of the workload and the region of these names.

    Args:
        reference: what `Problem.reference` gave.
    """

    problem: Problem
    reference: Tensors
    clock: Clock
    workload: str
    region: str

    def failure(self, configuration: Configuration, action: Callable[[], None]) -> str | None:
        """Why `action`, which runs `configuration`, fails; None where it does not.

        Raises:
            ProfkitError: it took the device with it: an error such as an illegal address stays, and nothing can be run
                after it in this process.
        """
        try:
            with code(f"in configuration {shown(configuration)} of region {self.region}"):
                action()
                self.clock.synchronize()
        except ProfkitError as error:
            reason = reason_of(error)
        else:
            return None
        try:
            self.clock.synchronize()
        except RuntimeError:
            raise ProfkitError(
                f"Configuration {shown(configuration)} of region {self.region} broke the device's context ({reason}); "
                "nothing more can be timed in this process. Let the workload reject it, or leave it out with --set."
            ) from None
        return reason

    def trouble(
        self, configuration: Configuration, run: Callable[[], None]
    ) -> tuple[Literal["failed", "wrong"], str] | None:
        """Poison the outputs, `run` the configuration, compare; what is amiss and why, None where it is right."""
        self._poison()
        reason = self.failure(configuration, run)
        if reason is not None:
            return "failed", reason
        return next((("wrong", told) for told in self._differences().values() if told is not None), None)

    def require_poison(self) -> None:
        """Poison the outputs and see that they are wrong then.

        Raises:
            ProfkitError: some are right, so that the check would pass what writes nothing.
        """
        self._poison()
        right = [name for name, told in self._differences().items() if told is None]
        if right:
            raise ProfkitError(
                f"{self.workload}, region {self.region}: poison() leaves outputs that pass the check "
                f"({', '.join(right)}), so a configuration that writes nothing would pass. Let poison() write what the "
                "reference does not hold, and reference() return tensors of its own that are not all NaN."
            )

    def _poison(self) -> None:
        with code(f"poisoning the outputs of region {self.region}"):
            self.problem.poison()
            self.clock.synchronize()

    def _differences(self) -> dict[str, str | None]:
        """How each output of the last run differs from its reference.

        Raises:
            ProfkitError: it wrote nothing that can be compared.
        """
        what = f"outputs() of region {self.region}"
        with code(f"when {what} were compared with the reference"):
            found = check_tensors(self.workload, what, self.problem.outputs())
            if set(found) != set(self.reference):
                names = ", ".join(sorted(self.reference))
                raise fault(self.workload, f"{what} has {', '.join(sorted(found))}, and reference() has {names}")
            rtol, atol = self.problem.tolerance
            return {name: difference(name, one, self.reference[name], (rtol, atol)) for name, one in found.items()}


def check_tensors(workload: str, what: str, found: Any) -> Tensors:
    """`found` as it is, where it holds something that can be compared.

    Args:
        what: it is, ``outputs()`` or ``reference()`` of a region.

    Raises:
        ProfkitError: no mapping of names to tensors, none in it, or one without elements.
    """
    if not isinstance(found, Mapping) or not all(isinstance(name, str) and printable(name) == name for name in found):
        raise fault(
            workload, f"{what} gave something of type {type(found).__name__}, not a mapping of names to tensors"
        )
    if not found:
        raise fault(workload, f"{what} is empty, so any configuration would pass")
    for name, tensor in found.items():
        if not isinstance(tensor, torch.Tensor):
            raise fault(workload, f"{what}: {name} is of type {type(tensor).__name__}, not a tensor")
        if not tensor.numel():
            raise fault(workload, f"{what}: {name} has no elements, so any configuration would pass")
    return found


def difference(name: str, found: torch.Tensor, expected: torch.Tensor, tolerance: tuple[float, float]) -> str | None:
    """How the output `name` differs from its reference, a clause; None where it does not.

    Both are compared as they are and neither is rounded to the other's dtype: complex numbers as such, integers by
    their exact difference, floats in double, which holds every narrower one.

    Args:
        tolerance: rtol and atol; ``(0, 0)`` asks for equal values, zeros of one sign. NaN equals NaN.

    Raises:
        ProfkitError: the output is of another kind than its reference.
    """
    if found.shape != expected.shape:
        return f"{name} has shape {list(found.shape)}, the reference {list(expected.shape)}"
    kind = _kind(found)
    if kind != _kind(expected):
        raise ProfkitError(
            f"Output {name} is {found.dtype} and its reference {expected.dtype}: they are of different kinds and are "
            "not compared. Let the workload's reference() give the kind of its outputs()."
        )
    if kind == "bool":
        tolerance = (0.0, 0.0)
    of_kind = _floats if kind in ("float", "complex") else _integers
    off, worst = 0, 0.0
    for a, b in _chunks(found, expected):
        wrong, errors = of_kind(a, b, tolerance)
        count = int(wrong.sum())
        if count:
            off += count
            worst = max(worst, float(errors[wrong].nan_to_num(nan=math.inf, posinf=math.inf).max()))
    if not off:
        return None
    by = f"by up to {worst:.3g}" if worst != math.inf else "some by NaN or infinity"
    rtol, atol = tolerance
    allowed = "equal values are asked for" if tolerance == (0.0, 0.0) else f"rtol {rtol:g}, atol {atol:g}"
    return f"{name}: {off:,} of {found.numel():,} elements differ from the reference, {by} ({allowed})"


def _kind(tensor: torch.Tensor) -> str:
    """Tensors of one kind can be compared. No integer type holds both the largest uint64 and negative numbers."""
    if tensor.dtype == torch.bool:
        return "bool"
    if tensor.dtype == torch.uint64:
        return "uint64"
    return "complex" if tensor.is_complex() else "float" if tensor.is_floating_point() else "integer"


def _chunks(found: torch.Tensor, expected: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    flat, flat_expected = found.detach().reshape(-1), expected.detach().reshape(-1)
    for start in range(0, flat.numel(), _CHUNK):
        yield flat[start : start + _CHUNK], flat_expected[start : start + _CHUNK]


def _floats(a: torch.Tensor, b: torch.Tensor, tolerance: tuple[float, float]) -> tuple[torch.Tensor, torch.Tensor]:
    """Which elements are off, and by how much; a complex number's error is the length of the difference."""
    wide = torch.complex128 if a.is_complex() else torch.float64
    a, b = a.to(wide).resolve_conj().resolve_neg(), b.to(wide).resolve_conj().resolve_neg()
    errors = (a - b).abs()
    parts, expected = (torch.view_as_real(a), torch.view_as_real(b)) if a.is_complex() else (a[:, None], b[:, None])
    equal = (parts == expected) | (parts.isnan() & expected.isnan())
    if tolerance == (0.0, 0.0):
        signs = (parts.signbit() == expected.signbit()) | parts.isnan()
        return ~(equal & signs).all(-1), errors
    near = errors <= tolerance[1] + tolerance[0] * b.abs()
    # Infinity is near nothing, though its own allowance is infinite.
    finite = (parts.isfinite() & expected.isfinite()).all(-1)
    return ~(equal.all(-1) | (near & finite)), errors


def _integers(a: torch.Tensor, b: torch.Tensor, tolerance: tuple[float, float]) -> tuple[torch.Tensor, torch.Tensor]:
    """The same for integers and truth values: the difference of their halves of 32 bits, each exact in double, is
    rounded only beyond 2^53, and never to 0."""
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    errors = ((a_high - b_high) * 2.0**32 + (a_low - b_low)).abs()
    rtol, atol = tolerance
    return errors > atol + rtol * (b_high * 2.0**32 + b_low).abs(), errors


def _halves(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    unsigned = tensor.dtype == torch.uint64
    bits = tensor.view(torch.int64) if unsigned else tensor.to(torch.int64)
    high, low = bits >> 32, bits & 0xFFFFFFFF
    return (high & 0xFFFFFFFF if unsigned else high).double(), low.double()
