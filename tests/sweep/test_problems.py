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
        ({"reference": lambda: None}, "reference() of region size=128 gave None, not a mapping of names to tensors"),
        ({"reference": dict}, "reference() of region size=128 is empty, so any configuration would pass"),
        ({"reference": lambda: {"out": 5}}, "reference() of region size=128: out is 5, not a tensor"),
        ({"reference": lambda: {5: torch.ones(1)}}, "a name in reference() of region size=128 is 5, not a text"),
        ({"reference": lambda: {"out": torch.ones(0)}}, "out has no elements, so any configuration would pass"),
        ({"outputs": lambda: None}, "outputs() of region size=128 gave None"),
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
        (None, "building region size=128 gave None, not a profkit.model.workload.Problem"),
        ({"known": None}, "known of region size=128 is None, not a mapping of tables to configurations"),
        ({"known": [1]}, "known of region size=128 is an object of type list, not"),
        ({"known": {"t": None}}, "the entry of t is None, not a configuration"),
        ({"known": {"t": {"chunks": 1.5}}}, "chunks in the entry of t is 1.5, not an integer of 64 bits"),
        ({"known": {"t": {"chunks": True}}}, "chunks in the entry of t is True, not an integer of 64 bits"),
        (
            {"known": {"t": {"chunks": 2**70}}},
            "chunks in the entry of t is an object of type int, not an integer of 64 bits",
        ),
        ({"known": {5: {"chunks": 1}}}, "a known table's name of region size=128 is 5, not a text"),
        ({"known": {"\udcff": {"chunks": 1}}}, r"is '\udcff', not a text that can be written"),
        ({"least_bytes": "many"}, "least_bytes of region size=128 is 'many', not an integer of 64 bits"),
        ({"least_bytes": float("nan")}, "least_bytes of region size=128 is nan, not an integer of 64 bits"),
        ({"least_bytes": torch.ones(2)}, "least_bytes of region size=128 is an object of type Tensor, not an integer"),
        ({"least_bytes": -1}, "least_bytes of region size=128 is -1, less than nothing"),
        (
            {"tolerance": (0.0, float("inf"))},
            "tolerance of region size=128 is an object of type tuple, not rtol and atol",
        ),
        ({"tolerance": (-1.0, 0.0)}, "each finite and not negative"),
        ({"tolerance": 0.1}, "tolerance of region size=128 is 0.1, not rtol and atol"),
        ({"tolerance": (10**400, 0)}, "each finite and not negative"),
    ],
)
def test_a_problem_that_is_none_is_refused_where_it_is_built(changes: dict[str, Any] | None, message: str) -> None:
    plan, made = make(), problem()
    of = None if changes is None else dataclasses.replace(made, **changes)
    faulty = dataclasses.replace(plan, tunable=dataclasses.replace(plan.tunable, build=lambda context: of))
    with pytest.raises(ProfkitError) as raised:
        build(faulty, plan.regions[0])
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
