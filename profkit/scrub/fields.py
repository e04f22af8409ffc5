"""What may leave the machine of texts, and of JSON values by the types that they are documented to have.

A kernel's name and a range's text are what accounting is about, so they cannot be left behind; but a range text is
free, and a lambda's name may hold the path of its source. What is recognised by its form is replaced by `HIDDEN`:
addresses, mail-like words, values of assignments that are no numbers, directories. A secret that is a plain word in a
text cannot be recognised.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from msgspec import inspect

from profkit.model.scope import LAYER
from profkit.readers.rows import module_path

#: Makes a field's value one that may leave the machine; None where it is not what the field is for.
Field = Callable[[Any], Any]


def field(of: Any) -> Field:
    """The `Field` of a type: numbers are finite, texts are filtered or match the `form` of their `Meta` as a whole,
    objects keep the fields that their Struct names, and lists and mappings leave out what is of another type."""
    declared = inspect.type_info(of)
    return lambda value: _kept(value, declared)


def _kept(value: Any, declared: inspect.Type) -> Any:
    match declared:
        case inspect.UnionType():
            return next((kept for one in declared.types if (kept := _kept(value, one)) is not None), None)
        case inspect.Metadata(extra={"form": str(form)}):
            return value if isinstance(value, str) and re.fullmatch(form, value) else None
        case inspect.StrType():
            return kept_text(value) if isinstance(value, str) else None
        case inspect.BoolType():
            return value if isinstance(value, bool) else None
        case inspect.IntType() | inspect.FloatType():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return value if is_number and math.isfinite(value) else None
        case inspect.AnyType():
            return _kept(value, _SCALAR)
        case inspect.StructType() if isinstance(value, dict):
            return {one.name: _kept(value[one.name], one.type) for one in declared.fields if one.name in value}
        case inspect.DictType() if isinstance(value, dict):
            # The keys are texts of the user's.
            pairs = [(kept_text(str(k)), _kept(v, declared.value_type)) for k, v in value.items()]
            return {k: v for k, v in pairs if v is not None}
        case inspect.ListType() if isinstance(value, list):
            return [kept for item in value if (kept := _kept(item, declared.item_type)) is not None]
    return None


_SCALAR = inspect.type_info(bool | int | float | str)

# A pattern begins at the beginning of a word, or looks ahead only so far: names of kernels run to thousands of
# characters, and a search from each of them to the end would take their square.

#: Stands for what was taken out.
HIDDEN = "…"

_SECRET_WORD = (
    r"(?:secret|passw(?:or)?d|passphrase|credential|authorization|cookie|(?:api|access|private)[_-]?key|token)"
)
#: ``API_KEY=x``, ``"password": "x"``: nobody knows where such a value ends, so it goes to the end of the line. A name
#: with ``tokens`` counts something; ``::`` separates C++ names and ``==`` compares.
_SECRET = re.compile(
    rf"(?<![\w.-])(?=[\w.-]*?{_SECRET_WORD}(?!s))([\w.-]++[\"']?\s*+(?:=(?!=)|:(?!:)))\s*[^\s>].*", re.IGNORECASE
)
_BEARER = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
#: Keys that are recognised by how they begin: Hugging Face, GitHub, GitLab, OpenAI, Slack, AWS.
_ISSUED = re.compile(r"\b(?:hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA)[A-Za-z0-9]{16,}[\w-]*")
_URL = re.compile(r"(?<![\w+.-])[\w+.-]++://[^\s\"'<>]+")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@+[\w-][\w.-]*(?::[~/]\S*)?")
_IP = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])(?::\d+)?")
#: ``--user alice`` of a command line.
_FLAG = re.compile(r"(?<!\S)(--[A-Za-z][\w-]*)[ =](?!-)(\"[^\"]*\"|'[^']*'|\S+)")

_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"
#: Values that say nothing of a machine: numbers, shapes, truth values, as in ``bs=32`` and ``in=[2048,7168]``.
_PLAIN = rf"(?:[\[(]*-?{_NUMBER}(?:[\s,x\[\]()-]+{_NUMBER})*[\])]*|True|False|None)(?=[\])}}]|[,;]?(?:\s|$))"
#: ``KEY=value``. An environment's variable (all capitals) may hold blanks: it ends at the next one, or with the line.
_VARIABLE = re.compile(
    rf"(?<![\w.])([A-Z][A-Z0-9_]*=)(?!=|{_PLAIN})[^\n]*?(?=\s{{1,64}}[A-Za-z_][\w.]{{0,255}}=|$)", re.MULTILINE
)
_ASSIGNED = re.compile(
    rf"(?<![\w.-])([\d.-]*+(?!operator=)[A-Za-z_][\w.-]*+=)(?!=|{_PLAIN})(?:\"[^\"]*(?:\"|$)|'[^']*(?:'|$)|[^\s\"'])+"
)

_PART = r"[^\s/\\:;,|()\[\]{}<>\"'`=]+"
#: Absolute and home paths, of Windows too; a quoted one may hold blanks. A path after a word is a relative one, except
#: where it runs through a directory of homes.
_QUOTED_PATH = re.compile(r"(?<=([\"'`]))(?:~[\w.-]*|[A-Za-z]:)?[/\\](?!\s)[^\"'`\n]*(?=\1)")
_PATH = re.compile(
    rf"(?<![\w.)\]>*~])(?:~[\w.-]*|[A-Za-z]:(?=[/\\]))?[/\\]{{1,8}}{_PART}(?:[/\\]+{_PART})*[/\\]*"
    rf"|(?<![\w./\\-])(?:[\w.-]*+[/\\]++)*(?:[\w.-]*[.-])?(?:home|Users)[/\\]+{_PART}(?:[/\\]+{_PART})*[/\\]*"
)
_FILE_NAME = re.compile(r"[\w+-][\w.+-]*\.[A-Za-z]{1,6}\d?")


@lru_cache(maxsize=1 << 17)
def kept_text(text: str) -> str:
    """`text` as it may leave the machine.

    A path becomes its last part where that looks like a file's name, else `HIDDEN`; a hook's text becomes its module
    (see `profkit.readers.rows.module_path`). Layers are never lost: a text whose layers would be is reduced to them.
    """
    reduced = module_path(text)
    clean = reduced
    for pattern, replacement in _STEPS:
        clean = pattern.sub(replacement, clean)
    layers = [found[0] for found in LAYER.finditer(reduced)]
    if [found[0] for found in LAYER.finditer(clean)] != layers:
        return " ".join([*layers, HIDDEN])
    return clean


def _file_name(found: re.Match[str]) -> str:
    last = re.split(r"[/\\]", found[0])[-1]
    return last if _FILE_NAME.fullmatch(last) else HIDDEN


_Replacement = str | Callable[[re.Match[str]], str]
_STEPS: tuple[tuple[re.Pattern[str], _Replacement], ...] = (
    (_BEARER, rf"\1 {HIDDEN}"),
    (_SECRET, rf"\1{HIDDEN}"),
    (_ISSUED, HIDDEN),
    (_URL, HIDDEN),
    (_VARIABLE, rf"\1{HIDDEN}"),
    (_ASSIGNED, rf"\1{HIDDEN}"),
    (_FLAG, rf"\1 {HIDDEN}"),
    (_MAIL, HIDDEN),
    (_IP, HIDDEN),
    (_QUOTED_PATH, _file_name),
    (_PATH, _file_name),
)
