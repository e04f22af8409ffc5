"""A JSON document with one very long array, decoded piece by piece.

A trace of gigabytes is one object whose ``traceEvents`` array is nearly all of it. The array is cut between items and
each piece decoded by itself, so memory holds one piece. A cut is right exactly if the piece decodes: one inside a
string or inside a nested array leaves it unbalanced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from profkit.errors import ProfkitError
from profkit.readers.files import Input

T = TypeVar("T")
D = TypeVar("D")

_HEADER = msgspec.json.Decoder(dict[str, msgspec.Raw])

#: Bytes decoded at once: large enough that per-piece costs vanish, small enough that the decoded items stay few.
PIECE_BYTES = 8 << 20
#: Where to look for a cut, from the end of a piece, and how many candidates to try before reading on.
_TAIL_BYTES = 256 << 10
_CUT_TRIES = 3

#: A string, with its last quote in group 1 where the text does not end before it, or a bracket.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)|[{}\[\]]', re.DOTALL)
#: What follows a key; group 1 is the bracket of an array.
_COLON = re.compile(rb"\s*(?::\s*(\[)?)?")
_CUT = re.compile(rb"\}\s*,\s*(?=\{)")
#: Bare NaN and infinities as values of an object; a quote inside a string is escaped, so this cannot match in one.
_NOT_FINITE = re.compile(rb'(?<!\\)("\s*:\s*)[-+]?(?:NaN|nan|Infinity|infinity|Inf|inf)(?=\s*[,}])')


class ArrayStream(Generic[T]):
    """The items of one array of a JSON file, and the rest of the document.

    Args:
        path: JSON, plain or gzipped (told by content).
        key: the array's key in the top-level object. A file that is an array itself has no header.
        item: what msgspec decodes the items to.
    """

    def __init__(self, path: Path, key: str, item: type[T], piece_bytes: int = PIECE_BYTES) -> None:
        self._path = path
        self._key = key
        self._decoder: msgspec.json.Decoder[list[T]] = msgspec.json.Decoder(list[item])  # type: ignore[valid-type]
        self._piece_bytes = piece_bytes
        self._read = 0
        self._ended = False
        self._bare = False
        #: Top-level values beside the array, complete once `batches` is exhausted.
        self.header: dict[str, msgspec.Raw] = {}
        #: Values that JSON does not allow (NaN, infinities), read as null; pieces with invalid UTF-8, mended.
        self.not_finite = 0
        self.invalid_utf8 = 0

    def batches(self) -> Iterator[list[T]]:
        """The items in order, piece by piece.

        Raises:
            ProfkitError: truncated or malformed JSON or gzip, or no such array.
        """
        with Input(self._path) as file:
            head, rest = self._find_array(file)
            wanted = self._piece_bytes
            while not self._ended:
                rest += self._more(file, wanted - len(rest))
                if self._ended:
                    break
                items, used = self._cut_piece(rest)
                if items is None:
                    wanted = 2 * len(rest)
                    continue
                yield items
                rest = rest[used:]
                wanted = self._piece_bytes
            yield self._last_piece(head, rest)

    def _more(self, file: Input, size: int) -> bytes:
        data = file.read(max(size, 1))
        self._read = file.position
        self._ended = not data
        return data

    def _find_array(self, file: Input) -> tuple[bytes, bytes]:
        """The document up to and including the array's bracket, and what was read after it.

        Every token is looked at once, and the pieces grow, so that it takes as long as the text is.
        """
        key = b'"' + self._key.encode() + b'"'
        text, place, depth = b"", 0, 0
        while not self._ended:
            text += self._more(file, max(self._piece_bytes, len(text)))
            if place == 0 and text.lstrip()[:1] == b"[":
                self._bare = True
                return b"{" + key + b":[", text.lstrip()[1:]
            for token in _TOKEN.finditer(text, place):
                place = token.start()
                if token[1] is None:
                    depth += 1 if token[0] in b"{[" else -1
                elif not token[1]:
                    break
                elif depth == 1 and token[0] == key:
                    colon = _COLON.match(text, token.end())
                    if colon is not None and colon[1]:
                        return text[: colon.end()], text[colon.end() :]
                    if colon is not None and colon.end() == len(text):
                        break
                place = token.end()
        try:
            msgspec.json.decode(text, type=msgspec.Raw)
        except msgspec.DecodeError as error:
            raise self._malformed(error, text) from None
        raise ProfkitError(f'{self._path}: no "{self._key}" array, so this is no trace in the Chrome JSON format.')

    def _cut_piece(self, text: bytes) -> tuple[list[T] | None, int]:
        """The items up to the last possible cut, and the bytes used; None where a longer text is needed."""
        cuts = list(_CUT.finditer(text, max(0, len(text) - _TAIL_BYTES)))
        for cut in reversed(cuts[-_CUT_TRIES:]):
            try:
                return self._decode(b"[" + text[: cut.start() + 1] + b"]", self._decoder), cut.end()
            except msgspec.DecodeError:
                continue
        return None, 0

    def _decode(self, piece: bytes, decoder: msgspec.json.Decoder[D]) -> D:
        try:
            return decoder.decode(piece)
        except msgspec.DecodeError:
            value = self._mend(piece, decoder)
            if value is None:
                raise
            return value

    def _mend(self, piece: bytes, decoder: msgspec.json.Decoder[D]) -> D | None:
        """`piece` decoded without what JSON forbids but traces hold; None where that is not what is wrong with it."""
        mended, not_finite = _NOT_FINITE.subn(rb"\1null", piece)
        invalid_utf8 = False
        try:
            mended.decode()
        except UnicodeDecodeError:
            invalid_utf8 = True
            mended = mended.decode(errors="replace").encode()
        if not (not_finite or invalid_utf8):
            return None
        try:
            value = decoder.decode(mended)
        except msgspec.DecodeError:
            return None
        self.not_finite += not_finite
        self.invalid_utf8 += invalid_utf8
        return value

    def _last_piece(self, head: bytes, rest: bytes) -> list[T]:
        """The last items; fills `header`."""
        document = head + rest
        if self._bare and rest.rstrip().endswith(b"]"):
            document += b"}"
        try:
            self.header = self._decode(document, _HEADER)
        except msgspec.DecodeError as error:
            raise self._malformed(error, document) from None
        array = bytes(self.header.pop(self._key))
        try:
            return self._decode(array, self._decoder)
        except msgspec.DecodeError as error:
            raise self._malformed(error, array) from None

    def _malformed(self, error: msgspec.DecodeError, document: bytes) -> ProfkitError:
        if isinstance(error, msgspec.ValidationError):
            return ProfkitError(f"{self._path}: an event has an unexpected form ({error}).")
        place = re.search(r"byte (\d+)", str(error))
        if place is None:
            return ProfkitError(
                f"{self._path}: the JSON ends too early, at byte {self._read} ({error}). "
                "Record it again and let the profiler finish writing, or copy the file again."
            )
        offset = max(self._read - len(document), 0) + int(place[1])
        return ProfkitError(f"{self._path}: malformed JSON near byte {offset} ({error}). Copy or record it again.")
