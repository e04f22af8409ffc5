"""The layers report as data, schema ``profkit.layers/1``: what every format of it is made from. See docs/json.md."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from profkit.counting.floor import FACTOR, Floor, floor_of
from profkit.counting.ranks import diagnostics, rank_of, same_layers, shares, unlike
from profkit.model.census import Census, KindCensus
from profkit.model.run import RunRecord
from profkit.model.trace import Diagnostic
from profkit.reporters import ranks_data
from profkit.runs.files import RunFile

SCHEMA = "profkit.layers/1"


def report(runs: Sequence[tuple[RunFile, Census]], floor_us: float | None = None) -> dict[str, Any]:
    """Everything that the layers report says about `runs`. Launches and µs are per layer per step.

    Args:
        floor_us: the dispatch floor, where the user gives it.
    """
    said_by_run = diagnostics([(run.record, census) for run, census in runs])
    entries = [_run(run, census, floor_us, said) for (run, census), said in zip(runs, said_by_run, strict=True)]
    average = _average(entries)
    average["unlike"] = _unlike(runs) if average["runs"] > 1 else []
    counted = [
        (run.label, run.record, census.chosen) for run, census in runs if census.refusal is None and census.kinds
    ]
    timed = all(entry["timed"] for entry in entries)
    return {
        "schema": SCHEMA,
        "runs": entries,
        "average": average,
        "jobs": ranks_data.of_jobs(counted, timed=timed),
    }


def _unlike(runs: Sequence[tuple[RunFile, Census]]) -> list[dict[str, str]]:
    """Runs that differ from the others of the average."""
    usable = [(run, c) for run, c in runs if c.refusal is None and not (run.record and run.record.set_aside)]
    counted = [(run, c.chosen) for run, c in usable if c.kinds and c.chosen.selected_layers]
    kinds = [kind for _, kind in counted]
    if not same_layers(kinds):
        shown = ", ".join(f"{run.label} {kind.selected_layers}" for run, kind in counted)
        return [{"run": "", "message": f"the runs have different layers: {shown}"}]
    return [{"run": counted[index][0].label, "message": text} for index, text in unlike(kinds)]


def _run(run: RunFile, census: Census, floor_us: float | None, warnings: Sequence[Diagnostic]) -> dict[str, Any]:
    record = run.record
    device = record.device.name if record and record.device else None
    floor = floor_of(record, [census], floor_us) if census.kinds and census.info.timed else None
    kinds = [_kind(census, k, floor) for k in census.kinds]
    default = kinds[census.default] if kinds else None
    rank = rank_of(record)
    return {
        "run": run.label,
        "rank": _rank_in(census) if rank is None else rank.rank,
        "device": ", ".join(dict.fromkeys(census.info.devices.values())) or device,
        "profiler": census.info.profiler,
        "format": census.info.format,
        "timed": census.info.timed,
        "workload": msgspec.to_builtins(record and record.workload),
        "methods": dict(census.methods),
        "ledger": _ledger(census),
        "steps_found_by": census.step_method,
        "step_kinds": kinds,
        "default_step_kind": default["id"] if default else None,
        "layers": default["layers"] if default else [],
        "outside": default["outside"] if default else [],
        "selected": _selected(census, floor, record),
        "floor": None if floor is None else {"us": floor.us, "source": floor.source, "factor": FACTOR},
        "beyond_steps": [
            {
                **_named(row),
                "short": census.display[row["canonical"]],
                "where": row["where"],
                "launches": int(row["launches"]),
                "us": _us(row["ns"], 1, census),
            }
            for row in census.beyond_steps.to_dict("records")
        ],
        "set_aside": msgspec.to_builtins(record and record.set_aside),
        "untraced": msgspec.to_builtins(record and record.untraced),
        "graph_level": msgspec.to_builtins(record and record.graph_level),
        "traced_step": _traced_step(census),
        "refusal": {"code": census.refusal.code, "message": census.refusal.message} if census.refusal else None,
        "warnings": [{"code": d.code, "message": d.message} for d in warnings],
    }


def _rank_in(census: Census) -> int | None:
    """What the trace itself says."""
    return census.info.processes[0].rank if len(census.info.processes) == 1 else None


def _ledger(census: Census) -> dict[str, Any]:
    ledger = census.ledger
    names = (
        "ops",
        "in_layers",
        "in_ranges",
        "in_graph_outside_layers",
        "outside_graphs",
        "unattributed",
        "warm_up",
        "set_aside",
    )
    counts: dict[str, Any] = {n: getattr(ledger, n) for n in names}
    counts["us"] = {n: _us(ns, 1, census) for n, ns in ledger.ns.items()}
    return counts


def _traced_step(census: Census) -> dict[str, float | None] | None:
    """First start to last end of the default kind's steps; under the profiler, so longer than it runs."""
    if not census.kinds or not census.info.timed:
        return None
    quartiles = np.percentile(census.chosen.step_span_ns / 1e3, [25, 50, 75])
    return dict(zip(("p25", "median", "p75"), map(_rounded, quartiles), strict=True))


def _kind(census: Census, kind: KindCensus, floor: Floor | None) -> dict[str, Any]:
    steps = kind.kind.steps
    return {
        "id": kind.kind.id,
        "steps": steps,
        "launches_per_step": kind.kind.ops_per_step,
        "us_per_step": _us(kind.kind.gpu_ns, steps, census),
        "layers": _layers(census, kind, floor),
        "outside": [
            {
                **_named(row),
                "short": census.display[row["canonical"]],
                "where": row["where"],
                "launches": _per(row["launches"], steps),
                "us": _us(row["ns"], steps, census),
            }
            for row in kind.outside.to_dict("records")
        ],
    }


