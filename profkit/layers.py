"""What a scope says: which layer it lies in, and where inside that layer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

#: The part of a scope that names a layer: ``model.layers.3.mlp``, ``layer_12``.
LAYER = re.compile(r"(?<![A-Za-z])layers?[._](\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class LayerKey:
    """One layer of the model.

    Args:
        family: the path and text before the layer's number, numbers replaced by ``#``, so that
            ``encoder.layers.3`` and ``decoder.layers.3`` stay two; sorts layers of one family together.
        number: the layer's number.
    """

    family: str
    number: int


@dataclass(frozen=True)
class Place:
    """A scope, read.

    Args:
        layer: None outside layers.
        text: the path down to and including the layer, as recorded; the whole path outside layers.
        kind: the layer's text with its number replaced, e.g. ``layers.#.mla``; "" outside layers.
        inside: the path below the layer, joined by ``/``; "" directly in it.
    """

    layer: LayerKey | None
    text: str
    kind: str
    inside: str


def place(path: Sequence[str]) -> Place:
    """Read a scope path (outermost first): the innermost range that names a layer decides."""
    for depth in range(len(path) - 1, -1, -1):
        matches = list(LAYER.finditer(path[depth]))
        if matches:
            match = matches[-1]
            start, stop = match.span(1)
            before = "/".join([*path[:depth], path[depth][:start]])
            return Place(
                layer=LayerKey(_NUMBER.sub("#", before), int(match.group(1))),
                text="/".join(path[: depth + 1]),
                kind=f"{_NUMBER.sub('#', path[depth][:start])}#{path[depth][stop:]}",
                inside="/".join(path[depth + 1 :]),
            )
    return Place(layer=None, text="/".join(path), kind="", inside="")
