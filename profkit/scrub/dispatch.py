"""A dispatch recording by its documented fields; see `profkit.readers.dispatch_file`."""

from __future__ import annotations

import json
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.readers.dispatch_file import SCHEMA
from profkit.scrub.kept_fields import each, flag, matching, number, record, text, version

_FIELDS = record(
    {
        "run_bodies": flag,
        "torch": version,
        "triton": version,
        "ranges": each(record({"text": text, "start": number, "end": number})),
        "ops": each(
            record(
                {
                    "order": number,
                    "name": text,
                    "kind": matching("kernel|memcpy|memset"),
                    "source": matching("aten|triton"),
                    "grid": each(number),
                    "scope": each(text),
                }
            )
        ),
    }
)


def scrub(source: Path, target: Path) -> None:
    """Write the recording `source` without unknown fields to the new file `target`.

    Raises:
        ProfkitError: the source is no JSON.
    """
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ProfkitError(f"{source} cannot be scrubbed: it is not valid JSON ({error}).") from None
    target.write_text(json.dumps({"schema": SCHEMA, **_FIELDS(content)}), encoding="utf-8")
