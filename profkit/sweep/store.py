"""A sweep's directory: the plan in sweep.json, and one file for each region that is finished."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from profkit.capture.sittings import check_same
from profkit.errors import ProfkitError
from profkit.runs.planned import read_plan
from profkit.runs.whole_files import read_json, write_json
from profkit.sweep.consistency import InconsistentError, check_plan, check_region

PLAN_SCHEMA = "profkit.sweep-plan/1"
REGION_SCHEMA = "profkit.sweep-region/1"
PLAN_FILE = "sweep.json"
REGIONS = "regions"
#: What a process that was ended leaves of a file that it was writing.
_PARTIAL = ".*.json.*.part"


def is_sweep(path: Path) -> bool:
    """Whether `path` is a directory with a sweep in it."""
    return (path / PLAN_FILE).is_file()


def begin(output: Path, plan: Mapping[str, Any], facts: Mapping[str, Any], *, force: bool) -> None:
    """Make `output`, which this process has locked, ready for the regions of `plan`.

    Args:
        plan: what a resumed sweep must have in common with the one before, by `Plan.describe`.
        facts: the rest of the document, kept from the first sitting.
        force: start over where another plan is there.

    Raises:
        ProfkitError: another plan is there, or something else.
    """
    file = output / PLAN_FILE
    if file.is_file():
        if force:
            _start_over(output)
        else:
            check_same(output, "a sweep", read_plan(file, PLAN_SCHEMA), plan)
    elif not _is_left_of_a_start(output):
        raise ProfkitError(f"{output} exists and holds no sweep (no {PLAN_FILE}). Choose another -o.")
    (output / REGIONS).mkdir(exist_ok=True)
    for folder in (output, output / REGIONS):
        for partial in folder.glob(_PARTIAL):
            partial.unlink()
    if not file.exists():
        write_json(file, {"schema": PLAN_SCHEMA, "plan": plan, "facts": facts})


def _is_left_of_a_start(output: Path) -> bool:
    """Whether `output` is empty, or holds only what a process leaves that was ended before it had written the plan."""
    regions = output / REGIONS
    others = [path for path in output.iterdir() if path != regions and not fnmatch(path.name, f".{PLAN_FILE}.*.part")]
    if others or not regions.exists():
        return not others
    return regions.is_dir() and all(fnmatch(path.name, _PARTIAL) for path in regions.iterdir())


def _start_over(output: Path) -> None:
    """Remove the sweep in `output` and nothing else."""
    for file in (output / REGIONS).glob("*.json"):
        file.unlink()
    (output / PLAN_FILE).unlink()


def region_file(output: Path, number: int, name: str) -> Path:
    """Where the region at place `number` of the plan is kept; its name is there for readers alone."""
    readable = re.sub(r"[^A-Za-z0-9._=-]+", "_", name)[:80]
    return output / REGIONS / f"{number:04d}.{readable}.json"


def write_region(output: Path, number: int, record: Mapping[str, Any]) -> None:
    """Keep a finished region: a reader sees all of it or no file."""
    write_json(region_file(output, number, str(record["name"])), {"schema": REGION_SCHEMA, **record})


def read_region(
    output: Path, number: int, name: str, shapes: Mapping[str, Any], facts: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The region `name` at place `number` of the plan; None where it is not finished.

    Args:
        shapes: what the plan has for it.
        facts: as `read_facts` gives them.

    Raises:
        ProfkitError: its file is not as `write_region` writes it.
    """
    file = region_file(output, number, name)
    if not file.is_file():
        return None
    mend = "Remove it, and the same command measures the region again."
    content = read_json(file, mend)
    if (
        not isinstance(content, dict)
        or content.pop("schema", None) != REGION_SCHEMA
        or content.get("name") != name
        or content.get("shapes") != shapes
    ):
        raise ProfkitError(f"{file} is not of schema {REGION_SCHEMA!r} for region {name!r} and its shapes. {mend}")
    try:
        check_region(content, facts)
    except InconsistentError as error:
        raise ProfkitError(f"{file} is not as profkit writes it: {error}. {mend}") from None
    record: dict[str, Any] = content
    return record


def read_facts(output: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plan in `output`, and the facts that were kept with it.

    Raises:
        ProfkitError: sweep.json is not as `begin` writes it.
    """
    file = output / PLAN_FILE
    mend = "Choose another -o."
    plan = read_plan(file, PLAN_SCHEMA)
    facts = read_json(file, mend).get("facts")
    try:
        check_plan(plan, facts)
    except InconsistentError as error:
        raise ProfkitError(f"{file} is not as profkit writes it: {error}. {mend}") from None
    return plan, facts
