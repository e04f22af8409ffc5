"""The protocol on one region, with a clock whose times are known: who is timed, in which order, as what."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="outputs are tensors")

from known_clock import KnownClock, KnownSample, by_repeats, by_values, make, problem, swept  # noqa: E402

from profkit.errors import ProfkitError, Terminated  # noqa: E402
from profkit.model.workload import Configuration  # noqa: E402
from profkit.sweep.clock import Clock, Run, Sample, runs_in_a_sample  # noqa: E402
from profkit.sweep.judge import COPIES  # noqa: E402
from profkit.sweep.records import State  # noqa: E402

NO_GPU = "Triton finds no GPU that it can use here"


def test_every_configuration_ends_in_one_status_with_its_reason() -> None:
    plan = make(values=("chunks=1,16,32,64,128", "repeats=40"))
    found = {values: (c.status, c.reason) for values, c in by_values(swept(plan, KnownClock(by_repeats))).items()}
    assert found == {
        (1, 40): ("timed", None),
        (16, 40): ("rejected", "no room for 16 chunks"),
        (32, 40): ("failed", "RuntimeError: out of resource: shared memory in kernel.py"),
        (64, 40): (
            "wrong",
            "out: 128 of 128 elements differ from the reference, some by NaN or infinity (equal values are asked for)",
        ),
        (128, 40): (
            "wrong",
            "out: 1 of 128 elements differ from the reference, by up to 1 (equal values are asked for)",
        ),
        (1, 60): ("timed", None),
    }


def test_what_is_wrong_is_never_timed() -> None:
    clock = KnownClock(by_repeats)
    swept(make(values=("chunks=1,16,32,64,128", "repeats=40")), clock)
    assert {values for batch in clock.samples for _, _, values in batch} == {(1, 40), (1, 60), None}


def test_far_from_the_best_is_screened_out_but_for_known_entries() -> None:
    plan = make(values=("chunks=1,2", "repeats=30,40,60,200"))
    found = by_values(swept(plan, KnownClock(by_repeats)))
    # The best takes 35 us hot, so 52.5 us is the limit; (1, 60) is an entry of a known table.
    assert {values for values, c in found.items() if c.status == "timed"} == {
        (1, 30),
        (2, 30),
        (1, 40),
        (2, 40),
        (1, 60),
    }
    assert found[2, 200].status == "screened"
    # Evicted it is nearer to the best: 220 to 45.
    assert found[2, 200].reason == "4.9 x the best of the screening at least"
    assert found[2, 200].screen_us == {"hot": 210.0, "evicted": 220.0}
    assert found[2, 200].times == {}


def test_what_is_near_the_best_in_one_state_is_timed_in_both() -> None:
    def opposed(configuration: Configuration, state: State) -> float:
        good = "hot" if configuration["chunks"] == 1 else "evicted"
        return 10.0 if state == good else 100.0

    found = by_values(swept(make(values=("repeats=40",)), KnownClock(opposed), problem(known={})))
    assert {values: set(c.times) for values, c in found.items()} == {
        (1, 40): {"hot", "evicted"},
        (2, 40): {"hot", "evicted"},
    }


def test_without_screening_all_are_timed() -> None:
    found = by_values(swept(make(screen=0), KnownClock(by_repeats)))
    assert {c.status for c in found.values()} == {"timed"}


def test_each_gets_orders_times_replays_and_the_reference_as_copies() -> None:
    measured = swept(make(orders=4, replays=2), KnownClock(by_repeats))
    for values, one in by_values(measured).items():
        copies = COPIES if values == (1, 60) else 1
        for times in one.times.values():
            assert (len(times.orders_us), times.samples, times.copies) == (4, copies * 4 * 2, copies)
    assert measured.reference == {"chunks": 1, "repeats": 60}
    assert {state: timing.nothing_us for state, timing in measured.timing.items()} == {"hot": 0.5, "evicted": 0.5}


def test_the_reference_is_the_first_known_entry_that_is_right_else_the_best_of_the_screening() -> None:
    def reference(known: Mapping[str, Configuration]) -> Configuration:
        plan = make(values=("chunks=1,2,128", "repeats=40,45"))
        measured = swept(plan, KnownClock(by_repeats), problem(known=known))
        assert measured.reference is not None
        return measured.reference

    good, broken = {"chunks": 2, "repeats": 45}, {"chunks": 128, "repeats": 40}
    assert reference({"broken": broken, "good": good}) == good
    assert reference({"broken": broken}) == {"chunks": 1, "repeats": 40}
    assert reference({}) == {"chunks": 1, "repeats": 40}


def test_orders_are_forward_backward_shuffled_and_the_seed_decides_the_shuffle() -> None:
    def orders(seed: int) -> list[list[Any]]:
        clock = KnownClock(by_repeats)
        swept(make(seed=seed, orders=3, replays=1, values=("repeats=40,45",)), clock)
        # The last three batches of each state are the orders; states take turns.
        return [[values for _, _, values in batch] for batch in clock.samples[-6::2]]

    forward, backward, shuffled = orders(1)
    assert backward == forward[::-1]
    assert sorted(map(str, shuffled)) == sorted(map(str, forward))
    assert shuffled not in (forward, backward)
    assert orders(1) == [forward, backward, shuffled]
    assert orders(2)[2] != shuffled


def test_copies_are_spread_over_the_order_and_nothing_comes_last() -> None:
    clock = KnownClock(by_repeats)
    swept(
        make(replays=1, orders=1, screen=0, values=("chunks=1,2", "repeats=" + ",".join(map(str, range(40, 52))))),
        clock,
    )
    forward = [values for _, _, values in clock.samples[-1]]
    at = [place for place, values in enumerate(forward) if values == (1, 60)]
    assert len(at) == COPIES
    assert {after - before for before, after in pairwise(at)} == {4}
    assert forward[-1] is None
    assert len(forward) == COPIES + 24 + 1


def test_all_of_a_region_have_samples_of_one_size() -> None:
    clock = KnownClock(by_repeats)
    swept(make(values=("repeats=40,45",)), clock)
    assert {(state, runs) for batch in clock.samples[-2:] for state, runs, _ in batch} == {("hot", 7), ("evicted", 5)}


@pytest.mark.parametrize(
    ("state", "us", "runs"),
    [
        ("hot", 0.5, 100),
        ("hot", 30, 10),
        ("hot", 5000, 1),
        ("evicted", 3, 5),
        ("evicted", 400, 3),
        ("evicted", 5000, 1),
    ],
)
def test_short_runs_are_timed_in_samples_of_many(state: State, us: float, runs: int) -> None:
    assert runs_in_a_sample(state, us) == runs


def test_a_run_that_is_right_alone_and_wrong_as_it_would_be_timed_is_wrong() -> None:
    class Forgetful(KnownClock):
        def prepare(self, run: Run, state: State, runs: int) -> KnownSample:
            return dataclasses.replace(super().prepare(run, state, runs), replay=lambda: None)

    found = by_values(swept(make(values=("repeats=40",)), Forgetful(by_repeats)))
    assert {c.status for c in found.values()} == {"wrong"}
    assert str(found[1, 40].reason).startswith("as it would be timed: out: 128 of 128 elements differ")


def test_a_region_in_which_nothing_is_right_has_no_times() -> None:
    plan = make(values=("chunks=64",))
    found = swept(plan, KnownClock(by_repeats), problem(known={}))
    assert (found.reference, found.timing) == (None, {})
    assert [one.status for one in found.configurations] == ["wrong"] * 2


def test_an_error_that_stays_on_the_device_ends_the_sweep() -> None:
    clock = KnownClock(by_repeats)

    def run(configuration: Configuration) -> None:
        clock.broken = True

    with pytest.raises(ProfkitError) as raised:
        swept(make(), clock, problem(run=run))
    assert "Configuration chunks=1 repeats=40 of region size=128 broke the device's context" in str(raised.value)
    assert "an illegal memory access" in str(raised.value)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeyError("wraps"), "KeyError: 'wraps'"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
        (MemoryError(), "MemoryError"),
        (ProfkitError("no such tile"), "ProfkitError: no such tile"),
        (SystemExit(3), "SystemExit: 3"),
        (RuntimeError("0 active drivers ([]). There should only be one."), f"RuntimeError: {NO_GPU}"),
    ],
)
def test_whatever_a_run_raises_is_listed_with_its_type_and_the_others_are_timed(
    error: BaseException, reason: str
) -> None:
    good = problem()

    def run(configuration: Configuration) -> None:
        if configuration["repeats"] == 41:
            raise error
        good.run(configuration)

    found = by_values(
        swept(make(values=("chunks=1", "repeats=40,41")), KnownClock(by_repeats), dataclasses.replace(good, run=run))
    )
    assert (found[1, 41].status, found[1, 41].reason) == ("failed", reason)
    assert found[1, 40].status == "timed"


def test_what_fails_only_where_it_is_captured_is_listed_too() -> None:
    class Capturing(KnownClock):
        def prepare(self, run: Run, state: State, runs: int) -> KnownSample:
            if isinstance(run, partial) and run.args[0]["repeats"] == 41:
                outputs.clear()
            run()
            return super().prepare(run, state, runs)

    good = problem()
    outputs = [0]

    def run(configuration: Configuration) -> None:
        if configuration["repeats"] == 41:
            outputs[0] += 1
        good.run(configuration)

    found = by_values(
        swept(make(values=("chunks=1", "repeats=40,41")), Capturing(by_repeats), dataclasses.replace(good, run=run))
    )
    assert (found[1, 41].status, found[1, 41].reason) == (
        "failed",
        "ready for timing: IndexError: list index out of range",
    )


def test_a_signal_in_a_run_ends_the_sweep() -> None:
    def run(configuration: Configuration) -> None:
        raise Terminated(143)

    with pytest.raises(Terminated):
        swept(make(), KnownClock(by_repeats), problem(run=run))


@pytest.mark.parametrize("error", [IndexError("none left"), SystemExit(3)])
def test_what_fails_around_the_runs_is_one_error(error: BaseException) -> None:
    def reference() -> Mapping[str, torch.Tensor]:
        raise error

    with pytest.raises(ProfkitError) as raised:
        swept(make(), KnownClock(by_repeats), problem(reference=reference))
    assert str(raised.value) == (
        f"The workload failed computing the reference of region size=128: {type(error).__name__}: {error}. "
        "Mend it, or leave that out."
    )


def test_what_fails_while_it_is_timed_is_one_error() -> None:
    class Flaky(KnownClock):
        def sample_us(self, samples: Sequence[Sample]) -> list[float]:
            raise IndexError("none left")

    with pytest.raises(ProfkitError, match="while configurations that had run before were timed: IndexError"):
        swept(make(), Flaky(by_repeats))


def test_a_region_is_recorded_with_its_best_its_entries_and_verdicts() -> None:
    found = swept(make(values=("chunks=1,2", "repeats=40,41")), KnownClock(by_repeats))
    hot, best = found.timing["hot"], found.best("hot")
    assert (best.parameters, best.known) == ({"chunks": 1, "repeats": 40}, ["fast"])
    assert set(found.entries("hot")) == set(best.times["hot"].against) == {"slow", "fast"}
    assert (hot.nothing_us, hot.runs_per_sample) == (0.5, 7)
    assert (hot.noise.percent, hot.noise.largest_percent) == (0.0, 0.0)
    assert hot.noise.copies_orders_us == [[65.0] * 9] * COPIES
    times = best.times["hot"]
    assert (times.us, times.orders_us, times.samples, times.copies) == (45.0, [45.0] * 9, 45, 1)
    slow = times.against["slow"]
    assert times.against["fast"] is None
    assert slow is not None
    assert (slow.verdict, slow.ratio) == ("better", pytest.approx(45 / 65, abs=1e-5))
    assert best.times["evicted"].us == 55.0
    other = by_values(found)[2, 40].times["hot"].against["fast"]
    assert other is not None
    assert other.verdict == "worse"


def test_without_a_known_entry_all_are_compared_with_the_best_of_the_screening() -> None:
    found = swept(make(values=("chunks=1,2", "repeats=40")), KnownClock(by_repeats), problem(known={}))
    assert {name: one.parameters for name, one in found.entries("hot").items()} == {
        "screening": {"chunks": 1, "repeats": 40}
    }
    assert found.reference == {"chunks": 1, "repeats": 40}


def test_a_state_that_need_not_be_timed_is_left_out_with_its_reason() -> None:
    plan = make(values=("chunks=1,2", "repeats=40,41"))
    clock = KnownClock(by_repeats, spared="far beyond the cache")
    found = swept(plan, clock)
    assert found.left_out == {"evicted": "far beyond the cache"}
    assert list(found.timing) == ["hot"]
    assert {state for batch in clock.samples for state, _, _ in batch} == {"hot"}
    assert all(list(one.times) == ["hot"] for one in found.configurations if one.status == "timed")
    # Who asks for one state alone gets it.
    alone = swept(dataclasses.replace(plan, states=("evicted",)), clock)
    assert (list(alone.timing), alone.left_out) == (["evicted"], {})


def test_the_seconds_of_each_phase_are_recorded() -> None:
    found = swept(make(), KnownClock(by_repeats))
    assert list(found.phases_s) == ["build", "reference", "check", "wait for processes", "screen", "time", "judge"]


def test_the_hosts_clock_times_what_takes_known_time() -> None:
    clock = Clock()
    with clock.region():
        short, long = (clock.prepare(partial(time.sleep, s), "hot", runs) for s, runs in ((0.002, 5), (0.02, 1)))
        a, b = clock.sample_us([short, long])
    assert 2000 <= a < b
    assert b >= 20_000


def test_a_time_of_nothing_is_refused() -> None:
    with pytest.raises(ProfkitError, match="The clock gave a time of 0 us or less for a sample"):
        swept(make(), KnownClock(lambda configuration, state: 0.0))
