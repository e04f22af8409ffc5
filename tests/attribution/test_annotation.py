"""PyTorch's names of a graph's kernels, in the events of its profiler: made by hand after PyTorch's exporter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import profkit
from profkit.scrub.kineto import scrub


def trace(path: Path, annotations: list[dict[str, Any]], *, replays: int = 3) -> Path:
    """A graph whose kernels carry `annotations`, one a kernel, replayed some times."""
    events: list[dict[str, Any]] = []
    for replay in range(replays):
        at = 1000 * (replay + 1)
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 7, "tid": 7, "ts": at, "dur": 5}
        events.append({**launch, "args": {"correlation": replay + 1}})
        for index, annotation in enumerate(annotations):
            args = {"device": 0, "stream": 7, "correlation": replay + 1, "graph id": 3, "graph node id": 50 + index}
            kernel = {"ph": "X", "cat": "kernel", "name": f"kernel_{index % 2}", "pid": 0, "tid": 7}
            events.append({**kernel, "ts": at + 10 * (index + 1), "dur": 4, "args": {**args, **annotation}})
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    return path


def layers(path: Path) -> list[tuple[int, str]]:
    chosen = profkit.census(path).chosen
    return list(zip(chosen.layers["number"].iloc[chosen.slots["layer"]], chosen.slots["inside"], strict=True))


@pytest.mark.parametrize(
    "annotations",
    [
        [{"name": f"model.layers.{i}.{part}"} for i in range(2) for part in ("attention", "mlp")],
        [{"module_fqn": f"layers.{i}.{part}", "name": "x"} for i in range(2) for part in ("attention", "mlp")],
        [{"layer": str(i), "name": part} for i in range(2) for part in ("attention", "mlp")],
    ],
    ids=["a text", "a module", "a layer beside a text"],
)
def test_an_annotation_names_layer_and_part(tmp_path: Path, annotations: list[dict[str, Any]]) -> None:
    file = trace(tmp_path / "a.json", annotations)
    assert layers(file) == [(0, "attention"), (0, "mlp"), (1, "attention"), (1, "mlp")]
    assert profkit.census(file).methods == {"annotation": 12}


def test_what_has_no_annotation_is_left_to_other_methods(tmp_path: Path) -> None:
    file = trace(tmp_path / "a.json", [{"name": "layers.0.mlp"}, {}, {"name": 5}, {"name": "layers.1.mlp"}])
    census = profkit.census(file)
    assert census.methods["annotation"] == 6
    assert census.ledger.ops == 12


def test_an_eager_kernel_says_nothing_of_a_graph(tmp_path: Path) -> None:
    file = trace(tmp_path / "a.json", [{"name": "layers.0.mlp", "graph node id": 0}])
    assert "annotation" not in profkit.census(file).methods


def test_it_survives_scrubbing(tmp_path: Path) -> None:
    file = trace(tmp_path / "a.json", [{"name": f"layers.{i}.mlp", "layer": i} for i in range(3)])
    scrub(file, tmp_path / "b.json")
    assert layers(tmp_path / "b.json") == layers(file)
