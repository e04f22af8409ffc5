"""The methods on recorded traces: serving engines on MI300, toy steps on an H200, and the shipped runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from step_traces import codes, counted, per_layer, without_ranges

from profkit import readers
from profkit.comparison.compare import compare
from profkit.comparison.model import Input
from profkit.model.census import Census
from profkit.model.selection import Selection
from profkit.runs import sides

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
ENGINES = SHARED / "corpus/AMD-AGI+TraceLens/tests/traces/inference"
VLLM = ENGINES / "vllm_decode_full/graph_execution.json.gz"
SGLANG = ENGINES / "sglang_decode/sglang_Qwen3-8B_decode.json.gz"
H200 = SHARED / "h200"

engines = pytest.mark.skipif(not ENGINES.exists(), reason="the engines' recorded traces are not beside the repository")
toys = pytest.mark.skipif(not H200.exists(), reason="the recorded toy steps are not beside the repository")


def census_of(path: Path, **selection: str) -> Census:
    """The census of a recorded trace, as `profkit layers` takes it."""
    (run,) = sides.count_runs(sides.RunFile(path.name, path, None), Selection(**selection))
    return run.census


def shipped() -> Iterator[Path]:
    """The trace files of `traces/` that nsys or torch.profiler wrote."""
    for path in sorted((ROOT / "traces").rglob("trace.*")):
        if path.name.endswith((".sqlite", ".json.gz")):
            yield path


@engines
def test_vllm_has_24_layers_of_two_kinds_without_a_hint() -> None:
    census = census_of(VLLM)
    layers, slots = census.chosen.layers, census.chosen.slots
    # The first layer has its own norm and no copy before the rotary embedding: two of its 16 launches.
    assert layers["module"].tolist() == ["layers.#.A", "layers.#.B", *["layers.#.C", "layers.#.B"] * 11]
    assert layers["launches"].tolist() == [16, 18, *[17, 18] * 11]
    attention = Counter(slots["layer"][slots["name"].str.startswith("kernel_unified_attention")])
    assert set(attention.values()) == {1}
    assert len(attention) == 24
    reduced = slots["layer"][slots["name"] == "reduce_segments"].tolist()
    assert reduced == slots["layer"][slots["name"] == "kernel_unified_attention_3d"].tolist() == list(range(1, 24, 2))
    assert census.chosen.outside["where"].tolist() == ["(prologue)", "(epilogue)"]
    assert (census.ledger.in_layers, census.ledger.in_graph_outside_layers, census.ledger.unattributed) == (419, 2, 0)


@engines
def test_vllm_aligns_by_name_with_its_capture_trace() -> None:
    census = census_of(VLLM, capture_trace=str(VLLM.parent / "capture_traces"))
    told = {d.code: d.message for d in census.diagnostics}
    assert "checked by name: 421 of 421 ops" in told["by-order"]
    assert "7 of 428 captured kernel launches became no kernel" in told["launches-without-op"]
    assert "4 × vectorized_elementwise_kernel" in told["launches-without-op"]
    # Its pieces name no layer, so these still come from the repetition.
    assert per_layer(census) == per_layer(census_of(VLLM))


@engines
def test_sglang_has_the_same_layers_by_cut_and_by_its_modules() -> None:
    by_cut = census_of(SGLANG)
    by_module = census_of(SGLANG, capture_trace=str(SGLANG.parent / "capture_traces/bs_32_rank0.json.gz"))
    assert by_cut.methods["cut"] == by_module.methods["sequence"] == 544
    assert per_layer(by_cut) == per_layer(by_module)
    assert by_cut.chosen.layers["launches"].tolist() == [15] * 36
    assert by_cut.chosen.outside["where"].tolist() == ["(prologue)", *["(epilogue)"] * 3]
    assert by_module.chosen.layers["scope"].tolist()[7] == "Qwen3Model/layers.7"


@toys
@pytest.mark.parametrize("name", ["toy_late.nsys2025.sqlite", "toy_late.kineto.json.gz"])
@pytest.mark.parametrize("selection", [{}, {"anchor": "^nvjet"}], ids=["found", "named"])
def test_a_step_recorded_without_ranges_has_its_8_layers_of_11(name: str, selection: dict[str, str]) -> None:
    census = census_of(H200 / name, **selection)
    assert census.chosen.layers["launches"].tolist() == [110] * 8
    assert census.methods == {"cut": 880}
    assert census.ledger.in_layers == census.ledger.ops == 880


@toys
def test_nsys_and_kineto_give_one_step_the_same_layers() -> None:
    names = [
        [names for _, names, _ in per_layer(census_of(H200 / name))]
        for name in ("toy_late.nsys2025.sqlite", "toy_late.kineto.json.gz")
    ]
    assert names[0] == names[1]


@toys
def test_the_diff_of_two_steps_without_ranges_finds_what_vanished_per_layer() -> None:
    sides = [
        Input(name, counted(without_ranges(readers.read(H200 / f"toy_{name}.nsys2025.sqlite"))), identity=name)
        for name in ("eager", "fused")
    ]
    comparison = compare(*sides)
    assert comparison.net is not None
    assert comparison.net.launches_per_layer == -9
    assert Counter(f.status for f in comparison.findings) == {"removed": 9, "unchanged": 2}


@toys
@pytest.mark.parametrize(
    "name", ["toy_eager.nsys2023.sqlite", "toy_eager.nsys2025.sqlite", "toy_fused.nsys2025.sqlite"]
)
def test_cut_finds_the_layers_that_lineage_finds(name: str) -> None:
    trace = readers.read(H200 / name)
    by_lineage, by_cut = counted(trace), counted(without_ranges(trace))
    assert by_lineage.methods["lineage"] == by_cut.methods["cut"]
    assert per_layer(by_cut) == per_layer(by_lineage)
    assert codes(by_cut).count("capture-without-ranges") == 1


#: Steps whose layers are no repetition: five unlike ones, or single kernels of one name.
IRREGULAR = {
    "dsa-candidates/old": "what repeats is 12 of 32 ops",
    "dsa-candidates/new": "what repeats is 12 of 33 ops",
    "dsa-candidates/one-kernel": "what repeats is a single launch",
    "dsa-candidates/hoisted": "what repeats is a single launch",
    "qsa-attention/default": "what repeats is a single launch",
    "qsa-attention/dropped": "what repeats is a single launch",
}
#: Its four consumers repeat; the source before them does not.
PARTLY = "dsa-candidates/bounded"


def name_of(path: Path) -> str:
    """A shipped run as ``workload/variant``, with its repetition and rank where it has some."""
    return path.parent.relative_to(ROOT / "traces").as_posix()


REGULAR = [path for path in shipped() if name_of(path) not in {*IRREGULAR, PARTLY}]


@pytest.mark.parametrize("path", REGULAR, ids=name_of)
def test_cut_finds_the_layers_of_the_shipped_runs(path: Path) -> None:
    trace = readers.read(path)
    by_range, by_cut = counted(trace), counted(without_ranges(trace))
    assert set(by_cut.methods) <= {"cut", "launch range"}
    assert per_layer(by_cut) == per_layer(by_range)


@pytest.mark.parametrize("run", IRREGULAR)
def test_cut_finds_no_layers_where_none_repeat(run: str) -> None:
    census = counted(without_ranges(readers.read(ROOT / "traces" / run / "trace.sqlite")))
    assert set(census.methods) == {"launch range"}
    assert len(census.chosen.layers) == 0
    (why,) = [d.message for d in census.diagnostics if d.code == "cut-does-not-fit"]
    assert IRREGULAR[run] in why


def test_cut_finds_the_part_of_a_step_that_repeats_and_says_how_much_that_is() -> None:
    trace = readers.read(ROOT / "traces" / PARTLY / "trace.sqlite")
    by_range, by_cut = counted(trace), counted(without_ranges(trace))
    consumers = [(names, ns) for _, names, ns in per_layer(by_range)[1:]]
    assert [(names, ns) for _, names, ns in per_layer(by_cut)] == consumers
    (said,) = [d.message for d in by_cut.diagnostics if d.code == "layers-by-cut"]
    assert "4 layers by cut, holding 80 of 110 ops (72.7 %, 3 before them a step)" in said
