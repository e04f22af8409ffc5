"""Recordings of real programs (transformers, vLLM) with known layers, as ../shared/real/README.md tells them."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import profkit

ARCHIVE = Path(__file__).parents[3] / "shared/real/recordings.tar.xz"

#: Launches of each layer in one replay, by the program's own structure.
TRUTH = {
    "hf_eager": [70] * 8,
    "hf_fused": [43] * 8,
    "vllm_mla_custom": [20] * 2 + [28] * 6,
    "vllm_mla_native": [38] * 2 + [46] * 6,
}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not ARCHIVE.exists():
        pytest.skip("no recordings of real programs beside the repository")
    folder = tmp_path_factory.mktemp("real")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("name", TRUTH)
def test_each_layer_has_its_own_launches(recordings: Path, name: str) -> None:
    chosen = profkit.census(recordings / name).chosen
    assert chosen.layers["number"].tolist() == list(range(8))
    assert (chosen.layers["launches"] / chosen.kind.steps).tolist() == TRUTH[name]
