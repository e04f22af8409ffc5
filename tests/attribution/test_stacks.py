"""Stacks: which range names an op's layer, and which layers are numbered together."""

from __future__ import annotations

import pytest

from profkit.model.scope import place

VLLM = "CUDAGraphWrapper.model.layers.5"


@pytest.mark.parametrize(
    ("path", "stack", "number", "inside"),
    [
        (("model.layers.3",), "model.layers.", 3, ""),
        (("layer_12.mla", "attn"), "layer_", 12, "attn"),
        (("transformer.h.3.mlp",), "transformer.h.", 3, ""),
        (("blocks.7", "norm"), "blocks.", 7, "norm"),
        (("{'Module': 'model.layers.4.mlp', 'Inputs': [1]}",), "model.layers.", 4, ""),
        # Modules that layers share know one name: the outermost range says which layer it is.
        ((VLLM, f"{VLLM}.self_attn", "CUDAGraphWrapper.model.layers.0.self_attn.rotary_emb"), "model.layers.", 5,
         "self_attn/rotary_emb"),
        (("model.layers.3", "linear_layers.0"), "model.layers.", 3, "linear_layers.0"),
        # Of several numbers in one text the leftmost is the layer's.
        (("decoder.layers.2.sub.layers.1",), "decoder.layers.", 2, ""),
        # Models are told apart by the ranges around, steps and batches are not.
        (("step 4", "draft", "model.layers.0"), "draft/model.layers.", 0, ""),
        (("step 9", "target", "model.layers.0"), "target/model.layers.", 0, ""),
        (("encoder", "layers.1"), "encoder/layers.", 1, ""),
        (("capture num_layers_61 bs8", "model.layers.2"), "model.layers.", 2, ""),
        (("warmup", "model.layers.2"), "model.layers.", 2, ""),
        (("execute_context_0(0)_generation_8(8)", "model.layers.2"), "model.layers.", 2, ""),
    ],
)  # fmt: skip
def test_the_outermost_range_names_the_layer(path: tuple[str, ...], stack: str, number: int, inside: str) -> None:
    found = place(path)
    assert found.layer is not None
    assert (found.layer.stack, found.layer.number, found.inside) == (stack, number, inside)


@pytest.mark.parametrize(
    "text", ["num_layers_61", "linear_layers.0", "layers", "layers.0123456789", "h_3", "layers.3rd"]
)
def test_what_only_looks_like_a_layer_names_none(text: str) -> None:
    assert place((text,)).layer is None
