"""CSV of profilers as whole columns, with the faults that their writers leave in.

rocprofv3 writes quoted names without escaping a quote inside them. A row with such a name is mended from its shape:
the header gives the number of fields on both sides of the one free text, and no other field holds a comma.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from profkit.errors import ProfkitError
from profkit.model.trace import NONE
from profkit.readers.rows import Texts

_PLAIN_FIELD = r'(?:"[^"]*"|[^",]*)'
_PLAIN_LINE = re.compile(rf"{_PLAIN_FIELD}(?:,{_PLAIN_FIELD})*")


def header_of(line: bytes) -> list[str]:
    """Column names in lower case with underscores: writers differ in case (``VGPR_Count``, ``Vgpr_Count``)."""
    text = line.decode("utf-8-sig", errors="replace").strip()
    return [name.strip().strip('"').lower().replace("-", "_").replace(" ", "_") for name in text.split(",")]


class CsvTable:
    """One file's columns as texts, converted on demand.

    Args:
        path: the file.
        free_text: the column that may hold quotes and commas.

    Raises:
        ProfkitError: unreadable, or a row that does not fit the header, with its line.
    """

    def __init__(self, path: Path, free_text: str) -> None:
        self.path = path
        self.mended_rows = 0
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ProfkitError(f"{path} cannot be read: {error.strerror}.") from None
        head, _, body = data.partition(b"\n")
        self.names = header_of(head)
        self._free = self.names.index(free_text)
        try:
            body.decode()
        except UnicodeDecodeError:
            body = body.decode(errors="replace").encode()
        self._columns = self._parse(body)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def texts(self, name: str, texts: Texts) -> npt.NDArray[np.int32]:
        """The codes of column `name` in `texts`."""
        encoded = self._columns[name].combine_chunks().dictionary_encode()
        chunk = encoded.chunk(0) if hasattr(encoded, "chunk") else encoded
        lookup = texts.codes([str(v) for v in chunk.dictionary.to_pylist()])
        codes = chunk.indices.to_numpy(zero_copy_only=False)
        return lookup[codes] if len(codes) else np.empty(0, np.int32)

    def integers(self, name: str, default: int = NONE) -> npt.NDArray[np.int64]:
        """Column `name`; `default` where it is absent or empty.

        Raises:
            ProfkitError: a field is no integer, with its line.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if name not in self._columns:
            return np.full(len(self), default, np.int64)
        column = self._columns[name]
        filled = pc.if_else(pc.equal(column, ""), str(default), column)
        try:
            return np.asarray(pc.cast(filled, pa.int64()).to_numpy(), np.int64)
        except pa.ArrowInvalid:
            values = filled.to_pylist()
        row = next((i for i, v in enumerate(values) if not re.fullmatch(r"-?\d{1,18}", v)), 0)
        if header_of(values[row].encode()) == [name]:
            raise ProfkitError(
                f"{self.path}, line {row + 2}: the header stands here again, so several processes wrote this file. "
                "Record one file per process: rocprofv3 -o NAME_%pid%."
            )
        raise ProfkitError(
            f"{self.path}, line {row + 2}: {name} is {values[row]!r}, expected an integer. Record or copy it again."
        )

    def _parse(self, body: bytes) -> dict[str, Any]:
        import pyarrow as pa

        if not _is_plain(body):
            return self._columns_of(self._mended(body))
        try:
            return self._columns_of(body)
        except pa.ArrowInvalid:
            return self._columns_of(self._mended(body))

    def _columns_of(self, body: bytes) -> dict[str, Any]:
        import pyarrow as pa
        import pyarrow.csv as pacsv

        if not body.strip():
            return {name: pa.chunked_array([[]], pa.string()) for name in self.names}
        parsed = pacsv.read_csv(
            io.BytesIO(body),
            read_options=pacsv.ReadOptions(column_names=self.names),
            parse_options=pacsv.ParseOptions(newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(self.names, pa.string()), strings_can_be_null=False
            ),
        )
        return {name: parsed.column(name) for name in self.names}

    def _mended(self, body: bytes) -> bytes:
        """`body` with inner quotes doubled, as CSV wants them."""
        lines = body.decode().split("\n")
        return "\n".join(self._mended_line(n, line.rstrip("\r")) for n, line in enumerate(lines, 2) if line).encode()

    def _mended_line(self, number: int, line: str) -> str:
        if _PLAIN_LINE.fullmatch(line):
            fields = next(csv.reader([line]))
            if len(fields) == len(self.names):
                return line
        elif self._is_escaped(line):
            return line
        left, right = self._free, len(self.names) - self._free - 1
        before = line.split(",", left)
        after = before[-1].rsplit(",", right)
        if len(before) != left + 1 or len(after) != right + 1:
            found = len(before) + len(after) - 1
            raise self._bad_row(number, f"has {found} fields, the header has {len(self.names)}")
        text = after[0]
        if len(text) > 1 and text.startswith('"') and text.endswith('"'):
            text = text[1:-1]
        if any(field.count('"') not in (0, 2) for field in before[:-1] + after[1:]):
            raise self._bad_row(number, "has a quote inside a field that holds no free text")
        self.mended_rows += 1
        quoted = '"' + text.replace('"', '""') + '"'
        return ",".join([*before[:-1], quoted, *after[1:]])

    def _is_escaped(self, line: str) -> bool:
        """Whether the quotes inside fields are doubled already, by another writer than rocprofv3."""
        try:
            return len(next(csv.reader([line], strict=True))) == len(self.names)
        except csv.Error:
            return False

    def _bad_row(self, number: int, what: str) -> ProfkitError:
        return ProfkitError(f"{self.path}, line {number}: the row {what}. Mend the line, or record the run again.")


def _is_plain(body: bytes) -> bool:
    """Whether every other quote opens a field and every other one closes it, so that no field has a quote inside."""
    text = np.frombuffer(b"\n" + body + b"\n", np.uint8)
    quotes = np.flatnonzero(text == ord('"'))
    before, after = text[quotes[::2] - 1], text[quotes[1::2] + 1]
    opens = (before == ord(",")) | (before == ord("\n"))
    closes = (after == ord(",")) | (after == ord("\n")) | (after == ord("\r"))
    return len(quotes) % 2 == 0 and bool(opens.all()) and bool(closes.all())
