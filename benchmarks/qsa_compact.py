"""A sweep of `qsa-attention` as compact JSON, and back: all that `qsa_table.py` reads of one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qsa_points import COMPACT_SCHEMA, SCHEMA
from qsa_summary import numbers_of

from profkit.kernels.qsa.regions import PARAMETERS


def read(path: Path) -> dict[str, Any]:
    """A sweep's JSON as `profkit sweep` or `compact` wrote it.

    Raises:
        SystemExit: it cannot be read, or is neither.
    """
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SystemExit(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise SystemExit(f"{path} is not valid JSON: {error}.") from None
    if not isinstance(document, dict):
        raise SystemExit(f"{path} is no sweep.")
    try:
        return expand(document) if document.get("schema") == COMPACT_SCHEMA else document
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SystemExit(f"{path} is damaged: {type(error).__name__} {error} in what --compact wrote.") from None


def compact(document: Mapping[str, Any]) -> str:
    """A sweep as JSON of one line a region: medians, quartiles, noise and verdicts, without what each order gave.

    A configuration that was timed is ``[block_n, splits, warps, {state: [median us, quartile, quartile, verdicts]}]``,
    whose verdicts are how it compares with each known table's entry, null with itself; one that was screened out is
    ``[block_n, splits, warps, {state: us of the screening}]``.
    """
    head = {name: document[name] for name in ("workload", "device", "versions", "seed", "date", "protocol")}
    head = {"schema": COMPACT_SCHEMA, **head}
    regions = [json.dumps(_compact_region(one), separators=(",", ":")) for one in document["regions"]]
    return json.dumps(head, indent=1)[:-2] + ',\n "regions": [\n' + ",\n".join(regions) + "\n]}\n"


def _compact_region(region: Mapping[str, Any]) -> dict[str, Any]:
    timing = region["timing"]
    timed, screened = [], []
    for one in region["configurations"]:
        numbers = list(numbers_of(one["parameters"]))
        if one["times"]:
            timed.append([*numbers, {state: _compact_times(times) for state, times in one["times"].items()}])
        elif one["screen_us"]:
            screened.append([*numbers, one["screen_us"]])
    return {
        "name": region["name"],
        "shapes": region["shapes"],
        "known": {table: list(numbers_of(entry)) for table, entry in region["known"].items()},
        "least_bytes": region["least_bytes"],
        "noise_percent": {state: timing[state]["noise"]["percent"] for state in timing},
        "nothing_us": {state: timing[state]["nothing_us"] for state in timing},
        "left_out": region["left_out"],
        "timed": timed,
        "screened": screened,
    }


def _compact_times(times: Mapping[str, Any]) -> list[Any]:
    verdicts = {table: against and against["verdict"] for table, against in times["against"].items()}
    return [times["us"], times["p25_us"], times["p75_us"], verdicts]


def expand(document: Mapping[str, Any]) -> dict[str, Any]:
    """What `compact` made short, in the form of the sweep that it was made of; `compact` of it gives the same."""
    return {**document, "schema": SCHEMA, "regions": [_expand_region(one) for one in document["regions"]]}


def _expand_region(region: Mapping[str, Any]) -> dict[str, Any]:
    configurations = [
        {
            "parameters": _named(numbers),
            "screen_us": {},
            "times": {state: _expand_times(*found) for state, found in times.items()},
        }
        for *numbers, times in region["timed"]
    ]
    configurations += [
        {"parameters": _named(numbers), "screen_us": screen_us, "times": {}}
        for *numbers, screen_us in region["screened"]
    ]
    return {
        **{name: region[name] for name in ("name", "shapes", "least_bytes", "left_out")},
        "known": {table: _named(entry) for table, entry in region["known"].items()},
        "timing": {
            state: {"noise": {"percent": percent}, "nothing_us": region["nothing_us"][state]}
            for state, percent in region["noise_percent"].items()
        },
        "configurations": configurations,
    }


def _expand_times(us: float, p25_us: float, p75_us: float, verdicts: Mapping[str, str | None]) -> dict[str, Any]:
    against = {table: verdict and {"verdict": verdict} for table, verdict in verdicts.items()}
    return {"us": us, "p25_us": p25_us, "p75_us": p75_us, "against": against}


def _named(numbers: list[int]) -> dict[str, int]:
    return dict(zip(PARAMETERS, numbers, strict=True))
