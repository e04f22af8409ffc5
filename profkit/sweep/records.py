"""What a sweep found: the records that its files hold, that ``--format json`` prints and that reports show.

A sweep's directory has the `Sweep` without regions in ``sweep.json`` and a file for each `Region` that is finished.
What could be computed from other fields is a method here and in no file, so that a file cannot contradict itself.
Within a version fields are only added.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct

from profkit.errors import ProfkitError
from profkit.model.run import DeviceRecord
from profkit.runs.whole_files import read_json

if TYPE_CHECKING:
    import pandas as pd

SCHEMA: Final = "profkit.sweep/2"
SWEEP_FILE = "sweep.json"
REGIONS = "regions"
#: The entry that the others are compared with where no known table has one.
SCREENING = "screening"

State = Literal["hot", "evicted"]
STATES: tuple[State, ...] = get_args(State)
Status = Literal["timed", "screened", "rejected", "failed", "wrong"]
Verdict = Literal["better", "worse", "equal", "unclear"]

#: Finite, as every number here: no run takes a day.
PositiveUs = Annotated[float, Meta(gt=0, le=1e11)]
Us = Annotated[float, Meta(ge=0, le=1e11)]
Percent = Annotated[float, Meta(ge=0, le=1e9)]
Share = Annotated[float, Meta(ge=0, le=1)]
Finite = Annotated[float, Meta(ge=0, le=1e300)]
Seconds = Annotated[float, Meta(ge=0, le=1e11)]
AtLeastOne = Annotated[int, Meta(ge=1, le=1 << 40)]
Name = Annotated[str, Meta(min_length=1)]
Shapes = dict[Name, int | str]
Parameters = Annotated[dict[str, int], Meta(min_length=1)]
_Record = TypeVar("_Record", bound=Struct)


def _says(text: str) -> Meta:
    """What the docs and the schema say of a field."""
    return Meta(description=text)


class Against(Struct, kw_only=True):
    """A configuration beside an entry that all are compared with."""

    ratio: Annotated[Finite, _says("its time over that of the entry.")]
    low: Annotated[Finite | None, _says("to `high`: its interval, which does not know how a best was picked;")]
    high: Annotated[Finite | None, _says("null with a single order, as are `low` and `p`.")]
    p: Annotated[Share | None, _says("two-sided, for this one comparison.")]
    verdict: Annotated[Verdict, _says("`better`, `worse`, `equal` or `unclear`, by `protocol.rule`.")]


class Times(Struct, kw_only=True):
    """What one run of a configuration took in one state."""

    us: Annotated[PositiveUs, _says("the geometric mean of `orders_us`.")]
    p25_us: PositiveUs
    p75_us: PositiveUs
    min_us: PositiveUs
    orders_us: Annotated[list[PositiveUs], _says("each order's median; of the reference the mean over its copies.")]
    samples: AtLeastOne
    copies: Annotated[AtLeastOne, _says("in each order: 1, of the reference several.")]
    against: Annotated[dict[str, Against | None], _says("entry → comparison, null for the entry itself.")]


class Configuration(Struct, kw_only=True):
    """One that was tried, and what became of it."""

    parameters: Parameters
    known: Annotated[list[str], _says("the tables whose entry it is.")]
    status: Annotated[Status, _says("`timed`, else at which step it was left.")] = "timed"
    reason: Annotated[str | None, _says("why it was not timed.")] = None
    screen_us: Annotated[dict[State, Us], _says("median of single runs; `us` is a mean over many.")] = {}
    times: Annotated[dict[State, Times], _says("of what was timed in full alone.")] = {}

    def __str__(self) -> str:
        return shown(self.parameters)


class Noise(Struct, kw_only=True):
    """What the copies of the reference show. Verdicts do not rest on it."""

    percent: Annotated[Percent, _says("by how much one more copy may differ from the reference.")]
    largest_percent: Annotated[Percent, _says("how far the copies lie apart.")]
    copies_orders_us: Annotated[list[list[PositiveUs]], _says("of each copy the median of each order's samples.")]


class Timing(Struct, kw_only=True):
    """How a region was timed in one state."""

    runs_per_sample: AtLeastOne
    nothing_us: Annotated[Us, _says("of a run that does nothing: in every time, and never subtracted.")]
    noise: Noise


class Region(Struct, kw_only=True):
    """A region that is finished."""

    name: Name
    shapes: Shapes
    known: Annotated[dict[str, Parameters], _says("table → its entry.")]
    least_bytes: Annotated[Annotated[int, Meta(ge=0)] | None, _says("of the workload, as `tolerance`.")]
    tolerance: Annotated[tuple[Finite, Finite], _says("rtol and atol of the comparison with the reference.")]
    reference: Annotated[Parameters | None, _says("what was measured as copies; null where nothing could be timed.")]
    timing: dict[State, Timing]
    left_out: Annotated[dict[State, str], _says("why a state was not timed though another one was.")]
    configurations: Annotated[list[Configuration], Meta(min_length=1)]
    duration_s: Seconds = 0.0
    phases_s: Annotated[dict[str, Seconds], _says("where the time went; `check` is with compiling.")]
    date: Annotated[str, _says("when it was finished; UTC.")] = ""

    def __post_init__(self) -> None:
        if len({frozenset(one.parameters) for one in self.configurations}) > 1:
            raise ValueError("its configurations have not the same parameters")
        for one in self.configurations:
            if set(one.times) != (set(self.timing) if one.status == "timed" else set()):
                raise ValueError(f"times of configuration {one} are not those of its status and of `timing`")
        for state in self.timing:
            against = [one.times[state].against for one in self.configurations if one.times]
            itself = Counter(name for names in against for name, found in names.items() if found is None)
            if not against or any(set(names) != set(itself) for names in against) or set(itself.values()) != {1}:
                raise ValueError(f"configurations that were timed {state} are not compared with the same entries")

    def best(self, state: State) -> Configuration:
        """The fastest in a state that was timed."""
        return min((one for one in self.configurations if state in one.times), key=lambda one: one.times[state].us)

    def entries(self, state: State) -> dict[str, Configuration]:
        """What all are compared with in a state that was timed: known tables' entries, else the screening's best."""
        timed = [one for one in self.configurations if state in one.times]
        return {name: one for one in timed for name, found in one.times[state].against.items() if found is None}


class Protocol(Struct, kw_only=True):
    """How all regions were measured and judged."""

    states: Annotated[list[State], Meta(min_length=1)]
    orders: AtLeastOne
    replays: Annotated[AtLeastOne, _says("samples of each configuration in each order.")]
    screen: Annotated[Finite, _says("what took longer than so many times the best in the screening was left.")]
    screen_replays: AtLeastOne
    copies: Annotated[AtLeastOne, _says("of the reference in each order.")]
    alpha: Share
    confidence: Share
    min_us: Annotated[Us, _says("with `min_share` the smallest difference that counts.")]
    min_share: Share
    methods: Annotated[dict[State, str], _says("how a sample is timed.")]
    steps: str
    rule: str


class Parameter(Struct, kw_only=True):
    """What a parameter was swept over; entries of known tables may lie beside it."""

    help: str
    values: list[int]


class SweptWorkload(Struct, kw_only=True):
    """The workload that was swept: a shipped one, or one of a user's file."""

    name: str
    variant: str
    source: Literal["shipped", "file"]
    sources: Annotated[dict[str, str], _says("file → its digest, of all that the workload is known to be made of.")]


