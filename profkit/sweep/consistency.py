"""Whether what a sweep's documents say goes together: counts, indices, states and names, field against field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeVar, get_args

import msgspec

from profkit.sweep import schema
from profkit.sweep.measured import SCREENING, Status
from profkit.sweep.plan import State

_Kind = TypeVar("_Kind")

#: How far a rounded ratio may be from that of two rounded times, beside their own rounding.
_ROUNDED = 1e-4


class InconsistentError(ValueError):
    """Says which field is wrong, and how."""


def check_plan(plan: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Refuse a plan that reports cannot use.

    Raises:
        InconsistentError: names the field.
    """
    for name, content, kind in (("plan", plan, schema.Plan), ("facts", facts, schema.Facts)):
        try:
            _converted(content, kind)
        except InconsistentError as error:
            raise InconsistentError(f"{name}: {error}") from None


def check_document(data: Any) -> None:
    """Refuse a whole document that is damaged.

    Raises:
        InconsistentError: names the field.
    """
    document = _converted(data, schema.Document)
    names = [region.name for region in document.regions]
    _require(len(set(names)) == len(names), "regions: two have the same name")
    _require(len(names) <= document.regions_planned, "regions: there are more than regions_planned")
    for number, region in enumerate(document.regions):
        _check_region(f"regions[{number}].", region, document)


def check_region(data: Any, facts: Mapping[str, Any]) -> None:
    """Refuse a region that is damaged.

    Args:
        facts: of the sweep that it belongs to.

    Raises:
        InconsistentError: names the field.
    """
    _check_region("", _converted(data, schema.Region), _converted(facts, schema.Facts))


def _check_region(at: str, region: schema.Region, facts: schema.Facts) -> None:
    configurations = region.configurations
    found = Counter(one.status for one in configurations)
    expected = {"tried": len(configurations), **{status: found[status] for status in get_args(Status)}}
    _require(region.counts == expected, f"{at}counts: {region.counts}, but its configurations are {expected}")
    tables: dict[str, int] = {}
    for number, one in enumerate(configurations):
        of = f"{at}configurations[{number}]."
        _require(set(one.parameters) == set(facts.parameters), f"{of}parameters: they are not those of the sweep")
        values = all(value in facts.parameters[name].values for name, value in one.parameters.items())
        _require(values or bool(one.known), f"{of}parameters: a value that was not swept")
        known = [table for table, entry in region.known.items() if entry == one.parameters]
        _require(one.known == known, f"{of}known: it is {one.known}, but the region's tables have it as {known}")
        tables |= dict.fromkeys(known, number)
        times = set(region.timing) if one.status == "timed" else set()
        _require(set(one.times) == times, f"{of}times: its states are not those of timing")
    distinct = {tuple(sorted(one.parameters.items())) for one in configurations}
    _require(len(distinct) == len(configurations), f"{at}configurations: two are the same")
    for table in region.known:
        _require(table in tables, f"{at}known: the entry of {table} is not among the configurations")
    timed = {number for number, one in enumerate(configurations) if one.status == "timed"}
    states = set(facts.protocol.states)
    if not timed:
        _require(region.reference is None, f"{at}reference: there is one, though nothing was timed")
        _require(not region.timing, f"{at}timing: it has times, though no configuration was timed")
        _require(set(region.left_out) <= states, f"{at}left_out: a state that the protocol does not have")
        return
    at_reference = [number for number in timed if configurations[number].parameters == region.reference]
    _require(bool(at_reference), f"{at}reference: it is no configuration that was timed")
    _require(
        bool(region.timing) and set(region.timing) | set(region.left_out) == states,
        f"{at}timing: with left_out it has not the states of the protocol",
    )
    _require(not set(region.timing) & set(region.left_out), f"{at}left_out: a state that was timed")
    for state, timing in region.timing.items():
        copies = configurations[at_reference[0]].times[state].copies
        _require(
            len(timing.noise.copies_us) == copies and len(timing.noise.copies_orders_us) in (0, copies),
            f"{at}timing.{state}.noise: its copies are not the {copies} of the reference",
        )
    anchors = {table: number for table, number in tables.items() if number in timed}
    for state in region.timing:
        _check_state(f"{at}timing.{state}.", region, state, timed, anchors or {SCREENING: at_reference[0]})
        for number in timed:
            _check_samples(
                f"{at}configurations[{number}].times.{state}.", configurations[number].times[state], facts.protocol
            )


def _check_state(at: str, region: schema.Region, state: State, timed: set[int], anchors: Mapping[str, int]) -> None:
    timing = region.timing[state]
    us = {number: region.configurations[number].times[state].us for number in timed}
    _require(timing.best in timed, f"{at}best: {timing.best} is no configuration that was timed")
    _require(us[timing.best] == min(us.values()), f"{at}best: {timing.best} is not the fastest")
    _require(timing.anchors == anchors, f"{at}anchors: {timing.anchors}, but the known entries are {dict(anchors)}")
    for number in timed:
        of = f"configurations[{number}].times.{state}.against"
        against = region.configurations[number].times[state].against
        _require(set(against) == set(anchors), f"{of}: its names are not those of the anchors")
        for name, found in against.items():
            _require((found is None) == (anchors[name] == number), f"{of}.{name}: null is for the anchor itself")
            if found is not None:
                ratio = us[number] / us[anchors[name]]
                slack = _ROUNDED * (1 + ratio) * (1 + 1 / us[number] + 1 / us[anchors[name]])
                _require(abs(found.ratio - ratio) <= slack, f"{of}.{name}: the ratio is not that of the times")


def _check_samples(at: str, times: schema.Times, protocol: schema.Protocol) -> None:
    _require(len(times.orders_us) == protocol.orders, f"{at}orders_us: the protocol has {protocol.orders} orders")
    expected = times.copies * protocol.orders * protocol.replays
    _require(times.samples == expected, f"{at}samples: {times.samples}, by the protocol {expected}")


def _converted(data: Any, kind: type[_Kind]) -> _Kind:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise InconsistentError(str(error)) from None


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InconsistentError(otherwise)
