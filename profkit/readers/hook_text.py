"""Range texts of serving engines' layer hooks, reduced to the path of the module.

SGLang and vLLM register forward hooks that open one range a module. The text is either the repr of a dictionary,
``{'Module': 'model.layers.3.self_attn', 'TrainableParams': {…}, 'Inputs': [[2048, 7168]]}``, or the path with the
shapes of the inputs, ``model.layers.3.self_attn in=[2048,7168]``. The shapes change from step to step and the module
does not, so the path alone makes ranges of several steps comparable.
"""

from __future__ import annotations

import re

_REPR = re.compile(r"^\{.*?['\"]Module['\"]: ?(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")", re.DOTALL)
_SHAPES = re.compile(r"^(\S+) (?:in|out)=[\[(].*", re.DOTALL)


def module_path(text: str) -> str:
    """The module's path where `text` is a hook's, otherwise `text` unchanged."""
    if text.startswith("{"):
        found = _REPR.match(text)
        return (found[1] or found[2] or text) if found else text
    found = _SHAPES.match(text)
    return found[1] if found else text
