"""Reports to paste into a pull request. Names come from strangers: they are escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from profkit.comparison.model import Comparison
from profkit.reporters import diff_sentences as say
from profkit.reporters import fusion_sentences, ranks_text
from profkit.reporters.diff_table import DiffTable, TableRow, build, interval
from profkit.reporters.layers_table import kernel_rows, set_aside_line, step_line
from profkit.reporters.rounding import count, hundredths
from profkit.reporters.terminal import clean

_NAME_WIDTH = 80
#: Characters that Markdown or HTML would read as markup.
_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]()#+!|~"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def escape(text: str, width: int | None = None) -> str:
    """`text` as Markdown that shows it literally; its middle is left out where it is longer than `width`."""
    return clean(text, width).translate(_SPECIAL).replace("@", "&#64;")


def diff(comparison: Comparison) -> str:
    """The diff: verdict, table, fusion, what else moved, net, provenance."""
    lines = [f"**{escape(say.headline(comparison))}**", ""]
    if comparison.findings:
        table = build(comparison)
        lines += [*_diff_table(comparison, table), ""]
        sentences = [
            *say.scope_lines(comparison, table),
            *(fusion_sentences.line(comparison, table, f) for f in comparison.fusions),
            say.moved_line(comparison),
            say.floor_line(comparison),
            say.others_line(comparison, table),
            say.net_line(comparison, table),
            *say.rank_lines(comparison),
            say.untraced_line(comparison),
            say.traced_line(comparison),
            say.work_line(comparison),
        ]
        lines += [f"- {escape(s)}" for s in sentences if s]
    lines += [f"- {escape(r.message)} `{r.code}`" for r in say.other_reasons(comparison)]
    # Not on a line of its own: there the tag would begin a block of HTML, in which an escape shows its backslash.
    lines += ["", f"<sub>{'<br>'.join(escape(line) for line in say.provenance(comparison))}</sub>", ""]
    return "\n".join(lines)


def _diff_table(comparison: Comparison, data: DiffTable) -> list[str]:
    timed = comparison.timed
    names = ["in the layer", "launch", "status", "launches before", "after", "change"]
    names += ["µs before", "after", "change", "95 % CI"] if timed else []
    lines = [_line(names), _line(["---"] * 3 + ["---:"] * (len(names) - 3))]
    lines += [_line(_cells(r, timed)) for r in data.rows]
    lines.append(_line([f"**{c}**" if c else "" for c in _cells(data.total, timed)]))
    outside = [*data.outside, *([data.outside_rest] if data.outside_rest else [])]
    for row in outside:
        cells = _cells(row, timed)
        lines.append(_line([f"outside the selection, per step: {cells[0]}".rstrip(": "), *cells[1:]]))
    return lines


def _cells(row: TableRow, timed: bool) -> list[str]:
    cells = [
        escape(row.where),
        escape(row.name, _NAME_WIDTH),
        row.status,
        count(row.launches_before),
        count(row.launches_after),
        count(row.launches_change, sign=True),
    ]
    if timed:
        cells += [hundredths(row.us_before), hundredths(row.us_after), hundredths(row.us_change, sign=True)]
        cells.append(interval(row))
    return cells


def layers(data: Mapping[str, Any]) -> str:
    """The layers report."""
    lines: list[str] = []
    for entry in data["runs"]:
        title = " · ".join(str(p) for p in (entry["run"], entry["device"], entry["profiler"]) if p)
        lines += [f"**{escape(title)}**", ""]
        aside = set_aside_line(entry)
        lines += [escape(aside), ""] if aside is not None else []
        if entry["layers"]:
            lines += _kernels_table(entry)
        step = step_line(entry)
        lines += ["", step] if step is not None else []
        ledger = entry["ledger"]
        placed = ", ".join(f"{n:,} by {m}" for m, n in entry["methods"].items()) or "none"
        lines += [
            "",
            f"{ledger['ops']:,} ops: {ledger['in_layers']:,} in layers, {ledger['in_ranges']:,} in other ranges, "
            f"{ledger['in_graph_outside_layers']:,} in a graph outside layers, {ledger['outside_graphs']:,} outside "
            f"graphs, {ledger['unattributed']:,} unattributed; {ledger['set_aside']:,} set aside. Placed: {placed}.",
            "",
        ]
        lines += [f"- {escape(w['message'])} `{w['code']}`" for w in entry["warnings"]]
    timed = all(entry["timed"] for entry in data["runs"])
    for job in data["jobs"]:
        header = ranks_text.header(timed=timed)
        lines += ["", f"**{escape(ranks_text.title(job))}**", "", _line(header), _line(["---:"] * len(header))]
        lines += [_line([escape(cell) for cell in row]) for row in ranks_text.rows(job, timed=timed)]
        lines += ["", *(f"- {escape(note)}" for note in ranks_text.notes(job, timed=timed))]
    return "\n".join(lines).rstrip() + "\n"


def _kernels_table(entry: Mapping[str, Any]) -> list[str]:
    selected, timed = entry["selected"], entry["timed"]
    names = [f"per layer per step ({selected['layers']} layers)", "launch", "launches"]
    names += ["µs", "median", "p25 … p75"] if timed else []
    lines = [_line(names), _line(["---"] * 2 + ["---:"] * (len(names) - 2))]
    for row in kernel_rows(entry):
        cells = [escape(row.scope), escape(row.name, _NAME_WIDTH), row.launches]
        cells += [row.us, row.median, row.quartiles] if timed else []
        lines.append(_line([f"**{c}**" if c and row.total else c for c in cells]))
    return lines


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
