"""Outputs that differ in bits: are both sides' within a stated tolerance of one independent reference?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profkit.comparison.model import Reason, Work
from profkit.model.run import ReferenceRecord, ReferencesRecord


@dataclass(frozen=True)
class Digests:
    """What is known of the outputs of a run, or of all runs of a side: their digests and references by name."""

    outputs: Mapping[str, str]
    notes: Mapping[str, Any]
    references: ReferencesRecord | None


def judge(
    different: Sequence[str], before: tuple[str, Digests], after: tuple[str, Digests]
) -> tuple[Work, Reason] | None:
    """What the references say of outputs that differ; None where one of these has none on a side.

    Args:
        different: the outputs whose digests differ, at least one.
        before, after: a side's label and its digests.
    """
    one, other = before[1].references, after[1].references
    if one is None or other is None or not all(name in side.outputs for side in (one, other) for name in different):
        return None
    same_tolerance = (one.rtol, one.atol) == (other.rtol, other.atol)
    if not same_tolerance or any(one.outputs[n].reference != other.outputs[n].reference for n in different):
        message = (
            f"{len(different)} output digests differ, and the sides were held against other references or tolerances, "
            "so nothing tells whether they differ by more than they may."
        )
        return "unknown", Reason("references-differ", message)
    allowed = f"rtol {one.rtol:g}, atol {one.atol:g}"
    for label, side in ((before[0], one), (after[0], other)):
        off = [name for name in different if not _within(side.outputs[name])]
        if off:
            message = (
                f"{len(off)} of {len(side.outputs)} outputs of {label} differ from the other side's and are further "
                f"from an independent reference than {allowed} allow, e.g. {off[0]}."
            )
            return "lost", Reason("outputs-off-reference", message)
    # None of these is infinite, which is not within.
    largest = max(side.outputs[name].deviation or 0.0 for side in (one, other) for name in different)
    message = (
        f"{len(different)} of {len(before[1].outputs)} output digests differ; on both "
        f"sides these are within {allowed} of one independent reference, off by at most {largest:.0%} of that"
    )
    return "preserved", Reason("outputs-within-tolerance", f"{message}{digest_notes(before[1])}.")


def _within(output: ReferenceRecord) -> bool:
    return output.within and output.deviation is not None


def digest_notes(digests: Digests) -> str:
    """What a workload said of its digest inputs, in brackets; empty where it said nothing."""
    said = digests.notes.get("digest_inputs")
    return f" (inputs: {said})" if isinstance(said, str) else ""
