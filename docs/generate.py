"""Writes what the docs say of JSON documents from the types that describe them: field tables and JSON schemas.

    python docs/generate.py

A table stands between two markers, ``<!-- generated: NAME -->`` and ``<!-- end -->``. What a row says is an entry of a
docstring's ``Args``; fields without one need no words. A test fails where a file is not what this writes.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import inspect as types

from profkit.model.run import RunRecord
from profkit.reporters.diff_document import DiffDocument
from profkit.reporters.layers_document import LayersDocument

DOCS = Path(__file__).parent
DOCUMENTS: Mapping[str, type[msgspec.Struct]] = {
    "profkit.layers/1": LayersDocument,
    "profkit.diff/1": DiffDocument,
    "profkit.run/1": RunRecord,
}
_MARKED = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
_ENTRY = re.compile(r"^    (\w[\w, ]*): ", re.MULTILINE)


def files() -> dict[Path, str]:
    """Every file that is generated, or holds a generated table, and what it should hold."""
    found = {
        DOCS / "schemas" / f"{name.replace('/', '-')}.json": json.dumps(schema(document), indent=1) + "\n"
        for name, document in DOCUMENTS.items()
    }
    page = DOCS / "json.md"
    text = page.read_text(encoding="utf-8")
    found[page] = _MARKED.sub(lambda match: f"{match[1]}\n{tables(DOCUMENTS[match[2]])}\n{match[3]}", text)
    return found


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


def tables(document: type[msgspec.Struct]) -> str:
    """A table for the document and for each type in it, in the order in which they are named."""
    wanted, parts = [document], []
    for kind in wanted:
        fields = types.type_info(kind).fields  # type: ignore[attr-defined]
        wanted += [found for field in fields for found in _structs(field.type) if found not in wanted]
        parts.append("\n".join([*_head(kind), *_rows(kind, fields)]))
    return "\n\n".join(parts) + "\n"


def _head(kind: type[msgspec.Struct]) -> Iterator[str]:
    summary = " ".join(inspect.getdoc(kind).split("\n\n")[0].split())
    yield f"**{kind.__name__}**: {_code(summary)}"
    yield ""
    yield "| field | type | meaning |"
    yield "|---|---|---|"


def _rows(kind: type[msgspec.Struct], fields: tuple[types.Field, ...]) -> Iterator[str]:
    said = _entries(inspect.getdoc(kind) or "")
    for field in fields:
        meaning = _code(said.get(field.name, "")).replace("|", "\\|")
        yield f"| `{field.encode_name}` | {_word(field.type)} | {meaning} |"


def _entries(doc: str) -> dict[str, str]:
    """What a docstring's ``Args`` say of each field."""
    _, _, args = doc.partition("Args:\n")
    parts = _ENTRY.split(args)[1:]
    return {
        name.strip(): " ".join(text.split())
        for names, text in zip(parts[::2], parts[1::2], strict=True)
        for name in names.split(",")
    }


def _code(text: str) -> str:
    return text.replace("``", "`")


def _structs(kind: types.Type) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, types.StructType):
        yield kind.cls
    for name in ("types", "item_types"):
        for inner in getattr(kind, name, ()):
            yield from _structs(inner)
    for name in ("type", "item_type", "value_type"):
        if isinstance(inner := getattr(kind, name, None), types.Type):
            yield from _structs(inner)


def _word(kind: types.Type) -> str:
    """A type in a word or two of JSON."""
    if isinstance(kind, types.Metadata):
        return _word(kind.type)
    if isinstance(kind, types.UnionType):
        words = dict.fromkeys(_word(inner) for inner in kind.types if not isinstance(inner, types.NoneType))
        return " or ".join([*words, *(["null"] if kind.includes_none else [])])
    if isinstance(kind, types.StructType):
        return kind.cls.__name__
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
