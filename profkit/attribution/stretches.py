"""The layers of one sequence of ops: the stretches between occurrences of a launch that runs once in each.

How often most names occur says how many layers there are. The launch to cut at is the one that makes the sequence
shortest to describe: what is outside, one stretch of each kind, and a mark for each layer. The cuts move back together,
as far as what stands before the first layer is what stands before half the others; the last layer ends where it is most
like another one, so that a tail which only begins like a layer (a final norm) is outside.

All that looks at ops one by one is done by numpy on whole sequences; stretches are compared by numbers (see `_Ops`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from profkit.model.names import shortened
from profkit.model.selection import Hints, Phase
from profkit.model.wording import counted

Ints = npt.NDArray[np.int64]

#: Stretches are alike if at most this share of the launches of both has no counterpart. Sliding and full attention
#: differ by one launch of ten or twenty, dense and MoE layers by half: those are kinds of their own.
ALIKE = 0.15
#: A description tells a stretch by what differs from another one, if at most this share of both does. With more, parts
#: of layers would be told by each other; with less, a layer of four launches of which one is replaced would be none.
_NEAR = 0.3
#: The last stretch is a layer if it is this like another one; a final norm is like the eighth part of a layer.
_LAST = 0.4
#: So many launches behind the last layer may be such imitations.
_TAILS = 8
#: An answer is one of several if another number of layers explains the step nearly as well. Recorded models: the next
#: best is 1.5 times worse or more; four decode steps in one graph: 1.01.
_AMBIGUOUS = 1.25
#: Numbers of layers that are tried, those that most names speak for; recorded models show about ten.
_COUNTS = 16
#: Names that occur equally often show the same layers; so many of them are tried.
_ANCHORS = 8
#: Kinds of layer that a description tells apart; a model has two to four.
_KINDS = 32
#: Fewer layers than this show nothing that could not be chance, unless the user names the launch.
_FEWEST = 3
#: Below this share of its ops in layers, a sequence repeats something, but not the layers of a model.
_LEAST_SHARE = 0.5
#: Stretches follow each other in turn if so many are what the one a turn before is: a model's first layers may differ.
_IN_TURN = 0.75
#: A lone layer of which at most this share differs from those of a larger kind is shown as that kind's exception.
_EXCEPTION = 0.1
_DIGITS, _TILE = re.compile(r"\d+"), re.compile(r"\d+x\d+")


@dataclass(frozen=True)
class Cut:
    """The layers of one sequence of ops.

    Args:
        starts: position of each layer's first op, shape [layers]; a layer lasts until the next one's start.
        end: position behind the last layer's last op.
        kinds: the kind of each layer, numbered in order of appearance.
        phase: what another recording of the step needs to be cut in the same way.
        doubts: what else the layers could be, a sentence each.
    """

    starts: Ints
    end: int
    kinds: Sequence[int]
    phase: Phase
    doubts: Sequence[str] = ()


@dataclass(frozen=True)
class Misfit:
    """Why a sequence shows no layers, as the end of a sentence."""

    reason: str


def layers_of(
    codes: Ints, names: Mapping[int, str], hints: Hints, anchor: frozenset[int] | None = None
) -> Cut | Misfit:
    """The layers of one sequence of ops.

    Args:
        codes: what each op is, in the order in which they ran, shape [ops].
        names: the canonical name of each code.
        hints: how often the anchor runs in a layer, and the cut of another recording to follow.
        anchor: the codes of the launch that the user named; None finds one.
    """
    if not len(codes):
        return Misfit("no op is left in the step")
    values, inverse = np.unique(codes, return_inverse=True)
    ops = _Ops(inverse.reshape(-1), [names[int(v)] for v in values])
    found: _Candidate | Misfit | None = None
    if anchor is not None:
        found = _at(ops, np.flatnonzero(np.isin(codes, list(anchor))), hints.every)
    elif hints.like is not None:
        found = _as_in(ops, hints.like)
    if found is None:
        found = _found(ops)
    if isinstance(found, Misfit):
        return found
    found = _with_unlike_first(ops, _with_own_beginning(ops, found))
    if hints.like is not None:
        found = _turned(ops, found, hints.like)
    return _judged(ops, found)


@dataclass(frozen=True)
class _Stretches:
    """Stretches of a sequence, equal ones once, the most frequent first.

    Args:
        first, stop: where an example of each begins and ends.
        times: how often each occurs.
        which: for each stretch in order its number among these.
    """

    first: Ints
    stop: Ints
    times: Ints
    which: Ints


class _Ops:
    """A sequence of ops, in which stretches are told apart without looking at each op again.

    Args:
        codes: what each op is, an index into `names`.
        names: canonical names.
    """

    #: Odd, so that it has an inverse among the 64-bit numbers; the digits of the golden ratio mix well.
    _BASE = 0x9E3779B97F4A7C15

    def __init__(self, codes: Ints, names: Sequence[str]) -> None:
        self.codes, self.names = codes, names
        mixed = (codes.astype(np.uint64) + np.uint64(1)) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
        powers = np.cumprod(np.full(len(codes), self._BASE, dtype=np.uint64))
        self._sums = np.r_[np.zeros(1, np.uint64), np.cumsum(mixed * powers, dtype=np.uint64)]
        self._scale = np.cumprod(np.full(len(codes) + 1, pow(self._BASE, -1, 1 << 64), dtype=np.uint64))

    def text(self, first: Ints, stop: Ints) -> npt.NDArray[np.uint64]:
        """For each stretch a number, equal for equal ones: the sum of its ops, each times a power for its place."""
        same: npt.NDArray[np.uint64] = (self._sums[stop] - self._sums[first]) * self._scale[first]
        return same

    def stretches(self, edges: Ints) -> _Stretches:
        """Those between `edges`."""
        return self.stretches_of(edges[:-1], edges[1:])

    def stretches_of(self, first: Ints, stop: Ints) -> _Stretches:
        """Those from `first` to `stop`."""
        _, where, which, times = np.unique(
            self.text(first, stop), return_index=True, return_inverse=True, return_counts=True
        )
        order = np.lexsort((where, -times))
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        example = where[order]
        return _Stretches(first[example], stop[example], times[order], rank[which.reshape(-1)])

    def contents(self, found: _Stretches, most: int = _KINDS) -> list[Ints]:
        """How often each name occurs in each of the `most` most frequent stretches."""
        pairs = zip(found.first[:most].tolist(), found.stop[:most].tolist(), strict=True)
        return [self.content(first, stop) for first, stop in pairs]

    def content(self, first: int, stop: int) -> Ints:
        """How often each name occurs between `first` and `stop`."""
        counts: Ints = np.bincount(self.codes[first:stop], minlength=len(self.names))
        return counts


@dataclass(frozen=True)
class _Candidate:
    """A way to cut: one anchor in each layer, its description's length, and how many names occur as often."""

    at: Ints
    starts: Ints
    end: int
    length: float
    support: float

    @property
    def score(self) -> float:
        return self.length / self.support

    @property
    def edges(self) -> Ints:
        every: Ints = np.r_[self.starts, self.end]
        return every


