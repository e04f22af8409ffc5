"""Is the work still done? Digests decide where there are some; otherwise only what the trace shows in its place."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from profkit.comparison import references
from profkit.comparison.model import Finding, Fusion, Input, Reason, Work


def from_digests(before: Input, after: Input) -> tuple[Work, Reason] | None:
    """The answer of the two runs' output digests; None where a side has none or they are not of the same inputs."""
    runs = [*before.runs, *after.runs]
    digests = [_digests(run) for run in runs]
    first, second = digests[0], digests[len(before.runs)]
    if first is None or second is None or any(d is None for d in digests):
        return None
    seeds = {(run.record or {}).get("seed") for run in runs}
    if len(seeds) > 1:
        message = f"The outputs were digested on inputs of different seeds ({', '.join(sorted(map(str, seeds)))})."
        return "unknown", Reason("digests-of-other-inputs", message)
    unsteady = [run.label for run in runs if (run.record or {}).get("untraced_digests_equal") is False]
    if unsteady:
        message = f"{unsteady[0]} gave other outputs when it ran without the profiler, so digests tell nothing."
        return "unknown", Reason("digests-not-reproducible", message)
    for side in (before, after):
        if len({json.dumps(d["outputs"], sort_keys=True) for d in map(_digests, side.runs) if d is not None}) > 1:
            message = f"The runs of {side.label} do not agree on their own outputs, so digests tell nothing."
            return "unknown", Reason("digests-not-reproducible", message)
    one, other = first["outputs"], second["outputs"]
    missing = sorted(set(one) ^ set(other))
    if missing:
        return "lost", Reason("outputs-missing", f"{len(missing)} outputs exist on one side only, e.g. {missing[0]}.")
    said = references.digest_notes(first)
    different = [name for name in one if one[name] != other[name]]
    if different:
        judged = references.judge(different, (before.label, first), (after.label, second))
        if judged is not None:
            return judged
        message = f"{len(different)} of {len(one)} output digests differ, e.g. {different[0]}{said}."
        return "lost", Reason("digests-differ", message)
    return "preserved", Reason("digests-equal", f"All {len(one)} output digests are equal, bit for bit{said}.")


def from_trace(gone: Sequence[Finding], fusions: Sequence[Fusion]) -> tuple[Work, Reason]:
    """Without digests: consistent only if each launch that is gone is accounted for by what the trace shows.

    Args:
        gone: launches removed from the layers or moved out of them.
    """
    accounted = {id(f) for fusion in fusions if _took_time(fusion) for f in fusion.removed}
    accounted |= {id(f) for f in gone if f.status == "moved"}
    open_ = [f for f in gone if id(f) not in accounted]
    if not open_:
        message = "Each launch that is gone runs elsewhere, or another kernel grew or appeared in its place."
        return "consistent", Reason("work-consistent", message)
    message = (
        f"No digests, and nothing shows who does the work of {len(open_)} removed launches, e.g. {open_[0].row.name}. "
        "Capture both sides with profkit capture for output digests, or judge launches alone with --expect-removed."
    )
    return "unknown", Reason("work-unknown", message)


def _took_time(fusion: Fusion) -> bool:
    """A launch that grew beyond noise, or a new one that takes time, may do the work; one of unchanged time does not
    show that it does, whatever its name."""
    absorber = fusion.absorber
    return absorber is not None and fusion.evidence != "adjacent" and absorber.notable and absorber.delta > 0


def _digests(entry: Input) -> Mapping[str, Any] | None:
    digests = (entry.record or {}).get("digests")
    return digests if isinstance(digests, Mapping) and digests.get("outputs") else None
