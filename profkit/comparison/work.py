"""Is the work still done? Digests decide where there are some; otherwise only what the trace shows in its place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from profkit import jobs
from profkit.comparison import references
from profkit.comparison.model import Finding, Fusion, Input, Reason, Work
from profkit.wording import counted

#: The code of outputs that differ from run to run: work is unknown then, whatever the traces show.
NOT_REPRODUCIBLE = "digests-not-reproducible"


def from_digests(before: Input, after: Input) -> tuple[Work, Reason] | None:
    """The answer of the two runs' output digests; None where a side has none or they are not of the same inputs."""
    runs = [*before.runs, *after.runs]
    # First of all: outputs that differ by themselves cannot be told from lost work, whatever else is on record.
    unsteady = [run.label for run in runs if (run.record or {}).get("untraced_digests_equal") is False]
    if unsteady:
        message = f"{unsteady[0]} gave other outputs when it ran without the profiler, so digests tell nothing."
        return "unknown", Reason(NOT_REPRODUCIBLE, message)
    for side in (before, after):
        if _disagree(side):
            message = f"The runs of {side.label} do not agree on their own outputs, so digests tell nothing."
            return "unknown", Reason(NOT_REPRODUCIBLE, message)
    if any(_digests(run) is None for run in runs):
        return None
    seeds = {(run.record or {}).get("seed") for run in runs}
    if len(seeds) > 1:
        message = f"The outputs were digested on inputs of different seeds ({', '.join(sorted(map(str, seeds)))})."
        return "unknown", Reason("digests-of-other-inputs", message)
    first, second = _together(before), _together(after)
    one, other = first["outputs"], second["outputs"]
    missing = sorted(set(one) ^ set(other))
    if missing:
        exist = "exists" if len(missing) == 1 else "exist"
        return "lost", Reason(
            "outputs-missing", f"{counted(len(missing), 'output')} {exist} on one side only, e.g. {missing[0]}."
        )
    said = references.digest_notes(first)
    different = [name for name in one if one[name] != other[name]]
    if different:
        judged = references.judge(different, (before.label, first), (after.label, second))
        if judged is not None:
            return judged
        message = f"{len(different)} of {len(one)} output digests differ, e.g. {different[0]}{said}."
        return "lost", Reason("digests-differ", message)
    return "preserved", Reason("digests-equal", f"All {len(one)} output digests are equal, bit for bit{said}.")


def from_trace(gone: Sequence[Finding], fusions: Sequence[Fusion], *, dispatched: bool) -> tuple[Work, Reason]:
    """Without digests: consistent only if each launch that is gone is accounted for by what the trace shows.

    Args:
        gone: launches removed from the layers or moved out of them.
        dispatched: the launches were counted by the dispatch profiler, which computes outputs only where it is told.
    """
    accounted = {id(f) for fusion in fusions if _took_time(fusion) for f in fusion.removed}
    accounted |= {id(f) for f in gone if f.status == "moved"}
    open_ = [f for f in gone if id(f) not in accounted]
    if not open_:
        message = "Each launch that is gone runs elsewhere, or another kernel grew or appeared in its place."
        return "consistent", Reason("work-consistent", message)
    how = "with --run-bodies" if dispatched else "with profkit capture"
    message = (
        f"No digests, and nothing shows who does the work of {counted(len(open_), 'removed launch')}, e.g. "
        f"{open_[0].row.name}. Capture both sides {how} for output digests, or judge launches alone with "
        "--expect-removed."
    )
    return "unknown", Reason("work-unknown", message)


def _took_time(fusion: Fusion) -> bool:
    """A launch that grew beyond noise, or a new one that takes time, may do the work; one of unchanged time does not
    show that it does, whatever its name."""
    return fusion.evidence != "adjacent" and any(f.notable and f.delta > 0 for f in fusion.absorbers)


def _digests(entry: Input) -> Mapping[str, Any] | None:
    digests = (entry.record or {}).get("digests")
    return digests if isinstance(digests, Mapping) and digests.get("outputs") else None


def _by_rank(side: Input) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
    """Which rank each run is (None for a run that is no rank), and its digests."""
    for run in side.runs:
        of, digests = jobs.rank_of(run.record), _digests(run)
        if digests is not None:
            yield None if of is None else of.rank, digests


def _disagree(side: Input) -> bool:
    """Whether runs that should compute the same do not; ranks have outputs of their own, and so have seeds."""
    found: dict[tuple[int | None, Any], set[str]] = {}
    for run in side.runs:
        of, digests, record = jobs.rank_of(run.record), _digests(run), run.record or {}
        if digests is not None:
            key = None if of is None else of.rank, record.get("seed")
            found.setdefault(key, set()).add(json.dumps(digests["outputs"], sort_keys=True))
    return any(len(texts) > 1 for texts in found.values())


def _together(side: Input) -> dict[str, Any]:
    """The digests of one side, the outputs of every rank under names of their own."""
    together: dict[str, Any] = {"outputs": {}, "references": {"outputs": {}}}
    for rank, digests in _by_rank(side):
        prefix = "" if rank is None else f"rank {rank}: "
        held = digests.get("references") or {}
        together.setdefault("notes", digests.get("notes"))
        together["references"] |= {name: value for name, value in held.items() if name != "outputs"}
        for into, outputs in ((together, digests["outputs"]), (together["references"], held.get("outputs", {}))):
            into["outputs"] |= {prefix + name: value for name, value in outputs.items()}
    return together
