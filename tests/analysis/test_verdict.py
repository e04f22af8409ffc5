"""Every row of the verdict table, and what cannot be compared (F3, F13, F21)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench import Bench, codes
from nsys_builder import Kernel, Launch, Rows
from recording import Recording, step_recording

from profkit.comparison.compare import compare
from profkit.comparison.model import Comparison, Gates, Input

BEFORE, FUSED = "gemm:3000 fill:900 mask:900 pack:1300", "gemm:3000 pack:1800"


def step(layer: str, *, layers: int = 4, replays: int = 12, seed: int = 0, jitter_ns: float = 4) -> Rows:
    """A step of equal layers."""
    return step_recording([layer] * layers, replays=replays, seed=seed, jitter_ns=jitter_ns).rows


def record(outputs: Mapping[str, str] | None = None, *, seed: int = 0, **fields: Any) -> dict[str, Any]:
    """A run.json, as far as a diff reads it."""
    digests = None if outputs is None else {"algorithm": "sha256", "outputs": dict(outputs)}
    return {"seed": seed, "digests": digests, **fields}


SAME, OTHER = record({"layer 0": "aa", "layer 1": "bb"}), record({"layer 0": "aa", "layer 1": "XX"})


def outcome(comparison: Comparison) -> tuple[str, str, int]:
    """Verdict, work, exit status."""
    return comparison.verdict, comparison.work, int(comparison.exit_code)


def test_removed_and_outputs_equal_is_confirmed(bench: Bench) -> None:
    comparison = bench.diff(step(BEFORE), step("gemm:3000 pack:1300", seed=1), records=(SAME, SAME))
    assert outcome(comparison) == ("confirmed", "preserved", 0)


def test_removed_and_absorbed_is_confirmed(bench: Bench) -> None:
    assert outcome(bench.diff(step(BEFORE), step(FUSED, seed=1))) == ("confirmed", "consistent", 0)


def test_removed_and_nothing_shows_who_does_the_work_is_inconclusive(bench: Bench) -> None:
    # GIVEN a family of launches that drops to 0 and nothing that replaces it (F3)
    comparison = bench.diff(step(BEFORE), step("gemm:3000 pack:1300", seed=1))
    assert outcome(comparison) == ("inconclusive", "unknown", 3)
    assert "work-unknown" in codes(comparison)


def test_removed_with_work_unknown_can_be_judged_on_launches_alone(bench: Bench) -> None:
    comparison = bench.diff(step(BEFORE), step("gemm:3000 pack:1300", seed=1), gates=Gates(expect_removed=2))
    assert outcome(comparison) == ("confirmed", "unknown", 0)
    assert "launches-alone" in codes(comparison)


@pytest.mark.parametrize("expected", [0, 1, 3])
def test_a_gate_on_launches_that_fails_refutes(bench: Bench, expected: int) -> None:
    comparison = bench.diff(step(BEFORE), step(FUSED, seed=1), gates=Gates(expect_removed=expected))
    assert (comparison.verdict, comparison.exit_code) == ("refuted", 1)
    assert "unexpected-removal" in codes(comparison)


def test_a_gate_counts_only_launches_gone_from_every_layer(bench: Bench) -> None:
    # GIVEN 4 launches gone in one layer of 4: one a layer on average
    before = step_recording(["gemm a b c d pack"] + ["gemm pack"] * 3, replays=12).rows
    comparison = bench.diff(before, step("gemm pack", jitter_ns=0), gates=Gates(expect_removed=1))
    assert comparison.verdict == "refuted"


@pytest.mark.parametrize("after", [FUSED, BEFORE])
def test_outputs_that_differ_refute(bench: Bench, after: str) -> None:
    comparison = bench.diff(step(BEFORE), step(after, seed=1), records=(SAME, OTHER))
    assert outcome(comparison) == ("refuted", "lost", 1)
    assert {"work-lost", "digests-differ"} <= set(codes(comparison))


def test_pure_jitter_is_neutral(bench: Bench) -> None:
    comparison = bench.diff(step(BEFORE, jitter_ns=20), step(BEFORE, jitter_ns=20, seed=5))
    assert comparison.verdict == "neutral"
    assert "no-difference" in codes(comparison)


def test_a_slower_launch_and_no_gate_is_changed(bench: Bench) -> None:
    comparison = bench.diff(step(BEFORE), step(BEFORE.replace("1300", "1900"), seed=1))
    assert (comparison.verdict, comparison.exit_code) == ("changed", 0)


def test_only_added_is_changed(bench: Bench) -> None:
    comparison = bench.diff(step(FUSED), step(BEFORE, seed=1), records=(SAME, SAME))
    assert (comparison.verdict, comparison.exit_code) == ("changed", 0)
    assert "launches-added" in codes(comparison)


def test_the_same_input_twice_is_neutral(bench: Bench) -> None:
    side = replace(bench.side(step(BEFORE), "a"), identity="x")
    comparison = compare(side, replace(side, label="b"))
    assert comparison.verdict == "neutral"
    assert "same-input" in codes(comparison)


def test_a_confirmed_fusion_says_whether_anything_else_moved(bench: Bench) -> None:
    still = bench.diff(step(BEFORE), step(FUSED, seed=1))
    moved = bench.diff(step(BEFORE), step("gemm:4000 pack:1800", seed=1))
    assert "nothing-else-moved" in codes(still)
    assert "others-changed" in codes(moved)
    assert "nothing-else-moved" not in codes(moved)


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
    assert (comparison.verdict, comparison.exit_code, codes(comparison)) == ("inconclusive", 3, ["no-layers"])
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
    assert "one-step" in codes(comparison)


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


def test_every_code_of_a_reason_is_documented() -> None:
    root = Path(__file__).parents[2]
    source = "".join(p.read_text(encoding="utf-8") for p in (root / "profkit").glob("com*/**/*.py"))
    emitted = set(re.findall(r'Reason\(\s*"([a-z-]+)"', source))
    documented = (root / "docs" / "verdicts.md").read_text(encoding="utf-8").split("## Reason codes")[1]
    assert len(emitted) > 40
    assert {code for code in emitted if f"`{code}`" not in documented.split("## Damage")[0]} == set()
