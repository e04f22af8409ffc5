"""Blocks on a terminal. Names come from strangers: they are printed as text, never as markup or control codes."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from profkit.errors import OutputClosedError
from profkit.reporters import Answer
from profkit.reporters.blocks import Block, Column, Gap, Lines, Name, Notes, Table, Title, clean

#: What a report is as wide as, at least and at most; a pipe has no width and gets the second.
_WIDTHS = 80, 100, 200
#: Names, and what else is text, keep so much where there is room for it, and so much in any case.
_NAME_WIDTH, _NAME_ROOM, _ROOM = 48, 28, 12
_VERDICT = {"confirmed": "bold green", "refuted": "bold red", "inconclusive": "bold yellow"}
_LINES = {"plain": "", "points": "", "fine": "dim", "next": "dim", "warning": "yellow", "alarm": "bold red"}
_ROW = {"": "", "total": "bold", "dim": "dim"}


class _Console(Console):
    """A console that takes texts as they are, and does not end the process itself when its reader has gone."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, emoji=False, markup=False, **options)

    def on_broken_pipe(self) -> None:
        raise OutputClosedError


def write(answer: Answer) -> None:
    """The answer on standard output."""
    least, usual, most = _WIDTHS
    width = min(max(shutil.get_terminal_size((usual, 24)).columns, least), most)
    render(answer.blocks(), _Console(width=width), details=answer.details)


def render(blocks: Iterable[Block], out: Console, *, details: bool = False) -> None:
    """Print `blocks`.

    Args:
        details: all there is, and whole tables.
    """
    for block in blocks:
        if isinstance(block, Title):
            out.print(Text(clean(block.text), style=_VERDICT.get(block.verdict, "bold")))
        elif isinstance(block, Notes):
            for code, message in block.notes:
                out.print(Text(clean(f"[{code}] {message}"), style="yellow" if block.warning else ""))
        elif block.only == "page" or (isinstance(block, Lines) and block.detail and not details):
            continue
        elif isinstance(block, Gap):
            out.print()
        elif isinstance(block, Lines):
            for line in block.told:
                out.print(Text(clean(line), style=_LINES[block.style]))
        else:
            _print_table(block, out, None if details else block.most)


def _print_table(block: Table, out: Console, most: int | None) -> None:
    """Columns are left out and texts are cut where they are wider than the screen; no number ever is."""
    left = 0 if most is None or len(block.rows) <= most + 1 else len(block.rows) - most
    rows = block.rows[: len(block.rows) - left]
    shown = [index for index, column in enumerate(block.columns) if column.only != "page"]
    while True:
        columns = [block.columns[index] for index in shown]
        titles = [clean(column.title) for column in columns]
        lines = [[_cell(row.cells[index]) for index in shown] for row in rows]
        widths = [max(map(cell_len, column)) for column in zip(titles, *lines, strict=True)]
        too_wide = sum(widths) + 2 * (len(widths) - 1) - out.width
        names = [any(isinstance(row.cells[index], Name) for row in rows) for index in shown]
        least = [
            width
            if column.number
            else min(width, _NAME_ROOM if name else max(_ROOM, cell_len(column.title) if at else 0))
            for at, (width, column, name) in enumerate(zip(widths, columns, names, strict=True))
        ]
        spare = max((column.spare for column in columns), default=0)
        if not spare or too_wide <= sum(widths) - sum(least):
            break
        shown = [index for index in shown if block.columns[index].spare < spare]
    while too_wide > 0 and (wider := [at for at, width in enumerate(widths) if width > least[at]]):
        at = max(wider, key=lambda at: widths[at])
        widths[at], too_wide = widths[at] - 1, too_wide - 1
    if block.title:
        out.print(Text(clean(block.title), style="bold"))
    text = Text()
    for cells, style in zip((titles, *lines), ("bold", *(_ROW[row.style] for row in rows)), strict=True):
        padded = (_padded(*cell) for cell in zip(cells, columns, widths, strict=True))
        text.append("  ".join(padded).rstrip() + "\n", style)
    if left:
        text.append(f"… {left} more (-v shows them)\n", "dim")
    out.print(text, soft_wrap=True, end="")


def _padded(cell: str, column: Column, width: int) -> str:
    cell = clean(cell, width)
    room = " " * (width - cell_len(cell))
    return f"{room}{cell}" if column.number else f"{cell}{room}"


def _cell(cell: str | Name) -> str:
    if isinstance(cell, Name):
        kind = f" ({cell.kind})" if cell.kind else ""
        return clean(clean(cell.text, _NAME_WIDTH) + kind)
    return clean(cell)
