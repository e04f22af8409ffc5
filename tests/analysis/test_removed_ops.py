"""Removing any op from a trace is noticed: by the report of that trace, and by a diff against the whole one."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bench import Bench
from hypothesis import given
from hypothesis import strategies as st
from nsys_builder import Kernel, Rows
from random_traces import EXAMPLES, TRACES, sound
from recording import Recording, step_recording

from profkit import readers
from profkit.comparison.compare import compare
from profkit.comparison.model import Comparison, Input
from profkit.counting.count import take_census
from profkit.errors import ProfkitError
from profkit.model.census import Census
from profkit.model.trace import Trace

ROOT = Path(__file__).parents[2]
#: Codes of reasons that name a loss.
NAMES_A_LOSS = frozenset(
    {
        "partial-replay",
        "launches-without-ops",
        "eager-launches-without-ops",
        "nodes-without-ops",
        "rows-set-aside",
        "duplicate-rows",
        "other-step-kinds",
        "beyond-steps-differ",
    }
)


def diff(before: Census, after: Census) -> Comparison:
    """Two recordings that nothing but their content says are the same."""
    return compare(Input("before", before), Input("after", after))


def reasons(comparison: Comparison) -> set[tuple[str, str]]:
    """Codes and sentences, whichever side they speak of."""
    return {(r.code, r.message.replace("before", "side").replace("after", "side")) for r in comparison.reasons}


def said(census: Census) -> tuple[Any, ...]:
    """What `profkit layers` says about a recording as a whole."""
    return vars(census.ledger), [(d.code, d.message) for d in census.diagnostics], census.refusal


def assert_noticed(whole: Census, damaged: Census) -> None:
    """The report tells the two apart, and no diff of them is neutral without a word about the loss."""
    assert said(damaged) != said(whole)
    usual = reasons(diff(whole, whole))
    for comparison in (diff(whole, damaged), diff(damaged, whole)):
        if comparison.verdict == "neutral":
            new = {code for code, _ in reasons(comparison) - usual}
            assert new & NAMES_A_LOSS, f"only {sorted(new)}"
        # No digests are there, so nothing can show that the work of the lost op is still done.
        assert comparison.verdict != "confirmed" or comparison.work == "consistent"


def without(rows: Rows, index: int) -> Rows:
    """`rows` without one op."""
    return replace(rows, kernels=[k for i, k in enumerate(rows.kernels) if i != index])


@EXAMPLES
@given(TRACES.filter(sound), st.data())
def test_any_op_of_a_random_recording(rows: Rows, data: st.DataObject) -> None:
    # A row without times is set aside, so it is no op: that it is gone is one row set aside less, and no loss.
    ops = [index for index, kernel in enumerate(rows.kernels) if kernel.name != "broken"]
    index = data.draw(st.sampled_from(ops))
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory))
        less = without(rows, index)
        if less.kernels and not sound(less):
            with pytest.raises(ProfkitError, match="valid times"):
                bench.count(less)
            return
        assert_noticed(bench.count(rows), bench.count(less))


def everything() -> Rows:
    """Two layers of kernels, a copy and a memset on two streams: eager and in two graphs, and work beside them."""
    layer = "gemm:3000 combine/fill:900 combine/+DtoD:700 side:400@8 0memset:300 pack:1300"
    recording = step_recording([layer] * 2, outside="embed:500", replays=3, warm_up=True, jitter_ns=3)
    recording.launch_all("sampler:800 +DtoH:500")
    with recording.range("capture"), recording.capture() as graph, recording.range("layers.0.draft"):
        recording.launch_all("draft:600")
    recording.replay(recording.clone(graph), 2)
    # Two kernels that name no launch: nothing but their number tells that one is gone.
    recording.rows.kernels += [Kernel("orphan", t, t + 50, 900_000 + t) for t in (10, 20)]
    return recording.rows


def eager() -> Rows:
    """Steps that are ranges around eager layers, and work between them."""
    recording = Recording(jitter_ns=3)
    for number in range(3):
        with recording.range(f"step {number}"):
            recording.launch_all("embed:500")
            for layer in range(2):
                with recording.range(f"layers.{layer}"):
                    recording.launch_all("gemm:3000 +DtoD:700 0memset:300 pack:1300")
        recording.launch_all("between:200")
    return recording.rows


@pytest.mark.parametrize("make", [everything, eager])
def test_every_single_op_of_a_small_recording(bench: Bench, make: Any) -> None:
    rows = make()
    whole = bench.count(rows)
    assert whole.refusal is None
    for index, op in enumerate(rows.kernels):
        try:
            assert_noticed(whole, bench.count(without(rows, index)))
        except AssertionError as error:
            raise AssertionError(f"without op {index}, {op}: {error}") from error


# -- the recorded runs ------------------------------------------------------------------------------------------------


#: Every shipped run; of repeated captures the first, and a rank of each.
RECORDED = ("*/*/trace.*", "dcp-combine-2gpu/*/0/0/trace.*", "dcp-ag-rs-2gpu/*/1/trace.*", "mla-step-2gpu/*/1/trace.*")


def recorded() -> Iterator[Path]:
    """Their traces."""
    for pattern in RECORDED:
        yield from sorted((ROOT / "traces").glob(pattern))


@cache
def read(path: Path) -> tuple[Trace, Census]:
    """A recording and its census."""
    trace = readers.read(path)
    return trace, take_census(trace)


def assert_each_op_is_noticed(path: Path, index: int) -> None:
    trace, whole = read(path)
    rest = trace.ops.drop(index=index % len(trace.ops)).reset_index(drop=True)
    assert_noticed(whole, take_census(replace(trace, ops=rest)))


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.parent.relative_to(ROOT / "traces").as_posix()) for p in recorded()]
)
@EXAMPLES
@given(st.integers(0, 10**6))
def test_any_op_of_a_shipped_run(path: Path, index: int) -> None:
    assert_each_op_is_noticed(path, index)


@pytest.fixture(scope="module")
def rank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of rocprofv3, whose graphs have neither nodes nor names."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import mi355x_reconstruction as made

    directory = tmp_path_factory.mktemp("rank")
    made.record(made.step("before"), 0, 5).write(directory)
    return directory / "70000_kernel_trace.csv"


@EXAMPLES
@given(st.integers(0, 10**6))
def test_any_op_of_a_rank_under_rocprofv3(rank: Path, index: int) -> None:
    assert_each_op_is_noticed(rank, index)
