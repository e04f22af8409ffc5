"""What a repeated capture planned, by its capture.json, and which of its repetitions are there."""

from __future__ import annotations

import fnmatch
import functools
import glob
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from profkit.errors import ProfkitError
from profkit.runs import run_dir
from profkit.runs.whole_files import read_json

SCHEMA = "profkit.capture/1"
PLAN_FILE = "capture.json"
#: More than anybody records; a file that says more is damaged, and each one is looked for.
MOST_PAIRS = 10_000
_MOST_RANKS = 1024


class PlannedArm(msgspec.Struct, frozen=True):
    """One side: the directory of its repetitions, and the workload's variant."""

    name: str
    variant: str | None = None


class CapturePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The `plan` field of capture.json: all that a resumed capture must have in common with the one before.

    `workload_sha256` is of the file that holds a workload of one's own.
    """

    workload: str | None = None
    workload_sha256: str | None = None
    arms: Annotated[list[PlannedArm], msgspec.Meta(min_length=1, max_length=2)]
    pairs: Annotated[int, msgspec.Meta(ge=1, le=MOST_PAIRS)]
    shapes: dict[str, str] = {}
    profiler: str | None = None
    replays: int | None = None
    warmup: int | None = None
    seed: int | None = None
    run_bodies: bool | None = None
    keep_report: bool | None = None
    nproc: Annotated[int, msgspec.Meta(ge=1, le=_MOST_RANKS)] | None = None
    graph_level: bool = False


def read_plan(file: Path, schema: str) -> dict[str, Any]:
    """The plan in `file`, of whatever fills up over several sittings.

    Raises:
        ProfkitError: it is not JSON, of another schema, or holds no plan.
    """
    content = read_json(file, "Use another directory, or make this one anew.")
    if not isinstance(content, dict) or content.get("schema") != schema or not isinstance(content.get("plan"), dict):
        raise ProfkitError(f"{file} is not of schema {schema!r}. Use another directory, or make this one anew.")
    plan: dict[str, Any] = content["plan"]
    return plan


def read(output: Path) -> CapturePlan:
    """The plan of the repeated capture in the directory `output`.

    Raises:
        ProfkitError: it is not as a capture writes it.
    """
    plan = read_plan(output / PLAN_FILE, SCHEMA)
    try:
        return msgspec.convert(plan, CapturePlan)
    except msgspec.ValidationError as error:
        raise ProfkitError(f"{output / PLAN_FILE} is not as profkit writes it: {error}. Capture again.") from None


def arms(spec: str) -> Sequence[str]:
    """The arms of the repeated capture in the directory `spec`, the baseline first; empty where it is none."""
    if not _is_capture(Path(spec)):
        return ()
    return [arm.name for arm in read(Path(spec)).arms]


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
    """What is missing of `spec`: the directory of a repeated capture or of one of its arms, or a glob in one."""
    path = Path(spec)
    if path.exists():
        yield from _missing_in(path.resolve(), _all)
        return
    matches = [Path(match) for match in sorted(glob.glob(spec)) if Path(match).is_dir()]  # noqa: PTH207 - as in runs.find
    # Repetitions that the pattern names one by one are those that it would match if they were there.
    pattern = str(path)
    seen: set[Path] = set()
    wanted: Callable[[int], bool]
    for match in matches:
        found = match.resolve()
        if _is_capture(found) or _is_capture(found.parent):
            place, wanted = found, _all
        elif _is_capture(found.parent.parent):
            place, wanted = found.parent, functools.partial(_matches, pattern, match.parent, "")
        elif _is_capture(found.parent.parent.parent):
            place, wanted = found.parent.parent, functools.partial(_matches, pattern, match.parent.parent, match.name)
        else:
            continue
        if place not in seen:
            seen.add(place)
            yield from _missing_in(place, wanted)


def _is_capture(directory: Path) -> bool:
    return (directory / PLAN_FILE).is_file()


def _all(pair: int) -> bool:
    del pair
    return True


def _matches(pattern: str, arm: Path, rank: str, pair: int) -> bool:
    return fnmatch.fnmatch(str(arm / str(pair) / rank), pattern)


def _missing_in(path: Path, wanted: Callable[[int], bool]) -> Iterator[Missing]:
    """The same of the directory `path`, for the pairs that are wanted."""
    for root, chosen in ((path, None), (path.parent, path.name)):
        if path.is_dir() and _is_capture(root):
            plan = read(root)
            for name in [arm.name for arm in plan.arms if chosen in (None, arm.name)]:
                ranks = range(plan.nproc or 1)
                pairs = [(n, root / name / str(n)) for n in range(plan.pairs) if wanted(n)]
                absent = [n for n, pair in pairs if not all(run_dir.is_run(pair / str(rank)) for rank in ranks)]
                if absent:
                    yield Missing(name, absent, plan.pairs)
            return
