"""A step's outputs: digests, which are equal where the bits are, in every process and on every device; and how far the
outputs are from their references, as a share of what the stated tolerance allows."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError

if TYPE_CHECKING:
    import torch

    from profkit.model.workload import References

ALGORITHM = "sha256"
#: Elements that are compared at a time, in double precision.
CHUNK = 1 << 24


def digest(tensor: torch.Tensor) -> str:
    """SHA-256 of a tensor's dtype, shape and bytes in row-major order, whatever its strides and device."""
    import torch

    host = tensor.detach().cpu().contiguous()
    header = f"{host.dtype}{tuple(host.shape)}".encode()
    hashed = hashlib.sha256(header)
    if host.numel():
        # As bytes, since numpy has no bfloat16 and no float8.
        hashed.update(host.reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def digest_outputs(outputs: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Output name to `digest`, in order of name."""
    return {name: digest(outputs[name]) for name in sorted(outputs)}


def deviation(output: torch.Tensor, reference: torch.Tensor, rtol: float, atol: float) -> float:
    """The largest ``|output - reference| / (atol + rtol * |reference|)``: at most 1 is within the tolerance.

    Equal values, NaN and infinities among them, deviate by 0; a NaN or infinity on one side alone by infinity.

    Args:
        output, reference: of one shape, on any device.
    """
    import torch

    largest = 0.0
    outputs, references = output.reshape(-1), reference.reshape(-1)
    for start in range(0, outputs.numel(), CHUNK):
        one, other = outputs[start : start + CHUNK], references[start : start + CHUNK]
        found, right = one.double(), other.to(one.device).double()
        share = (found - right).abs() / (atol + rtol * right.abs())
        share = torch.where((found == right) | (found.isnan() & right.isnan()), 0.0, share)
        # A NaN or an infinity on one side alone, or infinities of two signs.
        share = torch.where(share.isnan(), math.inf, share)
        largest = max(largest, float(share.max()))
    return largest


def against_references(outputs: Mapping[str, torch.Tensor], references: References | None) -> dict[str, Any] | None:
    """The ``digests.references`` of run.json, None where the step has none.

    Each output's ``reference`` is the digest of what it was held against, so that two runs can tell whether that was
    the same; its ``deviation`` is null where it is infinite.

    Raises:
        ProfkitError: a reference for no output, or of another shape.
    """
    if references is None:
        return None
    expected = references.compute()
    found: dict[str, dict[str, Any]] = {}
    for name in sorted(expected):
        if name not in outputs or outputs[name].shape != expected[name].shape:
            shape = tuple(outputs[name].shape) if name in outputs else None
            raise ProfkitError(
                f"The workload's reference {name!r} has shape {tuple(expected[name].shape)}; "
                f"{'the output has ' + str(shape) if shape is not None else 'the step has no such output'}. "
                "Give each reference the name and shape of an output."
            )
        share = deviation(outputs[name], expected[name], references.rtol, references.atol)
        found[name] = {
            "within": share <= 1.0,
            "deviation": round(share, 6) if math.isfinite(share) else None,
            "reference": digest(expected[name]),
        }
    return {"rtol": references.rtol, "atol": references.atol, "outputs": found}
