"""Step times without a profiler, of whole graphs and node by node, and savings that do not agree."""

from __future__ import annotations

from typing import Any

import pytest
from bench import Bench, codes, profkit
from nsys_builder import Rows
from recording import step_recording

from profkit.comparison.model import Comparison
from profkit.reporters import markdown
from profkit.reporters.diff import report

#: 4 layers: 2 launches of 1 µs each go, 8 a step; each op starts 10 ns after the one before.
BEFORE, AFTER = "gemm:3000 fill:1000 mask:1000 pack:1300", "gemm:3000 pack:1300"


def step(layer: str) -> Rows:
    return step_recording([layer] * 4, replays=9).rows


def times(median: float, spread: float = 0.2) -> dict[str, float]:
    """A field of run.json that holds step times."""
    return {"median": median, "p25": median - spread / 2, "p75": median + spread / 2}


def diff(bench: Bench, untraced: tuple[float, float], **options: Any) -> Comparison:
    """The two sides with these untraced step times; `graph_level` likewise."""
    whole = options.get("graph_level")
    records = [
        {"untraced": times(median, options.get("spread", 0.2)), "graph_level": times(whole[i]) if whole else None}
        for i, median in enumerate(untraced)
    ]
    return bench.diff(step(BEFORE), step(AFTER), records=(records[0], records[1]))


def line(comparison: Comparison, start: str) -> str:
    """The sentence that begins so."""
    (found,) = [text for text in markdown.render(report(comparison)).splitlines() if text.startswith(f"- {start}")]
    return found.replace("\\", "")


def test_all_three_stand_side_by_side_with_the_saving_in_each(bench: Bench) -> None:
    comparison = diff(bench, (22.0, 12.0), graph_level=(24.2, 12.6))
    assert "22.0 → 12.0 µs (−10.00 µs, −45.5%)" in line(comparison, "Untraced")
    # 16 and 8 ops: 25.2 and 17.2 µs of kernels, and 10 ns before each but the first
    text = line(comparison, "Traced node by node")
    assert "the step took 25.4 → 17.3 µs (−8.08 µs, −31.9%), +15.2% and +43.9% beside untraced" in text
    assert "traced as whole graphs: 24.2 → 12.6 µs (−11.60 µs, −47.9%), +10.0% and +5.0% beside untraced" in text


def test_where_whole_graphs_were_not_recorded_it_is_said(bench: Bench) -> None:
    comparison = diff(bench, (22.0, 12.0))
    assert "not recorded as whole graphs (profkit capture --graph-level)" in line(comparison, "Traced node by node")
    assert comparison.graph_level is None


@pytest.mark.parametrize(
    ("untraced", "spread", "said"),
    [
        pytest.param((30.0, 22.0), 0.2, None, id="the same saving"),
        pytest.param((30.0, 14.0), 0.2, None, id="a gap of 1 µs for each launch that is gone"),
        pytest.param((100.0, 60.0), 0.2, "no kernel's time shows", id="far more than the kernels and gaps"),
        pytest.param((30.0, 28.0), 0.2, "not what the step waits for", id="less than the kernels"),
        pytest.param((30.0, 28.0), 7.0, None, id="less, within the spread of the replays"),
        pytest.param((300.0, 299.0), 0.2, None, id="less, but little of the step"),
    ],
)
def test_savings_that_disagree_are_pointed_out_with_a_cause(
    bench: Bench, untraced: tuple[float, float], spread: float, said: str | None
) -> None:
    comparison = diff(bench, untraced, spread=spread)
    messages = [r.message for r in comparison.reasons if r.code == "savings-disagree"]
    assert len(messages) == (said is not None)
    assert said is None or said in messages[0]


def test_without_untraced_times_nothing_is_said_of_them(bench: Bench) -> None:
    comparison = bench.diff(step(BEFORE), step(AFTER))
    assert "Traced" not in markdown.render(report(comparison))
    assert "savings-disagree" not in codes(comparison)


def test_layers_show_the_step_as_traced_beside_the_untraced_one(bench: Bench) -> None:
    run = bench.run_directory(step(BEFORE), "run", untraced=times(22.0), graph_level=times(24.2))
    said = "Step: 25.4 µs as traced, 24.2 µs traced as whole graphs, 22.0 µs untraced."
    assert said in profkit("layers", run).stdout
    assert said in profkit("layers", run, "--format", "md").stdout
    bare = bench.path(step(BEFORE))
    assert "Step: 25.4 µs as traced." in profkit("layers", bare).stdout
