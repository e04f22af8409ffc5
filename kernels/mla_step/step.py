"""Building a step of `mla-step`: the buffers, and what each layer launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from profkit.kernels.dcp.combine import Collective, Combine, CombineBuffers, Metadata, local_copy
from profkit.kernels.dcp.layout import Layout, buffer_shape
from profkit.kernels.dcp.metadata import batch_notes
from profkit.kernels.mla_step.decode import DecodeBuffers, decode, decode_config, multiprocessors
from profkit.kernels.mla_step.inputs import Inputs, LayerInputs, draw_inputs
from profkit.kernels.mla_step.norm import rms_norm
from profkit.kernels.mla_step.sizes import NAME, Sizes
from profkit.model.workload import BuildContext, InputSet, Layer, Scope, Step

#: Fills ``target [N, R, h, width]`` on the current stream: ``target[n]`` is rank n's ``source [R, h, width]``.
QueryGather = Callable[[torch.Tensor, torch.Tensor], None]


def repeat_heads(source: torch.Tensor, target: torch.Tensor) -> None:
    """The stand-in for the all-gather on one GPU: every rank is taken to have this rank's query heads."""
    target.copy_(source.unsqueeze(0).expand_as(target))


@dataclass(frozen=True)
class _Buffers:
    """What a layer leaves for its next launch; shared by all layers, as an engine's allocator would have it.

    Args:
        hidden: ``[R, hidden]``, the residual stream; each layer adds to it.
        normed: ``[R, hidden]``.
        qkv_a: ``[R, q_lora + kv_lora + qk_rope]``.
        q_normed: ``[R, q_lora]``.
        q: ``[R, h, qk_nope + qk_rope]``.
        query: ``[R, h, kv_lora + qk_rope]``, this rank's heads after absorption.
        gathered: ``[N, R, h, kv_lora + qk_rope]``.
        attention: of all heads over this rank's tokens.
        send, recv: of the combine.
        value: ``[R, h, v_head]``.
    """

    hidden: torch.Tensor
    normed: torch.Tensor
    qkv_a: torch.Tensor
    q_normed: torch.Tensor
    q: torch.Tensor
    query: torch.Tensor
    gathered: torch.Tensor
    attention: DecodeBuffers
    send: torch.Tensor
    recv: torch.Tensor
    value: torch.Tensor

    @classmethod
    def zeros(cls, sizes: Sizes, capacity: int, layout: Layout, device: str) -> _Buffers:
        rows, heads = sizes.rows, sizes.local_heads

        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=sizes.dtype, device=device)

        config = decode_config(rows, sizes.heads, capacity, multiprocessors(device))
        exchanged = buffer_shape(sizes.ranks, rows, sizes.heads, sizes.kv_lora, sizes.dtype, layout)
        return cls(
            hidden=zeros(rows, sizes.hidden),
            normed=zeros(rows, sizes.hidden),
            qkv_a=zeros(rows, sizes.q_lora + sizes.latent_width),
            q_normed=zeros(rows, sizes.q_lora),
            q=zeros(rows, heads, sizes.query_width),
            query=zeros(rows, heads, sizes.latent_width),
            gathered=zeros(sizes.ranks, rows, heads, sizes.latent_width),
            attention=DecodeBuffers.zeros(rows, sizes.heads, sizes.kv_lora, sizes.dtype, device, config),
            send=zeros(*exchanged),
            recv=zeros(*exchanged),
            value=zeros(rows, heads, sizes.v_head),
        )

    def combine(self, result: torch.Tensor) -> CombineBuffers:
        """For a layer whose combined output is `result`, ``[R, h, kv_lora]``."""
        return CombineBuffers(self.attention.out, self.attention.lse, self.send, self.recv, result)


