"""Layers from the module calls that torch.profiler records with Python stacks (`nn.Module: Qwen3DecoderLayer_7`)."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from profkit.model.trace import RANGES, table

_MODULE = re.compile(r"^nn\.Module: (.+)_(\d+)$")
#: How model code names the class of a whole layer: LlamaDecoderLayer, BertLayer, GPT2Block. The outermost module of
#: such a class counts, so that layers within a layer (BertSelfOutput has a LinearLayer) do not.
_LAYER_CLASS = re.compile(r"(?:Layer|Block)$")


def module_ranges(ranges: pd.DataFrame) -> pd.DataFrame:
    """Module calls as ranges whose texts are class names, those of layers ``layers.N``.

    N counts the layers of one parent in the order of their first calls; the instance number that the profiler gives
    counts per class and differs in hybrid models. Where layers of one parent are of several classes, the class follows
    the number.

    Args:
        ranges: a trace's ranges.

    Returns:
        ranges of the same columns; empty where no module is a layer.
    """
    none = ranges.iloc[:0]
    if not len(ranges):
        return none
    parsed = [_MODULE.match(text) for text in ranges["text"].cat.categories]
    is_module = np.array([match is not None for match in parsed], dtype=np.bool_)
    rows = ranges[is_module[ranges["text"].cat.codes.to_numpy()] & ranges["nested"].to_numpy()]
    if not len(rows):
        return none
    rows = rows.sort_values(["process", "thread", "start", "end"], ascending=[True, True, True, False])
    names = [m.groups() for m in (parsed[c] for c in rows["text"].cat.codes) if m is not None]
    parent = _parents(rows)
    texts = [class_name for class_name, _ in names]
    layers = _layers(names, parent)
    if not layers:
        return none
    for row, text in layers.items():
        texts[row] = text
    columns = {c: rows[c].to_numpy() for c in ("start", "end", "process", "thread", "nested", "clipped")}
    return table(RANGES, {**columns, "text": texts})


def _parents(rows: pd.DataFrame) -> list[int]:
    """For each module call the position of the call around it, -1 for none."""
    parents: list[int] = []
    stack: list[int] = []
    calls = list(zip(rows["process"].tolist(), rows["thread"].tolist(), rows["end"].tolist(), strict=True))
    for position, ((process, thread, _), start) in enumerate(zip(calls, rows["start"].tolist(), strict=True)):
        while stack and (calls[stack[-1]][:2] != (process, thread) or calls[stack[-1]][2] <= start):
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        stack.append(position)
    return parents


def _layers(names: list[tuple[str, ...]], parent: list[int]) -> dict[int, str]:
    """The text of each call of a layer: of the outermost depth at which a parent has several."""
    depth: list[int] = []
    for above in parent:
        depth.append(0 if above < 0 else depth[above] + 1)
    candidates = [i for i, (class_name, _) in enumerate(names) if _LAYER_CLASS.search(class_name)]
    for level in sorted({depth[i] for i in candidates}):
        calls = [i for i in candidates if depth[i] == level]
        owner = {i: names[parent[i]] if parent[i] >= 0 else ("", "") for i in calls}
        number: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}
        count: dict[tuple[str, ...], int] = {}
        for i in calls:
            if (owner[i], names[i]) not in number:
                number[owner[i], names[i]] = count.setdefault(owner[i], 0)
                count[owner[i]] += 1
        if max(count.values()) < 2:
            continue
        classes: dict[tuple[str, ...], set[str]] = {}
        for i in calls:
            classes.setdefault(owner[i], set()).add(names[i][0])
        return {
            i: f"layers.{number[owner[i], names[i]]}" + (f".{names[i][0]}" if len(classes[owner[i]]) > 1 else "")
            for i in calls
            if count[owner[i]] > 1
        }
    return {}