def _found(ops: _Ops) -> _Candidate | Misfit:
    candidates = sorted(_candidates(ops), key=lambda found: found.score)
    if not candidates:
        return Misfit(f"no launch occurs {_FEWEST} times or more, with stretches between that are alike")
    best = _with_more_outside(candidates[0], candidates)
    others = [c for c in candidates if len(c.starts) != len(best.starts) and c.score < _AMBIGUOUS * best.score]
    others = [c for c in others if not _part_of(c, best)]
    if others:
        numbers = " or ".join(str(n) for n in sorted({len(best.starts), *(len(c.starts) for c in others)}))
        return Misfit(f"{numbers} layers explain it equally well; --anchor names a launch that runs once in each")
    return best


def _at(ops: _Ops, at: Ints, every: int) -> _Candidate | Misfit:
    """The layers each of which has every `every`-th op of `at`; counted from where the stretches are most alike."""
    found = [c for first in range(every) if (c := _settled(ops, at[first::every], 1.0)) is not None]
    if found:
        return min(found, key=lambda c: (c.length, c.starts[0]))
    return Misfit(f"the anchor runs {counted(len(at), 'time')} and the stretches between show no layers that are alike")


def _as_in(ops: _Ops, like: Phase) -> _Candidate | None:
    """As many layers as the other recording has, at a launch that ran once in each there; None where none has."""
    counts = np.bincount(ops.codes)
    often = [
        like.layers <= n <= like.layers + _TAILS and ops.names[c] in like.once for c, n in enumerate(counts.tolist())
    ]
    anchors = np.flatnonzero(often)[:_ANCHORS]
    found = [_settled(ops, np.flatnonzero(ops.codes == a), 1.0) for a in anchors]
    same = [c for c in found if c is not None and len(c.starts) == like.layers]
    return min(same, key=lambda c: (c.length, c.starts[0]), default=None)


