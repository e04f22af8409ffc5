"""Reading JSON that profkit wrote, strictly: no NaN, no number beyond a double, no half of a surrogate pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from profkit.errors import ProfkitError


def read_json(file: Path, mend: str) -> Any:
    """The content of `file`.

    Args:
        mend: a sentence that says what to do where it is damaged.

    Raises:
        ProfkitError: it cannot be read, or is not valid JSON.
    """
    try:
        return msgspec.json.decode(file.read_bytes())
    except OSError as error:
        raise ProfkitError(f"{file} cannot be read: {error.strerror}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProfkitError(f"{file} is not valid JSON ({error}). {mend}") from None
