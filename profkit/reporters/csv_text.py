"""Rows as CSV: a kernel of a layer, a launch of a diff, or a configuration of a sweep."""

from __future__ import annotations

import csv
import io
import sys

from profkit.reporters import Answer, send, tell
from profkit.reporters.blocks import Records, clean


def write(answer: Answer) -> None:
    """The rows on standard output, and on standard error what they have no place for."""
    records = answer.records()
    send(render(records))
    sys.stderr.write("".join(f"{clean(line)}\n" for line in records.beside))
    tell(answer.notes)


def render(records: Records) -> str:
    """The rows below their columns' names."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_cell(name) for name in records.columns])
    writer.writerows([_cell(value) for value in row] for row in records.rows)
    return out.getvalue()


#: How a formula begins, in full width too; "" is in no text.
_FORMULA = frozenset("=+-@＝＋－＠")


def _cell(value: object) -> object:
    """A spreadsheet runs cells that begin like a formula, and a terminal obeys controls; names come from strangers."""
    if not isinstance(value, str):
        return value
    text = clean(value)
    return f"'{text}" if text.lstrip()[:1] in _FORMULA else text
