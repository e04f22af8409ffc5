"""One selected layer: what left it for the step is moved, and a step has all its layers."""

from __future__ import annotations

import pytest
from bench import Bench, names
from recording import step_recording

from profkit.comparison.compare import compare
from profkit.comparison.model import Gates
from profkit.comparison.verdict import other_changes
from profkit.reporters.diff import net_line
from profkit.reporters.diff_table import build

EAGER, HOISTED = "gemm:3000 fill:900 pack:1300", "gemm:3000 mask:700 pack:1300"


@pytest.mark.parametrize("of", [1, 4])
@pytest.mark.parametrize("layers", ["0", None])
def test_a_launch_that_runs_once_a_step_is_moved_out_of_one_layer(bench: Bench, of: int, layers: str | None) -> None:
    select = {} if layers is None else {"layers": rf"^layers\.{layers}\."}
    sides = [
        bench.side(step_recording([layer] * of, replays=6, outside=outside).rows, label, **select)
        for label, layer, outside in (("before", EAGER, ""), ("after", HOISTED, "fill:900"))
    ]
    comparison = compare(sides[0], sides[1], Gates(expect_fused=True))
    assert names(comparison, "moved") == ["fill"]
    assert comparison.fusions == ()
    assert comparison.verdict == "refuted"
    assert [f.row.name for f in other_changes(comparison) if f.row.name == "fill"] == []


def test_a_step_is_of_all_its_layers_whichever_are_selected(bench: Bench) -> None:
    whole = "−0.90 µs of kernel time a step of 1 layer ("
    part = (
        "−1 a step; −0.90 µs a layer (95 % CI −0.90 to −0.90), −0.90 µs a step, in 1 of its 4 layers. The whole step: "
    )
    for layers, said in ((4, f"{part}−4 launches, −3.60 µs of kernel time ("), (1, whole)):
        before, after = (step_recording([layer] * layers, replays=6).rows for layer in (EAGER, "gemm:3000 pack:1300"))
        comparison = bench.diff(before, after, layers=r"^layers\.0\.")
        assert said in str(net_line(comparison, build(comparison)))
