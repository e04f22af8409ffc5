"""A floor is estimated from many kinds of kernels of which the fastest agree, or not at all."""

from __future__ import annotations

import pytest
from bench import Bench
from recording import Op, step_recording

from profkit.counting.floor import floor_of

WORK = "gemm:9000 pack:3180 unpack:6000 norm:3500 rope:5000"


@pytest.mark.parametrize(
    ("outside", "us"),
    [
        pytest.param("", None, id="five kinds, all of which work"),
        pytest.param("a:800 b:900", None, id="seven kinds are too few"),
        pytest.param("a:800 b:900 c:1100", 0.8, id="three fast kinds, outside the layers too"),
        pytest.param("a:800 b:900 c:1300", None, id="the fastest do not agree"),
        pytest.param("a:2100 b:4000 c:4100", None, id="many kinds, none of them at a floor"),
    ],
)
def test_the_fastest_kinds_of_many_are_the_estimate(bench: Bench, outside: str, us: float | None) -> None:
    floor = floor_of(None, [bench.count(step_recording([WORK] * 3, outside=outside).rows)], None)
    assert (None if floor is None else (floor.us, floor.source)) == (None if us is None else (us, "estimated"))


@pytest.mark.parametrize(("ns", "us"), [(700, 0.7), (400, None)])
def test_a_faster_kernel_outside_all_steps_is_one_of_the_fastest(bench: Bench, ns: int, us: float | None) -> None:
    recording = step_recording([WORK] * 3, outside="a:800 b:900 c:1000")
    recording.launch(Op("fill", ns))
    floor = floor_of(None, [bench.count(recording.rows)], None)
    assert (None if floor is None else floor.us) == us
