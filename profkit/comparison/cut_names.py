"""Kernel names that two runs spell in different ways: cut, mangled, or reduced to the function's own name.

rocprofv3 writes demangled names, mangled ones with ``-M`` and bare ones with ``-T``; other tools cut names at a fixed
length (63 characters in aiu-trace-analyzer#30). Such a name is paired with the other run's where only one fits;
where several do, none is chosen and the choice is reported.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pandas as pd

from profkit.comparison.model import Reason
from profkit.model.census import KindCensus
from profkit.model.names import canonical

#: A shorter text is a prefix of too much: ``void at::`` begins thousands of names.
_SHORTEST_CUT = 24
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_MANGLED = re.compile(r"_ZN?K?(?=\d)")
_OPENING, _CLOSING = "<([{", ">)]}"
#: A reason lists at most this many names; a whole report of them helps nobody.
_LISTED = 3


@dataclass(frozen=True)
class Pairing:
    """Which names of the after side stand for names of the before side.

    Args:
        renamed: after's recorded name to before's.
        ambiguous: a name of either side to the several of the other side that it may stand for.
    """

    renamed: Mapping[str, str]
    ambiguous: Mapping[str, tuple[str, ...]]


def pair(before: Iterable[str], after: Iterable[str]) -> Pairing:
    """Pair the recorded names that have no partner of the same canonical name."""
    names = [{canonical(name): name for name in dict.fromkeys(side)} for side in (before, after)]
    left, right = ([own[c] for c in own if c not in other] for own, other in (names, names[::-1]))
    fits: dict[str, list[str]] = defaultdict(list)
    fits_back: dict[str, list[str]] = defaultdict(list)
    for one in left:
        for other in right:
            if may_be_one_kernel(one, other):
                fits[one].append(other)
                fits_back[other].append(one)
    renamed = {o[0]: b for b, o in fits.items() if len(o) == 1 and len(fits_back[o[0]]) == 1}
    several = {n: tuple(o) for side in (fits, fits_back) for n, o in side.items() if len(o) > 1}
    return Pairing(renamed, several)


def may_be_one_kernel(one: str, other: str) -> bool:
    """Whether one name may be a cut, mangled or bare spelling of the other."""
    short, long = sorted((one, other), key=len)
    if len(short) >= _SHORTEST_CUT and long.startswith(short) and _is_open(short):
        return True
    forms = {_form(one), _form(other)}
    return len(forms) == 2 and "cut" not in forms and _agree(_path(one), _path(other))


def _is_open(name: str) -> bool:
    """Whether a bracket was never closed, or the name ends in the middle of a qualification."""
    depth = sum((c in _OPENING) - (c in _CLOSING) for c in name.replace("->", "").replace("operator<", ""))
    return depth > 0 or name.endswith(":")


def _form(name: str) -> str:
    if _MANGLED.match(name):
        return "mangled"
    if _IDENTIFIER.fullmatch(name):
        return "bare"
    return "cut" if _is_open(name) else "demangled"


def _path(name: str) -> tuple[str, ...]:
    """The function's name behind its namespaces, without template arguments: ``("at", "native", "fill")``."""
    mangled = _MANGLED.match(name)
    if mangled is None:
        head = re.split(r"[<(]", name.replace("(anonymous namespace)::", ""), maxsplit=1)[0]
        return tuple(_IDENTIFIER.findall(head.split(" ")[-1]))
    parts: list[str] = []
    position = mangled.end()
    while length := re.compile(r"\d+").match(name, position):
        start = length.end()
        position = start + int(length.group())
        parts.append(name[start:position])
    return tuple(part for part in parts if not part.startswith("_GLOBAL__N"))


def _agree(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether the function is the same as far as both say; a bare name has no namespaces."""
    count = min(len(one), len(other))
    return count > 0 and one[-count:] == other[-count:]


def unify(before: KindCensus, after: KindCensus) -> tuple[KindCensus, tuple[Reason, ...]]:
    """`after` with the canonical names of `before` where `pair` finds one for them, and what is ambiguous."""
    pairing = pair(*(pd.concat([c.slots["name"], c.outside["name"]]).tolist() for c in (before, after)))
    reasons = tuple(
        Reason("ambiguous-name", f"{name} may stand for any of {len(fitting)}: {', '.join(fitting[:_LISTED])}.")
        for name, fitting in pairing.ambiguous.items()
    )
    if not pairing.renamed:
        return after, reasons
    canonicals = {canonical(a): canonical(b) for a, b in pairing.renamed.items()}
    slots, outside = (t.assign(canonical=t["canonical"].replace(canonicals)) for t in (after.slots, after.outside))
    return replace(after, slots=slots, outside=outside), reasons
