"""An answer as one HTML file: its figures as inline SVG, its sentences and tables; nothing is loaded from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2

from profkit.reporters import Answer, markdown
from profkit.reporters.blocks import Block, Gap, Lines, Name, Notes, Table, Title, clean
from profkit.runs.whole_files import write_whole


def write(answer: Answer, file: Path) -> None:
    """Write the page.

    Raises:
        ProfkitError: it cannot be written.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("profkit.reporters", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: clean(value) if isinstance(value, str) and not hasattr(value, "__html__") else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    blocks = [block for block in answer.blocks() if not isinstance(block, Gap)]
    # What the figures show is told before them.
    first = next((at for at, block in enumerate(blocks) if isinstance(block, Table)), len(blocks))
    told = [block for block in blocks if isinstance(block, Lines) and block.style == "points"]
    ordered = [
        *(b for b in blocks[:first] if not any(b is t for t in told)),
        *told,
        *(b for b in blocks[first:] if not any(b is t for t in told)),
    ]
    title = next((block.text for block in blocks if isinstance(block, Title)), "profkit")
    verdict = next((block.verdict for block in blocks if isinstance(block, Title)), "")
    page = environment.get_template("page.html.j2").render(
        title=title,
        verdict=verdict,
        blocks=list(_shown(ordered)),
        figures=list(answer.figures()),
        markdown=markdown.render(blocks),
        ticks=_ticks,
    )
    write_whole(file, page)


def _shown(blocks: Iterable[Block]) -> Iterable[dict[str, Any]]:
    """The blocks of a screen, with the columns of a page: as many as there are, to sort by."""
    for block in blocks:
        if isinstance(block, Title):
            yield {"kind": "title", "text": block.text, "verdict": block.verdict}
        elif isinstance(block, Notes):
            yield {"kind": "notes", "notes": block.notes, "warning": block.warning}
        # A screen has why there are no layers as an error.
        elif isinstance(block, Lines) and (block.only != "page" or block.style == "warning"):
            yield {"kind": "lines", "lines": block.told, "style": block.style}
        elif isinstance(block, Table) and block.only != "page":
            yield _table(block)


def _table(block: Table) -> dict[str, Any]:
    shown = [index for index, column in enumerate(block.columns) if column.only != "screen"]
    rows = [{"cells": [_cell(row.cells[index]) for index in shown], "style": row.style} for row in block.rows]
    columns = [{"title": c.title, "number": c.number} for c in (block.columns[i] for i in shown)]
    return {"kind": "table", "title": block.title, "columns": columns, "rows": rows}


def _cell(cell: str | Name) -> dict[str, str | bool]:
    text = cell.text + (f" ({cell.kind})" if cell.kind else "") if isinstance(cell, Name) else cell
    return {"text": text, "name": isinstance(cell, Name)}


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers from `low` to `high`."""
    width = high - low
    if not width > 0:
        return [low]
    unit = 10.0 ** math.floor(math.log10(width / 5))
    step = next(unit * by for by in (1, 2, 5, 10) if width / (unit * by) <= 6)
    return [round(step * at, 9) for at in range(math.ceil(low / step), math.floor(high / step) + 1)]
