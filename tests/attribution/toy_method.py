"""A method of attribution as a newcomer would add it: copies that no other method placed make a layer."""

from __future__ import annotations

import numpy as np

from profkit.attribution.method import Context, Placement
from profkit.model.trace import Diagnostic


def attribute(context: Context) -> Placement:
    """Place the copies."""
    placed = (context.trace.ops["kind"] == "memcpy").to_numpy() & ~context.placed
    scope = np.where(placed, context.scopes.intern(("layers.7.copies",)), 0).astype(np.int32)
    return Placement(placed, scope, [Diagnostic("copies", f"{int(placed.sum())} copies make a layer.")])
