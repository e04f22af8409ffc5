"""Busy time and span against a union by brute force (F7)."""

from __future__ import annotations

import numpy as np
from bench import Bench
from hypothesis import given
from hypothesis import strategies as st
from recording import step_recording

from profkit.counting.count import busy_and_span

INTERVALS = st.lists(
    st.tuples(st.integers(-60, 60), st.integers(0, 25), st.integers(0, 4)).map(lambda t: (t[0], t[0] + t[1], t[2])),
    max_size=14,
)


@given(INTERVALS)
def test_busy_is_the_union_and_span_the_extent(intervals: list[tuple[int, int, int]]) -> None:
    start, end, group = (np.array([i[c] for i in intervals], dtype=np.int64) for c in range(3))

    busy, span = busy_and_span(start, end, group)

    for index in range(len(busy)):
        mine = [(s, e) for s, e, g in intervals if g == index]
        assert busy[index] == len({t for s, e in mine for t in range(s, e)})
        assert span[index] == (max(e for _, e in mine) - min(s for s, _ in mine) if mine else 0)


def test_large_times_lose_no_nanosecond() -> None:
    base = 2**62
    busy, span = busy_and_span(
        np.array([base, base + 5, -base]), np.array([base + 10, base + 11, -base + 3]), np.array([0, 0, 1])
    )
    assert (busy.tolist(), span.tolist()) == ([11, 3], [11, 3])


def test_overlapping_streams_are_busy_once(bench: Bench) -> None:
    # GIVEN two kernels of 1000 ns on two streams, starting together, in each of 3 replays
    census = bench.count(step_recording(["a:1000@7 b:1000@8"], replays=3).rows)
    layer = census.chosen.layers.iloc[0]
    assert (layer["kernel_ns"], layer["busy_ns"], layer["span_ns"]) == (6000, 3000, 3000)


def test_a_kernel_reaching_past_the_next_on_its_stream_is_busy_once(bench: Bench) -> None:
    rows = step_recording(["a:1000 b:1000"], replays=1).rows
    first, second = rows.kernels
    rows.kernels[1] = type(second)(**{**vars(second), "start": first.end - 400, "end": first.end + 600})
    layer = bench.count(rows).chosen.layers.iloc[0]
    assert (layer["kernel_ns"], layer["busy_ns"]) == (2000, 1600)
