"""Reports as CSV: one row a kernel of a layer, a launch of a diff, or a configuration of a sweep."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from profkit.reporters.terminal import clean


def _text(value: Any) -> Any:
    """A spreadsheet runs cells that begin like a formula, and a terminal obeys controls; names come from strangers."""
    if not isinstance(value, str):
        return value
    text = clean(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def layers(data: Mapping[str, Any]) -> str:
    """Columns: run, step_kind, layer, layer_kind, selected, scope, name, kind, launches, us (per step)."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["run", "step_kind", "layer", "layer_kind", "selected", "scope", "name", "kind", "launches", "us"])
    for entry in data["runs"]:
        for kind in entry["step_kinds"]:
            for layer in kind["layers"]:
                for k in layer["kernels"]:
                    row = [entry["run"], kind["id"], layer["layer"], layer["kind"], int(layer["selected"])]
                    row += [k["scope"], k["name"], k["kind"], k["launches"], k["us"]]
                    writer.writerow([_text(v) for v in row])
            for k in kind["outside"]:
                row = [entry["run"], kind["id"], None, None, None, k["where"], k["name"], k["kind"]]
                writer.writerow([_text(v) for v in [*row, k["launches"], k["us"]]])
    return out.getvalue()


def diff(data: Mapping[str, Any]) -> str:
    """Columns: place, status, scope, name, kind, launches and µs before and after, change and its interval, what
    launches and µs are per (``layer`` (and step) in the selected layers, else ``step``), and before's name of a launch
    that was renamed."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    numbers = ["launches_before", "launches_after", "us_before", "us_after", "us_delta"]
    writer.writerow(["place", "status", "scope", "name", "kind", *numbers, "ci_low", "ci_high", "per", "renamed_from"])
    placed = [("layer", f) for s in ("removed", "added", "changed", "moved", "unchanged") for f in data[s]]
    placed += [("elsewhere", f) for f in data["elsewhere"]] + [("outside", f) for f in data["outside"]]
    for place, f in placed:
        row = [
            place,
            f["status"],
            f["scope"],
            f["name"],
            f["kind"],
            *(f[n] for n in numbers),
            *(f["ci"] or [None, None]),
            "layer" if place == "layer" else "step",
            f["renamed_from"],
        ]
        writer.writerow([_text(v) for v in row])
    return out.getvalue()


def diff_note(data: Mapping[str, Any]) -> str:
    """The verdict and its reasons, a line each: they go beside the rows, not among them."""
    lines = [str(data["verdict"]).upper(), *(f"[{r['code']}] {r['message']}" for r in data["reasons"])]
    return "".join(f"{clean(line)}\n" for line in lines)


def sweep(data: Mapping[str, Any]) -> str:
    """A row for each region, configuration and state; the columns are those of `profkit.sweep.results.columns`."""
    from profkit.sweep.results import columns, rows

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = columns(data)
    writer.writerow([_text(name) for name in names])
    for row in rows(data):
        writer.writerow([_text(row.get(name)) for name in names])
    return out.getvalue()
