"""How a stretch of ops compares with the kinds of layer: the same, an irregular one, a kind of its own, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from profkit.attribution.similarity import last_matched, shared_length, similarity

#: The op codes of a stretch, in order.
Stretch = tuple[int, ...]

#: Above this similarity a stretch is a layer of a known kind that gained or lost a kernel: one edit in a layer of four
#: launches, the fewest of any recorded workload, leaves 3/4.
SAME_KIND = 0.75
#: Above this one it may be a layer of another kind (a dense layer among mixture-of-experts layers shares its
#: attention part); below, it has little to do with a layer.
RELATED = 0.3
#: Fewer ops in a row than this are common by chance: norm and GEMM begin half of all blocks.
_LEAST_RUN = 3


def repeated_kinds(stretches: Sequence[Stretch], *, given: bool = False) -> list[Stretch]:
    """The kinds of layer: stretches that occur at least twice, the last one not counted, of which nobody knows the end.

    The heaviest such stretch is one of layers. What has little to do with any kind, or is a part of one, is none. What
    has a kind in it and more, time and again, is the layer of which that kind is a part: then there are no kinds.

    Args:
        given: every stretch is a layer because the user says so, so kinds need have nothing to do with each other.
    """
    counts = Counter(stretches[:-1])
    kept: list[Stretch] = []
    for kind in sorted((s for s, n in counts.items() if n >= 2), key=lambda s: -len(s) * counts[s]):
        if any(holds(kind, k) for k in kept):
            return []
        if not kept or any((given or similarity(kind, k) >= RELATED) and not holds(k, kind) for k in kept):
            kept.append(kind)
    return kept


@dataclass(frozen=True)
class Fit:
    """How a stretch fits: its kind, how many of its ops are the layer's, and how.

    Args:
        exact: the layer's ops are the kind's, one for one.
        missing: the kind's last slots that were not seen; none: ops behind the layer are no part of it.
        own: like no known kind; a kind of its own.
        edits: ops that the kind has not, and slots that the layer has not.
    """

    kind: Stretch
    ops: int
    exact: bool = False
    missing: Stretch = ()
    own: bool = False
    edits: int = 0


def fit(stretch: Stretch, kinds: Sequence[Stretch], variant: Callable[[int, int], bool]) -> Fit | None:
    whole = max((k for k in kinds if stretch[: len(k)] == k), key=len, default=None)
    if whole is not None:
        return Fit(whole, len(whole), exact=True)
    nearest = max(kinds, key=lambda k: _fit_quality(stretch, k))
    # What lies behind the layer must not count against it, so the stretch is cut where the kind stops matching.
    ops, slots = last_matched(stretch, nearest)
    rest, missing = stretch[ops:], nearest[slots:]
    shared = shared_length(stretch[:ops], nearest)
    if missing and len(rest) == len(missing) and all(map(variant, rest, missing)):
        return Fit(nearest, len(stretch), edits=ops + len(nearest) - 2 * shared - len(missing))
    if shared / max(ops, len(nearest)) >= SAME_KIND:
        return Fit(nearest, ops, missing=missing, edits=ops + len(nearest) - 2 * shared)
    if not is_own_kind(stretch, kinds):
        return None
    return Fit(stretch, len(stretch), own=True, edits=len(stretch) - shared_length(stretch, nearest))


def as_given(fit: Fit | None, stretch: Stretch, kinds: Sequence[Stretch], *, is_last: bool) -> Fit:
    """The fit of a stretch that is a layer because the user says so; only where the last one ends is open."""
    if fit is not None and not (is_last and fit.own):
        return fit
    if not is_last:
        return Fit(stretch, len(stretch), own=True)
    shared, kind = max(((_common_start(stretch, k), k) for k in kinds), key=lambda pair: pair[0])
    return Fit(kind, shared, missing=kind[shared:])


def _common_start(first: Stretch, second: Stretch) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))


def _fit_quality(stretch: Stretch, kind: Stretch) -> float:
    ops, _ = last_matched(stretch, kind)
    return shared_length(stretch[:ops], kind) / max(ops, len(kind))


def is_own_kind(stretch: Stretch, kinds: Sequence[Stretch]) -> bool:
    """Whether `stretch` can be one layer of a kind that occurs once.

    It begins or ends as a kind does, as a dense layer has the attention part of the other layers; and neither is the
    other with more around it, as two layers that lost the border between them would be.
    """
    return any(
        shared_run(stretch, kind) >= max(_LEAST_RUN, RELATED * max(len(stretch), len(kind)))
        and not holds(stretch, kind)
        and not holds(kind, stretch)
        and not _repeats(stretch, kind)
        for kind in kinds
    )


def _repeats(stretch: Stretch, kind: Stretch) -> bool:
    """Whether much of what runs once in the kind runs more often in `stretch`: it is two layers."""
    once = [code for code in kind if kind.count(code) == 1]
    again = sum(stretch.count(code) > 1 for code in once)
    return again >= 2 or 2 * again > len(once)


def shared_run(first: Stretch, second: Stretch) -> int:
    """The ops in a row that both begin with, or both end with, whichever is more."""
    return max(_common_start(first, second), _common_start(first[::-1], second[::-1]))


def holds(longer: Stretch, shorter: Stretch) -> bool:
    """Whether `longer` has most of `shorter` in it and much more: not two kinds of layer, but whole and part."""
    return len(longer) * SAME_KIND > len(shorter) and shared_length(longer, shorter) >= SAME_KIND * len(shorter)
