"""Options are checked against the workload before anything runs."""

from __future__ import annotations

import pytest

from profkit.capture.options import Options
from profkit.capture.session import begin
from profkit.errors import ProfkitError
from profkit.model.workload import BuildContext, Shape, Step, Workload, resolve_shapes, resolve_variant


def _build(_: BuildContext) -> Step:
    raise AssertionError("not built here")


WORKLOAD = Workload(
    name="w",
    summary="",
    variants={"slow": "", "fast": ""},
    shapes={"rows": Shape(56, "rows"), "dtype": Shape("bf16", "dtype", choices=("bf16", "fp32"))},
    build=_build,
)


def test_the_first_variant_is_the_default() -> None:
    assert resolve_variant(WORKLOAD, None) == "slow"


def test_a_given_variant_is_taken() -> None:
    assert resolve_variant(WORKLOAD, "fast") == "fast"


def test_an_unknown_variant_names_the_closest_and_all() -> None:
    with pytest.raises(ProfkitError, match=r"no variant 'fats'\. Did you mean fast\? Known: slow, fast\."):
        resolve_variant(WORKLOAD, "fats")


def test_shapes_keep_their_defaults_and_types() -> None:
    assert resolve_shapes(WORKLOAD, ["rows=8"]) == {"rows": 8, "dtype": "bf16"}
    assert resolve_shapes(WORKLOAD, ["dtype=fp32"]) == {"rows": 56, "dtype": "fp32"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows", "not name=value"),
        ("=3", "not name=value"),
        ("row=3", r"no shape 'row'\. Did you mean rows\?"),
        ("rows=many", "expected an integer"),
        ("rows=", "expected an integer"),
        ("dtype=fp8", "not one of bf16, fp32"),
    ],
)
def test_a_bad_shape_is_refused_with_what_would_do(text: str, message: str) -> None:
    with pytest.raises(ProfkitError, match=message):
        resolve_shapes(WORKLOAD, [text])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options("dcp-combine", profiler="nsight"), "No profiler 'nsight'"),
        (Options("dcp-combine", profiler="torch", run_bodies=True), "that needs dispatch"),
    ],
)
def test_what_a_profiler_never_does_is_refused(options: Options, message: str) -> None:
    with pytest.raises(ProfkitError, match=message):
        begin(options)
