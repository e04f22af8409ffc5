"""The kernels of the selected layers as printed: rows that add up to the total in the last line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from profkit.reporters import rounding


@dataclass(frozen=True)
class KernelCells:
    """One printed row, per layer per step; times are empty where not measured."""

    scope: str
    name: str
    kind: str
    launches: str
    us: str
    median: str
    quartiles: str
    total: bool = False
    floor: bool = False


def kernel_rows(entry: Mapping[str, Any]) -> list[KernelCells]:
    """The rows of one run of the layers report, the total last.

    Args:
        entry: one of `runs` of ``profkit.layers/1``.
    """
    selected, timed = entry["selected"], entry["timed"]
    per = Fraction(1, max(selected["layers"] * selected["steps"], 1))
    kernels = selected["kernels"]
    us = rounding.apportion([k["ns_total"] * per for k in kernels], Fraction(10)) if timed else [0] * len(kernels)
    counts = rounding.apportioned([k["launches_total"] * per for k in kernels], Fraction(1, 100))
    rows = [
        KernelCells(
            scope=k["scope"],
            name=k["short"],
            kind=k["kind"],
            launches=rounding.count(n),
            us=rounding.hundredths(u) if timed else "",
            median=f"{k['us_median']:.2f}" if timed else "",
            quartiles=f"{k['us_p25']:.2f} … {k['us_p75']:.2f}" if timed else "",
            floor=bool(k["floor"]),
        )
        for k, n, u in zip(kernels, counts, us, strict=True)
    ]
    launches = sum(counts, Fraction())
    total = rounding.hundredths(sum(us)) if timed else ""
    return [*rows, KernelCells("", "total", "", rounding.count(launches), total, "", "", total=True)]


def step_line(entry: Mapping[str, Any]) -> str | None:
    """How long the step took, as traced and, where the capture knows it, untraced and at graph level: medians."""
    times = [("as traced", "traced_step"), ("traced as whole graphs", "graph_level"), ("untraced", "untraced")]
    known = [f"{entry[key]['median']:.1f} µs {how}" for how, key in times if (entry[key] or {}).get("median")]
    return f"Step: {', '.join(known)}." if known else None


def set_aside_line(entry: Mapping[str, Any]) -> str | None:
    """Why a repetition is in no average."""
    why = entry["set_aside"]
    return f"Set aside, and in no average: {why.get('code')}: {why.get('message')}" if why else None
