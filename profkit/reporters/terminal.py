"""Reports for a terminal. Names come from strangers: they are printed as text, never as markup or control codes."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from profkit.comparison.model import Comparison
from profkit.errors import OutputClosedError
from profkit.reporters import diff_sentences as say
from profkit.reporters import fusion_sentences, ranks_text
from profkit.reporters.diff_table import DiffTable, TableRow, build, interval
from profkit.reporters.layers_table import kernel_rows, set_aside_line, step_line
from profkit.reporters.rounding import count, hundredths

#: A pipe has no width; sentences wrap here.
_PIPE_WIDTH = 120
#: More than any table needs.
_ANY_WIDTH = 10_000
_NAME_WIDTH = 48
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_STYLE = {"confirmed": "bold green", "refuted": "bold red", "inconclusive": "bold yellow"}


class _Console(Console):
    """A console that does not end the process itself when its reader has gone."""

    def on_broken_pipe(self) -> None:
        raise OutputClosedError


def console() -> Console:
    """Standard output, wide where it is no terminal."""
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return _Console(width=width, highlight=False, soft_wrap=False, emoji=False, markup=False)


def clean(text: str, width: int | None = None) -> str:
    """`text` without control characters, its middle left out where it is longer than `width`."""
    text = _CONTROL.sub("�", text)
    if width is None or len(text) <= width:
        return text
    head = (width - 1) * 2 // 3
    return f"{text[:head]}…{text[head + 1 - width :]}"


def print_diff(comparison: Comparison, out: Console) -> None:
    """The diff, verdict first."""
    out.print(Text(clean(say.headline(comparison)), style=_STYLE.get(comparison.verdict, "bold")))
    for origin in say.provenance(comparison):
        out.print(Text(clean(origin), style="dim"))
    if comparison.findings:
        table = build(comparison)
        out.print()
        print_table(_diff_table(comparison, table), out)
        outside = [*table.outside, *([table.outside_rest] if table.outside_rest else [])]
        if outside:
            out.print()
            print_table(_outside_diff_table(comparison, outside), out)
        lines: list[str | None] = [
            *say.scope_lines(comparison, table),
            *(fusion_sentences.line(comparison, table, f) for f in comparison.fusions),
            say.moved_line(comparison),
            say.floor_line(comparison),
            say.others_line(comparison, table),
            say.net_line(comparison, table),
            *say.rank_lines(comparison),
            say.untraced_line(comparison),
            say.traced_line(comparison),
        ]
        out.print()
        for line in lines:
            if line:
                out.print(Text(clean(line)))
        out.print(Text(clean(say.work_line(comparison))))
    out.print()
    for reason in say.other_reasons(comparison):
        out.print(Text(clean(f"[{reason.code}] {reason.message}")))


def print_table(table: Table, out: Console) -> None:
    """Print `table` as wide as it is: a terminal may break its lines, but no number is ever cut."""
    wide = _Console(
        file=out.file,
        width=_ANY_WIDTH,
        force_terminal=out.is_terminal,
        no_color=out.no_color,
        highlight=False,
        emoji=False,
        markup=False,
    )
    wide.print(table)


def _empty_diff_table(comparison: Comparison, title: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(title, no_wrap=True)
    table.add_column("launch", no_wrap=True, overflow="ellipsis")
    table.add_column("status", no_wrap=True)
    numbers = ["before", "after", "change"] + (["µs before", "after", "change", "95 % CI"] if comparison.timed else [])
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _diff_table(comparison: Comparison, data: DiffTable) -> Table:
    table = _empty_diff_table(comparison, "in the layer")
    for row in data.rows:
        table.add_row(*_cells(row, timed=comparison.timed))
    table.add_section()
    table.add_row(*_cells(data.total, timed=comparison.timed), style="bold")
    return table


def _outside_diff_table(comparison: Comparison, rows: Sequence[TableRow]) -> Table:
    table = _empty_diff_table(comparison, "outside the selection, per step")
    for row in rows:
        table.add_row(*_cells(row, timed=comparison.timed))
    return table


def _cells(row: TableRow, *, timed: bool) -> list[Text]:
    kind = f" ({row.kind})" if row.kind in ("memcpy", "memset") and row.kind not in row.name else ""
    cells = [
        row.where,
        clean(row.name, _NAME_WIDTH) + kind,
        row.status,
        count(row.launches_before),
        count(row.launches_after),
        count(row.launches_change, sign=True),
    ]
    if timed:
        cells += [hundredths(row.us_before), hundredths(row.us_after), hundredths(row.us_change, sign=True)]
        cells.append(interval(row))
    return [Text(clean(c)) for c in cells]


def print_layers(data: Mapping[str, Any], out: Console) -> None:
    """The layers report of one or more runs."""
    for entry in data["runs"]:
        _print_run(entry, out)
    for job in data["jobs"]:
        _print_job(job, out, timed=all(entry["timed"] for entry in data["runs"]))
    average = data["average"]
    if average["runs"] > 1 and not ranks_text.is_one_job(data["jobs"], average["runs"]):
        us = "not timed" if average["kernel_us"] is None else f"{average['kernel_us']:.2f} µs"
        out.print(
            Text(f"Average of {average['runs']} runs: {average['launches']:g} launches and {us} a layer per step.")
        )
    for other in average["unlike"]:
        out.print(Text(clean(f"Unlike the others: {other['run']}: {other['message']}."), style="yellow"))


def _print_job(job: Mapping[str, Any], out: Console, *, timed: bool) -> None:
    out.print(Text(clean(ranks_text.title(job)), style="bold"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ranks_text.header(timed=timed):
        table.add_column(name, justify="right")
    for row in ranks_text.rows(job, timed=timed):
        table.add_row(*(Text(clean(cell)) for cell in row))
    print_table(table, out)
    for note in ranks_text.notes(job, timed=timed):
        out.print(Text(clean(note)))
    out.print()


def _print_run(entry: Mapping[str, Any], out: Console) -> None:
    title = " · ".join(str(p) for p in (entry["run"], entry["device"], entry["profiler"]) if p)
    out.print(Text(clean(title), style="bold"))
    aside = set_aside_line(entry)
    if aside is not None:
        out.print(Text(clean(aside), style="yellow"))
    ledger = entry["ledger"]
    out.print(Text(clean(_ledger_line(ledger))))
    methods = ", ".join(f"{n:,} by {m}" for m, n in entry["methods"].items()) or "none"
    out.print(Text(f"Placed: {methods}. Steps: {clean(entry['steps_found_by'])}."))
    floor = entry["floor"]
    if floor is not None:
        out.print(
            Text(f"Dispatch floor: {floor['us']:.2f} µs ({floor['source']}); at it: up to {floor['factor']:g} × that.")
        )
    for kind in entry["step_kinds"]:
        chosen = " (reported here)" if kind["id"] == entry["default_step_kind"] and len(entry["step_kinds"]) > 1 else ""
        us = "" if kind["us_per_step"] is None else f", {kind['us_per_step']:.2f} µs of kernel time"
        out.print(Text(f"  {kind['steps']} × {kind['id']}: {kind['launches_per_step']} launches a step{us}{chosen}"))
    step = step_line(entry)
    if step is not None:
        out.print(Text(step))
    if entry["layers"]:
        out.print()
        print_table(_kernels_table(entry), out)
        roles = ranks_text.role_line(entry["selected"]["by_role"])
        if roles is not None:
            out.print(Text(roles))
        out.print()
        print_table(_layers_table(entry), out)
        if entry["outside"]:
            out.print()
            print_table(_outside_table("outside layers, per step", entry["outside"], timed=entry["timed"]), out)
    if entry["beyond_steps"]:
        out.print()
        print_table(_outside_table("in no step, whole recording", entry["beyond_steps"], timed=entry["timed"]), out)
    for warning in entry["warnings"]:
        out.print(Text(clean(f"[{warning['code']}] {warning['message']}"), style="yellow"))
    out.print()


def _ledger_line(ledger: Mapping[str, Any]) -> str:
    parts = [
        f"{ledger['in_layers']:,} in layers",
        f"{ledger['in_ranges']:,} in ranges that are no layer",
        f"{ledger['in_graph_outside_layers']:,} in a graph outside layers",
        f"{ledger['outside_graphs']:,} outside graphs",
        f"{ledger['unattributed']:,} unattributed",
    ]
    return f"{ledger['ops']:,} ops = {' + '.join(parts)}; {ledger['set_aside']:,} set aside as broken."


def _kernels_table(entry: Mapping[str, Any]) -> Table:
    selected = entry["selected"]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(f"per layer per step ({selected['layers']} layers)")
    table.add_column("launch")
    table.add_column("launches", justify="right")
    if entry["timed"]:
        for name in ("µs", "median", "p25 … p75"):
            table.add_column(name, justify="right")
        table.add_column("")
    for cells in kernel_rows(entry):
        shown = [cells.scope, clean(cells.name, _NAME_WIDTH), cells.launches]
        if entry["timed"]:
            shown += [cells.us, cells.median, cells.quartiles, "at the dispatch floor" if cells.floor else ""]
        table.add_row(*(Text(clean(c)) for c in shown), style="bold" if cells.total else None)
    return table


def _layers_table(entry: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("layer", "kind"):
        table.add_column(name)
    for name in ("launches", "kernel", "memcpy", "memset", *(("µs", "busy µs", "span µs") if entry["timed"] else ())):
        table.add_column(name, justify="right")
    for layer in entry["layers"]:
        by_kind = layer["launches_by_kind"]
        numbers = [layer["launches"], *(by_kind.get(k, 0) for k in ("kernel", "memcpy", "memset"))]
        cells = [str(layer["layer"]), layer["kind"], *(f"{n:g}" for n in numbers)]
        if entry["timed"]:
            cells += [f"{layer[k]:.2f}" for k in ("kernel_us", "busy_us", "span_us")]
        table.add_row(*(Text(clean(c)) for c in cells), style=None if layer["selected"] else "dim")
    return table


def _outside_table(title: str, rows: Sequence[Mapping[str, Any]], *, timed: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(title)
    table.add_column("launch")
    table.add_column("launches", justify="right")
    if timed:
        table.add_column("µs", justify="right")
    for row in rows:
        cells = [row["where"], clean(row["short"], _NAME_WIDTH), f"{row['launches']:g}"]
        if timed:
            cells.append(f"{row['us']:.2f}")
        table.add_row(*(Text(clean(c)) for c in cells))
    return table
