"""From Python: the same answers as the command line, with the same options."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from bench import Bench
from bench import profkit as command
from recording import Op, step_recording

import profkit

RUNS = Path(__file__).parents[2] / "traces" / "dcp-combine"
LAYER = "gemm:3000 combine/fill:900 combine/pack:1300"
OPTIONS = [
    pytest.param({"layers": "mla$"}, id="layers"),
    pytest.param({"scope": "^combine"}, id="scope"),
    pytest.param({"layer_kind": "mla"}, id="layer_kind"),
    pytest.param({"anchor": "nvjet"}, id="anchor"),
    pytest.param({"steps": "^replay", "graph": "graph 2"}, id="steps and graph"),
]


def test_what_is_shown_of_a_result_is_short_and_names_are_text_in_a_notebook(bench: Bench) -> None:
    path = bench.path(step_recording([[Op("<script>", 900), Op("b", 900)]] * 3, replays=3).rows)
    trace, census, comparison = profkit.open(path), profkit.census(path), profkit.diff(path, path)
    assert repr(trace) == f"Trace({path}, Nsight Systems 2025.1.1: 18 ops, 9 launches, 7 ranges, 12 nodes)"
    assert repr(census) == f"Census({path}: 3 layers in 3 × graph 2, 18 ops, 0 unattributed)"
    assert repr(comparison).startswith("Comparison(0.sqlite → 0.sqlite, neutral, work unknown: The same launches")
    for result in (census, comparison):
        assert "&lt;script&gt;" in result._repr_html_()
        assert "<script>" not in result._repr_html_()


def test_no_module_takes_the_place_of_a_function() -> None:
    # Importing profkit.census, if there were such a module, would replace the function of that name.
    assert [name for name in profkit.__all__ if find_spec(f"profkit.{name}")] == []


@pytest.mark.parametrize("options", OPTIONS)
def test_a_diff_is_that_of_the_command_line(options: dict[str, Any]) -> None:
    flags = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", value)]
    data = json.loads(command("diff", RUNS / "eager", RUNS / "fused", "--format", "json", *flags).stdout)
    result = profkit.diff(RUNS / "eager", RUNS / "fused", **options)
    assert (result.verdict, [r.code for r in result.reasons]) == (data["verdict"], [r["code"] for r in data["reasons"]])
    assert result.net is not None
    assert round(result.net.ns_per_layer / 1e3, 6) == data["net"]["us_per_layer"]


def unnamed(bench: Bench, layer: str, name: str) -> Path:
    """A recording without ranges, whose layers a kernel's name must tell."""
    rows = step_recording([layer] * 6, replays=4, outside="embed:700").rows
    rows.ranges.clear()
    return bench.path(rows).rename(bench.directory / name)


def test_an_anchor_finds_layers_that_no_range_names(bench: Bench) -> None:
    before, after = unnamed(bench, LAYER, "before"), unnamed(bench, LAYER.replace(" combine/fill:900", ""), "after")
    anchored = {"anchor": "^gemm$"}
    census = profkit.census(before, **anchored)
    assert (census.ledger.in_layers, census.ledger.in_graph_outside_layers) == (6 * 3 * 4, 4)
    result = profkit.diff(before, after, expect_removed=1, **anchored)
    assert (result.verdict, result.net and result.net.launches_per_layer) == ("confirmed", -1)


def test_layers_by_pattern_begin_at_one_kernel_on_both_sides(bench: Bench) -> None:
    # GIVEN the same layers, of which one recording begins a kernel later
    layers = ["norm:500 gemm:3000 act:400 pack:1300"] * 6
    paths = []
    for name, first in (("a", ""), ("b", "gemm:3000 act:400 pack:1300 ")):
        rows = step_recording([f"{first}{layers[0]}", *layers[1:]], replays=4).rows
        rows.ranges.clear()
        paths.append(bench.path(rows).rename(bench.directory / name))
    told = [profkit.diff(*paths), profkit.diff(*map(profkit.open, paths))]
    data = json.loads(command("diff", *paths, "--format", "json").stdout)
    for result in told:
        assert (result.verdict, len(result.findings)) == (data["verdict"], sum(len(data[s]) for s in _STATUSES))


_STATUSES = ("removed", "added", "changed", "moved", "unchanged")


def test_a_capture_trace_that_is_not_there_is_an_error() -> None:
    with pytest.raises(profkit.errors.ProfkitError, match="--capture-trace absent"):
        profkit.census(RUNS / "eager", capture_trace="absent")


def test_an_option_that_there_is_not_is_refused() -> None:
    with pytest.raises(TypeError, match="layer_kinds"):
        profkit.census(RUNS / "eager", layer_kinds="mla")  # type: ignore[call-arg]
