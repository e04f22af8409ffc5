"""The tables of docs/results that come from the JSON beside the pages; `generate.py` writes them in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
MILLION = 1 << 20
Lines = Iterator[str]


def _load(name: str) -> dict[str, Any]:
    return dict(json.loads((RESULTS / name).read_text(encoding="utf-8")))


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _head(*cells: str) -> Lines:
    """A header whose first column is text and whose others are numbers."""
    yield _row(*cells)
    yield f"|---|{'---:|' * (len(cells) - 1)}"


# dcp-combine


def dcp_kernels() -> Lines:
    """Each kernel of a layer alone, beside its floor."""
    yield from _head("µs a layer", "median", "floor", "ratio")
    for arm in _load("dcp-kernels.json")["arms"]:
        if "padded" in arm["arm"] or arm["arm"].startswith(("whole", "ag-rs", "eager mask, then", "exchange")):
            continue
        median, floor = arm["median_us"], arm["floor_us"]
        beside = (f"{floor:.2f}", f"{median / floor:.2f}") if floor else ("", "")
        yield _row(arm["arm"], f"{median:.2f}", *beside)


def dcp_choices() -> Lines:
    """Launches of pack: the one before, those that are taken, and the costs in what a layer runs."""
    document = _load("dcp-pack-choice.json")
    wanted = {
        "pack": 0,
        "fused pack": 1,
        "eager mask, then pack": 2,
        "whole combine, eager": 3,
        "whole combine, fused": 5,
    }
    yield from _head("layout and launch", *wanted)
    for name, note in (
        ("interleaved, 8 heads, 4 warps, no hints", " (before)"),
        ("interleaved, 4 heads, 2 warps, evict_first .cg", " (taken)"),
        ("planar, 8 heads, 1 warps, evict_first .cs", " (taken)"),
        ("padded, 8 heads, 1 warps, no hints", " (taken)"),
        ("interleaved, 16 heads, 2 warps, .cs", ""),
    ):
        # Quartiles, and a second median where there is one.
        yield _row(name + note, *(f"{document['choices'][name][index][1]:.2f}" for index in wanted.values()))


# mla-step


def mla_attention() -> Lines:
    """The launches of the attention that were fastest."""
    document = _load("mla-decode.json")
    found = sorted(document["configurations"], key=lambda one: one["us"]["median_us"])
    yield from _head("heads a program, tokens a turn, splits, warps, stages", "µs a layer (quartiles)", "× floor")
    for one in found[:5]:
        us = one["us"]
        times = f"{us['median_us']:.2f} ({us['p25_us']:.2f}–{us['p75_us']:.2f})"
        yield _row(", ".join(map(str, one["config"].values())), times, f"{us['median_us'] / document['floor_us']:.2f}")


# dsa-candidates


def _arms() -> dict[tuple[int, int, int], dict[str, float]]:
    """Medians by rows, width and context, and by arm."""
    document, found = _load("dsa-kernels.json"), dict[tuple[int, int, int], dict[str, float]]()
    for values in document["arms"]:
        row = dict(zip(document["columns"], values, strict=True))
        found.setdefault((row["rows"], row["width"], row["context"]), {})[row["arm"]] = row["median_us"]
    return found


def _point(point: Sequence[int]) -> str:
    return " × ".join([str(point[0]), *map(_columns, point[1:])])


def _columns(columns: int) -> str:
    for size, unit in ((MILLION, "M"), (1 << 10, "k")):
        if columns >= size:
            return f"{columns // size}{unit}"
    return str(columns)


def dsa_ratios() -> Lines:
    """In how many points a form is slower than the one that it replaces, and by how much at worst."""
    arms = _arms()
    yield from _head("form / beside", f"slower at, of {len(arms)}", "worst", "at")
    for after, before in (
        ("mask, live, PR constants", "mask, full width"),
        ("select, live", "select, full-width"),
        ("mask, live, tuned", "mask, full width"),
        ("mask, live, tuned", "mask, full width, vector stores"),
        ("flags + mask, bounded", "flags + mask, full-width"),
        ("flags + mask, one-kernel", "flags + mask, bounded"),
        ("scores, live, tuned", "scores, full width"),
        ("top-k, bounded", "top-k, torch.topk + store"),
        ("select, bounded", "select, full-width"),
    ):
        ratios = {point: times[after] / times[before] for point, times in arms.items()}
        most, worst = max((ratio, point) for point, ratio in ratios.items())
        yield _row(f"{after} / {before}", sum(ratio > 1 for ratio in ratios.values()), f"{most:.3f}", _point(worst))


def dsa_medians() -> Lines:
    """The forms as layers run them, at the ends of rows, widths and contexts."""
    arms = _arms()
    wanted = {
        "mask, full width": "mask, full width",
        "#57459": "mask, live, PR constants",
        "tuned": "mask, live, tuned",
        "select, full width": "select, full-width",
        "#57459 ": "select, live",
        "bounded ": "select, bounded",
    }
    yield from _head("rows × width × context", *wanted)
    for point in sorted(arms):
        rows, width, context = point
        if rows in (52, 1024) and width in (1 << 13, MILLION) and context in (512, width):
            yield _row(_point(point), *(f"{arms[point][arm]:.2f}" for arm in wanted.values()))


# qsa-attention

_KNOWN = ("sm_90", "default")
_BOUNDS = (24, 32, 64, 128, 256, 512, 2048)
_REGIONS = ("1–24", "25–32", "33–64", "65–128", "129–256", "257–512", "513–2048", "2049–")


def _judged(name: str) -> dict[tuple[str, str], list[tuple[int, str, str, float]]]:
    """By region of pairs and cache: pairs, entry, verdict and ratio of h200 beside the faster known entry, by point."""
    found: dict[tuple[str, str], list[tuple[int, str, str, float]]] = {}
    for region in _load(name)["regions"]:
        shapes, known = region["shapes"], region["known"]
        pairs = shapes["rows"] * shapes["kv_heads"]
        place = _REGIONS[sum(pairs > bound for bound in _BOUNDS)] + (" prefill" if shapes["mode"] == "prefill" else "")
        times = {tuple(one[:3]): one[3] for one in region["timed"]}
        entry = tuple(known["h200"])
        for state in region["noise_percent"]:
            beside = min(_KNOWN, key=lambda table: times[tuple(known[table])][state][0])
            us, _, _, verdicts = times[entry][state]
            ratio = us / times[tuple(known[beside])][state][0]
            told = verdicts[beside] or "same entry"
            found.setdefault((place, shapes["dtype"]), []).append((pairs, ",".join(map(str, entry)), told, ratio))
    return found


def qsa_beside() -> Lines:
    """The table h200 where it was tuned and between, wherever it is not the known entry in both."""
    tuned, between = _judged("qsa-confirmation.json"), _judged("qsa-between.json")
    yield from _head(
        "pairs, cache: entry", "tuned at", "ratio", "better, worse of", "also at", "ratio ", "better, worse of "
    )
    for cell, points in tuned.items():
        both = [*points, *between.get(cell, [])]
        if any(told != "same entry" for _, _, told, _ in both):
            place, cache = cell
            yield _row(f"{place}, {cache}: {points[0][1]}", *_told(points), *_told(between.get(cell, [])))
    for name, judged in (("tuned at", tuned), ("between", between)):
        points = [point for found in judged.values() for point in found]
        cells = ["together, " + name, "", *_told(points)[1:], "", "", ""]
        yield _row(*cells)


def _told(points: Sequence[tuple[int, str, str, float]]) -> list[str]:
    if not points:
        return ["", "", ""]
    ratios = [ratio for *_, ratio in points]
    better, worse = (sum(told == verdict for _, _, told, _ in points) for verdict in ("better", "worse"))
    span = "1" if min(ratios) == max(ratios) == 1 else f"{min(ratios):.3f}–{max(ratios):.3f}"
    return [str(points[0][0]), span, f"{better}, {worse} of {len(points)}"]


TABLES: Mapping[str, Callable[[], Lines]] = {
    "dcp-kernels": dcp_kernels,
    "dcp-choices": dcp_choices,
    "mla-attention": mla_attention,
    "dsa-ratios": dsa_ratios,
    "dsa-medians": dsa_medians,
    "qsa-beside": qsa_beside,
}
