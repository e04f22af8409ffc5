"""Whether what a configuration wrote is right, compared on the device with the workload's own reference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError

if TYPE_CHECKING:
    import torch

#: Elements compared at once: a comparison in double takes some 40 bytes for each.
_CHUNK = 1 << 24
#: Of signed 64-bit integers.
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def difference(
    found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], tolerance: tuple[float, float]
) -> str | None:
    """How `found` differs from `expected`, a clause; None where it does not.

    Both are compared as they are and neither is rounded to the other's dtype: complex numbers as such, integers by
    their exact difference, floats in double, which holds every narrower one.

    Args:
        tolerance: rtol and atol; ``(0, 0)`` asks for equal values, zeros of one sign. NaN equals NaN.

    Raises:
        ProfkitError: an output is of another kind than its reference.
    """
    if set(found) != set(expected):
        return f"its outputs are {', '.join(sorted(found))}, the reference has {', '.join(sorted(expected))}"
    for name in expected:
        told = _tensor_difference(name, found[name], expected[name], tolerance)
        if told is not None:
            return told
    return None


def passing(
    found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], tolerance: tuple[float, float]
) -> list[str]:
    """The outputs that do not differ from the reference; arguments as for `difference`."""
    return [
        name
        for name in expected
        if name in found and _tensor_difference(name, found[name], expected[name], tolerance) is None
    ]


def _tensor_difference(
    name: str, found: torch.Tensor, expected: torch.Tensor, tolerance: tuple[float, float]
) -> str | None:
    if found.shape != expected.shape:
        return f"{name} has shape {list(found.shape)}, the reference {list(expected.shape)}"
    kind = _kind(found)
    if kind != _kind(expected):
        raise ProfkitError(
            f"Output {name} is {found.dtype} and its reference {expected.dtype}: they are of different kinds and are "
            "not compared. Let the workload's reference() give the kind of its outputs()."
        )
    off, worst = 0, 0.0
    for a, b in _chunks(found, expected):
        if kind == "bool":
            wrong, errors = a != b, (a != b).double()
        elif kind == "float" or kind == "complex":
            wrong, errors = _floats(a, b, tolerance)
        else:
            wrong, errors = _integers(a, b, tolerance)
        count = int(wrong.sum())
        if count:
            off += count
            worst = max(worst, float(errors[wrong].nan_to_num(nan=math.inf, posinf=math.inf).max()))
    if not off:
        return None
    by = f"by up to {worst:.3g}" if worst != math.inf else "some by NaN or infinity"
    exact = tolerance == (0.0, 0.0) or kind == "bool"
    allowed = "equal values are asked for" if exact else f"rtol {tolerance[0]:g}, atol {tolerance[1]:g}"
    return f"{name}: {off:,} of {found.numel():,} elements differ from the reference, {by} ({allowed})"


def _kind(tensor: torch.Tensor) -> str:
    """Tensors of one kind can be compared. No integer type holds both the largest uint64 and negative numbers."""
    import torch

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
    import torch

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
    """The same for integers. Their differences are exact; only what `rtol` allows is a product in double.

    One of 2^63 or more is off under any tolerance.
    """
    import torch

    offset = 0.0
    if a.dtype == torch.uint64:
        # Less 2^63, which keeps differences and order.
        a, b, offset = a.view(torch.int64) ^ _LEAST, b.view(torch.int64) ^ _LEAST, 2.0**63
    a, b = a.to(torch.int64), b.to(torch.int64)
    # Modulo 2^64, so one of 2^63 or more shows as negative.
    distance = torch.where(a >= b, a - b, b - a)
    errors = torch.where(distance < 0, distance.double() + 2.0**64, distance.double())
    rtol, atol = tolerance
    allowed = (atol + rtol * (b.double() + offset).abs()).floor()
    # No double lies between the limit and 2^63, which int64 does not hold.
    whole = torch.where(allowed >= 2.0**63, torch.full_like(a, _MOST), allowed.clamp(max=2.0**63 - 1024).long())
    return (distance < 0) | (distance > whole), errors
