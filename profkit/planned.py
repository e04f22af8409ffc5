"""What a repeated capture planned, by its capture.json, and which of its repetitions are there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from profkit import run_dir
from profkit.errors import ProfkitError

SCHEMA = "profkit.capture/1"
PLAN_FILE = "capture.json"


class _Arm(msgspec.Struct):
    name: str


class _Plan(msgspec.Struct):
    """The fields of the plan that reports use."""

    arms: list[_Arm]
    pairs: int
    nproc: int | None = None


def read_plan(file: Path, schema: str) -> dict[str, Any]:
    """The plan in `file`, of whatever fills up over several sittings.

    Raises:
        ProfkitError: it is not JSON, of another schema, or holds no plan.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ProfkitError(f"{file} is not valid JSON ({error}). Choose another -o.") from None
    if not isinstance(content, dict) or content.get("schema") != schema or not isinstance(content.get("plan"), dict):
        raise ProfkitError(f"{file} is not of schema {schema!r}. Choose another -o.")
    plan: dict[str, Any] = content["plan"]
    return plan


def read(output: Path) -> dict[str, Any]:
    """The plan of the repeated capture in the directory `output`.

    Raises:
        ProfkitError: it is not as a capture writes it.
    """
    plan = read_plan(output / PLAN_FILE, SCHEMA)
    try:
        msgspec.convert(plan, _Plan)
    except msgspec.ValidationError as error:
        raise ProfkitError(f"{output / PLAN_FILE} is not as profkit writes it: {error}. Capture again.") from None
    return plan


def arms(spec: str) -> Sequence[str]:
    """The arms of the repeated capture in the directory `spec`, the baseline first; empty where it is none."""
    if not (Path(spec) / PLAN_FILE).is_file():
        return ()
    return [str(arm["name"]) for arm in read(Path(spec))["arms"]]


@dataclass(frozen=True)
class Missing:
    """Repetitions of one arm that were planned and are not there.

    Args:
        arm: its directory's name.
        pairs: their numbers.
        planned: how many there should be.
    """

    arm: str
    pairs: Sequence[int]
    planned: int


def missing(spec: str) -> Iterator[Missing]:
    """What is missing of `spec`, if that is the directory of a repeated capture or of one of its arms."""
    path = Path(spec)
    for root, arms in ((path, None), (path.parent, [path.name])):
        if path.is_dir() and (root / PLAN_FILE).is_file():
            plan = read(root)
            for name in [arm["name"] for arm in plan["arms"] if arms is None or arm["name"] in arms]:
                ranks = range(plan.get("nproc") or 1)
                pairs = [(n, root / name / str(n)) for n in range(plan["pairs"])]
                absent = [n for n, pair in pairs if not all(run_dir.is_run(pair / str(rank)) for rank in ranks)]
                if absent:
                    yield Missing(name, absent, plan["pairs"])
            return