class Sweep(Struct, kw_only=True):
    """What `profkit sweep --format json` prints and `profkit.load_sweep` reads. Times are µs for one run.

    [sweep.md](sweep.md) says how they are measured and judged.
    """

    schema: Literal["profkit.sweep/2"] = SCHEMA
    workload: SweptWorkload
    device: DeviceRecord
    versions: Annotated[dict[str, str | None], _says("of profkit, torch, triton, CUDA and Python.")]
    seed: int
    date: Annotated[str, _says("when it was begun; UTC.")]
    parameters: Annotated[dict[str, Parameter], Meta(min_length=1)]
    only_known: Annotated[bool, _says("were only entries of known tables timed?")]
    protocol: Protocol
    start_s: Annotated[Seconds, _says("what loading the workload, torch and the device took.")]
    planned: Annotated[dict[Name, Shapes], _says("the regions that there will be.")]
    regions: Annotated[list[Region], _says("those that are finished.")] = []

    def __post_init__(self) -> None:
        for region in self.regions:
            self.check(region, region.name)
        if len({region.name for region in self.regions}) < len(self.regions):
            raise ValueError("two regions have the same name")

    def check(self, region: Region, name: str) -> None:
        """Refuse what is not the region `name` of this sweep.

        Raises:
            ValueError: says how it differs.
        """
        if region.name != name or self.planned.get(name) != region.shapes:
            raise ValueError(f"region {region.name} with its shapes is not the one that was planned")
        if set(region.configurations[0].parameters) != set(self.parameters):
            raise ValueError(f"the configurations of region {region.name} have other parameters than the sweep")

    def columns(self) -> list[str]:
        """The columns of `rows`: the region's, the configuration's, its times', and each comparison's."""
        entries = dict.fromkeys(
            name
            for region in self.regions
            for state in region.timing
            for name in region.best(state).times[state].against
        )
        return [
            "region",
            *(f"shape.{name}" for name in dict.fromkeys(name for region in self.regions for name in region.shapes)),
            "state",
            *(f"parameter.{name}" for name in self.parameters),
            *("known", "status", "us", "p25_us", "p75_us", "min_us", "samples", "screen_us", "ratio_to_best"),
            *(f"{what}.{name}" for name in entries for what in ("ratio", "verdict")),
            "reason",
        ]

    def rows(self) -> Iterator[dict[str, Any]]:
        """One for each region, configuration and state; what was not measured is not in it."""
        for region in self.regions:
            best_us = {state: region.best(state).times[state].us for state in region.timing}
            for state in self.protocol.states:
                for one in region.configurations:
                    row: dict[str, Any] = {"region": region.name, "state": state}
                    row |= {f"shape.{name}": value for name, value in region.shapes.items()}
                    row |= {f"parameter.{name}": value for name, value in one.parameters.items()}
                    row |= {"known": " ".join(one.known), "status": one.status, "reason": one.reason}
                    row["screen_us"] = one.screen_us.get(state)
                    if (times := one.times.get(state)) is not None:
                        row |= {name: getattr(times, name) for name in ("us", "p25_us", "p75_us", "min_us", "samples")}
                        row["ratio_to_best"] = round(times.us / best_us[state], 5)
                        for name, found in times.against.items():
                            if found is not None:
                                row |= {f"ratio.{name}": found.ratio, f"verdict.{name}": found.verdict}
                    yield row

    def to_pandas(self) -> pd.DataFrame:
        """A row for each region, configuration and state; the columns are those of ``--format csv``."""
        import pandas as pd

        return pd.DataFrame(list(self.rows()), columns=self.columns())


