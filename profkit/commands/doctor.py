"""`profkit doctor`: which profilers can be used here, and what is wrong with the others."""

from __future__ import annotations

import json

from profkit.capture.diagnosis import Diagnosis, diagnose
from profkit.errors import Exit, ProfkitError
from profkit.model.wording import did_you_mean

FORMATS = ("text", "json")


def doctor(output_format: str) -> tuple[str, Exit]:
    """Returns what to print and the exit status: an error only where no profiler is usable.

    Raises:
        ProfkitError: an unknown format.
    """
    if output_format not in FORMATS:
        raise ProfkitError(f"No format {output_format!r}.{did_you_mean(output_format, FORMATS)}")
    found = diagnose()
    usable = any(state.usable for state in found.profilers)
    text = json.dumps(found.to_dict(), indent=1, ensure_ascii=False) if output_format == "json" else as_text(found)
    return text, Exit.OK if usable else Exit.ERROR


def as_text(found: Diagnosis) -> str:
    """One line a profiler, then versions and devices."""
    lines = []
    for state in found.profilers:
        verdict = "usable" if state.usable else "not usable"
        lines.append(f"{state.name:<9} {verdict:<11} {state.version or '-':<16} {state.says}")
    versions = (f"{name} {version or 'none'}" for name, version in found.versions.items())
    lines.append(f"versions  {', '.join(versions)}")
    lines.append(f"devices   {', '.join(found.devices) if found.devices else 'none'}")
    return "\n".join(lines)
