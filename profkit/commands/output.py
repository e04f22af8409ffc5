"""Writing a report to standard output."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from profkit.errors import ProfkitError

FORMATS = ("text", "json", "csv", "md")


def require_format(name: str, formats: Sequence[str]) -> None:
    """Refuse an unknown format before any work is done.

    Raises:
        ProfkitError: `name` is none of `formats`.
    """
    if name not in formats:
        raise ProfkitError(f"--format {name!r} is unknown. There are: {', '.join(formats)}.")


def write(text: str) -> None:
    """Write `text` as UTF-8, whatever the locale: names and µs are no ASCII."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", errors="replace"))
    sys.stdout.buffer.flush()