def shown(parameters: Mapping[str, int]) -> str:
    """A configuration as users write it: ``warps=4 tile=64``."""
    return " ".join(f"{name}={value}" for name, value in parameters.items())


def is_sweep(path: Path) -> bool:
    """Whether `path` is a directory with a sweep in it."""
    return (path / SWEEP_FILE).is_file()


def load(path: str | os.PathLike[str]) -> Sweep:
    """Read a sweep's directory (``-o``), finished or not, or its JSON.

    Raises:
        ProfkitError: neither, damaged, or of another version.
    """
    where = Path(path)
    if not where.is_dir():
        return _read(where, Sweep, "Give what this profkit's sweep --format json has written.")
    if not is_sweep(where):
        raise ProfkitError(f"{where} holds no sweep (no {SWEEP_FILE}).")
    sweep = read_head(where)
    sweep.regions = [region for region in read_regions(where, sweep) if region is not None]
    return sweep


def read_head(output: Path) -> Sweep:
    """The sweep in the directory `output`, without its regions.

    Raises:
        ProfkitError: its file is damaged, or of another version.
    """
    return _read(output / SWEEP_FILE, Sweep, "Sweep again: with -o elsewhere, or there with --force.")


def read_regions(output: Path, sweep: Sweep) -> list[Region | None]:
    """The planned regions of `sweep` as they are in its directory; None where one is not finished.

    Raises:
        ProfkitError: the file of one is damaged, or of another sweep.
    """
    mend = "Remove it, and the same command measures the region again."
    found: list[Region | None] = []
    for number, name in enumerate(sweep.planned):
        file = region_file(output, number, name)
        region = _read(file, Region, mend) if file.is_file() else None
        try:
            if region is not None:
                sweep.check(region, name)
        except ValueError as error:
            raise ProfkitError(f"{file} does not belong here: {error}. {mend}") from None
        found.append(region)
    return found


def region_file(output: Path, number: int, name: str) -> Path:
    """Where the region at place `number` of the plan is kept; its name is there for readers alone."""
    readable = re.sub(r"[^A-Za-z0-9._=-]+", "_", name)[:80]
    return output / REGIONS / f"{number:04d}.{readable}.json"


def _read(file: Path, kind: type[_Record], mend: str) -> _Record:
    content = read_json(file, mend)
    if kind is Sweep and isinstance(content, dict) and content.get("schema") != SCHEMA:
        raise ProfkitError(f"{file}: schema is {content.get('schema')!r}, expected {SCHEMA!r}. {mend}")
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise ProfkitError(f"{file} is not as profkit writes it: {error}. {mend}") from None
