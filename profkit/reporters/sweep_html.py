"""A sweep as heat maps in one self-contained HTML file: colour is the time over that of the best."""

from __future__ import annotations

import html
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plotly import graph_objects
from plotly.subplots import make_subplots

from profkit.reporters.blocks import clean
from profkit.reporters.sweep import heading, region_line

if TYPE_CHECKING:
    from profkit.sweep.records import Configuration, Region, State, Sweep

#: The colour scale ends here: what takes half as long again as the best is of no further interest.
_WORST_RATIO = 1.5
_COLUMNS = 3
_CELL_PX, _AROUND_PX = 46, 130


@dataclass(frozen=True)
class Axes:
    """Which parameter is where.

    Args:
        x, y: the parameters on the axes: those with the most values.
        facets: the others; each combination of their values has a map of its own.
        values: each parameter's values, ascending, as strings.
    """

    x: str
    y: str | None
    facets: Sequence[str]
    values: Mapping[str, Sequence[str]]

    def combinations(self) -> list[tuple[str, ...]]:
        """The facets' values, one tuple for each map."""
        return list(itertools.product(*(self.values[name] for name in self.facets)))


@dataclass(frozen=True)
class View:
    """What the maps show of one region in one state, ``[map][row][column]``.

    Args:
        title: region and state.
        ratios: time over the best time, None where there is none.
        texts: in the cells: the best, and the tables that choose it.
        hovers: over the cells.
    """

    title: str
    ratios: list[list[list[float | None]]]
    texts: list[list[list[str]]]
    hovers: list[list[list[str]]]


def escape(text: str) -> str:
    """A name as plotly and a browser show it: plotly reads some tags, and names come from strangers."""
    return html.escape(clean(text))


def choose_axes(sweep: Sweep) -> Axes:
    """The axes for all regions of a sweep."""
    values: dict[str, list[str]] = {}
    for name in sweep.parameters:
        tried = {one.parameters[name] for region in sweep.regions for one in region.configurations}
        values[name] = [str(value) for value in sorted(tried)]
    by_size = sorted(values, key=lambda name: -len(values[name]))
    x, y = by_size[0], by_size[1] if len(by_size) > 1 else None
    return Axes(x, y, [name for name in values if name not in (x, y)], values)


def make_view(region: Region, state: State, axes: Axes) -> View:
    """One region in one state; what was screened out is placed by its screening time."""
    best = region.best(state) if state in region.timing else None
    places = {name: {value: i for i, value in enumerate(values)} for name, values in axes.values.items()}
    maps = {combination: i for i, combination in enumerate(axes.combinations())}
    height = len(axes.values[axes.y]) if axes.y else 1
    width = len(axes.values[axes.x])
    ratios: list[list[list[float | None]]] = [[[None] * width for _ in range(height)] for _ in maps]
    texts = [[[""] * width for _ in range(height)] for _ in maps]
    hovers = [[["not tried"] * width for _ in range(height)] for _ in maps]
    for one in region.configurations:
        parameters = {name: str(value) for name, value in one.parameters.items()}
        at = maps[tuple(parameters[name] for name in axes.facets)]
        row = places[axes.y][parameters[axes.y]] if axes.y else 0
        column = places[axes.x][parameters[axes.x]]
        ratio, told = _ratio(one, best, state)
        labels = [*(["best"] if one is best else []), *one.known]
        ratios[at][row][column] = ratio
        texts[at][row][column] = "<br>".join(escape(label) for label in labels)
        hovers[at][row][column] = "<br>".join(escape(line) for line in (str(one), *labels, told))
    return View(f"{region.name}, {state}", ratios, texts, hovers)


def _ratio(one: Configuration, best: Configuration | None, state: State) -> tuple[float | None, str]:
    if best is not None and (times := one.times.get(state)) is not None:
        ratio = times.us / best.times[state].us
        return ratio, f"{times.us:.2f} µs ({times.p25_us:.2f} … {times.p75_us:.2f}), {ratio:.3f} × the best"
    screened_us, best_us = one.screen_us.get(state), best and best.screen_us.get(state)
    if one.status == "screened" and screened_us is not None and best_us:
        ratio = screened_us / best_us
        return ratio, f"screened out: {screened_us:.2f} µs in the screening, {ratio:.1f} × what the best took there"
    return None, f"{one.status}: {one.reason}" if one.reason else f"not timed {state}"


def page(sweep: Sweep) -> str:
    """The whole file."""
    told = "\n".join(f"<p>{escape(line)}</p>" for line in heading(sweep))
    figure = _figure(sweep).to_html(full_html=False, include_plotlyjs=True, div_id="sweep") if sweep.regions else ""
    regions = "\n".join(f"<p>{escape(region_line(region))}</p>" for region in sweep.regions)
    title = escape(f"profkit sweep {sweep.workload.name}")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title></head>\n'
        f'<body style="font-family: sans-serif">\n<h1>{title}</h1>\n{told}\n{figure}\n{regions}\n</body>\n</html>\n'
    )


def _figure(sweep: Sweep) -> Any:
    """One heat map for each combination of the facets, and a menu that chooses region and state."""
    axes = choose_axes(sweep)
    views = [make_view(region, state, axes) for region in sweep.regions for state in sweep.protocol.states]
    combinations = axes.combinations()
    columns = min(_COLUMNS, len(combinations))
    rows = -(-len(combinations) // columns)
    figure = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[
            ", ".join(escape(f"{n}={v}") for n, v in zip(axes.facets, combination, strict=True))
            for combination in combinations
        ],
    )
    first = views[0]
    height = len(axes.values[axes.y]) if axes.y else 1
    for at in range(len(combinations)):
        figure.add_trace(
            graph_objects.Heatmap(
                x=[escape(value) for value in axes.values[axes.x]],
                y=[escape(value) for value in axes.values[axes.y]] if axes.y else [""],
                z=first.ratios[at],
                text=first.texts[at],
                hovertext=first.hovers[at],
                texttemplate="%{text}",
                hoverinfo="text",
                coloraxis="coloraxis",
                xgap=2,
                ygap=2,
            ),
            row=at // columns + 1,
            col=at % columns + 1,
        )
    figure.update_xaxes(type="category", title_text=escape(axes.x))
    figure.update_yaxes(type="category", title_text=escape(axes.y or ""))
    buttons = [
        {
            "label": escape(view.title),
            "method": "update",
            "args": [
                {"z": view.ratios, "text": view.texts, "hovertext": view.hovers},
                {"title.text": escape(view.title)},
            ],
        }
        for view in views
    ]
    figure.update_layout(
        title={"text": escape(first.title)},
        height=rows * (_CELL_PX * height + _AROUND_PX) + _AROUND_PX,
        updatemenus=[
            {"buttons": buttons, "x": 1.0, "xanchor": "right", "y": 1.0, "yanchor": "bottom", "pad": {"b": 40}}
        ],
        coloraxis={"colorscale": "Viridis_r", "cmin": 1.0, "cmax": _WORST_RATIO, "colorbar": {"title": "× best"}},
    )
    return figure
