"""What a step of `mla-step` reads: weights, KV cache, hidden states and the two batches, drawn from the seed.

All is drawn on the CPU, so the bits are the same in every variant, in every process and on every device. One draw
serves all layers: each gets it rolled by its own number. Where the ranks are processes, all of them run one batch, each
with the lengths of its own share, its own empty rows, weights, tokens and hidden states; else this process stands for
the last rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from profkit.kernels.dcp.exchange import DISTRIBUTED
from profkit.kernels.dcp.metadata import BatchMetadata, digest_metadata, timing_metadata
from profkit.kernels.mla_step.sizes import Sizes
from profkit.model.workload import BuildContext, InputSet


@dataclass(frozen=True)
class LayerInputs:
    """One layer's weights and KV cache. Projections are ``[out, in]``, as models keep them.

    Args:
        qkv_a: ``[q_lora + kv_lora + qk_rope, hidden]``.
        q_b: ``[h * (qk_nope + qk_rope), q_lora]``.
        k_up: ``[h, qk_nope, kv_lora]``, absorbed into the query.
        v_up: ``[h, kv_lora, v_head]``.
        o_proj: ``[hidden, h * v_head]``.
        kv: ``[S, capacity, kv_lora + qk_rope]``, this rank's tokens, contiguous for each request (no pages).
    """

    qkv_a: torch.Tensor
    q_b: torch.Tensor
    k_up: torch.Tensor
    v_up: torch.Tensor
    o_proj: torch.Tensor
    kv: torch.Tensor

    def rolled(self, number: int) -> LayerInputs:
        """The inputs of layer `number`, made from those of layer 0; other layers, other requests' tokens."""
        return LayerInputs(
            qkv_a=self.qkv_a.roll(number, 0),
            q_b=self.q_b.roll(number, 0),
            k_up=self.k_up.roll(number, 1),
            v_up=self.v_up.roll(number, 1),
            o_proj=self.o_proj.roll(number, 0),
            kv=self.kv.roll((number, number), (0, 2)),
        )

    @property
    def parameters(self) -> int:
        """How many weights the layer has."""
        return sum(weight.numel() for weight in (self.qkv_a, self.q_b, self.k_up, self.v_up, self.o_proj))


@dataclass(frozen=True)
class Inputs:
    """All that a step reads, on its device.

    Args:
        hidden: ``[R, hidden]``, what enters the first layer.
        layers: in order.
        batches: the metadata of each input set.
    """

    hidden: torch.Tensor
    layers: list[LayerInputs]
    batches: Mapping[InputSet, BatchMetadata]

    @property
    def timing_kv_bytes(self) -> int:
        """Latents that one layer's attention must read for the timing batch."""
        kv = self.layers[0].kv
        return int(self.batches["timing"].seq_lens.sum()) * kv.shape[2] * kv.itemsize


def draw_inputs(context: BuildContext, sizes: Sizes) -> Inputs:
    """Draw what a step reads and bring it to the context's device."""
    distributed = context.shapes.get("exchange") == DISTRIBUTED
    generator = torch.Generator(device="cpu").manual_seed(context.seed)
    batches = _batches(context, sizes, generator, context.rank if distributed else None)
    capacity = max(int(batch.seq_lens.max()) for batch in batches.values())
    if distributed:
        # The first rank has the most tokens; one capacity for all, which decides how attention is split.
        of_first = _batches(context, sizes, torch.Generator(device="cpu").manual_seed(context.seed), 0)
        capacity = max(capacity, *(int(batch.seq_lens.max()) for batch in of_first.values()))
        generator.manual_seed(context.seed + 1 + context.rank)
    heads = sizes.local_heads

    def normal(*shape: int, deviation: float = 1.0) -> torch.Tensor:
        drawn = torch.randn(shape, generator=generator).mul_(deviation)
        return drawn.to(sizes.dtype).to(context.device)

    hidden = normal(sizes.rows, sizes.hidden)
    # A deviation of one over the root of what is summed keeps numbers of one size from layer to layer.
    first = LayerInputs(
        qkv_a=normal(sizes.q_lora + sizes.latent_width, sizes.hidden, deviation=sizes.hidden**-0.5),
        q_b=normal(heads * sizes.query_width, sizes.q_lora, deviation=sizes.q_lora**-0.5),
        k_up=normal(heads, sizes.qk_nope, sizes.kv_lora, deviation=sizes.qk_nope**-0.5),
        v_up=normal(heads, sizes.kv_lora, sizes.v_head, deviation=sizes.kv_lora**-0.5),
        o_proj=normal(sizes.hidden, heads * sizes.v_head, deviation=(heads * sizes.v_head) ** -0.5),
        kv=normal(sizes.rows, capacity, sizes.latent_width),
    )
    return Inputs(hidden, [first.rolled(number) for number in range(sizes.layers)], batches)


def _batches(
    context: BuildContext, sizes: Sizes, generator: torch.Generator, rank: int | None
) -> dict[InputSet, BatchMetadata]:
    arguments = (sizes.rows, sizes.requests, sizes.rows, sizes.ranks, generator, sizes.context)
    return {
        "timing": timing_metadata(*arguments, rank=rank).to(context.device),
        "digest": digest_metadata(*arguments, rank=rank).to(context.device),
    }
