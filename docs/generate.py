"""Writes what can be computed into the docs: JSON schemas, field tables, codes, and the tables of the results.

    python docs/generate.py

Tables stand between ``<!-- generated NAME -->`` and ``<!-- end -->``. What a row of a field table says is the
description in the field's ``Meta``; fields without one need no words. A test fails where a file is not what this
writes.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import inspect as types
from result_tables import TABLES

from profkit.model.codes import codes
from profkit.model.run import RunRecord
from profkit.reporters.diff_document import DiffDocument
from profkit.reporters.layers_document import LayersDocument
from profkit.sweep.records import Sweep

DOCS = Path(__file__).parent
DOCUMENTS: Mapping[str, type[msgspec.Struct]] = {
    "profkit.layers/2": LayersDocument,
    "profkit.diff/2": DiffDocument,
    "profkit.sweep/2": Sweep,
    "profkit.run/1": RunRecord,
}
_MARKED = re.compile(r"(<!-- generated ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def files() -> dict[Path, str]:
    """Every file that is generated, or holds generated tables, and what it should hold."""
    found = {
        DOCS / "schemas" / f"{name.replace('/', '-')}.json": json.dumps(schema(document), indent=1) + "\n"
        for name, document in DOCUMENTS.items()
    }
    made = {name: "\n".join(table()) for name, table in TABLES.items()}
    made["documents"] = tables(LayersDocument, DiffDocument, Sweep)
    made["run"] = tables(RunRecord)
    for page in (path for path in DOCS.rglob("*.md") if path.name != "codes.md"):
        text = page.read_text(encoding="utf-8")
        if _MARKED.search(text):
            found[page] = _MARKED.sub(lambda match: f"{match[1]}\n{made[match[2]]}\n{match[3]}", text)
    found[DOCS / "codes.md"] = _codes()
    return found


def _codes() -> str:
    """The page of all codes."""
    lines = [
        "# Codes\n",
        "Each reason, warning and refusal has a code that stays; `profkit explain CODE` says the same of one of them.",
    ]
    group = ""
    for name, code in codes().items():
        if code.group != group:
            group = code.group
            lines += [f"\n## {group[:1].upper()}{group[1:]}\n", "| code | means | what to do |", "|---|---|---|"]
        lines.append(f"| `{name}` | {code.means} | {code.do} |")
    return "\n".join(lines) + "\n"


def schema(document: type[msgspec.Struct]) -> object:
    """The JSON schema of a document; only the first lines of docstrings, which are about Python, go into it."""
    return _summaries(msgspec.json.schema(document))


def _summaries(value: object) -> object:
    if isinstance(value, list):
        return [_summaries(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: item.split("\n\n")[0] if key == "description" and isinstance(item, str) else _summaries(item)
        for key, item in value.items()
    }


def tables(*documents: type) -> str:
    """What the types of these documents say, each type once: first the documents, then by name."""
    wanted = list(documents)
    for kind in wanted:
        found = dict.fromkeys(inner for field in _fields(kind) for inner in _records(field.type))
        wanted += [inner for inner in found if inner not in wanted]
    return "\n".join("\n".join(_described(kind)) for kind in [*documents, *sorted(wanted[len(documents) :], key=_name)])


def _described(kind: type) -> Iterator[str]:
    summary = _code(" ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split()))
    said = [(field, _said(field.type)) for field in _fields(kind)]
    plain = ", ".join(f"`{field.encode_name}`: {_word(field.type)}" for field, meaning in said if not meaning)
    yield f"### {_name(kind)}\n"
    yield f"{summary}\n{plain}.\n" if plain else f"{summary}\n"
    rows = [
        f"| `{field.encode_name}` | {_word(field.type)} | {_code(meaning).replace('|', '&#124;')} |"
        for field, meaning in said
        if meaning
    ]
    yield from ["| field | type | meaning |", "|---|---|---|", *rows, ""] if rows else []


def _name(kind: type) -> str:
    return kind.__name__


def _fields(kind: type) -> tuple[types.Field, ...]:
    return types.type_info(kind).fields  # type: ignore[attr-defined,no-any-return]


def _said(kind: types.Type) -> str:
    """What `Meta` says of a field."""
    return str((kind.extra_json_schema or {}).get("description", "")) if isinstance(kind, types.Metadata) else ""


def _code(text: str) -> str:
    return text.replace("``", "`")


def _records(kind: types.Type) -> Iterator[type]:
    """The types with fields of their own in `kind`."""
    if isinstance(kind, types.StructType | types.DataclassType):
        yield kind.cls
    for name in ("types", "item_types"):
        for inner in getattr(kind, name, ()):
            yield from _records(inner)
    for name in ("type", "item_type", "value_type"):
        if isinstance(inner := getattr(kind, name, None), types.Type):
            yield from _records(inner)


def _word(kind: types.Type) -> str:
    """A type in a word or two of JSON."""
    if isinstance(kind, types.Metadata):
        return _word(kind.type)
    if isinstance(kind, types.UnionType):
        words = dict.fromkeys(_word(inner) for inner in kind.types if not isinstance(inner, types.NoneType))
        return " or ".join([*words, *(["null"] if kind.includes_none else [])])
    if isinstance(kind, types.StructType | types.DataclassType):
        return f"[{kind.cls.__name__}](#{kind.cls.__name__.lower()})"
    if isinstance(kind, types.LiteralType):
        return "string"
    if isinstance(kind, types.TupleType):
        return f"[{', '.join(map(_word, kind.item_types))}]"
    if isinstance(kind, types.DictType):
        return f"{{string: {_word(kind.value_type)}}}"
    if isinstance(kind, types.CollectionType):
        return f"[{_word(kind.item_type)}]"
    words = {types.IntType: "integer", types.FloatType: "number", types.StrType: "string", types.BoolType: "boolean"}
    return words.get(type(kind), "any")


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
