"""Whether what a configuration wrote is right, compared on the device with the workload's own reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: Elements compared at once: a comparison in double takes some 40 bytes for each.
_CHUNK = 1 << 24
_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


def difference(
    found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], tolerance: tuple[float, float]
) -> str | None:
    """How `found` differs from `expected`, a clause; None where it does not.

    Args:
        tolerance: rtol and atol; ``(0, 0)`` asks for equal bits. NaN equals NaN.
    """
    if set(found) != set(expected):
        return f"its outputs are {', '.join(sorted(found))}, the reference has {', '.join(sorted(expected))}"
    for name in expected:
        told = _tensor_difference(name, found[name], expected[name], tolerance)
        if told is not None:
            return told
    return None


def _tensor_difference(
    name: str, found: torch.Tensor, expected: torch.Tensor, tolerance: tuple[float, float]
) -> str | None:
    import torch

    if found.shape != expected.shape:
        return f"{name} has shape {list(found.shape)}, the reference {list(expected.shape)}"
    if tolerance == (0.0, 0.0):
        expected = expected.to(found.dtype)
    off, worst = 0, 0.0
    flat, flat_expected = found.detach().reshape(-1), expected.detach().reshape(-1)
    for start in range(0, flat.numel(), _CHUNK):
        ours, theirs = flat[start : start + _CHUNK], flat_expected[start : start + _CHUNK]
        a, b = ours.to(torch.float64), theirs.to(torch.float64)
        if tolerance == (0.0, 0.0):
            bits = getattr(torch, _BITS[ours.element_size()])
            equal = (ours.view(bits) == theirs.view(bits)) | (a.isnan() & b.isnan())
        else:
            equal = torch.isclose(a, b, rtol=tolerance[0], atol=tolerance[1], equal_nan=True)
        wrong = ~equal
        count = int(wrong.sum())
        if count:
            off += count
            errors = (a - b).abs()[wrong].nan_to_num(nan=float("inf"), posinf=float("inf"))
            worst = max(worst, float(errors.max()))
    if not off:
        return None
    by = f"by up to {worst:.3g}" if worst != float("inf") else "some by NaN or infinity"
    allowed = "equal bits are asked for" if tolerance == (0.0, 0.0) else f"rtol {tolerance[0]:g}, atol {tolerance[1]:g}"
    return f"{name}: {off:,} of {found.numel():,} elements differ from the reference, {by} ({allowed})"
