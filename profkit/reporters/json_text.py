"""Documents as JSON."""

from __future__ import annotations

import json

import msgspec

from profkit.reporters import Answer, send, tell

#: Control characters that JSON lets through as they are, and that a terminal would obey.
_RAW_CONTROLS = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def write(answer: Answer) -> None:
    """The document on standard output, without control characters, and on standard error what is not in it."""
    text = json.dumps(msgspec.to_builtins(answer.document()), indent=1, ensure_ascii=False, allow_nan=False)
    send(text.translate(_RAW_CONTROLS) + "\n")
    tell(answer.notes)
