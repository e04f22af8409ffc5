"""What a workload gives a sweep is held against its interface, and against a check that passes without work."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="outputs are tensors")

from known_clock import KnownClock, by_repeats, by_values, make, problem, swept  # noqa: E402

from profkit.errors import ProfkitError  # noqa: E402
from profkit.model.workload import Configuration  # noqa: E402
from profkit.sweep.region import build  # noqa: E402


def aliased() -> dict[str, Any]:
    out = torch.zeros(128)
    return {"outputs": lambda: {"out": out}, "reference": lambda: {"out": out}, "poison": lambda: out.fill_(7)}


def poisoned_once() -> dict[str, Any]:
    out = torch.zeros(128)
    return {
        "outputs": lambda: {"out": out},
        "reference": lambda: {"out": torch.ones(128)},
        "poison": lambda: None,
        "run": lambda c: out.fill_(1.0) if c["repeats"] == 40 else None,
    }


def unpoisoned() -> dict[str, Any]:
    out = torch.ones(128)
    return {"outputs": lambda: {"out": out}, "reference": lambda: {"out": torch.ones(128)}, "poison": lambda: None}


@pytest.mark.parametrize(
    "changes",
    [
        unpoisoned(),
        poisoned_once(),
        aliased(),
        {"reference": lambda: {"out": torch.full((128,), float("nan"))}},
        {**unpoisoned(), "reference": lambda: {"out": torch.full((128,), 1.5)}, "tolerance": (0.0, 0.5)},
    ],
    ids=[
        "nothing is poisoned",
        "nothing is poisoned after a run",
        "the reference is the output",
        "the reference is NaN",
        "within the tolerance",
    ],
)
def test_a_check_that_a_run_without_work_would_pass_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ProfkitError) as raised:
        swept(make(), KnownClock(by_repeats), problem(**changes))
    assert str(raised.value).startswith(
        "scale, region size=128: poison() leaves outputs that pass the check (out), so a configuration that writes "
        "nothing would pass."
    )


def test_an_output_that_is_not_poisoned_is_named_although_others_are() -> None:
    good = problem()
    kept = torch.ones(3)
    changes = {
        "outputs": lambda: {**good.outputs(), "kept": kept},
        "reference": lambda: {**good.reference(), "kept": torch.ones(3)},
        "poison": good.poison,
    }
    with pytest.raises(ProfkitError, match=r"poison\(\) leaves outputs that pass the check \(kept\)"):
        swept(make(), KnownClock(by_repeats), problem(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reference": lambda: None}, "reference() of region size=128 gave something of type NoneType, not a mapping"),
        ({"reference": dict}, "reference() of region size=128 is empty, so any configuration would pass"),
        ({"reference": lambda: {"out": 5}}, "reference() of region size=128: out is of type int, not a tensor"),
        ({"reference": lambda: {5: torch.ones(1)}}, "reference() of region size=128 gave something of type dict, not"),
        ({"reference": lambda: {"out": torch.ones(0)}}, "out has no elements, so any configuration would pass"),
        ({"reference": lambda: {"o": torch.ones(1)}}, "outputs() of region size=128 has out, and reference() has o"),
        ({"outputs": lambda: None}, "outputs() of region size=128 gave something of type NoneType"),
        ({"outputs": dict}, "outputs() of region size=128 is empty"),
        ({"rejects": lambda c: False}, "rejects() of region size=128 gave False, not a sentence or None"),
        ({"rejects": lambda c: ""}, "rejects() of region size=128 gave '', not a sentence or None"),
    ],
)
def test_what_a_workload_returns_is_held_against_the_interface(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProfkitError) as raised:
        swept(make(), KnownClock(by_repeats), problem(**changes))
    assert str(raised.value).startswith("scale: ")
    assert message in str(raised.value)
    assert str(raised.value).endswith("Mend the workload; profkit/model/workload.py says what each field is.")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (None, "region size=128 is of type NoneType, not a profkit.model.workload.Problem"),
        ({"known": None}, "region size=128: Expected `object`, got `null` - at `$.known`"),
        ({"known": [1]}, "Expected `object`, got `array` - at `$.known`"),
        ({"known": {"t": None}}, "Expected `object`, got `null` - at `$.known[...]`"),
        ({"known": {"t": {"chunks": 1.5}}}, "Expected `int`, got `float` - at `$.known[...][...]`"),
        ({"known": {"t": {"chunks": True}}}, "Expected `int`, got `bool` - at `$.known[...][...]`"),
        ({"known": {"t": {"chunks": 2**70}}}, "Expected `int` <= 9223372036854775807 - at `$.known[...][...]`"),
        ({"known": {5: {"chunks": 1}}}, "Expected `str`, got `int` - at `key` in `$.known`"),
        ({"known": {"\udcff": {"chunks": 1}}}, "at `key` in `$.known`"),
        ({"least_bytes": "many"}, "Expected `int | null`, got `str` - at `$.least_bytes`"),
        ({"least_bytes": float("nan")}, "Expected `int | null`, got `float` - at `$.least_bytes`"),
        ({"least_bytes": torch.ones(2)}, "Expected `int | null`, got `Tensor` - at `$.least_bytes`"),
        ({"least_bytes": -1}, "Expected `int` >= 0 - at `$.least_bytes`"),
        ({"tolerance": (0.0, float("inf"))}, "Expected `float` <= 1e+300 - at `$.tolerance[1]`"),
        ({"tolerance": (0.0, float("nan"))}, "Expected `float` >= 0.0 - at `$.tolerance[1]`"),
        ({"tolerance": (-1.0, 0.0)}, "Expected `float` >= 0.0 - at `$.tolerance[0]`"),
        ({"tolerance": 0.1}, "Expected `array`, got `float` - at `$.tolerance`"),
        ({"tolerance": (10**400, 0)}, "Number out of range - at `$.tolerance[0]`"),
    ],
)
def test_a_problem_that_is_none_is_refused_where_it_is_built(changes: dict[str, Any] | None, message: str) -> None:
    plan, made = make(), problem()
    of = None if changes is None else dataclasses.replace(made, **changes)
    faulty = dataclasses.replace(plan, tunable=dataclasses.replace(plan.tunable, build=lambda context: of))
    with pytest.raises(ProfkitError) as raised:
        build(faulty, "size=128")
    assert message in str(raised.value)


class MuteError(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BaseException("base"), "BaseException: base"),
        (GeneratorExit("over"), "GeneratorExit: over"),
        (MuteError(), "MuteError: <exception str() failed>"),
        (ValueError("bad \udcff name"), "ValueError: bad ? name"),
    ],
)
def test_odd_exceptions_of_a_run_are_its_own_failure(error: BaseException, reason: str) -> None:
    good = problem()

    def run(configuration: Configuration) -> None:
        if configuration["repeats"] == 41:
            raise error
        good.run(configuration)

    plan = make(values=("chunks=1", "repeats=40,41"))
    found = by_values(swept(plan, KnownClock(by_repeats), dataclasses.replace(good, run=run)))
    assert (found[1, 41].status, found[1, 41].reason) == ("failed", reason)


def test_a_reason_for_a_rejection_can_be_written() -> None:
    changes = {"rejects": lambda c: "no \udcff" if c["repeats"] == 41 else None}
    found = by_values(swept(make(values=("chunks=1", "repeats=40,41")), KnownClock(by_repeats), problem(**changes)))
    assert (found[1, 41].status, found[1, 41].reason) == ("rejected", "no ?")
