"""What changed beside the launches that are gone and what took their place."""

from __future__ import annotations

from profkit.comparison.model import Comparison, Finding


def others(comparison: Comparison) -> list[Finding]:
    """Findings that are not unchanged and belong neither to what is gone nor to what took its place."""
    explained = {id(f) for f in comparison.with_status("removed", "moved")}
    explained |= {id(absorber) for fusion in comparison.fusions for absorber in fusion.absorbers}
    moved = {(f.row.canonical, f.row.op_kind) for f in comparison.with_status("moved")}
    explained |= {id(f) for f in comparison.outside if (f.row.canonical, f.row.op_kind) in moved}
    # What moved out of the selected layers moved out of the others too, where those lost the same launch.
    left = {(f.row.where, f.row.canonical, f.row.op_kind) for f in comparison.with_status("moved")}
    explained |= {
        id(f)
        for f in comparison.elsewhere
        if f.status == "removed" and (f.row.where, f.row.canonical, f.row.op_kind) in left
    }
    everything = (*comparison.findings, *comparison.elsewhere, *comparison.outside)
    return [f for f in everything if f.status != "unchanged" and id(f) not in explained]
