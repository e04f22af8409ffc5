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
from profkit.readers.columns import Texts
from profkit.trace import NONE

#: A quote that neither opens nor closes a field.
_INNER_QUOTE = re.compile(rb'[^,\r\n"]"[^,\r\n"]')


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
        raise ProfkitError(
            f"{self.path}, line {row + 2}: {name} is {values[row]!r}, expected an integer. Record or copy it again."
        )

    def _parse(self, body: bytes) -> dict[str, Any]:
        import pyarrow as pa

        if _INNER_QUOTE.search(body.replace(b'""', b"")):
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
        left, right = self._free, len(self.names) - self._free - 1
        lines = body.decode().splitlines()
        mended = []
        for number, line in enumerate(lines, start=2):
            if not line:
                continue
            fields = next(csv.reader([line]), [])
            if '"' not in line or (len(fields) == len(self.names) and not _INNER_QUOTE.search(line.encode())):
                self._check_count(number, len(fields))
                mended.append(line)
                continue
            before = line.split(",", left)
            after = before[-1].rsplit(",", right)
            if len(before) != left + 1 or len(after) != right + 1:
                self._check_count(number, len(before) + len(after) - 1)
            text = after[0]
            if len(text) > 1 and text.startswith('"') and text.endswith('"'):
                text = text[1:-1]
            rest = before[:-1] + after[1:]
            if any(field.count('"') not in (0, 2) for field in rest):
                raise self._bad_row(number, "has a quote inside a field that holds no free text")
            quoted = '"' + text.replace('"', '""') + '"'
            mended.append(",".join([*before[:-1], quoted, *after[1:]]))
            self.mended_rows += 1
        return "\n".join(mended).encode()

    def _check_count(self, number: int, found: int) -> None:
        if found != len(self.names):
            raise self._bad_row(number, f"has {found} fields, the header has {len(self.names)}")

    def _bad_row(self, number: int, what: str) -> ProfkitError:
        return ProfkitError(f"{self.path}, line {number}: the row {what}. Mend the line, or record the run again.")
