"""Which steps and layers a question is about."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, TypedDict

from profkit.errors import ProfkitError
from profkit.model.scope import Place


@dataclass(frozen=True)
class Phase:
    """How a step was cut into layers, for a second recording of it to follow; names are canonical.

    Args:
        start: the kernel with which layers begin, which is a convention.
        once: the kernels that run once in every kind of layer, in the layer's order.
        layers: how many there are.
    """

    start: str
    once: tuple[str, ...]
    layers: int

    def common_start(self, other: Phase) -> str | None:
        """The kernel with which the layers of both shall begin, None where they already agree or share none.

        They agree if the kernels that both run once a layer come first in the same order: a kernel that was removed
        from a layer's beginning does not turn the layer.
        """
        shared = [name for name in self.once if name in other.once]
        if not shared or shared[0] == next(name for name in other.once if name in self.once):
            return None
        return shared[0]


@dataclass(frozen=True)
class Hints:
    """What is known about layers that no range names.

    Args:
        anchor: regular expression for the names of a launch that each layer has.
        every: how often it runs in a layer.
        like: how another recording was cut.
        ranges: what ranges name is a layer, however few ops they hold.
    """

    anchor: str | None = None
    every: int = 1
    like: Phase | None = None
    ranges: bool = False


@dataclass(frozen=True)
class Selection:
    """Which steps and layers a question is about; regular expressions as on the command line.

    Args:
        layers: searched in the layer's scope, e.g. ``\\.mla$``; None selects all layers.
        scope: searched in the path inside the layer, e.g. ``^combine``; None selects all of the layer.
        steps: ranges that are steps; None finds them.
        graph: the id of the kind of step to report; None takes the kind with the most GPU time.
        layer_kind: only layers of this kind, e.g. ``A`` of those that cut told apart; no regular expression.
        capture_trace: a file or directory that holds the recorded capture of the trace's graphs.
        layers_from: a run: another recording of the same program, which knows its layers.
        anchor: a launch that each layer has.
        anchor_every: how often it runs in a layer.
        like: how another recording of the step was cut, to be followed where the names allow it.
        ranges: what ranges name is a layer, however few ops of the step they hold: as in another recording of it.
    """

    layers: str | None = None
    scope: str | None = None
    steps: str | None = None
    graph: str | None = None
    layer_kind: str | None = None
    capture_trace: str | None = None
    layers_from: str | None = None
    anchor: str | None = None
    anchor_every: int | None = None
    like: Phase | None = None
    ranges: bool = False

    def of_side(self, side: Literal["before", "after"]) -> Selection:
        """What it says of one side of a diff: of ``before=A,after=B`` in `graph`, `capture_trace` and `layers_from` the
        one or the other."""
        return replace(
            self,
            graph=_of_side(self.graph, side),
            capture_trace=_of_side(self.capture_trace, side),
            layers_from=_of_side(self.layers_from, side),
        )

    @property
    def hints(self) -> Hints:
        """What it says to the methods that find layers.

        Raises:
            ProfkitError: --anchor-every without --anchor, or none.
        """
        if self.anchor_every is not None and (self.anchor is None or self.anchor_every < 1):
            raise ProfkitError(
                "--anchor-every says how often the launch of --anchor runs in a layer: give both, and 1 or more."
            )
        return Hints(self.anchor, self.anchor_every or 1, self.like, self.ranges)


def _of_side(value: str | None, side: str) -> str | None:
    match = re.fullmatch(r"before=(?P<before>.*),after=(?P<after>.*)", value or "")
    return value if match is None else match[side]


class SelectionOptions(TypedDict, total=False):
    """The fields of a `Selection` that a caller may give by name."""

    layers: str | None
    scope: str | None
    steps: str | None
    graph: str | None
    layer_kind: str | None
    capture_trace: str | None
    layers_from: str | None
    anchor: str | None
    anchor_every: int | None


class Wanted:
    """A selection's conditions on layers and scopes, compiled.

    Raises:
        ProfkitError: a pattern is no regular expression.
    """

    def __init__(self, selection: Selection) -> None:
        self._layers = None if selection.layers is None else compiled("--layers", selection.layers)
        self._scope = None if selection.scope is None else compiled("--scope", selection.scope)
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


def compiled(option: str, pattern: str) -> re.Pattern[str]:
    """The regular expression that `option` was given; or what a report printed, with # for a number, taken literally.

    Raises:
        ProfkitError: it is none.
    """
    literal = "|" + re.escape(pattern).replace("\\#", r"\d+") if "#" in pattern else ""
    try:
        return re.compile(pattern + literal)
    except re.error as error:
        raise ProfkitError(f"{option} {pattern!r} is not a regular expression: {error}.") from None
