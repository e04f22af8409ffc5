"""An answer in 6 KB, for who is in a hurry and for agents: what it is, why, the largest rows, what to do next."""

from __future__ import annotations

import io

from rich.console import Console

from profkit.reporters import Answer, send
from profkit.reporters.blocks import Lines, Notes, Row, Table, Title, clean
from profkit.reporters.terminal import render as on_screen

#: Bytes of the whole; and of one sentence, rows of a table, and tables.
MOST_BYTES, _SENTENCE, _ROWS, _TABLES = 6_000, 300, 10, 2


def write(answer: Answer) -> None:
    """The answer on standard output."""
    send(render(answer))


def render(answer: Answer) -> str:
    """The answer as text of at most `MOST_BYTES`."""
    out = io.StringIO()
    console = Console(file=out, width=100, highlight=False, emoji=False, markup=False)
    tables, left, codes = 0, 0, list[str]()
    for block in answer.blocks():
        if isinstance(block, Title):
            on_screen([Title(clean(block.text, 2 * _SENTENCE))], console)
        elif isinstance(block, Notes):
            codes += [code for code, _ in block.notes]
        elif isinstance(block, Table) and block.only != "page" and tables < _TABLES:
            tables += 1
            on_screen([_largest(block)], console)
        elif isinstance(block, Table):
            left += block.only != "page"
        elif isinstance(block, Lines) and block.only != "page" and block.style != "next" and not block.detail:
            on_screen([Lines([clean(line, _SENTENCE) for line in block.told])], console)
    lines = [f"… {left} more tables: --format text"] if left else []
    lines += [f"codes: {', '.join(dict.fromkeys(codes))} (profkit explain CODE)"] if codes else []
    lines += answer.notes
    last = "\n".join([*(clean(line, _SENTENCE) for line in lines), *answer.next_steps]) + "\n"
    room = MOST_BYTES - len(last.encode()) - 8
    text = "\n".join(line.rstrip() for line in out.getvalue().splitlines())
    if len(text.encode()) > room:
        text = text.encode()[:room].decode("utf-8", "ignore").rpartition("\n")[0] + "\n…"
    return f"{text}\n{last}"


def _largest(table: Table) -> Table:
    """The rows whose time, or its change, is largest, in their order; a total stays."""
    totals = [row for row in table.rows if row.style == "total"]
    rows = [row for row in table.rows if row.style != "total"]
    titles = [column.title for column in table.columns]
    by = next((titles.index(title) for title in ("change", "µs", "launches") if title in titles), None)
    if by is None or len(rows) <= _ROWS:
        return table
    at = len(titles) - 1 - titles[::-1].index(titles[by])
    chosen = sorted(sorted(range(len(rows)), key=lambda i: -abs(_number(rows[i], at)))[:_ROWS])
    title = f"{table.title} (the {_ROWS} largest of {len(rows)} rows)".lstrip()
    return Table(table.columns, [*(rows[i] for i in chosen), *totals], title)


def _number(row: Row, at: int) -> float:
    try:
        return float(str(row.cells[at]).replace("−", "-").replace(",", ""))
    except ValueError:
        return 0.0
