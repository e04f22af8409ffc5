"""Outputs that differ in bits: are both sides' within a stated tolerance of one independent reference?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from profkit.comparison.model import Reason, Work


def judge(
    different: Sequence[str], before: tuple[str, Mapping[str, Any]], after: tuple[str, Mapping[str, Any]]
) -> tuple[Work, Reason] | None:
    """What the references say of outputs that differ; None where one of these has none on a side.

    Args:
        different: the outputs whose digests differ, at least one.
        before, after: a side's label and its run.json's `digests`.
    """
    sides = [(label, digests.get("references") or {}) for label, digests in (before, after)]
    (_, one), (_, other) = sides
    if not all(name in side.get("outputs", {}) for side in (one, other) for name in different):
        return None
    first, second = one["outputs"], other["outputs"]
    same_tolerance = (one["rtol"], one["atol"]) == (other["rtol"], other["atol"])
    if not same_tolerance or any(first[name]["reference"] != second[name]["reference"] for name in different):
        message = (
            f"{len(different)} output digests differ, and the sides were held against other references or tolerances, "
            "so nothing tells whether they differ by more than they may."
        )
        return "unknown", Reason("references-differ", message)
    allowed = f"rtol {one['rtol']:g}, atol {one['atol']:g}"
    for label, side in sides:
        off = [name for name in different if not _within(side["outputs"][name])]
        if off:
            message = (
                f"{len(off)} of {len(side['outputs'])} outputs of {label} differ from the other side's and are further "
                f"from an independent reference than {allowed} allow, e.g. {off[0]}."
            )
            return "lost", Reason("outputs-off-reference", message)
    largest = max(side[name]["deviation"] for side in (first, second) for name in different)
    message = (
        f"{len(different)} of {len(before[1]['outputs'])} output digests differ; on both "
        f"sides these are within {allowed} of one independent reference, off by at most {largest:.0%} of that"
    )
    return "preserved", Reason("outputs-within-tolerance", f"{message}{digest_notes(before[1])}.")


def _within(output: Mapping[str, Any]) -> bool:
    return bool(output["within"]) and output.get("deviation") is not None


def digest_notes(digests: Mapping[str, Any]) -> str:
    """What a workload said of its digest inputs, in brackets; empty where it said nothing."""
    said = (digests.get("notes") or {}).get("digest_inputs")
    return f" (inputs: {said})" if isinstance(said, str) else ""
