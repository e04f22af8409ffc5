"""What a scope says: which layer it lies in, and where inside that layer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

#: The part of a range's text that names a layer: ``model.layers.3.mlp``, ``layer_12``, ``transformer.h.3``,
#: ``blocks.7``. It is a whole part of a path: ``linear_layers.0`` and ``num_layers_61`` name none, nor does a number of
#: ten digits, nor do ``layers.0-23`` and ``capture of layers_24``, which are several. Caches and pools have blocks too,
#: so the first word names those of a model.
LAYER = re.compile(
    r"(?:(?<![A-Za-z0-9_])(?<!\bof )(?:layers?[._]|h\.)|^(?:\S*[^A-Za-z0-9_\s])?blocks?[._])(\d{1,9})(?![A-Za-z0-9])"
    r"(?!\s*(?:-|–|\.\.|[,:]|to\b|and\b)\s*\d)",
    re.IGNORECASE,
)
#: vLLM's layerwise ranges are the text of a dict; the module's path is its first value.
_DICT_TEXT = re.compile(r"""^\{'Module': '([^']*)'""")
_NUMBER = re.compile(r"\d+")
#: What engines and compilers put before the path of the model's own modules.
_WRAPPER = re.compile(r"^(?:\w*Wrapper|_orig_mod|module)\.")
#: Words of ranges around a layer that tell no two models apart: they name steps, passes, batches, wrappers or a
#: program's phases.
_NO_MODEL = re.compile(
    r"(?i)wrapper|model|module|steps?|iters?|iterations?|batch(?:es)?|bs|pass(?:es)?|forward|inference|infer|cuda|hip|"
    r"graphs?|captur\w+|replay\w*|warm|warmup|up|timing|timed|loop|prefill|decode|decoding|extend|generat\w+|execut\w+|"
    r"context|run|main|engine|worker|rank|stage|pipeline|profil\w*|benchmark\w*|tokens?|req|reqs|requests?|seqs?|len|num|"
    r"size|mixed|piecewise|full|eager|compiled?|mode|cache|kv|pool|layers?|blocks?|of|the|with|in"
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
#: Numbers, and what names a request.
_NUMBERS = re.compile(r"(?i)\b(?=[a-f]*\d)[0-9a-f]{6,}\b|\d+")
#: What ends before a module's path in one text.
_PATH = re.compile(r"[\s/:]")


def _model(text: str) -> str:
    """What a range around a layer says of its model; "" where it says nothing."""
    words = [word for word in _WORD.findall(_NUMBERS.sub(" ", text)) if len(word) > 1]
    telling = [word for word in words if not _NO_MODEL.fullmatch(word)]
    whole = text.strip(" /:")
    one_word = len(telling) == len(words) > 0 and " " not in whole
    return _NUMBER.sub("#", whole) if one_word else " ".join(telling)


@dataclass(frozen=True)
class LayerKey:
    """One layer of the model.

    Args:
        stack: what the layers that are numbered together share: the ranges around them that tell models apart (a
            draft's and its target's, an encoder's and a decoder's), and the module path before the number.
        number: the layer's number.
    """

    stack: str
    number: int


@dataclass(frozen=True)
class Place:
    """A scope, read. Outside layers `layer` is None and `path` is the whole path.

    Args:
        layer: which layer; None outside layers.
        path: down to and including the outermost range that names the layer, as recorded.
        names: the ranges that name the layer, outermost first: module hooks nest ``layers.0`` and ``layers.0.attn``.
        kind: the outermost of them with its number replaced, e.g. ``layers.#.mla``.
        inside: the path below it, joined by ``/``; of ranges that name a layer again, only what they add.
    """

    layer: LayerKey | None
    path: str
    names: tuple[str, ...]
    kind: str
    inside: str


def place(path: Sequence[str]) -> Place:
    """Read a scope path (outermost first).

    The outermost range that names a layer says which, by the first number in it. Ranges inside only name its parts,
    whatever number they carry: a module that layers share knows one name.
    """
    texts = [_module(text) for text in path]
    matches = [LAYER.search(text) for text in texts]
    first = next((depth for depth, match in enumerate(matches) if match is not None), None)
    if first is None:
        return Place(layer=None, path="/".join(texts), names=(), kind="", inside="")
    match = matches[first]
    assert match is not None  # by the line that made `first`
    start, stop = match.span(1)
    # The module's path keeps its numbers: ``groups.0.layers.1`` and ``groups.1.layers.1`` are two layers.
    said = _WRAPPER.sub("", texts[first][:start])
    before = _PATH.split(said)[-1]
    around = [_model(_WRAPPER.sub("", text)) for text in (*texts[:first], said.removesuffix(before))]
    name = texts[first][:stop]
    return Place(
        layer=LayerKey("/".join([part for part in around if part] + [before]), int(match.group(1))),
        path="/".join(texts[: first + 1]),
        names=tuple(t for t, m in zip(texts[first:], matches[first:], strict=True) if m and t[: m.end(1)] == name),
        kind=f"{_NUMBER.sub('#', texts[first][:start])}#{texts[first][stop:]}",
        inside="/".join(_inside(texts, matches, first)),
    )


def _module(text: str) -> str:
    """The module's path of a text that holds more."""
    found = _DICT_TEXT.match(text)
    return text if found is None else found.group(1)


def _inside(texts: Sequence[str], matches: Sequence[re.Match[str] | None], first: int) -> list[str]:
    parts: list[str] = []
    known = _behind(texts[first], matches[first])
    for text, match in zip(texts[first + 1 :], matches[first + 1 :], strict=True):
        if match is None:
            parts.append(text)
            continue
        added = _behind(text, match)
        # ``layers.0.attn`` and then ``layers.0.attn.q``: of the second only ``q``.
        parts.append(added[len(known) :].strip("._/ ") if known and added.startswith(known) else added)
        known = added
    return [part for part in parts if part]


def _behind(text: str, match: re.Match[str] | None) -> str:
    """What follows the layer's number."""
    return "" if match is None else text[match.end(1) :].strip("._/ ")
