"""Whether documents are sweeps of `qsa-attention` that can be judged together: one device, sound, each given once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from qsa_points import COMPACT_SCHEMA, KNOWN, SCHEMA, known_timed
from qsa_summary import numbers_of, times_of

from profkit.kernels.qsa.regions import SWEPT

#: Finite: no run takes a day.
_Us = Annotated[float, msgspec.Meta(gt=0, le=1e11)]


class _Verdict(msgspec.Struct):
    verdict: Literal["better", "equal", "unclear", "worse"]


class _Times(msgspec.Struct):
    us: _Us
    against: dict[str, _Verdict | None]
    p25_us: _Us | None = None
    p75_us: _Us | None = None


class _Configuration(msgspec.Struct):
    parameters: dict[str, int]
    times: dict[str, _Times]
    screen_us: dict[str, _Us] = {}


class _Region(msgspec.Struct):
    name: str
    shapes: dict[str, int | str]
    known: dict[str, dict[str, int]]
    timing: dict[str, dict[str, Any]]
    left_out: dict[str, str]
    configurations: list[_Configuration]


class _Protocol(msgspec.Struct):
    states: Annotated[list[Literal["hot", "evicted"]], msgspec.Meta(min_length=1)]
    min_share: Annotated[float, msgspec.Meta(ge=0, le=1)]


class _Document(msgspec.Struct):
    """The fields that a table and its confirmation rest on."""

    device: dict[str, Any]
    seed: int
    date: str
    protocol: _Protocol
    regions: list[_Region]


def check(documents: Sequence[Mapping[str, Any]]) -> None:
    """Refuse what is not from `profkit sweep qsa-attention` on one device, damaged, or given twice.

    Raises:
        SystemExit: says what.
    """
    for number, document in enumerate(documents, start=1):
        workload = document.get("workload")
        if (
            document.get("schema") != SCHEMA
            or not isinstance(workload, dict)
            or workload.get("name") != "qsa-attention"
        ):
            raise SystemExit(f"Give sweeps of qsa-attention of schema {SCHEMA} or {COMPACT_SCHEMA}.")
        try:
            msgspec.convert(document, _Document)
        except msgspec.ValidationError as error:
            raise SystemExit(f"Sweep {number} of {len(documents)} is damaged: {error}.") from None
        for measured in document["regions"]:
            _check_region(measured)
    devices = {str(document["device"].get("name")) for document in documents}
    if len(devices) > 1:
        raise SystemExit(f"One table is of one device, these sweeps are of {', '.join(sorted(devices))}.")
    _check_once(documents)


def _check_region(measured: Mapping[str, Any]) -> None:
    """Its problem is the one of that name, and every verdict that is used is there."""
    name = measured["name"]
    other = [shape for shape, value in SWEPT.get(name, {}).items() if measured["shapes"].get(shape) != value]
    if other:
        raise SystemExit(f"{name} is damaged: its {', '.join(other)} are not those of the problem of that name.")
    if not set(KNOWN) <= set(measured["known"]):
        raise SystemExit(f"{name} was swept without the tables {' and '.join(KNOWN)}.")
    for state in measured["timing"]:
        if not known_timed(measured, state):
            continue
        for numbers, times in times_of(measured, state).items():
            for table in KNOWN:
                itself = numbers == numbers_of(measured["known"][table])
                if (times["against"].get(table) is None) != itself:
                    raise SystemExit(f"{name} {state} is damaged: the verdict of {numbers} beside {table} is amiss.")


def _check_once(documents: Sequence[Mapping[str, Any]]) -> None:
    """The same measurement must not count twice."""
    seen = set()
    for document in documents:
        for measured in document["regions"]:
            for state in measured["timing"]:
                times = frozenset((numbers, one["us"]) for numbers, one in times_of(measured, state).items())
                shapes = frozenset(measured["shapes"].items())
                of = (document["seed"], document["date"], measured["name"], shapes, state, times)
                if of in seen:
                    raise SystemExit(f"{measured['name']} {state} is given twice, by one and the same measurement.")
                seen.add(of)


def missing(documents: Sequence[Mapping[str, Any]], judged: Sequence[str]) -> Iterator[str]:
    """The problems r*, with each state, that a table must be confirmed in and is not.

    A state is asked for where the protocol of a document has it. One that a sweep left out with its reason, because
    another one stands for it, is not missing where that other one is there.

    Args:
        judged: problems and states for which there is a judgement, as ``r4-g3-kv1-bf16 hot``.
    """
    there = set(judged)
    states = dict.fromkeys(state for document in documents for state in document["protocol"]["states"])
    spared = {
        f"{measured['name']} {state}"
        for document in documents
        for measured in document["regions"]
        for state in measured["left_out"]
        if f"{measured['name']} hot" in there
    }
    for name in SWEPT:
        if name.startswith("r"):
            yield from (f"{name} {s}" for s in states if f"{name} {s}" not in there and f"{name} {s}" not in spared)
