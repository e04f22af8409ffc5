"""Every row of the verdict table, and what cannot be compared (F3, F13, F21)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench import Bench, outputs, profkit
from bench import codes as codes_of
from nsys_builder import Kernel, Launch, Rows
from recording import Recording, step_recording

from profkit.comparison.compare import compare
from profkit.comparison.model import Comparison, Gates, Input
from profkit.model.codes import codes

BEFORE, FUSED = "gemm:3000 fill:900 mask:900 pack:1300", "gemm:3000 pack:1800"


def step(layer: str, *, layers: int = 4, replays: int = 12, seed: int = 0, jitter_ns: float = 4) -> Rows:
    """A step of equal layers."""
    return step_recording([layer] * layers, replays=replays, seed=seed, jitter_ns=jitter_ns).rows


def record(outputs: Mapping[str, str] | None = None, *, seed: int = 0, **fields: Any) -> dict[str, Any]:
    """A run.json, as far as a diff reads it."""
    digests = None if outputs is None else {"algorithm": "sha256", "outputs": dict(outputs)}
    return {"seed": seed, "digests": digests, **fields}


SAME, OTHER = record(outputs()), record(outputs(layers_1="XX"))


def outcome(comparison: Comparison) -> tuple[str, str, int]:
    """Verdict, work, exit status."""
    return comparison.verdict, comparison.work, int(comparison.exit_code)


def test_removed_and_outputs_equal_is_confirmed(bench: Bench) -> None:
    comparison = bench.diff(step(BEFORE), step("gemm:3000 pack:1300", seed=1), records=(SAME, SAME))
    assert outcome(comparison) == ("confirmed", "preserved", 0)


@pytest.mark.parametrize("after", [FUSED, "gemm:3000 pack:1300"], ids=["a neighbour grew", "nothing grew"])
def test_removed_and_no_outputs_compared_is_inconclusive(bench: Bench, after: str) -> None:
    # GIVEN a family of launches that drops to 0, whatever stands in its place (F3)
    comparison = bench.diff(step(BEFORE), step(after, seed=1))
    assert outcome(comparison) == ("inconclusive", "unknown", 3)
    assert {"cannot-tell-work", "outputs-not-compared"} <= set(codes_of(comparison))


def test_removed_and_outputs_of_some_layers_equal_is_inconclusive(bench: Bench) -> None:
    some = record(outputs(3))
    comparison = bench.diff(step(BEFORE), step(FUSED, seed=1), records=(some, some))
    assert outcome(comparison) == ("inconclusive", "partly", 3)
    assert "No compared output names layer 3: 1 of" in " ".join(r.message for r in comparison.reasons)


@pytest.mark.parametrize(
    ("after", "verdict", "said"),
    [
        (["gemm pack"] * 3 + ["pack"], "inconclusive", "gemm from layer 3 (1 launch a step)"),
        (["gemm pack"] * 2 + ["gemm a pack"] * 2, "inconclusive", "a from "),
        (["gemm pack"] * 4, "confirmed", "1 launch a layer is gone from 4 layers (−4 a step)."),
    ],
    ids=["lost in one layer", "gone from half", "gone from all"],
)
def test_a_loss_in_some_layers_is_named_and_confirms_nothing(
    bench: Bench, after: list[str], verdict: str, said: str
) -> None:
    sides = [step_recording(layers, replays=12).rows for layers in (["gemm a pack"] * 4, after)]
    comparison = bench.diff(*sides, records=(SAME, SAME))
    assert comparison.verdict == verdict
    assert said in comparison.reasons[0].message


def test_a_loss_outside_the_layers_is_named_and_confirms_nothing(bench: Bench) -> None:
    sides = [
        step_recording([layer] * 4, replays=12, outside=outside).rows
        for layer, outside in (("gemm a pack", "embed lm_head"), ("gemm pack", "embed"))
    ]
    comparison = bench.diff(*sides, records=(SAME, SAME))
    assert comparison.verdict == "inconclusive"
    assert "lm_head from outside the selected layers (1 launch a step)" in comparison.reasons[0].message


@pytest.mark.parametrize(("outside", "verdict"), [("x n", "confirmed"), ("x", "inconclusive"), ("n", "inconclusive")])
def test_what_is_fused_outside_as_in_the_layers_is_explained(bench: Bench, outside: str, verdict: str) -> None:
    # GIVEN a norm of two launches in each layer and one behind them, and n in its place in the layers
    before = step_recording(["gemm a b"] * 4, replays=12, outside="x a b").rows
    after = step_recording(["gemm n"] * 4, replays=12, outside=outside).rows
    assert bench.diff(before, after, gates=Gates(expect_removed=1)).verdict == verdict


def test_what_moved_elsewhere_in_the_step_is_not_gone(bench: Bench) -> None:
    # GIVEN a in each of four layers, and then four times outside them
    before = step_recording(["gemm a pack"] * 4, replays=12).rows
    after = step_recording(["gemm pack"] * 4, replays=12, outside="a a a a").rows
    comparison = bench.diff(before, after, records=(SAME, SAME))
    assert (comparison.verdict, comparison.moved) == ("changed", 1)
    assert bench.diff(before, after, gates=Gates(expect_removed=1)).verdict == "refuted"


def test_a_launch_of_one_layer_that_hardly_lasts_is_named(bench: Bench) -> None:
    sides = [
        step_recording(["gemm:6000 pack"] * 5 + [last], replays=12).rows for last in ("gemm:6000 pack", "gemm:200 pack")
    ]
    comparison = bench.diff(*sides)
    assert comparison.verdict == "inconclusive"
    assert "gemm in layer 5" in comparison.reasons[0].message


def test_layers_that_change_against_each_other_are_no_neutral(bench: Bench) -> None:
    before = step_recording(["gemm attention:6000"] * 8, replays=12).rows
    after = step_recording(["gemm attention:8400", "gemm attention:3600"] * 4, replays=12).rows
    comparison = bench.diff(before, after)
    assert comparison.verdict == "changed"
    assert "attention (other times in layer 0, 1, 2 and 5 more)" in comparison.reasons[0].message


def test_one_clock_for_all_launches_is_no_change_of_each(bench: Bench) -> None:
    launches = {"a": 3000, "b": 4000, "c": 5000, "d": 6000, "e": 7000, "f": 8000}
    sides = [
        step(" ".join(f"{name}:{round(ns * factor)}" for name, ns in launches.items()), seed=seed)
        for seed, factor in ((0, 1.0), (1, 1.03))
    ]
    comparison = bench.diff(*sides)
    assert comparison.clock == pytest.approx(1.03, abs=0.001)
    assert "clock" in codes_of(comparison)
    assert {f.status for f in comparison.findings} == {"unchanged"}


@pytest.mark.parametrize(
    ("percent", "records", "verdict"),
    [(20, (SAME, SAME), "confirmed"), (20, (None, None), "inconclusive"), (60, (SAME, SAME), "refuted")],
)
def test_a_step_must_be_faster_by_what_is_expected(
    bench: Bench, percent: float, records: tuple[Any, Any], verdict: str
) -> None:
    before, after = step("gemm:9000 pack:9000"), step("gemm:6000 pack:6000", seed=1)
    comparison = bench.diff(before, after, records=records, gates=Gates(expect_faster_percent=percent))
    assert comparison.verdict == verdict


def test_removed_with_work_unknown_can_be_judged_on_launches_alone(bench: Bench) -> None:
    comparison = bench.diff(step(BEFORE), step("gemm:3000 pack:1300", seed=1), gates=Gates(expect_removed=2))
    assert outcome(comparison) == ("confirmed", "unknown", 0)
    assert "launches-alone" in codes_of(comparison)


@pytest.mark.parametrize("expected", [0, 1, 3])
def test_a_gate_on_launches_that_fails_refutes(bench: Bench, expected: int) -> None:
    comparison = bench.diff(step(BEFORE), step(FUSED, seed=1), gates=Gates(expect_removed=expected))
    assert (comparison.verdict, comparison.exit_code) == ("refuted", 1)
    assert "unexpected-removal" in codes_of(comparison)


def test_a_gate_counts_only_launches_gone_from_every_layer(bench: Bench) -> None:
    # GIVEN 4 launches gone in one layer of 4: one a layer on average
    before = step_recording(["gemm a b c d pack"] + ["gemm pack"] * 3, replays=12).rows
    comparison = bench.diff(before, step("gemm pack", jitter_ns=0), gates=Gates(expect_removed=1))
    assert comparison.verdict == "refuted"


@pytest.mark.parametrize("after", [FUSED, BEFORE])
def test_outputs_that_differ_in_bits_prove_nothing(bench: Bench, after: str) -> None:
    comparison = bench.diff(step(BEFORE), step(after, seed=1), records=(SAME, OTHER))
    # THEN digests alone do not tell lost work from reordered arithmetic
    assert (comparison.work, "outputs-differ-in-bits" in codes_of(comparison)) == ("unknown", True)
    assert comparison.verdict == ("inconclusive" if after == FUSED else "neutral")


def test_pure_jitter_is_neutral(bench: Bench) -> None:
    comparison = bench.diff(step(BEFORE, jitter_ns=20), step(BEFORE, jitter_ns=20, seed=5))
    assert comparison.verdict == "neutral"
    assert "no-difference" in codes_of(comparison)


def test_a_slower_launch_and_no_gate_is_changed(bench: Bench) -> None:
    comparison = bench.diff(step(BEFORE), step(BEFORE.replace("1300", "1900"), seed=1))
    assert (comparison.verdict, comparison.exit_code) == ("changed", 0)


def test_only_added_is_changed(bench: Bench) -> None:
    comparison = bench.diff(step(FUSED), step(BEFORE, seed=1), records=(SAME, SAME))
    assert (comparison.verdict, comparison.exit_code) == ("changed", 0)
    assert "launches-added" in codes_of(comparison)


def test_the_same_input_twice_is_neutral(bench: Bench) -> None:
    side = replace(bench.side(step(BEFORE), "a"), identity="x")
    comparison = compare(side, replace(side, label="b"))
    assert comparison.verdict == "neutral"
    assert "same-input" in codes_of(comparison)


def test_a_confirmed_fusion_says_whether_anything_else_moved(bench: Bench) -> None:
    still = bench.diff(step(BEFORE), step(FUSED, seed=1), records=(SAME, SAME))
    moved = bench.diff(step(BEFORE), step("gemm:4000 pack:1800", seed=1), records=(SAME, SAME))
    assert "nothing-else-moved" in codes_of(still)
    assert "others-changed" in codes_of(moved)
    assert "nothing-else-moved" not in codes_of(moved)


def test_reasons_say_what_happened_and_leave_by_how_much_to_the_table(bench: Bench) -> None:
    changed = bench.diff(step("gemm:4000 pack:1800"), step("gemm:5000 pack:1500", seed=1), records=(SAME, SAME))
    assert changed.reasons[0].message == "2 launches differ: gemm (slower), pack (faster)."


# -- cannot be compared -----------------------------------------------------------------------------------------------


def graph_level() -> Rows:
    """Graph launches and nothing of what is inside."""
    return Rows(launches=[Launch("cudaGraphLaunch_v10000", 10 * i, i) for i in range(1, 9)])


def test_a_trace_without_layers_cannot_be_compared(bench: Bench) -> None:
    after = Rows([Kernel("k", 5, 9, 1)], [], [], [Launch("cudaLaunchKernel", 1, 1)])
    comparison = bench.diff(step(BEFORE), after)
    assert (comparison.verdict, comparison.exit_code, codes_of(comparison)) == ("inconclusive", 3, ["no-layers"])
    assert comparison.findings == ()


def test_a_gpu_that_runs_nothing_does_not_make_another_device(bench: Bench) -> None:
    sides = [
        bench.side(step(BEFORE), "a", gpus={0: "NVIDIA H200", 1: "NVIDIA T400"}),
        bench.side(step(BEFORE, seed=1), "b", gpus={0: "NVIDIA H200"}),
    ]
    assert compare(sides[0], sides[1]).verdict == "neutral"


def test_settings_that_differ_are_named(bench: Bench) -> None:
    records = [record(versions={"driver": d, "torch": "2.11"}) for d in ("570.1", "580.2")]
    comparison = bench.diff(step(BEFORE), step(FUSED, seed=1), records=(records[0], records[1]))
    said = next(r.message for r in comparison.reasons if r.code == "settings-differ")
    assert "driver 570.1 → 580.2" in said
    assert "torch" not in said


def test_one_step_a_side_decides_nothing_about_times(bench: Bench) -> None:
    comparison = bench.diff(step(BEFORE, replays=1), step(BEFORE.replace("1300", "9000"), replays=1))
    assert comparison.verdict == "neutral"
    assert "one-step" in codes_of(comparison)


def test_an_input_has_its_label_in_the_reason(bench: Bench) -> None:
    comparison = compare(bench.side(graph_level(), "left"), bench.side(step(BEFORE), "right"))
    assert comparison.reasons[0].message.startswith("left (before)")
    assert isinstance(comparison.before, Input)


def two_graphs(replays: tuple[int, int]) -> Rows:
    """Graphs of two batch sizes over the same 2 layers, the second with twice the launches."""
    recording = Recording()
    graphs = []
    for size in (1, 2):
        with recording.range(f"capture {size}"), recording.capture() as graph:
            for i in range(2):
                with recording.range(f"layers.{i}"):
                    recording.launch_all("gemm pack " * size)
        graphs.append(recording.clone(graph))
    for graph, times in zip(graphs, replays, strict=True):
        recording.replay(graph, times)
    return recording.rows


def test_one_kind_of_step_is_never_compared_with_another(bench: Bench) -> None:
    # GIVEN the same program on both sides, with other numbers of requests of either batch size
    comparison = bench.diff(two_graphs((10, 3)), two_graphs((10, 30)))
    assert comparison.verdict in ("neutral", "inconclusive")


def test_a_given_kind_of_step_is_compared_with_itself(bench: Bench) -> None:
    for graph in ("2", "4"):
        comparison = bench.diff(two_graphs((10, 3)), two_graphs((10, 30)), graph=graph)
        assert comparison.verdict == "neutral"


def test_every_code_is_explained_and_no_other() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (Path(__file__).parents[2] / "profkit").rglob("*.py")]
    made = r'(?:Reason|Diagnostic|CannotTellError|MessageRecord)\(\s*(?:code=)?"([a-z-]+)"'
    emitted = {code for source in sources for code in re.findall(made, source)}
    assert len(emitted) > 100
    assert emitted - set(codes()) == set()
    # Some codes are passed on before they are used.
    assert {code for code in codes() if not any(f'"{code}"' in source for source in sources)} == set()
    assert all(code.means and code.do for code in codes().values())


def test_a_code_is_explained_on_the_command_line() -> None:
    assert profkit("explain", "[clock]").stdout.startswith("clock (of times)\nAll launches alike")
    unknown = profkit("explain", "clok")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "Did you mean clock?" in unknown.stderr
