"""Which steps and layers a question is about."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypedDict

from profkit.errors import ProfkitError
from profkit.model.scope import Place


@dataclass(frozen=True)
class Hints:
    """What the user says about layers; regular expressions for kernel names.

    Args:
        anchor: a kernel that runs once a layer and begins it.
        anchor_end: a kernel that ends the layer.
        start: canonical name of the kernel with which layers by period begin, so that two traces share one phase.
    """

    anchor: str | None = None
    anchor_end: str | None = None
    start: str | None = None


@dataclass(frozen=True)
class Selection:
    """Which steps and layers a question is about; regular expressions as on the command line.

    Args:
        layers: searched in the layer's scope, e.g. ``\\.mla$``; None selects all layers.
        scope: searched in the path inside the layer, e.g. ``^combine``; None selects all of the layer.
        steps: ranges that are steps; None finds them.
        graph: the id of the kind of step to report; None takes the kind with the most GPU time.
        layer_kind: only layers of this kind, e.g. ``A`` of those that period told apart; no regular expression.
        capture_trace: a file or directory that holds the recorded capture of the trace's graphs.
        anchor: a kernel that runs once a layer and begins it.
        anchor_end: a kernel that ends the layer.
        start: canonical name of the kernel with which layers by period begin; None decides it by convention.
    """

    layers: str | None = None
    scope: str | None = None
    steps: str | None = None
    graph: str | None = None
    layer_kind: str | None = None
    capture_trace: str | None = None
    anchor: str | None = None
    anchor_end: str | None = None
    start: str | None = None

    @property
    def hints(self) -> Hints:
        """What it says to the methods that find layers.

        Raises:
            ProfkitError: an end of layers without a beginning.
        """
        if self.anchor_end is not None and self.anchor is None:
            raise ProfkitError("--anchor-end says where a layer ends; give --anchor as well, where it begins.")
        return Hints(self.anchor, self.anchor_end, self.start)


class SelectionOptions(TypedDict, total=False):
    """The fields of a `Selection` that a caller may give by name."""

    layers: str | None
    scope: str | None
    steps: str | None
    graph: str | None
    layer_kind: str | None
    capture_trace: str | None
    anchor: str | None
    anchor_end: str | None


class Wanted:
    """A selection's conditions on layers and scopes, compiled.

    Raises:
        ProfkitError: a pattern is no regular expression.
    """

    def __init__(self, selection: Selection) -> None:
        self._layers = compiled("--layers", selection.layers)
        self._scope = compiled("--scope", selection.scope)
        self._kind = selection.layer_kind

    def layer(self, place: Place) -> bool:
        """Whether the layer that `place` lies in is asked about."""
        if self._kind is not None and self._kind not in (place.kind, short_kind(place.kind)):
            return False
        return self._layers is None or any(self._layers.search(text) for text in (place.path, *place.names))

    def scope(self, inside: str) -> bool:
        """Whether the path `inside` a layer is asked about."""
        return self._scope is None or bool(self._scope.search(inside))


def short_kind(kind: str) -> str:
    """What tells a kind of layer from the others: ``B`` of ``layers.#.B``; "" where nothing follows the number."""
    return kind.rpartition("#")[2].strip("._/ ")


def compiled(option: str, pattern: str | None) -> re.Pattern[str] | None:
    """The regular expression that `option` was given.

    Raises:
        ProfkitError: it is none.
    """
    if pattern is None:
        return None
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ProfkitError(f"{option} {pattern!r} is not a regular expression: {error}.") from None
