"""Microseconds as decimals become nanoseconds exactly."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import pyarrow as pa
import pytest
from builders import us
from hypothesis import given
from hypothesis import strategies as st

from profkit.errors import ProfkitError
from profkit.readers.arrow import Origin, as_int64
from profkit.readers.rows import broken_rows, integers, microseconds_to_ns

INT64 = np.iinfo(np.int64)


@given(st.lists(st.integers(-(10**18), 10**18), min_size=1))
def test_every_nanosecond_survives(times_ns: list[int]) -> None:
    ns, valid = microseconds_to_ns([bytes(us(t)) for t in times_ns])

    assert ns.tolist() == times_ns
    assert valid.all()


@given(st.lists(st.decimals(-(10**12), 10**12, places=9), min_size=1))
def test_more_than_three_decimals_round_to_the_nearest(values: list[Decimal]) -> None:
    ns, valid = microseconds_to_ns([str(v).encode() for v in values])

    assert ns.tolist() == [int((v * 1000).to_integral_value(ROUND_HALF_EVEN)) for v in values]
    assert valid.all()


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        (b"5103758998909.095", 5103758998909095),
        (b"1661203462598738", 1661203462598738000),
        (b"1661203462598738.125", 1661203462598738125),
        (b'"1661203462598738.125"', 1661203462598738125),
        (b"0.001", 1),
        (b"-0.5", -500),
        (b"7.", 7000),
        (b"1e3", 1_000_000),
        (b"9.288290999999999", 9288),
        (b"9223372036854775.807", INT64.max),
    ],
)
def test_forms_of_a_time(text: bytes, expected_ns: int) -> None:
    # GIVEN a neighbour, so that vector and scalar paths meet in one column
    ns, valid = microseconds_to_ns([b"1.5", text])

    assert ns.tolist() == [1500, expected_ns]
    assert valid.all()


@pytest.mark.parametrize(
    "text", [b"", b"null", b"NaN", b"Infinity", b"1.2.3", b"--1", b"9223372036854775.808", b"1e99"]
)
def test_what_is_no_time_is_marked(text: bytes) -> None:
    ns, valid = microseconds_to_ns([text, b"2"])

    assert ns.tolist() == [0, 2000]
    assert valid.tolist() == [False, True]


def test_no_values() -> None:
    ns, valid = microseconds_to_ns([])

    assert (len(ns), len(valid)) == (0, 0)


def test_float64_would_not_do() -> None:
    """The reason for parsing text: at 90 million seconds of uptime, neighbours are one float."""
    assert float("90000000000000.001") == float("90000000000000.002")
    ns, _ = microseconds_to_ns([b"90000000000000.001", b"90000000000000.002"])
    assert np.diff(ns).tolist() == [1]


def test_integers_of_any_json_value() -> None:
    values = [3, None, "7", "stream", 4.0, True, (1 << 64) - 1]

    assert integers(values).tolist() == [3, -1, 7, -1, 4, 1, -1]


def test_broken_rows() -> None:
    start, end = np.array([0, 5, 7, 0]), np.array([0, 4, 7, 3])

    assert broken_rows(start, end).tolist() == [True, True, False, False]


def test_a_row_longer_than_a_day_is_broken() -> None:
    day, furthest = 24 * 3600 * 10**9, 2**63 - 1
    start, end = np.array([7, 7, -furthest, furthest - 1]), np.array([7 + day, 8 + day, furthest, furthest])

    assert broken_rows(start, end).tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["7", "-3", None], [7, -3, None]),
        (["9223372036854775807"], [INT64.max]),
        ([b"7"], [7]),
        ([1.0, None, 2.0**52], [1, None, 1 << 52]),
        (pa.array([(1 << 64) - 1], pa.uint64()), [-1]),
        ([None], [None]),
    ],
)
def test_whole_numbers_of_any_type_are_integers(values: list[object] | pa.Array, expected: list[object]) -> None:
    column = values if isinstance(values, pa.Array) else pa.array(values)

    assert as_int64(column, "id", Origin("file")).to_pylist() == expected


@pytest.mark.parametrize(
    "wrong", ["x", "", "+7", " 7", "7.0", "9223372036854775808", "١", b"\xff", 1.5, 2.0**53, float("inf"), True, [7]]
)
def test_what_is_no_integer_is_named_with_its_row(wrong: object) -> None:
    column = pa.array([None, wrong, wrong])

    with pytest.raises(ProfkitError, match=r"file, row 2: id is .*, expected an integer"):
        as_int64(column, "id", Origin("file"))
