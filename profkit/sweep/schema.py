"""What the documents of a sweep hold, with the ranges of their numbers; `consistency` holds the fields together."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from profkit.sweep.measured import Status
from profkit.sweep.plan import State

#: Finite, as every number here: no run takes a day.
PositiveUs = Annotated[float, Meta(gt=0, le=1e11)]
Us = Annotated[float, Meta(ge=0, le=1e11)]
#: Times are rounded to a tenth of a nanosecond, and equal ones that were computed differently may round apart.
ROUNDED_US = 1.5e-4
Percent = Annotated[float, Meta(ge=0, le=1e9)]
Ratio = Annotated[float, Meta(ge=0, le=1e300)]
Seconds = Annotated[float, Meta(ge=0, le=1e11)]
Count = Annotated[int, Meta(ge=0, le=1 << 40)]
AtLeastOne = Annotated[int, Meta(ge=1, le=1 << 40)]
Name = Annotated[str, Meta(min_length=1)]
Shapes = dict[Name, int | str]
Parameters = Annotated[dict[str, int], Meta(min_length=1)]


class Against(msgspec.Struct):
    """A configuration beside an anchor."""

    ratio: Ratio
    low: Ratio | None
    high: Ratio | None
    p: Annotated[float, Meta(ge=0, le=1)] | None
    verdict: Literal["better", "worse", "equal"]

    def __post_init__(self) -> None:
        if self.low is not None and self.high is not None and not self.low <= self.ratio <= self.high:
            raise ValueError("the ratio lies outside its interval")
        if (self.verdict == "better" and self.ratio > 1) or (self.verdict == "worse" and self.ratio < 1):
            raise ValueError(f"the verdict is {self.verdict} at a ratio of {self.ratio:g}")


class Times(msgspec.Struct):
    """Of one configuration in one state."""

    us: PositiveUs
    p25_us: PositiveUs
    p75_us: PositiveUs
    min_us: PositiveUs
    orders_us: list[PositiveUs]
    samples: AtLeastOne
    copies: AtLeastOne
    against: dict[str, Against | None]

    def __post_init__(self) -> None:
        if not self.min_us - ROUNDED_US <= min(self.us, self.p25_us) or self.p25_us - ROUNDED_US > self.p75_us:
            raise ValueError("min_us, p25_us, p75_us and us are in no possible order")


class Configuration(msgspec.Struct):
    """One that was tried, and what became of it."""

    parameters: Parameters
    known: list[str]
    status: Status
    reason: str | None
    screen_us: dict[State, Us]
    times: dict[State, Times]

    def __post_init__(self) -> None:
        if (self.status == "timed") != (self.reason is None) or (self.status == "timed") != bool(self.times):
            raise ValueError(f"status, reason and times do not go together: {self.status}")


class Noise(msgspec.Struct):
    """What the copies of the reference show."""

    percent: Percent
    largest_percent: Percent
    copies_us: Annotated[list[PositiveUs], Meta(min_length=2)]
    # Sweeps of earlier versions have none.
    copies_orders_us: list[list[PositiveUs]] = []


class Timing(msgspec.Struct):
    """Of one region in one state."""

    best: Count
    runs_per_sample: AtLeastOne
    nothing_us: Us
    noise: Noise
    anchors: Annotated[dict[str, Count], Meta(min_length=1)]


class Region(msgspec.Struct):
    """A region that is finished."""

    name: Name
    shapes: Shapes
    known: dict[str, Parameters]
    least_bytes: Count | None
    tolerance: Annotated[list[Annotated[float, Meta(ge=0, le=1e300)]], Meta(min_length=2, max_length=2)]
    counts: dict[Literal["tried", "timed", "screened", "rejected", "failed", "wrong"], Count]
    reference: Parameters | None
    timing: dict[State, Timing]
    configurations: Annotated[list[Configuration], Meta(min_length=1)]
    duration_s: Seconds
    date: str
    # Sweeps of earlier versions have none.
    left_out: dict[State, str] = {}
    phases_s: dict[str, Seconds] = {}


class Protocol(msgspec.Struct):
    """How all regions were measured and judged."""

    orders: AtLeastOne
    replays: AtLeastOne
    states: Annotated[list[State], Meta(min_length=1)]
    methods: dict[str, str]
    steps: str
    rule: str
    min_us: Us
    min_share: Annotated[float, Meta(ge=0, le=1)]


class Parameter(msgspec.Struct):
    """What a parameter was swept over."""

    help: str
    values: list[int]


class Workload(msgspec.Struct):
    """The workload that was swept."""

    name: str
    variant: str
    source: str
    sha256: str | None


class Device(msgspec.Struct):
    """Where; the other fields of `describe_device` are for readers."""

    name: str


class Versions(msgspec.Struct):
    """Of what was measured with."""

    profkit: str
    torch: str | None
    triton: str | None
    cuda: str | None
    python: str | None


class Facts(msgspec.Struct):
    """What all regions have in common."""

    workload: Workload
    device: Device
    versions: Versions
    seed: int
    date: str
    parameters: Annotated[dict[str, Parameter], Meta(min_length=1)]
    only_known: bool
    protocol: Protocol
    start_s: dict[str, Seconds] = {}


class Document(Facts, kw_only=True):
    """Schema ``profkit.sweep/1``."""

    regions_planned: Count
    regions: list[Region]


class Plan(msgspec.Struct):
    """The fields of a sweep's plan that reports use."""

    regions: Annotated[dict[Name, Shapes], Meta(min_length=1)]