def _candidates(ops: _Ops) -> Iterator[_Candidate]:
    counts = np.bincount(ops.codes)
    often, names = np.unique(counts, return_counts=True)
    # A name that occurs twice a layer speaks for the layer too, but no less for halves of it.
    repeated = [int(names[(often % n == 0) & (often > n) & (often <= 8 * n)].sum()) for n in often.tolist()]
    support = names + np.array(repeated) / 4
    support[often < _FEWEST] = 0
    for index in np.argsort(-support, kind="stable")[:_COUNTS].tolist():
        if not support[index]:
            continue
        anchors = np.flatnonzero(counts == often[index])[:_ANCHORS]
        found = [_settled(ops, np.flatnonzero(ops.codes == a), float(support[index])) for a in anchors]
        sound = [c for c in found if c is not None and len(c.starts) >= _FEWEST]
        if sound:
            yield min(sound, key=lambda c: (c.length, c.starts[0]))


def _settled(ops: _Ops, at: Ints, support: float) -> _Candidate | None:
    """The layers that a launch at the positions `at` shows; without those at the end that are none."""
    if len(at) < 2 or not _may_be_layers(ops, at):
        return None
    for _ in range(min(_TAILS, len(at) - 1)):
        starts = _fitted(ops, at, at - _back(ops.codes, at))
        end, unlike = _end(ops, starts)
        if unlike <= _LAST:
            return _Candidate(at, starts, end, _length(ops, starts, end), support)
        at = at[:-1]
    return None


def _may_be_layers(ops: _Ops, at: Ints) -> bool:
    """Whether a few kinds describe most stretches between the positions `at`; spares the rest of the work otherwise."""
    found = ops.stretches(at)
    if 2 * found.times[:_KINDS].sum() < len(at) - 1:
        return False
    if len(at) < 3 or found.times[0] > 1:
        return True
    return any(_apart(kind, other) <= _LAST for kind, other in pairwise(ops.contents(found)))


def _back(codes: Ints, at: Ints) -> int:
    """How many ops before the anchor begin a layer: as long as the same stand before the first and half the others."""
    room = int(min(at[0], np.diff(at).min() - 1))
    others = at[1:]
    for back in range(1, room + 1):
        if 2 * np.count_nonzero(codes[others - back] == codes[at[0] - back]) < len(others):
            return back - 1
    return room


def _end(ops: _Ops, starts: Ints) -> tuple[int, float]:
    """Where the last layer ends, and which share of the most alike other layer's launches differs."""
    found = ops.stretches(starts)
    own = (found.stop - found.first)[:_KINDS].tolist()
    # What is longer than twice another layer differs from it by more than the layer.
    last = ops.codes[starts[-1] : starts[-1] + 2 * max(own)]
    nth = _occurrence(last)
    best = (np.inf, 0)
    for length, wanted in zip(own, ops.contents(found), strict=True):
        difference = _differences(last, nth, wanted)
        longest = len(last) - int(np.argmin(difference[::-1]))
        best = min(best, (float(difference[longest]) / length, -longest))
    return int(starts[-1]) - best[1], best[0]


def _differences(sequence: Ints, nth: Ints, wanted: Ints) -> Ints:
    """For each prefix of `sequence`, the empty one first, how many launches it has too many or too few of `wanted`."""
    difference: Ints = np.r_[0, np.cumsum(np.where(nth < wanted[sequence], -1, 1))] + int(wanted.sum())
    return difference


