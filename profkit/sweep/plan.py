"""What a sweep will measure: the user's options, checked against the workload."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from profkit.errors import ProfkitError, did_you_mean
from profkit.model.workload import (
    BuildContext,
    Configuration,
    ShapeValue,
    Tunable,
    Workload,
    resolve_shapes,
    resolve_variant,
)
from profkit.sweep.records import STATES, State
from profkit.sweep.workload import checked

DEVICES = ("cuda", "cpu")
#: Configurations within this factor of the best of the screening are timed in full. Screening times are coarse (a few
#: replays of one run), but nothing that is half as fast again as another one wins by a better clock.
SCREEN_FACTOR = 1.5
#: A process that compiles beforehand imports torch and builds the problem first: with fewer configurations than this
#: for each process, the one that times has compiled them as soon. More processes than the most would not end sooner.
_CONFIGURATIONS_A_JOB = 6
_MOST_JOBS = 8
#: A message names all regions of a workload that has no more than these.
_MOST_NAMED = 12


@dataclass(frozen=True)
class Options:
    """What the user asked for.

    Args:
        workload: a shipped name or ``path/file.py:name``.
        variant: None takes the workload's first.
        shapes: ``name=value`` texts, for every region.
        regions: names or globs of regions; none takes the first, or the shapes given.
        values: ``parameter=v1,v2`` texts that replace what a parameter would be swept over.
        only_known: time the entries of known tables and nothing else.
        state: one of `STATES`, or ``both``.
        orders, replays: replays of each configuration in each of the interleaved orders.
        screen: see `SCREEN_FACTOR`; 0 times every configuration in full.
        seed: seeds the inputs and the shuffled orders.
        device: one of `DEVICES`.
        jobs: processes that compile beforehand; 1 compiles in the process that times, None chooses.
    """

    workload: str
    variant: str | None = None
    shapes: Sequence[str] = ()
    regions: Sequence[str] = ()
    values: Sequence[str] = ()
    only_known: bool = False
    state: str = "both"
    orders: int = 9
    replays: int = 5
    screen: float = SCREEN_FACTOR
    seed: int = 0
    device: str = "cuda"
    jobs: int | None = None


@dataclass(frozen=True)
class Plan:
    """`Options` for a workload that is loaded.

    Args:
        regions: name to every shape of the workload. For shapes of the user's own the name is these, as ``rows=8``.
        values: what each parameter is swept over, in the order of the `Tunable`.
        states: in which each configuration is timed.
        not_taken: how many regions the workload has beside the one that was taken because none was asked for.
    """

    options: Options
    workload: Workload
    tunable: Tunable
    variant: str
    regions: Mapping[str, Mapping[str, ShapeValue]]
    values: Mapping[str, Sequence[int]]
    states: Sequence[State]
    not_taken: int

    def context(self, region: str) -> BuildContext:
        """What the problem of `region` is built for."""
        options = self.options
        shapes = self.regions[region]
        return BuildContext(variant=self.variant, shapes=shapes, device=options.device, seed=options.seed)

    def configurations(self, region: str, known: Mapping[str, Configuration]) -> list[dict[str, int]]:
        """Every configuration to try, the entries of known tables included; each once.

        Raises:
            ProfkitError: a known entry lacks a parameter or has one too many.
        """
        names = list(self.values)
        for table, entry in known.items():
            if set(entry) != set(names):
                raise ProfkitError(
                    f"{self.workload.name}: the entry of {table} for region {region} sets "
                    f"{', '.join(entry) or 'nothing'}, but the parameters are {', '.join(names)}. Mend the workload."
                )
        grid = [] if self.options.only_known else itertools.product(*self.values.values())
        unique = dict.fromkeys([*grid, *(tuple(entry[name] for name in names) for entry in known.values())])
        if not unique:
            raise ProfkitError(f"No known table has an entry for region {region}. Leave --only-known out.")
        return [dict(zip(names, values, strict=True)) for values in unique]

    @property
    def jobs(self) -> int:
        """How many processes compile beforehand; 1 is none beside the one that times."""
        if self.options.jobs is not None:
            return self.options.jobs
        if self.options.device == "cpu" or self.options.only_known:
            return 1
        tried = math.prod(len(values) for values in self.values.values())
        return max(1, min(_MOST_JOBS, (os.cpu_count() or 1) // 2, tried // _CONFIGURATIONS_A_JOB))


def make_plan(options: Options, workload: Workload) -> Plan:
    """Check `options` against `workload`.

    Raises:
        ProfkitError: nothing to sweep, an unknown name, a value of the wrong type or out of range.
    """
    if options.device not in DEVICES:
        raise ProfkitError(f"No device {options.device!r}.{did_you_mean(options.device, DEVICES)}")
    states = _states(options)
    if workload.tunable is None:
        raise ProfkitError(f"{workload.name} offers no launch configuration to sweep (Workload.tunable is not set).")
    tunable = checked(workload.name, "tunable", workload.tunable, Tunable)
    return Plan(
        options=options,
        workload=workload,
        tunable=tunable,
        variant=resolve_variant(workload, options.variant),
        regions=_regions(options, workload, tunable),
        values=_values(options.values, workload.name, tunable),
        states=states,
        not_taken=0 if options.regions or options.shapes else max(0, len(tunable.regions) - 1),
    )


def _states(options: Options) -> tuple[State, ...]:
    if options.state not in (*STATES, "both"):
        raise ProfkitError(f"No state {options.state!r}.{did_you_mean(options.state, (*STATES, 'both'))}")
    if options.device == "cpu":
        if options.state == "evicted":
            raise ProfkitError("--state evicted is not offered on the CPU, whose caches are not evicted. Use hot.")
        return ("hot",)
    return tuple(state for state in STATES if options.state in (state, "both"))


def _regions(options: Options, workload: Workload, tunable: Tunable) -> dict[str, dict[str, ShapeValue]]:
    if not options.regions and (options.shapes or not tunable.regions):
        return {", ".join(options.shapes) or "defaults": resolve_shapes(workload, options.shapes)}
    names = _named(options.regions, workload.name, tunable) if options.regions else [next(iter(tunable.regions))]
    given = {text.partition("=")[0] for text in options.shapes}
    regions = {}
    for name in names:
        own = [f"{shape}={value}" for shape, value in tunable.regions[name].items()]
        both = sorted(given & set(tunable.regions[name]))
        if both:
            raise ProfkitError(
                f"Region {name} fixes {', '.join(both)}, and so does --shape. Leave --region out to sweep shapes of "
                "your own."
            )
        try:
            resolve_shapes(workload, own)
        except ProfkitError as error:
            raise ProfkitError(f"{workload.name} does not fit its own region {name}: {error}") from None
        regions[name] = resolve_shapes(workload, [*own, *options.shapes])
    return regions


def _named(wanted: Sequence[str], workload: str, tunable: Tunable) -> list[str]:
    """The regions that names and globs choose, in the workload's order."""
    known = list(tunable.regions)
    chosen: set[str] = set()
    for pattern in wanted:
        found = {pattern} & set(known) or {name for name in known if pattern == "all" or fnmatchcase(name, pattern)}
        if not found:
            close = did_you_mean(pattern, known)
            if len(known) > _MOST_NAMED:
                close = f" It has {len(known)}, such as {', '.join(get_close_matches(pattern, known) or known[:1])}."
            raise ProfkitError(
                f"{workload} has no region {pattern!r}.{close} A glob such as 'r4-*' takes several, and all takes "
                "every one."
            )
        chosen |= found
    return [name for name in known if name in chosen]


def _values(texts: Sequence[str], workload: str, tunable: Tunable) -> dict[str, tuple[int, ...]]:
    given: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, listed = text.partition("=")
        if not equals or not name:
            raise ProfkitError(f"--set {text!r} is not parameter=v1,v2, e.g. --set warps=2,4.")
        if name in given:
            raise ProfkitError(f"--set {name} is given twice. Give all its values at once: --set {name}=v1,v2.")
        if name not in tunable.parameters:
            raise ProfkitError(f"{workload} has no parameter {name!r}.{did_you_mean(name, tunable.parameters)}")
        try:
            given[name] = tuple(dict.fromkeys(int(value) for value in listed.split(",")))
        except ValueError:
            raise ProfkitError(
                f"--set {text}: expected integers with commas between ({tunable.parameters[name].help})."
            ) from None
    return {name: given.get(name, tuple(one.values)) for name, one in tunable.parameters.items()}
