"""What a scope says: which layer it lies in, and where inside that layer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

#: The part of a scope that names a layer: ``model.layers.3.mlp``, ``layer_12``. A longer number is no layer's.
LAYER = re.compile(r"(?<![A-Za-z])layers?[._](\d{1,9})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class LayerKey:
    """One layer of the model.

    Args:
        family: the text before the layer's number, numbers replaced by ``#``, so that ``encoder.layers.3`` and
            ``decoder.layers.3`` stay two.
        number: the layer's number.
    """

    family: str
    number: int


@dataclass(frozen=True)
class Place:
    """A scope, read. Outside layers `layer` is None and `path` is the whole path.

    Args:
        layer: which layer; None outside layers.
        outer: the ranges around the layer, joined by ``/``, numbers replaced by ``#``.
        path: down to and including the outermost range that names the layer, as recorded.
        names: the ranges that name the layer, outermost first: module hooks nest ``layers.0`` and ``layers.0.attn``.
        kind: the outermost of them with its number replaced, e.g. ``layers.#.mla``.
        inside: the path below it, joined by ``/``; of ranges that name the layer again, only what they add.
    """

    layer: LayerKey | None
    outer: str
    path: str
    names: tuple[str, ...]
    kind: str
    inside: str


def place(path: Sequence[str]) -> Place:
    """Read a scope path (outermost first). The innermost range that names a layer decides which it is; the ranges
    around it that name the same one belong to it."""
    matches = [_last_match(text) for text in path]
    innermost = next((d for d in range(len(path) - 1, -1, -1) if matches[d] is not None), None)
    if innermost is None:
        return Place(layer=None, outer="", path="/".join(path), names=(), kind="", inside="")
    key = _key(path[innermost], matches[innermost])
    depths = [d for d in range(innermost + 1) if matches[d] is not None and _key(path[d], matches[d]) == key]
    first = depths[0]
    start, stop = _span(matches[first])
    return Place(
        layer=key,
        outer="/".join(_NUMBER.sub("#", text) for text in path[:first]),
        path="/".join(path[: first + 1]),
        names=tuple(path[d] for d in depths),
        kind=f"{_NUMBER.sub('#', path[first][:start])}#{path[first][stop:]}",
        inside="/".join(_inside(path, matches, first, frozenset(depths))),
    )


def _inside(
    path: Sequence[str], matches: Sequence[re.Match[str] | None], first: int, depths: frozenset[int]
) -> list[str]:
    parts: list[str] = []
    known = path[first][_span(matches[first])[1] :].strip("._/ ")
    for depth in range(first + 1, len(path)):
        text = path[depth]
        if depth in depths:
            added = text[_span(matches[depth])[1] :].strip("._/ ")
            text = added.removeprefix(known).strip("._/ ") if known else added
            known = added
        if text:
            parts.append(text)
    return parts


def _last_match(text: str) -> re.Match[str] | None:
    found = None
    for match in LAYER.finditer(text):
        found = match
    return found


def _span(match: re.Match[str] | None) -> tuple[int, int]:
    return (0, 0) if match is None else match.span(1)


def _key(text: str, match: re.Match[str] | None) -> LayerKey:
    start, stop = _span(match)
    return LayerKey(_NUMBER.sub("#", text[:start]), int(text[start:stop] or 0))
