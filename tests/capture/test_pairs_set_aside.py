"""The rule that sets a stalled repetition aside: a pure function of one arm's records."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.capture.pairs import DEVIATIONS, judge, outliers
from profkit.model.run import CompileRecord, CompilesRecord, RunRecord, StepTimesRecord

QUIET = [738.8, 739.1, 738.2, 740.0, 737.9, 738.5]


def record(median_us: float | None, *compiled: str) -> RunRecord:
    """A run.json with what is judged."""
    return RunRecord(
        trace="trace.sqlite",
        untraced=None if median_us is None else StepTimesRecord(median=median_us),
        compiles=CompilesRecord(before=2, inside=[CompileRecord(name=name, seconds=0.1) for name in compiled]),
    )


def aside(records: Sequence[RunRecord]) -> list[str | None]:
    """The code of each verdict."""
    return [verdict.code if verdict else None for verdict in judge([[own] for own in records])]


@pytest.mark.parametrize("stalled_us", [900.0, 500.0])
def test_a_step_far_from_the_others_is_an_outlier_in_either_direction(stalled_us: float) -> None:
    assert outliers([*QUIET, stalled_us]) == [False] * 6 + [True]


def test_within_five_percent_is_none_however_near_the_others_lie() -> None:
    assert outliers([700.0] * 6 + [734.9]) == [False] * 7
    assert outliers([700.0] * 6 + [735.1]) == [False] * 6 + [True]


def test_a_noisy_arm_keeps_what_a_quiet_one_would_not() -> None:
    assert not any(outliers([600.0, 660.0, 700.0, 740.0, 800.0, 640.0, 850.0]))


def test_two_clusters_are_no_outliers_of_each_other() -> None:
    assert not any(outliers([700.0, 701.0, 702.0, 900.0, 901.0, 902.0]))


def test_fewer_than_four_are_not_judged() -> None:
    assert outliers([700.0, 701.0, 5000.0]) == [False] * 3
    assert outliers([700.0, 701.0, 702.0, 5000.0]) == [False] * 3 + [True]


@given(st.lists(st.floats(1.0, 1e6), max_size=40))
def test_the_unit_does_not_matter_and_half_of_an_arm_always_stays(medians_us: list[float]) -> None:
    found = outliers(medians_us)
    assert sum(found) <= len(medians_us) // 2
    # A power of two: scaling by it rounds nothing.
    assert outliers([value * 1024 for value in medians_us]) == found


def test_a_compilation_inside_the_window_comes_first_and_is_not_among_those_judged() -> None:
    assert aside([record(738.0), record(738.5), record(739.0), record(5000.0, "late")]) == [
        None,
        None,
        None,
        "compiled-inside-window",
    ]
    # Of the four that did not compile, one is off; with the fifth among them the arm would have been judged otherwise.
    records = [record(738.0), record(738.5), record(739.0), record(900.0), record(905.0, "late")]
    assert aside(records) == [None, None, None, "step-time-outlier", "compiled-inside-window"]


def test_the_message_says_what_was_measured_and_by_which_rule() -> None:
    verdict = judge([[record(median_us)] for median_us in (*QUIET, 900.0)])[-1]
    assert verdict is not None
    assert "took 900.0 us where the median of the arm's 7 repetitions is 738.8 us" in str(verdict.message)
    assert f"{DEVIATIONS:g} robust standard deviations and 5%" in str(verdict.message)


def test_repetitions_without_times_are_judged_by_compilations_alone() -> None:
    assert aside([record(None), record(None, "late"), record(None)]) == [None, "compiled-inside-window", None]


def test_the_ranks_of_a_repetition_are_judged_together() -> None:
    quiet = [[record(738.0), record(740.0)] for _ in range(3)]
    # One rank that stalls stalls the repetition; ranks that differ alike in all repetitions are no outliers.
    found = judge([*quiet, [record(738.0), record(2000.0)], [record(738.0), record(740.0, "late")]])
    assert [verdict and verdict.code for verdict in found] == [
        *([None] * 3),
        "step-time-outlier",
        "compiled-inside-window",
    ]
    assert found[3] is not None
    assert "took 1369.0 us" in str(found[3].message)
