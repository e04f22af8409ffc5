"""Blocks as Markdown, to paste into a pull request. Names come from strangers: they are escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from profkit.reporters import Answer, send
from profkit.reporters.blocks import Block, Gap, Name, Notes, Table, Title, clean

_NAME_WIDTH = 80
#: Characters that Markdown or HTML would read as markup.
_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]()#+!|~"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})


#: What GitHub makes a mention, an issue or a link of, however it is escaped, unless a joiner that no one sees is there.
_LINKED = re.compile(r"@(?=\w)|#(?=\d)|\bGH-(?=\d)|\w(?=://)|\bwww(?=\.)", re.IGNORECASE)


def escape(text: str, width: int | None = None) -> str:
    """`text` as Markdown that shows it literally; its middle is left out where it is longer than `width`."""
    return _LINKED.sub("\\g<0>\u200d", clean(text, width)).translate(_SPECIAL)


def code(text: str, width: int) -> str:
    """`text` as a code span of a table's cell, in which nothing is markup."""
    text = clean(text, width).replace("`", "'").replace("|", "\\|")
    return f"`{text}`" if text.strip() else ""


def write(answer: Answer) -> None:
    """The answer on standard output."""
    send(render(answer.blocks()))


def render(blocks: Iterable[Block]) -> str:
    """`blocks` as text; small print is the last line."""
    lines: list[str] = []
    fine: list[str] = []
    for block in blocks:
        if isinstance(block, Title):
            lines.append(f"**{escape(block.text)}**")
        elif isinstance(block, Notes):
            lines += [f"- {escape(message)} `{code}`" for code, message in block.notes]
        elif block.only == "screen":
            continue
        elif isinstance(block, Gap):
            lines.append("")
        elif isinstance(block, Table):
            lines += _table(block)
        elif block.style == "fine":
            fine += [escape(line) for line in block.told]
        else:
            lines += [f"{'- ' if block.style == 'points' else ''}{escape(line)}" for line in block.told]
    # Not on a line of its own: there the tag would begin a block of HTML, in which an escape shows its backslash.
    lines += ["", f"<sub>{'<br>'.join(fine)}</sub>"] if fine else []
    return "\n".join(lines).rstrip() + "\n"


def _table(block: Table) -> Iterator[str]:
    shown = [index for index, column in enumerate(block.columns) if column.only != "screen"]
    columns = [block.columns[index] for index in shown]
    if not block.continued:
        yield _line([block.title or columns[0].title, *(column.title for column in columns[1:])])
        yield _line(["---:" if column.number else "---" for column in columns])
    for row in block.rows:
        # A plus sign of a number stays as it is.
        cells = [
            cell if column.number and isinstance(cell, str) else _text(cell)
            for cell, column in zip((row.cells[index] for index in shown), columns, strict=True)
        ]
        if block.continued:
            cells[0] = f"{block.title}: {cells[0]}".rstrip(": ")
        yield _line([f"**{cell}**" if cell and row.style == "total" else cell for cell in cells])


def _text(cell: str | Name) -> str:
    return code(cell.text, _NAME_WIDTH) if isinstance(cell, Name) else escape(cell)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
