"""Files that profkit writes whole or not at all, and reads strictly: no NaN, no number beyond a double, no half of a
surrogate pair."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from profkit.errors import ProfkitError


def write_whole(file: Path, text: str) -> None:
    """Write `text` beside `file` and rename; whatever goes wrong leaves `file` as it was and nothing beside it.

    Raises:
        ProfkitError: it cannot be written, e.g. on a full disk.
    """
    # In a directory that others may write to, a name that they know could be a link of theirs; a new file is none.
    partial = file.with_name(f".{file.name}.{secrets.token_hex(8)}.part")
    try:
        with partial.open("x", encoding="utf-8") as opened:
            opened.write(text)
        partial.replace(file)
    except OSError as error:
        raise ProfkitError(f"Cannot write {file}: {error.strerror}.") from None
    finally:
        with suppress(OSError):
            partial.unlink()


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Write `content` into `file`, whole or not at all.

    Raises:
        ProfkitError: see `write_whole`.
    """
    write_whole(file, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


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
