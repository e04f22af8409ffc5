"""JSON documents by the fields that they are documented to have: what a field may hold, and what is done with it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from profkit.scrub import texts

#: Makes a field's value one that may leave the machine; None where it is not what the field is for.
Field = Callable[[Any], Any]


def number(value: Any) -> int | float | None:
    """A finite number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None


def flag(value: Any) -> bool | None:
    """True or false."""
    return value if isinstance(value, bool) else None


def text(value: Any) -> str | None:
    """A text, filtered."""
    return texts.kept(value) if isinstance(value, str) else None


def scalar(value: Any) -> Any:
    """A number, true or false, or a text, which is filtered."""
    return value if isinstance(value, bool) else either(number, text)(value)


def matching(pattern: str) -> Field:
    """A text of the form `pattern`, e.g. a version."""
    compiled = re.compile(pattern)
    return lambda value: value if isinstance(value, str) and compiled.fullmatch(value) else None


def record(fields: Mapping[str, Field]) -> Field:
    """An object of which `fields` are kept and no others."""

    def kept(value: Any) -> dict[str, Any] | None:
        return {k: field(value[k]) for k, field in fields.items() if k in value} if isinstance(value, dict) else None

    return kept


def mapping(field: Field) -> Field:
    """An object whose keys are texts of the user's; values that are not `field`'s are left out."""

    def kept(value: Any) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            return None
        pairs = [(texts.kept(str(k)), field(v)) for k, v in value.items()]
        return {k: v for k, v in pairs if v is not None}

    return kept


def each(field: Field) -> Field:
    """A list; items that are not `field`'s are left out."""

    def kept(value: Any) -> list[Any] | None:
        items = [field(v) for v in value] if isinstance(value, list) else None
        return None if items is None else [v for v in items if v is not None]

    return kept


def either(*fields: Field) -> Field:
    """The first of `fields` that accepts the value."""

    def kept(value: Any) -> Any:
        return next((found for field in fields if (found := field(value)) is not None), None)

    return kept


#: ``2.11.0+cu130``, ``2025.3.1.90-253135822126v0``, ``2.4.0a0+07cecf4168.nv24.05``; no local labels in words.
version = matching(
    r"v?\d+(?:\.\d+){0,5}(?:(?:a|b|rc|\.?dev|\.?post)\d+)*"
    r"(?:[-+](?:cu|rocm|git|g|cpu)?[0-9a-f.]{0,48}(?:v\d{1,3})?)*(?:\.nv[\d.]{1,8})?"
)
