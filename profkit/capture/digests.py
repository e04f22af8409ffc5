"""Digests of a step's outputs: equal bits give equal digests, in every process and on every device."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

ALGORITHM = "sha256"


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
