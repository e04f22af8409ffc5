"""Blocks on a terminal. Names come from strangers: they are printed as text, never as markup or control codes."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from profkit.errors import OutputClosedError
from profkit.reporters import Answer
from profkit.reporters.blocks import Block, Gap, Lines, Name, Notes, Table, Title, clean

#: A pipe has no width; sentences wrap here.
_PIPE_WIDTH = 120
_NAME_WIDTH = 48
_VERDICT = {"confirmed": "bold green", "refuted": "bold red", "inconclusive": "bold yellow"}
_LINES = {"plain": "", "points": "", "fine": "dim", "warning": "yellow", "alarm": "bold red"}
_ROW = {"": "", "total": "bold", "dim": "dim"}


class _Console(Console):
    """A console that takes texts as they are, and does not end the process itself when its reader has gone."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, emoji=False, markup=False, **options)

    def on_broken_pipe(self) -> None:
        raise OutputClosedError


def write(answer: Answer) -> None:
    """The answer on standard output, wide where that is no terminal."""
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    render(answer.blocks(), _Console(width=width))


def render(blocks: Iterable[Block], out: Console) -> None:
    """Print `blocks`."""
    for block in blocks:
        if isinstance(block, Title):
            out.print(Text(clean(block.text), style=_VERDICT.get(block.verdict, "bold")))
        elif isinstance(block, Notes):
            for code, message in block.notes:
                out.print(Text(clean(f"[{code}] {message}"), style="yellow" if block.warning else ""))
        elif block.only == "page":
            continue
        elif isinstance(block, Gap):
            out.print()
        elif isinstance(block, Lines):
            for line in block.told:
                out.print(Text(clean(line), style=_LINES[block.style]))
        else:
            _print_table(block, out)


def _print_table(block: Table, out: Console) -> None:
    """As wide as it is: a terminal may break its lines, but no number is ever cut."""
    shown = [index for index, column in enumerate(block.columns) if column.only != "page"]
    columns = [block.columns[index] for index in shown]
    lines = [[clean(column.title) for column in columns]]
    lines += [[_cell(row.cells[index]) for index in shown] for row in block.rows]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    text = Text()
    for cells, style in zip(lines, ("bold", *(_ROW[row.style] for row in block.rows)), strict=True):
        padded = (
            f"{' ' * (width - cell_len(cell))}{cell}" if column.number else f"{cell}{' ' * (width - cell_len(cell))}"
            for cell, column, width in zip(cells, columns, widths, strict=True)
        )
        text.append("  ".join(padded).rstrip() + "\n", style)
    out.print(text, soft_wrap=True, end="")


def _cell(cell: str | Name) -> str:
    if isinstance(cell, Name):
        kind = f" ({cell.kind})" if cell.kind else ""
        return clean(clean(cell.text, _NAME_WIDTH) + kind)
    return clean(cell)