def build_step(
    context: BuildContext, collective: Collective = local_copy, all_gather: QueryGather = repeat_heads
) -> Step:
    """One step of `mla-step`.

    Attention writes every row's output and LSE in every layer; what it leaves in rows without local tokens looks like a
    result (see `decode`), so that a mask that is left out shows in that layer's output and in all that follow.

    Args:
        context: shapes, variant, device and seed.
        collective: the exchange in the combine; a real all-to-all on several GPUs.
        all_gather: brings the query heads of all ranks together; a real all-gather on several GPUs.

    Raises:
        ProfkitError: an unknown variant, or shapes that do not fit together.
    """
    sizes = Sizes.of(context)
    metadata = Metadata.zeros(sizes.rows, context.device)
    combine = Combine(NAME, context.variant, sizes.rows, metadata, collective)
    inputs = draw_inputs(context, sizes)
    buffers = _Buffers.zeros(sizes, inputs.layers[0].kv.shape[1], combine.layout, context.device)
    shape = (sizes.layers, sizes.rows, sizes.local_heads, sizes.kv_lora)
    results = torch.zeros(shape, dtype=sizes.dtype, device=context.device)

    def run_layer(number: int) -> Callable[[Scope], None]:
        layer, result = inputs.layers[number], results[number]

        def run(scope: Scope) -> None:
            _project(scope, sizes, layer, buffers)
            with scope("gather"):
                all_gather(buffers.query, buffers.gathered)
            with scope("attention"):
                decode(
                    buffers.gathered,
                    layer.kv,
                    metadata.seq_lens,
                    metadata.query_start_loc,
                    buffers.attention,
                    sizes.scale,
                )
            combine.run(scope, buffers.combine(result))
            _finish(scope, layer, result, buffers)

        return run

    def refresh(input_set: InputSet) -> None:
        buffers.hidden.copy_(inputs.hidden)
        metadata.write(inputs.batches[input_set])

    def outputs() -> Mapping[str, torch.Tensor]:
        named = {f"{layer.scope}/combined": results[layer.number] for layer in layers}
        return {**named, f"{layers[-1].scope}/hidden": buffers.hidden}

    refresh("timing")
    layers = [Layer(number, "mla", run_layer(number)) for number in range(sizes.layers)]
    return Step(layers, refresh, outputs, combine.once, {**batch_notes(inputs.batches), **_notes(inputs, buffers)})


def _project(scope: Scope, sizes: Sizes, layer: LayerInputs, buffers: _Buffers) -> None:
    """From the residual stream to this rank's absorbed query heads."""
    rows, nope, latent = sizes.rows, sizes.qk_nope, sizes.kv_lora
    with scope("qkv"):
        rms_norm(buffers.hidden, buffers.normed)
        # The new token's own latent is part of this product, for its cost; it is not written to the cache.
        torch.mm(buffers.normed, layer.qkv_a.t(), out=buffers.qkv_a)
        rms_norm(buffers.qkv_a[:, : sizes.q_lora], buffers.q_normed)
        torch.mm(buffers.q_normed, layer.q_b.t(), out=buffers.q.view(rows, -1))
    with scope("absorb"):
        absorbed = buffers.query[:, :, :latent].transpose(0, 1)
        torch.bmm(buffers.q[:, :, :nope].transpose(0, 1), layer.k_up, out=absorbed)
        # Without rotation, as in models whose MLA layers have no positional part.
        buffers.query[:, :, latent:].copy_(buffers.q[:, :, nope:])


def _finish(scope: Scope, layer: LayerInputs, result: torch.Tensor, buffers: _Buffers) -> None:
    """From the combined output back to the residual stream."""
    with scope("v_up"):
        torch.bmm(result.transpose(0, 1), layer.v_up, out=buffers.value.transpose(0, 1))
    with scope("o_proj"):
        # The residual is added in the product's epilogue.
        flat = buffers.value.view(buffers.value.shape[0], -1)
        torch.addmm(buffers.hidden, flat, layer.o_proj.t(), out=buffers.hidden)


def _notes(inputs: Inputs, buffers: _Buffers) -> dict[str, int | str]:
    return {
        "parameters": sum(layer.parameters for layer in inputs.layers),
        "kv_bytes_a_layer_timing": inputs.timing_kv_bytes,
        "attention_splits": buffers.attention.config.splits,
    }
