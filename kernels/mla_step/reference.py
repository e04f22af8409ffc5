"""A whole step in plain torch and double precision: slow, short, and independent of the kernels.

It reads the inputs as the step does, rounded to their dtype, and rounds nothing after that.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from profkit.kernels.dcp.metadata import BatchMetadata
from profkit.kernels.dcp.reference import attend, combine
from profkit.kernels.mla_step.inputs import Inputs, LayerInputs
from profkit.kernels.mla_step.norm import EPSILON
from profkit.kernels.mla_step.sizes import Sizes

Exchange = Callable[[torch.Tensor, torch.Tensor], None]


def copy(send: torch.Tensor, recv: torch.Tensor) -> None:
    """The exchange of one GPU."""
    recv.copy_(send)


def reference_step(
    inputs: Inputs,
    sizes: Sizes,
    batch: BatchMetadata,
    all_gather: Callable[[torch.Tensor, torch.Tensor], None],
    exchange: Exchange = copy,
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """What a step must compute.

    Args:
        inputs: on any device.
        sizes: of the step.
        batch: one of the inputs' batches.
        all_gather: as in `build_step`; called with float64 tensors.
        exchange: fills ``recv [N, ...]`` from ``send [N, ...]``; called with float64 tensors.

    Returns:
        Every layer's combined output ``[R, h, kv_lora]`` and the final hidden states ``[R, hidden]``, float64.
    """
    hidden = inputs.hidden.double()
    results = []
    for layer in inputs.layers:
        gathered = hidden.new_empty(sizes.ranks, sizes.rows, sizes.local_heads, sizes.latent_width)
        all_gather(_query(hidden, layer, sizes), gathered)
        result = _combined(gathered, layer, sizes, batch, exchange)
        value = torch.einsum("rhc,hcv->rhv", result, layer.v_up.double())
        hidden = hidden + value.flatten(1) @ layer.o_proj.double().t()
        results.append(result)
    return results, hidden


def _query(hidden: torch.Tensor, layer: LayerInputs, sizes: Sizes) -> torch.Tensor:
    """This rank's absorbed query heads, ``[R, h, kv_lora + qk_rope]``."""
    down = (_norm(hidden) @ layer.qkv_a.double().t())[:, : sizes.q_lora]
    query = (_norm(down) @ layer.q_b.double().t()).view(sizes.rows, sizes.local_heads, sizes.query_width)
    nope, rope = query[:, :, : sizes.qk_nope], query[:, :, sizes.qk_nope :]
    return torch.cat([torch.einsum("rhn,hnc->rhc", nope, layer.k_up.double()), rope], dim=-1)


def _combined(
    gathered: torch.Tensor, layer: LayerInputs, sizes: Sizes, batch: BatchMetadata, exchange: Exchange
) -> torch.Tensor:
    """Attention of all heads over the local tokens, combined with what the exchange brings from the other ranks."""
    shape = (sizes.ranks, sizes.rows, sizes.local_heads)
    partial = gathered.new_zeros(*shape, sizes.kv_lora)
    lse = gathered.new_full(shape, float("-inf"))
    starts, lengths = batch.query_start_loc.tolist(), batch.seq_lens.tolist()
    for request, length in enumerate(lengths):
        for row in range(starts[request], starts[request + 1]):
            if length:
                tokens = layer.kv[request, :length]
                partial[:, row], lse[:, row] = attend(gathered[:, row], tokens, tokens[:, : sizes.kv_lora], sizes.scale)
    received = torch.empty_like(partial), torch.empty_like(lse)
    for send, recv in zip((partial, lse), received, strict=True):
        exchange(send, recv)
    return combine(*received)[0]


def _norm(rows: torch.Tensor) -> torch.Tensor:
    return rows / torch.sqrt(rows.square().mean(dim=-1, keepdim=True) + EPSILON)
