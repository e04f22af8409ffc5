"""One phase for both sides of a diff: where layers by period begin is a convention, and both must follow the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from profkit.attribution.period import common_start
from profkit.model.census import Census
from profkit.model.names import shortened
from profkit.model.trace import Diagnostic


def in_phase(before: Census, after: Census, recount: Callable[[str], Census]) -> Census:
    """The census of the after side, counted anew where its layers begin elsewhere than the before side's.

    Args:
        recount: counts the after side with layers that begin with the kernel of the given canonical name.
    """
    if before.phase is None or after.phase is None:
        return after
    start = common_start(before.phase, after.phase)
    if start is None:
        return after
    again = recount(start)
    own, wanted = shortened(after.phase.start), shortened(start)
    if again.phase is not None and again.kinds and again.chosen.selected_layers == after.chosen.selected_layers:
        message = f"Layers begin with {wanted}, as on the before side; by itself this side would begin them with {own}."
        return dataclasses.replace(again, diagnostics=(*again.diagnostics, Diagnostic("phase-aligned", message)))
    message = (
        f"Layers begin with {own} here and with {shortened(before.phase.start)} on the before side, and cannot be "
        "divided otherwise: launches at the border of two layers may be paired wrongly. Name a kernel that both sides "
        "run once a layer with --anchor."
    )
    return dataclasses.replace(after, diagnostics=(*after.diagnostics, Diagnostic("phase-differs", message)))
