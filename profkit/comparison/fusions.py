"""Fusion: which launches stand in the place of the ones that are gone, and how sure that is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from profkit.comparison.model import Finding, Fusion

#: Kernels of libraries take no other work in: only what their name says.
_LIBRARY = re.compile(
    r"nvjet|cublas|cudnn|cutlass|nccl|rccl|^(?:sm\d+|ampere|turing|volta|hopper|Cijk)_", re.IGNORECASE
)


def find_fusions(
    findings: Sequence[Finding],
    layers: int,
    steps: tuple[int, int],
    work_preserved: bool,
    others: Sequence[Finding] = (),
) -> list[Fusion]:
    """One fusion for each stretch of removed launches of a stream, by what stands at its end.

    In a stretch of removed and added launches, the added ones took the place of the removed ones: a fusion if they are
    fewer, else a mere replacement. Without an added one, the launch behind the stretch absorbed them if it was renamed,
    has other registers or shared memory, or grew beyond noise and by enough, else the launch before it; a library's
    kernel never did.
    If neither did, the launch behind it is named only where the outputs prove that the work is still done. What went
    from some layers to others, as the same kernel or in a range of the same name, is part of no fusion.

    Args:
        findings: the rows of a group of layers in order of the layer.
        layers, steps: to bring sums to one layer and step.
        work_preserved: the outputs are known to be equal.
        others: rows of other layers.
    """
    changes = _changes((*findings, *others))
    by_lane: dict[int, list[Finding]] = {}
    for finding in findings:
        by_lane.setdefault(finding.row.lane, []).append(finding)
    # What runs on another stream, beside, took nothing in.
    found = [f for own in by_lane.values() for f in _of_lane(own, changes, layers, steps, work_preserved)]
    merged: dict[object, Fusion] = {}
    for fusion in found:
        # One launch may have absorbed what stood on both sides of it.
        key = tuple(map(id, fusion.absorbers))
        whole = merged.get(key)
        merged[key] = (
            fusion
            if whole is None
            else replace(
                whole, removed=(*whole.removed, *fusion.removed), ns_removed=whole.ns_removed + fusion.ns_removed
            )
        )
    return list(merged.values())


def _of_lane(
    findings: Sequence[Finding],
    changes: Mapping[tuple[str, str], Mapping[int, set[str]]],
    layers: int,
    steps: tuple[int, int],
    work_preserved: bool,
) -> list[Fusion]:
    """The fusions of the launches of one stream."""
    fusions: list[Fusion] = []
    position = 0
    while position < len(findings):
        if findings[position].status not in ("removed", "added"):
            position += 1
            continue
        end = position
        # A launch that moved out of the layers does not end a stretch: fused neighbours may surround it.
        while end < len(findings) and findings[end].status in ("removed", "added", "moved"):
            end += 1
        stretch = [f for f in findings[position:end] if f.status != "moved" and not _in_other_layers(f, changes)]
        removed = [f for f in stretch if f.status == "removed"]
        added = [f for f in stretch if f.status == "added"]
        if removed:
            behind = _kept(findings[end : end + 1])
            ahead = _kept(findings[position - 1 : position] if position else ())
            if added:
                fewer = _launches(added, after=True) / steps[1] < _launches(removed, after=False) / steps[0]
                fusions.append(_fusion(removed, added, "new" if fewer else "replaced", layers, steps))
            else:
                absorber, evidence = _absorber(removed, behind, ahead, work_preserved)
                if absorber is not None:
                    fusions.append(_fusion(removed, [absorber], evidence, layers, steps))
        position = end
    return fusions


def _changes(findings: Iterable[Finding]) -> dict[tuple[str, str], dict[int, set[str]]]:
    """By kernel and by range, which groups of layers lost launches (``removed``) or have new ones (``added``)."""
    changes: dict[tuple[str, str], dict[int, set[str]]] = {}
    for finding in findings:
        if finding.status in ("removed", "added"):
            for key in _keys(finding):
                changes.setdefault(key, {}).setdefault(finding.row.group, set()).add(finding.status)
    return changes


def _in_other_layers(finding: Finding, changes: Mapping[tuple[str, str], Mapping[int, set[str]]]) -> bool:
    """Whether what is only gone here is only new in other layers, or the other way round.

    Layers that both lost and have launches were changed in themselves.
    """
    here, status = finding.row.group, {finding.status}
    return any(
        changes[key][here] == status and any(len(there) == 1 and there != status for there in changes[key].values())
        for key in _keys(finding)
    )


def _keys(finding: Finding) -> list[tuple[str, str]]:
    row = finding.row
    return [(row.op_kind, row.canonical), *([("range", row.where)] if row.where else [])]


def _kept(neighbour: Sequence[Finding]) -> Finding | None:
    """The launch next to a stretch, where it runs on both sides."""
    kept = [f for f in neighbour if f.status in ("changed", "unchanged")]
    return kept[0] if kept else None


#: A launch that lasted longer than this did more than begin and end; whoever took it in grew by this share of it.
_LONG_NS, _LEAST_GROWTH = 5_000, 0.1


def _absorber(
    removed: Sequence[Finding], behind: Finding | None, ahead: Finding | None, work_preserved: bool
) -> tuple[Finding | None, str]:
    long = sum(-f.delta for f in removed if f.row.ns_before > _LONG_NS * f.row.launches_before)
    for neighbour in (behind, ahead):
        if neighbour is None or _LIBRARY.search(neighbour.row.recorded):
            continue
        if neighbour.row.name_before is not None:
            return neighbour, "renamed"
        if neighbour.row.reshaped("registers", "shared_memory"):
            return neighbour, "rebuilt"
        if neighbour.notable and neighbour.delta > 0 and neighbour.delta >= _LEAST_GROWTH * long:
            return neighbour, "grew"
    if work_preserved and behind is not None:
        return behind, "adjacent"
    return None, ""


def _launches(findings: Sequence[Finding], *, after: bool) -> Fraction:
    return Fraction(sum(f.row.launches_after if after else f.row.launches_before for f in findings))


def _fusion(
    removed: Sequence[Finding], absorbers: Sequence[Finding], evidence: str, layers: int, steps: tuple[int, int]
) -> Fusion:
    gone = sum(f.row.ns_before for f in removed) / (layers * steps[0])
    before = sum(f.row.ns_before for f in absorbers) / (layers * steps[0])
    after = sum(f.row.ns_after for f in absorbers) / (layers * steps[1])
    return Fusion(tuple(removed), tuple(absorbers), evidence, gone, after - before)
