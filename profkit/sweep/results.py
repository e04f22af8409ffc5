"""A sweep's results, schema ``profkit.sweep/1``: put together, and read back for scripts that build tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.runs.whole_files import read_json
from profkit.sweep import store
from profkit.sweep.consistency import InconsistentError, check_document

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "profkit.sweep/1"


@dataclass(frozen=True)
class Sweep:
    """The results of `profkit sweep`.

    Args:
        data: the document of schema ``profkit.sweep/1``; see docs/json.md.
    """

    data: Mapping[str, Any]

    @property
    def regions(self) -> Sequence[Mapping[str, Any]]:
        """The finished regions, in the order of the plan."""
        regions: Sequence[Mapping[str, Any]] = self.data["regions"]
        return regions

    def to_pandas(self) -> pd.DataFrame:
        """A row for each region, configuration and state; the columns are those of ``--format csv``."""
        import pandas as pd

        return pd.DataFrame(list(rows(self.data)), columns=columns(self.data))


def load(path: str | os.PathLike[str]) -> Sweep:
    """Read a sweep's directory (``-o``), finished or not, or its JSON.

    Raises:
        ProfkitError: neither, or damaged.
    """
    where = Path(path)
    if where.is_dir():
        return Sweep(from_directory(where))
    data = read_json(where, "Give what profkit sweep --format json has written.")
    if not isinstance(data, dict) or not isinstance(data.get("schema"), str):
        raise ProfkitError(f"{where} is not the JSON of a sweep: it has no schema.")
    if data["schema"] != SCHEMA:
        raise ProfkitError(f"{where}: schema is {data['schema']!r}, expected {SCHEMA!r}.")
    try:
        check_document(data)
    except InconsistentError as error:
        raise ProfkitError(f"{where} is not the JSON of a sweep: {error}.") from None
    return Sweep(data)


def from_directory(output: Path) -> dict[str, Any]:
    """The document of what is finished in a sweep's directory.

    Raises:
        ProfkitError: it is none, or damaged.
    """
    if not store.is_sweep(output):
        raise ProfkitError(f"{output} holds no sweep (no {store.PLAN_FILE}).")
    plan, facts = store.read_facts(output)
    regions = [
        store.read_region(output, number, name, shapes, facts)
        for number, (name, shapes) in enumerate(plan["regions"].items())
    ]
    return document(facts, len(regions), [region for region in regions if region is not None])


def document(facts: Mapping[str, Any], planned: int, regions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The whole document.

    Args:
        facts: what all regions have in common.
        planned: how many regions the sweep has when it is finished.
    """
    return {"schema": SCHEMA, **facts, "regions_planned": planned, "regions": list(regions)}


def anchor_names(data: Mapping[str, Any]) -> list[str]:
    """Every entry that configurations are compared with in some region, in order of appearance."""
    return list(
        dict.fromkeys(
            name for region in data["regions"] for timing in region["timing"].values() for name in timing["anchors"]
        )
    )


def columns(data: Mapping[str, Any]) -> list[str]:
    """The columns of `rows`: those of the region, the configuration, its times, and its comparison with each anchor."""
    shapes = dict.fromkeys(name for region in data["regions"] for name in region["shapes"])
    return [
        "region",
        *(f"shape.{name}" for name in shapes),
        "state",
        *(f"parameter.{name}" for name in data["parameters"]),
        *("known", "status", "us", "p25_us", "p75_us", "min_us", "samples", "screen_us", "ratio_to_best"),
        *(f"{what}.{name}" for name in anchor_names(data) for what in ("ratio", "verdict")),
        "reason",
    ]


def rows(data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One row for each region, configuration and state; what was not measured is None."""
    anchors = anchor_names(data)
    for region in data["regions"]:
        for state in data["protocol"]["states"]:
            timing = region["timing"].get(state)
            best_us = region["configurations"][timing["best"]]["times"][state]["us"] if timing else None
            for configuration in region["configurations"]:
                times = configuration["times"].get(state)
                row: dict[str, Any] = {
                    "region": region["name"],
                    **{f"shape.{name}": value for name, value in region["shapes"].items()},
                    "state": state,
                    **{f"parameter.{name}": value for name, value in configuration["parameters"].items()},
                    "known": " ".join(configuration["known"]),
                    "status": configuration["status"],
                    "screen_us": configuration["screen_us"].get(state),
                    "reason": configuration["reason"],
                }
                if times is not None:
                    row |= {name: times[name] for name in ("us", "p25_us", "p75_us", "min_us", "samples")}
                    row["ratio_to_best"] = round(times["us"] / best_us, 5)
                    for name in anchors:
                        found = times["against"].get(name)
                        row |= (
                            {}
                            if found is None
                            else {f"ratio.{name}": found["ratio"], f"verdict.{name}": found["verdict"]}
                        )
                yield row