def _layers(census: Census, kind: KindCensus, floor: Floor | None) -> list[dict[str, Any]]:
    steps = kind.kind.steps
    keys = ["layer", "inside", "name", "op_kind"]
    sums = kind.slots.groupby(keys, sort=False, as_index=False)[["launches", "ns"]].sum()
    kernels: list[list[dict[str, Any]]] = [[] for _ in range(len(kind.layers))]
    by_kind: list[dict[str, int]] = [{} for _ in range(len(kind.layers))]
    for row in sums.to_dict("records"):
        kernels[row["layer"]].append(
            {
                **_named(row),
                "scope": row["inside"],
                "launches": _per(row["launches"], steps),
                "us": _us(row["ns"], steps, census),
                "floor": _at_floor(floor, row["op_kind"], row["ns"], row["launches"]),
            }
        )
        counted = by_kind[row["layer"]]
        counted[row["op_kind"]] = counted.get(row["op_kind"], 0) + int(row["launches"])
    return [
        {
            "layer": int(layer["number"]),
            "kind": layer["kind"],
            "scope": layer["scope"],
            "selected": bool(layer["selected"]),
            "launches": _per(layer["launches"], steps),
            "launches_by_kind": {k: _per(v, steps) for k, v in by_kind[index].items()},
            "kernel_us": _us(layer["kernel_ns"], steps, census),
            "busy_us": _us(layer["busy_ns"], steps, census),
            "span_us": _us(layer["span_ns"], steps, census),
            "kernels": kernels[index],
        }
        for index, layer in enumerate(kind.layers.to_dict("records"))
    ]


def _selected(census: Census, floor: Floor | None, record: RunRecord | None) -> dict[str, Any]:
    if not census.kinds:
        return {"layers": 0, "steps": 0, "launches": 0, "kernel_us": None, "by_role": None, "kernels": []}
    kind = census.chosen
    slots, layers, steps = kind.selected_slots, kind.selected_layers, kind.kind.steps
    per = max(layers * steps, 1)
    return {
        "layers": layers,
        "steps": steps,
        "launches": _per(slots["launches"].sum(), per),
        "launches_by_kind": {k: _per(v, per) for k, v in slots.groupby("op_kind")["launches"].sum().items()},
        "kernel_us": _us(slots["ns"].sum(), per, census),
        "by_role": ranks_data.by_role(shares(kind, record), timed=census.info.timed),
        "kernels": kernels_of_selection(census, floor),
    }


def kernels_of_selection(census: Census, floor: Floor | None) -> list[dict[str, Any]]:
    """The selected layers' kernels together, per layer per step, with median and quartiles over steps.

    `ns_total` and `launches_total` are the exact sums, for reports that round.
    """
    kind = census.chosen
    layers, steps = kind.selected_layers, kind.kind.steps
    if not layers:
        return []
    rows: list[dict[str, Any]] = []
    keys = ["inside", "canonical", "op_kind"]
    for (inside, canonical, op_kind), group in kind.selected_slots.groupby(keys, sort=False):
        by_step = kind.slot_ns[group.index.to_numpy()].sum(axis=0) / layers / 1e3
        quartiles = np.percentile(by_step, [25, 50, 75]) if census.info.timed else [None] * 3
        rows.append(
            {
                "name": group["name"].iloc[0],
                "short": census.display[str(canonical)],
                "kind": op_kind,
                "scope": inside,
                "launches": _per(group["launches"].sum(), layers * steps),
                "us": _us(group["ns"].sum(), layers * steps, census),
                "us_median": _rounded(quartiles[1]),
                "us_p25": _rounded(quartiles[0]),
                "us_p75": _rounded(quartiles[2]),
                "launches_total": int(group["launches"].sum()),
                "ns_total": int(group["ns"].sum()),
                "floor": _at_floor(floor, op_kind, group["ns"].sum(), group["launches"].sum()),
            }
        )
    return rows


def _at_floor(floor: Floor | None, op_kind: Any, ns: Any, launches: Any) -> bool | None:
    """Whether launches of this mean duration are at the floor; None for copies, and where no floor is known."""
    if floor is None or op_kind != "kernel":
        return None
    return floor.holds(int(ns) / int(launches) / 1e3)


def _average(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over the runs of what is per layer per step; each run counts once, whatever its length. Runs of different
    workloads or variants have no mean, and a repetition that its capture set aside is in none."""
    usable = [e for e in entries if e["selected"]["layers"] and e["refusal"] is None and not e["set_aside"]]
    arms = {((e["workload"] or {}).get("name"), (e["workload"] or {}).get("variant")) for e in usable}
    if not usable or len(arms) > 1:
        return {"runs": 0, "layers": None, "launches": None, "kernel_us": None}
    times = [e["selected"]["kernel_us"] for e in usable]
    layers = {e["selected"]["layers"] for e in usable}
    return {
        "runs": len(usable),
        "layers": layers.pop() if len(layers) == 1 else None,
        "launches": sum(e["selected"]["launches"] for e in usable) / len(usable),
        "kernel_us": None if None in times else sum(times) / len(times),
    }


def _named(row: Mapping[Hashable, Any]) -> dict[str, Any]:
    return {"name": row["name"], "kind": row["op_kind"]}


def _per(total: Any, count: int) -> int | float:
    whole, rest = divmod(int(total), count)
    return whole if rest == 0 else int(total) / count


def _us(ns: Any, count: int, census: Census) -> float | None:
    return _rounded(int(ns) / count / 1e3) if census.info.timed else None


def _rounded(value: Any) -> float | None:
    """To a millionth of a microsecond: sums of a million rows still agree to a nanosecond."""
    return None if value is None else round(float(value), 6)
