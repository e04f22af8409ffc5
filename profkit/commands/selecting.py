"""The options that `layers` and `diff` share: which steps and layers a question is about."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from profkit.model.selection import Selection


def _selection(
    layers: Annotated[str | None, typer.Option(help="Regular expression: layers whose scope matches.")] = None,
    scope: Annotated[
        str | None, typer.Option(help="Regular expression: only this part of each layer, e.g. ^combine.")
    ] = None,
    steps: Annotated[
        str | None, typer.Option(help="Regular expression: ranges that are steps; found if not given.")
    ] = None,
    graph: Annotated[
        str | None, typer.Option(help="The kind of step to report, by its id; the longest if not given.")
    ] = None,
    layer_kind: Annotated[
        str | None, typer.Option(help="Only layers of this kind, e.g. B of those told apart by period.")
    ] = None,
    capture_trace: Annotated[
        str | None,
        typer.Option(help="Where the graphs' capture was recorded: a trace, or an engine's directory of them."),
    ] = None,
    anchor: Annotated[
        str | None, typer.Option(help="Regular expression: a kernel that runs once a layer, at its start.")
    ] = None,
    anchor_end: Annotated[str | None, typer.Option(help="Regular expression: a kernel that ends the layer.")] = None,
) -> Selection:
    """The options by which `layers` and `diff` choose steps and layers."""
    from profkit.model.selection import Selection

    return Selection(layers, scope, steps, graph, layer_kind, capture_trace, anchor, anchor_end)


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with the options of `_selection` in the place of its parameter ``selection``."""
    # The selection's class is imported when a command runs, so that its name means nothing yet.
    options, own = (inspect.signature(f, eval_str=True, locals={"Selection": object}) for f in (_selection, command))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in options.parameters}
        command(selection=_selection(**chosen), **given)

    parameters = [
        parameter
        for mine in own.parameters.values()
        for parameter in (options.parameters.values() if mine.name == "selection" else [mine])
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run
