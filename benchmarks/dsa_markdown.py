"""Writes the tables of `dsa_kernels.py`'s JSON into a page, each between ``<!-- begin NAME -->`` and its end. No GPU.

python benchmarks/dsa_markdown.py docs/results/dsa-kernels.json docs/results/dsa-candidates-h200.md
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MILLION = 1 << 20
#: Rows, width, context.
Point = tuple[int, int, int]
FULL, VECTOR, TUNED = "mask, full width", "mask, full width, vector stores", "mask, live, tuned"
#: Columns of the main table and their arms.
MAIN = {
    "mask, full width": FULL,
    "with vector stores": VECTOR,
    "#57459": "mask, live, PR constants",
    "tuned": TUNED,
    "flags + mask, full width": "flags + mask, full-width",
    "bounded": "flags + mask, bounded",
    "one kernel": "flags + mask, one-kernel",
    "select, full width": "select, full-width",
    "#57459 ": "select, live",
    "bounded ": "select, bounded",
    "torch.topk": "top-k, torch.topk + store",
    "bounded top-k": "top-k, bounded",
}
#: Each tuned arm and what it is held against.
RATIOS = (
    (TUNED, FULL),
    (TUNED, VECTOR),
    ("flags + mask, bounded", "flags + mask, full-width"),
    ("flags + mask, one-kernel", "flags + mask, full-width"),
    ("scores, live, tuned", "scores, full width"),
    ("top-k, bounded", "top-k, torch.topk + store"),
    ("select, bounded", "select, full-width"),
)
#: Arms whose bytes and floors are listed.
SHARES = (FULL, VECTOR, TUNED, "flags, live", "flags + mask, bounded", "flags + mask, one-kernel")
SHARES = (*SHARES, "scores, full width", "scores, live, tuned", "top-k, bounded", "select, bounded")


class Results:
    """The document of one run: rows of the arms by point and arm."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.device = document["device"]
        self.sweep: list[dict[str, Any]] = document["sweep"]
        self.left_out: list[str] = document["left_out"]
        self.arms: dict[Point, dict[str, dict[str, Any]]] = {}
        for values in document["arms"]:
            row = dict(zip(document["columns"], values, strict=True))
            self.arms.setdefault((row["rows"], row["width"], row["context"]), {})[row["arm"]] = row

    def us(self, point: Point, arm: str) -> float:
        return float(self.arms[point][arm]["median_us"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=Path)
    parser.add_argument("page", type=Path)
    options = parser.parse_args()
    results = Results(json.loads(options.json.read_text()))
    text = options.page.read_text()
    for name, table in TABLES.items():
        text = replaced(text, name, "\n".join(table(results)))
    options.page.write_text(text)


def replaced(text: str, name: str, table: str) -> str:
    """The page with another table between the marks of this name.

    Raises:
        SystemExit: the page has not exactly one place for it.
    """
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise SystemExit(f"The page must have one place between {begin} and {end}.")
    return pattern.sub(lambda _: f"{begin}\n{table}\n{end}" if table else f"{begin}\n{end}", text)


def device_lines(results: Results) -> Iterator[str]:
    device = results.device
    rates = ", ".join(
        f"{task} {device[f'{task}_bytes_per_second'] / 1e12:.2f} TB/s ({device['fastest'][task]})"
        for task in ("fill", "read", "copy")
    )
    yield f"{device['name']}, torch {device['torch']}, triton {device['triton']}. Fastest {rates}; an empty kernel in a"
    yield f"graph {device['launch_us']:.2f} µs; L2 cache {device['l2_bytes'] / 1e6:.0f} MB."
    if results.left_out:
        yield f"Left out: {', '.join(results.left_out)}."


def answer_lines(results: Results) -> Iterator[str]:
    """The questions with a number for an answer, and whether it was reached."""
    short, narrow = (52, MILLION, 512), (52, MILLION >> 3, 512)
    tuned, full, vector = (results.us(short, arm) for arm in (TUNED, FULL, VECTOR))
    widths = results.us(short, TUNED) / results.us(narrow, TUNED)
    flags, mask = results.us(short, "flags, live"), tuned
    old_flags = results.us(short, "flags, full width")
    yield "| question | measured | asked for | |"
    yield "|---|---|---|---|"
    for what, before in (("full width", full), ("full width with vector stores", vector)):
        times = f"{before:.1f} / {tuned:.2f} = {before / tuned:.0f}×"
        yield _answer(f"mask at 52 × 1M × 512 against {what}", times, before / tuned >= 25, "25×")
    yield _answer("the same, in µs", f"{tuned:.2f}", tuned <= 3.9, "≤ 3.9")
    yield _answer("128k → 1M columns at 512 tokens, mask", f"{widths - 1:+.1%}", widths <= 1.15, "≤ +15 %")
    for after, before in RATIOS:
        point, ratio = worst(results, after, before)
        what = f"full contexts, worst of {after} / {before}"
        yield _answer(what, f"{ratio:.3f} at {_name(point)}", ratio <= 1.05, "≤ 1.05")
    yield (
        f"| flags at 52 × 1M × 512, µs | {old_flags:.1f} full width, {flags:.2f} bounded, beside {mask:.2f} of the mask"
        f" | not dominant | {'yes' if flags <= mask else 'no: the longer of the two'} |"
    )


def _answer(question: str, measured: str, is_met: bool, wanted: str) -> str:
    return f"| {question} | {measured} | {wanted} | {'yes' if is_met else '**no**'} |"


def worst(results: Results, after: str, before: str) -> tuple[Point, float]:
    """The full context at which `after` stands worst against `before`, and the ratio."""
    ratios = {
        point: results.us(point, after) / results.us(point, before) for point in results.arms if point[1] == point[2]
    }
    point = max(ratios, key=lambda point: ratios[point])
    return point, ratios[point]


def main_lines(results: Results) -> Iterator[str]:
    """The medians of the arms that matter at every point."""
    yield f"| rows × width × context | {' | '.join(MAIN)} |"
    yield f"|---|{'---:|' * len(MAIN)}"
    for point in sorted(results.arms):
        cells = " | ".join(f"{results.us(point, arm):.2f}" for arm in MAIN.values())
        warm = "" if results.arms[point][FULL]["cold"] else " (warm)"
        yield f"| {_name(point)}{warm} | {cells} |"


def share_lines(results: Results) -> Iterator[str]:
    """Bytes, operations, floor and share of the kernels at the shape that decides."""
    yield "| context | arm | MB read | MB written | million comparisons | floor, µs | median, µs | share |"
    yield "|---:|---|---:|---:|---:|---:|---:|---:|"
    for context in (512, MILLION // 2, MILLION):
        rows = results.arms[52, MILLION, context]
        for arm in SHARES:
            row = rows[arm]
            mark = "" if row["share"] <= 1 else " (held by the cache)" if row["cached"] else " (above the ceiling)"
            yield (
                f"| {context:,} | {arm} | {row['read_bytes'] / 1e6:.3f} | {row['written_bytes'] / 1e6:.3f} "
                f"| {row['operations'] / 1e6:.3f} | {row['floor_us']:.2f} | {row['median_us']:.2f} "
                f"| {row['share']:.0%}{mark} |"
            )


def constant_lines(results: Results) -> Iterator[str]:
    """The floor of 8 and the total of 8192 of #57459, down and up, in its own mask kernel: µs by swept point."""
    found: dict[tuple[int, int], dict[Point, float]] = {}
    points: dict[Point, None] = {}
    for row in results.sweep:
        if row["kernel"] == "mask" and row["vector"] == 1 and row["width"] == MILLION and row["tile"] == 1024:
            point = (row["rows"], row["width"], row["context"])
            points[point] = None
            found.setdefault((row["floor"], row["total"]), {})[point] = row["median_us"]
    yield f"| floor | total | {' | '.join(_name(point) for point in points)} |"
    yield f"|---:|---:|{'---:|' * len(points)}"
    for (floor, total), times in sorted(found.items()):
        cells = " | ".join(f"{times[point]:.2f}" if point in times else "=" for point in points)
        yield f"| {floor} | {total} | {cells} |"


def _name(point: Point) -> str:
    rows, width, context = point
    return f"{rows} × {_short(width)} × {_short(context)}"


def _short(columns: int) -> str:
    for size, unit in ((MILLION, "M"), (1 << 10, "k")):
        if columns >= size and columns % size == 0:
            return f"{columns // size}{unit}"
    return str(columns)


TABLES: dict[str, Callable[[Results], Iterator[str]]] = {
    "device": device_lines,
    "answers": answer_lines,
    "main": main_lines,
    "shares": share_lines,
    "constants": constant_lines,
}


if __name__ == "__main__":
    main()
