"""Long arrays are decoded in pieces, whatever stands at the cuts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.errors import ProfkitError
from profkit.readers.json_stream import ArrayStream

#: Texts that look like the seam between two items.
_TEXTS = st.sampled_from(["}, {", '"},{"', "\\", '\\"}, {"', "]", "traceEvents", "µ", ""]) | st.text(max_size=8)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=6,
)
_ITEMS = st.lists(st.dictionaries(_TEXTS, _VALUES, max_size=4), max_size=12)


def read(path: Path, piece_bytes: int = 64) -> tuple[list[Any], dict[str, Any], ArrayStream[Any]]:
    stream: ArrayStream[Any] = ArrayStream(path, "traceEvents", dict, piece_bytes)
    items = [item for batch in stream.batches() for item in batch]
    return items, {k: msgspec.json.decode(v) for k, v in stream.header.items()}, stream


@settings(max_examples=80, deadline=None)
@given(_ITEMS, st.dictionaries(_TEXTS.filter(lambda k: k != "traceEvents"), _VALUES, max_size=2), st.integers(1, 80))
def test_pieces_are_the_whole(tmp_path_factory: Any, items: list[Any], beside: dict[str, Any], piece: int) -> None:
    path = tmp_path_factory.mktemp("json") / "trace.json"
    document = {**{f"before {k}": v for k, v in beside.items()}, "traceEvents": items, **beside}
    path.write_text(json.dumps(document))

    found, header, _ = read(path, piece)

    assert found == items
    assert header == {k: v for k, v in document.items() if k != "traceEvents"}


def test_a_bare_array(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('[{"a": 1}, {"a": 2},\n{"a": 3}]\n')

    assert read(path)[0] == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_key_inside_another_object_is_not_the_array(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(
        '{"metadata": {"traceEvents": [{"a": 0}]}, "text": "\\"traceEvents\\": [", "traceEvents": [{"a": 1}]}'
    )

    assert read(path)[0] == [{"a": 1}]


def test_gzip_is_told_by_content(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(b'{"traceEvents": [{"a": 1}], "z": 2}'))

    assert read(path)[:2] == ([{"a": 1}], {"z": 2})


@pytest.mark.parametrize("word", ["NaN", "-Infinity", "inf", "-nan"])
def test_numbers_that_json_does_not_have_are_absent(tmp_path: Path, word: str) -> None:
    path = tmp_path / "trace.json"
    text = '{"traceEvents": [{"a": WORD, "b": 1}, {"text": "\\"a\\": NaN, x"}], "z": WORD}'
    path.write_text(text.replace("WORD", word))

    items, header, stream = read(path)

    assert items == [{"a": None, "b": 1}, {"text": '"a": NaN, x'}]
    assert header == {"z": None}
    assert stream.not_finite >= 1


def test_invalid_utf8_is_replaced_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b'{"traceEvents": [{"name": "a\xff"}, {"name": "b"}]}')

    items, _, stream = read(path, 1 << 20)

    assert items == [{"name": "a\ufffd"}, {"name": "b"}]
    assert stream.invalid_utf8 == 1


_WHOLE = json.dumps({"traceEvents": [{"name": f"kernel {i}", "args": {"n": [i]}} for i in range(20)], "z": 1}).encode()


@pytest.mark.parametrize("length", [30, 200, len(_WHOLE) - 20, len(_WHOLE) - 1])
@pytest.mark.parametrize("piece", [50, 1 << 20])
def test_truncated_json_names_file_and_offset(tmp_path: Path, length: int, piece: int) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(_WHOLE[:length])

    with pytest.raises(ProfkitError, match=rf"trace\.json: the JSON ends too early, at byte {length}\b"):
        read(path, piece)


def test_truncated_gzip_names_file_and_offset(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    noise = json.dumps({"traceEvents": [{"n": i * 2654435761 % 10**9} for i in range(2000)]}).encode()
    path.write_bytes(gzip.compress(noise)[:-2000])

    with pytest.raises(ProfkitError, match=r"trace\.json\.gz: the gzip data ends or is damaged after byte \d+"):
        read(path, 100)


def test_malformed_json_names_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    text = b'{"traceEvents": [{"a": 1}, {"a": 2}, {"a": oops}, {"a": 3}]}'
    path.write_bytes(text)

    with pytest.raises(ProfkitError, match=rf"malformed JSON near byte {text.index(b'oops')} "):
        read(path, 1 << 20)


def test_no_array(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"a": 1}')

    with pytest.raises(ProfkitError, match='no "traceEvents" array'):
        read(path)