def _occurrence(sequence: Ints) -> Ints:
    """For each element how many equal ones stand before it."""
    order = np.argsort(sequence, kind="stable")
    ordered = sequence[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    nth = np.empty(len(sequence), dtype=np.int64)
    nth[order] = np.arange(len(sequence)) - np.repeat(first, np.diff(np.r_[first, len(sequence)]))
    return nth


def _length(ops: _Ops, starts: Ints, end: int) -> float:
    """How long the description of a step is, in launches: all outside layers, a stretch of each kind or what tells it
    from one that is alike, and half a launch for each layer."""
    total = float(starts[0] + len(ops.codes) - end) + len(starts) / 2
    found = ops.stretches(np.r_[starts, end])
    kinds: list[Ints] = []
    for kind in ops.contents(found):
        near = [_differing(kind, k) + 1 for k in kinds if _apart(kind, k) <= _NEAR]
        total += min(near, default=int(kind.sum()))
        kinds.append(kind)
    left = len(starts) - int(found.times[:_KINDS].sum())
    return total + left * (end - int(starts[0])) / len(starts)


def _differing(kind: Ints, other: Ints) -> int:
    """How many launches of both have no counterpart in the other."""
    return int(np.abs(kind - other).sum())


def _apart(kind: Ints, other: Ints) -> float:
    return _differing(kind, other) / int(kind.sum() + other.sum())


def _with_more_outside(best: _Candidate, candidates: list[_Candidate]) -> _Candidate:
    """The candidate with the same layers and more where `best` sees none: three dense layers before 58 of experts."""
    wider = [c for c in candidates if c.length < best.length and _part_of(best, c)]
    return min(wider, key=lambda c: c.length, default=best)


def _part_of(part: _Candidate, whole: _Candidate) -> bool:
    """Whether the layers of `part` are layers of `whole` too, and `whole` has no others among them."""
    inside = whole.starts[(whole.starts >= part.starts[0]) & (whole.starts < part.end)]
    return len(part.starts) < len(whole.starts) and np.array_equal(inside, part.starts)


def _with_own_beginning(ops: _Ops, found: _Candidate) -> _Candidate:
    """`found` with layers that begin one op earlier if before the first stands a variant of what is before the others:
    a first layer's norm, which has no residual to add."""
    ahead = found.starts - 1
    if ahead[0] < 0 or (np.diff(ahead) < 2).any():
        return found
    first, others = int(ops.codes[ahead[0]]), ops.codes[ahead[1:]]
    usual = int(np.bincount(others).argmax())
    rare = 2 * np.count_nonzero(others == usual) <= len(others)
    return found if rare or not _is_variant(ops.names[usual], ops.names[first]) else _begun(ops, found, ahead)


def _with_unlike_first(ops: _Ops, found: _Candidate) -> _Candidate:
    """`found` with layers that begin earlier, or the first one of them, if that has launches there that the others have
    not and the description becomes shorter."""
    tried = [found]
    room = int(np.diff(found.starts).min()) - 1
    usual = [int(np.bincount(ops.codes[found.starts[1:] - i]).argmax()) for i in range(1, min(room, _TAILS) + 1)]
    for back in range(1, min(int(found.starts[0]), _TAILS) + 1):
        first, name = int(found.starts[0]) - back, int(ops.codes[found.starts[0] - back])
        tried.append(_begun(ops, found, np.r_[first, found.starts[1:]]))
        if name in usual:
            begun = np.r_[first, found.starts[1:] - 1 - usual.index(name)]
            tried.append(_begun(ops, found, _fitted(ops, found.at, begun - _back(ops.codes, begun))))
    return min(tried, key=lambda c: c.length)


def _fitted(ops: _Ops, at: Ints, starts: Ints) -> Ints:
    """`starts`, those moved between which and their anchor something else than usual stands: to where what is before
    them and what begins them are most like the others."""
    if (starts[1:] <= at[:-1]).any():
        return starts
    ahead, behind = ops.stretches_of(starts[1:], at[1:]), ops.stretches_of(at[:-1], starts[1:])
    (begin,), (rest,) = ops.contents(ahead, most=1), ops.contents(behind, most=1)
    fitted, known = starts.copy(), dict[int, int]()
    texts = ops.text(at[:-1], at[1:]).tolist()
    for index in np.flatnonzero(ahead.which).tolist():
        if texts[index] not in known:
            if len(known) == _KINDS:
                return starts
            between = ops.codes[at[index] : at[index + 1]]
            total = _differences(between, _occurrence(between), rest)
            total += _differences(between[::-1], _occurrence(between[::-1]), begin)[::-1]
            known[texts[index]] = len(between) - max(1, int(np.argmin(total)))
        fitted[index + 1] = at[index + 1] - known[texts[index]]
    return fitted


def _begun(ops: _Ops, found: _Candidate, starts: Ints) -> _Candidate:
    """`found` with layers that begin at `starts`, if the last one stays a layer."""
    end, unlike = _end(ops, starts)
    if unlike > _LAST:
        return found
    return replace(found, starts=starts, end=end, length=_length(ops, starts, end))


def _is_variant(name: str, other: str) -> bool:
    """Whether two canonical names are one kernel template with other numbers or flags in it.

    Names without template arguments number stages of one algorithm, and a tile (64x32) marks a GEMM, whose neighbours
    by digits are other matrices.
    """
    templates = all("<" in text or text.startswith("_Z") for text in (name, other))
    return (
        name != other
        and templates
        and not _TILE.search(name + other)
        and _DIGITS.sub("", name) == _DIGITS.sub("", other)
    )


def _turned(ops: _Ops, found: _Candidate, like: Phase) -> _Candidate:
    """`found` with layers that begin as the other recording's do, where a launch that runs once in each says how."""
    start = like.common_start(_phase(ops, found))
    if start is None:
        return found
    at = np.flatnonzero(np.array([name == start for name in ops.names])[ops.codes])
    inside = at[(at >= found.starts[0]) & (at < found.end)]
    one_each = np.array_equal(np.searchsorted(found.starts, inside, side="right") - 1, np.arange(len(found.starts)))
    return _begun(ops, found, inside) if one_each else found


def _phase(ops: _Ops, found: _Candidate) -> Phase:
    contents = ops.contents(ops.stretches(found.edges))
    once = np.logical_and.reduce([content == 1 for content in contents])
    first = ops.codes[found.starts[0] : found.edges[1]]
    names = tuple(ops.names[c] for c in first[once[first]].tolist())
    return Phase(ops.names[int(first[0])], names, len(found.starts))


def _judged(ops: _Ops, found: _Candidate) -> Cut | Misfit:
    starts, end = found.starts, found.end
    held = end - int(starts[0])
    if held < 2 * len(starts):
        return Misfit("what repeats is a single launch, which may be anything")
    if held < _LEAST_SHARE * len(ops.codes):
        return Misfit(f"what repeats is {held} of {len(ops.codes)} ops, too few to be a model's layers")
    stretches = ops.stretches(found.edges)
    unlike = _unlike(ops, stretches) / held
    if unlike > ALIKE:
        name = shortened(ops.names[int(ops.codes[found.at[0]])])
        return Misfit(
            f"{len(starts)} stretches between launches of {name} are not alike: {unlike:.0%} is in no two of them"
        )
    passes = _passes(ops, starts, end)
    if passes > 1:
        return Misfit(f"it holds {passes} passes over the layers: what ends the step runs as often")
    return Cut(starts, end, _kinds(ops, stretches), _phase(ops, found), _in_turn(ops, stretches))


def _unlike(ops: _Ops, found: _Stretches) -> int:
    """How many of the layers' launches are in no other layer that is most like their own."""
    kinds = ops.contents(found)
    unmatched = int((found.times * (found.stop - found.first))[_KINDS:].sum())
    for index in np.flatnonzero(found.times[:_KINDS] == 1).tolist():
        others = [_differing(kinds[index], k) for i, k in enumerate(kinds) if i != index]
        unmatched += min((int(kinds[index].sum()), *others))
    return unmatched


def _passes(ops: _Ops, starts: Ints, end: int) -> int:
    """How often what stands behind the last layer runs in the step."""
    first, tail = int(starts[0]), ops.codes[end:]
    if not len(tail) or len(tail) > end - first:
        return 1
    rare = int(np.argmin(np.bincount(ops.codes)[tail]))
    at = np.flatnonzero(ops.codes == tail[rare]) - rare
    at = at[(at >= first) & (at + len(tail) <= end)]
    whole = 1 + np.count_nonzero(ops.text(at, at + len(tail)) == ops.text(np.array([end]), np.array([len(ops.codes)])))
    # What runs in most layers is theirs: a final norm and a projection are like those inside a layer.
    return int(whole) if whole <= len(starts) // 2 else 1


def _in_turn(ops: _Ops, found: _Stretches) -> list[str]:
    """Says where unlike stretches follow each other in turn, as the parts of one layer do."""
    # The first and the last one may differ from what they are in turn with.
    which = found.which[1:-1]
    again = {turn: float(np.mean(which[turn:] == which[:-turn])) for turn in range(1, min(_KINDS, len(which) // 2) + 1)}
    turn = next((turn for turn, share in again.items() if share >= _IN_TURN), 1)
    several = np.unique(which[-turn:])
    kinds = [ops.content(int(found.first[k]), int(found.stop[k])) for k in several.tolist()]
    if all(_apart(kind, other) <= ALIKE for i, kind in enumerate(kinds) for other in kinds[:i]):
        return []
    return [
        f"unlike stretches follow each other in turn, {turn} at a time, as the parts of one layer do; if they are, "
        f"--anchor with --anchor-every {turn} takes them together"
    ]


def _kinds(ops: _Ops, found: _Stretches) -> list[int]:
    """For each layer the number of its kind, in order of appearance. A lone one may be an exception of a larger one."""
    kind = np.arange(len(found.times))
    larger = ops.contents(found, most=min(_KINDS, int(np.count_nonzero(found.times > 1))))
    for lone in np.flatnonzero(found.times == 1).tolist() if larger else []:
        own = ops.content(int(found.first[lone]), int(found.stop[lone]))
        # A launch that another one replaces is one that differs.
        differing = [max(int((own - k).clip(0).sum()), int((k - own).clip(0).sum())) for k in larger]
        nearest = int(np.argmin(differing))
        if differing[nearest] <= _EXCEPTION * int(own.sum()):
            kind[lone] = nearest
    order: dict[int, int] = {}
    return [order.setdefault(k, len(order)) for k in kind[found.which].tolist()]
