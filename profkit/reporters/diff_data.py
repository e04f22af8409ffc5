"""The diff as data, schema ``profkit.diff/1``; see docs/json.md."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from profkit.comparison.model import Comparison, Finding, Fusion, Input, StepTimes
from profkit.counting import ranks
from profkit.counting.floor import FACTOR
from profkit.reporters import ranks_data

SCHEMA = "profkit.diff/1"


def report(comparison: Comparison) -> dict[str, Any]:
    """Everything that the diff says. Launches and µs are per layer per step in layers, per step outside them."""
    before, after = comparison.selected_layers
    net = comparison.net
    return {
        "schema": SCHEMA,
        "verdict": comparison.verdict,
        "work": comparison.work,
        "exit_code": int(comparison.exit_code),
        "reasons": [{"code": r.code, "message": r.message} for r in comparison.reasons],
        "before": _side(comparison.before),
        "after": _side(comparison.after),
        "timed": comparison.timed,
        "samples": comparison.samples,
        "layers": {"before": before, "after": after},
        "steps": {"before": comparison.steps[0], "after": comparison.steps[1]},
        **{
            status: [_finding(f, comparison, before) for f in comparison.findings if f.status == status]
            for status in ("removed", "added", "changed", "moved", "unchanged")
        },
        "elsewhere": [_finding(f, comparison, 1) for f in comparison.elsewhere],
        "outside": [_finding(f, comparison, 1) for f in comparison.outside],
        "scopes": _scopes(comparison),
        "fusions": [_fusion(f) for f in comparison.fusions],
        **(ranks_data.of_comparison(comparison) if comparison.findings else {"roles": None, "ranks": [], "skew": None}),
        "net": None
        if net is None
        else {
            "launches_per_layer": net.launches_per_layer,
            "launches_per_step": net.launches_per_step,
            "us_per_layer": _us(net.ns_per_layer),
            "ci": None if math.isnan(net.low) else [_us(net.low), _us(net.high)],
            "us_per_step": _us(net.ns_per_step),
            "step_us": _us(net.step_ns),
            "share_of_step": None if math.isnan(net.share_of_step) else net.share_of_step,
            "share_basis": net.share_basis,
        },
        "untraced": _step_times(comparison.untraced),
        "graph_level": _step_times(comparison.graph_level),
        "traced": _step_times(comparison.traced),
        "floor": None
        if comparison.floor is None
        else {"us": comparison.floor.us, "source": comparison.floor.source, "factor": FACTOR},
        "thresholds": {
            "confidence": comparison.thresholds.confidence,
            "alpha": comparison.thresholds.alpha,
            "correction": "Holm",
            "min_us": comparison.thresholds.min_us,
            "min_share": comparison.thresholds.min_share,
        },
    }


def _step_times(times: StepTimes | None) -> dict[str, Any] | None:
    if times is None:
        return None
    return {
        "before_us": times.before_us,
        "after_us": times.after_us,
        "delta_us": times.delta_us,
        "runs_before_us": list(times.runs_before),
        "runs_after_us": list(times.runs_after),
    }


def _side(entry: Input) -> dict[str, Any]:
    census, record = entry.census, entry.record
    device = record.device.name if record and record.device else None
    return {
        "run": entry.label,
        "runs": [run.label for run in entry.runs],
        "device": ", ".join(dict.fromkeys(census.info.devices.values())) or device,
        "profiler": census.info.profiler,
        "workload": msgspec.to_builtins(record and record.workload),
        "versions": msgspec.to_builtins(record and record.versions),
        "commit": record and record.commit,
        "methods": dict(sum((Counter(run.census.methods) for run in entry.runs), Counter[str]())),
        "ledger": {
            name: sum(getattr(run.census.ledger, name) for run in entry.runs)
            for name in vars(census.ledger)
            if name != "ns"
        },
        "step_kind": census.chosen.kind.id if census.kinds else None,
        "warnings": [
            {"code": code, "message": message}
            for code, message in dict.fromkeys(
                (d.code, d.message)
                for said in ranks.diagnostics([(run.record, run.census) for run in entry.runs])
                for d in said
            )
        ],
    }


def _finding(finding: Finding, comparison: Comparison, layers: int) -> dict[str, Any]:
    row, timed = finding.row, comparison.timed
    per_before, per_after = layers * comparison.steps[0], layers * comparison.steps[1]
    return {
        "name": row.recorded,
        "short": row.name,
        "renamed_from": row.recorded_before,
        "kind": row.op_kind,
        "scope": row.where,
        "status": finding.status,
        "layers_before": row.layers_before,
        "layers_after": row.layers_after,
        "launches_before": row.launches_before / per_before,
        "launches_after": row.launches_after / per_after,
        "us_before": _us(row.ns_before / per_before) if timed else None,
        "us_after": _us(row.ns_after / per_after) if timed else None,
        "us_delta": _us(finding.delta),
        "ci": None if math.isnan(finding.low) else [_us(finding.low), _us(finding.high)],
        "p": None if math.isnan(finding.p) else finding.p,
        "floor": comparison.at_floor(finding),
    }


def _scopes(comparison: Comparison) -> list[dict[str, Any]]:
    """Sums by the outermost scope inside the layer."""
    groups: dict[str, list[Finding]] = {}
    for finding in comparison.findings:
        groups.setdefault(finding.row.where.split("/")[0], []).append(finding)
    layers, (steps_before, steps_after) = comparison.selected_layers[0], comparison.steps
    found: list[dict[str, Any]] = []
    for scope, members in groups.items():
        launches = [sum(f.row.launches_before for f in members), sum(f.row.launches_after for f in members)]
        ns = [sum(f.row.ns_before for f in members), sum(f.row.ns_after for f in members)]
        found.append(
            {
                "scope": scope,
                "launches_before": launches[0] / (layers * steps_before),
                "launches_after": launches[1] / (layers * steps_after),
                "launches_per_step_before": launches[0] / steps_before,
                "launches_per_step_after": launches[1] / steps_after,
                "us_before": _us(ns[0] / (layers * steps_before)) if comparison.timed else None,
                "us_after": _us(ns[1] / (layers * steps_after)) if comparison.timed else None,
            }
        )
    return found


def _fusion(fusion: Fusion) -> Mapping[str, Any]:
    return {
        "removed": [f.row.recorded for f in fusion.removed],
        "absorbed_by": fusion.absorbers[0].row.recorded,
        "absorbers": [f.row.recorded for f in fusion.absorbers],
        "evidence": fusion.evidence,
        "us_removed": _us(fusion.ns_removed),
        "us_absorbed": _us(fusion.ns_absorbed),
    }


def _us(ns: float) -> float | None:
    return None if math.isnan(ns) else round(ns / 1e3, 6)
