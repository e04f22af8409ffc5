"""Documents as JSON."""

from __future__ import annotations

import json

import msgspec

from profkit.reporters import Answer, send, tell

#: Control characters that JSON lets through as they are, and that a terminal would obey.
_RAW_CONTROLS = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def write(answer: Answer) -> None:
    """The document on standard output, and on standard error what is not in it."""
    send(render(answer.document()))
    tell(answer.notes)


def render(document: object) -> str:
    """`document` as JSON that holds no control character, so that it is safe to show."""
    data = msgspec.to_builtins(document)
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False).translate(_RAW_CONTROLS) + "\n"
