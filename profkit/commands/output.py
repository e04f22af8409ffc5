"""Writing a report to standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from profkit.errors import OutputClosedError, ProfkitError

FORMATS = ("text", "json", "csv", "md")


def require_format(name: str, formats: Sequence[str]) -> None:
    """Refuse an unknown format before any work is done.

    Raises:
        ProfkitError: `name` is none of `formats`.
    """
    if name not in formats:
        raise ProfkitError(f"--format {name!r} is unknown. There are: {', '.join(formats)}.")


#: Control characters that JSON lets through as they are, and that a terminal would obey.
_RAW_CONTROLS = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def json_text(data: object) -> str:
    """`data` as JSON that holds no control character, so that it is safe to show."""
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False).translate(_RAW_CONTROLS) + "\n"


def write(text: str) -> None:
    """Write `text` as UTF-8, whatever the locale: names and µs are no ASCII."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", errors="replace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise OutputClosedError from None
