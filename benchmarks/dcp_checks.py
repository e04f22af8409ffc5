"""Parts of `dcp_arms.py`: whether pack and unpack write what they must, before they are timed."""

from __future__ import annotations

import argparse

import torch
from dcp_contexts import UNPACK_WARPS, Choice, Launch, plain
from dcp_kernels import Setting, prepare, unpacking

from profkit.kernels.dcp.layout import Layout, bits_dtype, decode_lse, encode_lse, split
from profkit.kernels.dcp.mask import mask_dcp_empty_shards_
from profkit.kernels.dcp.metadata import BatchMetadata, digest_metadata
from profkit.kernels.dcp.reference import combine


def check_packs(options: argparse.Namespace, choices: list[Choice]) -> list[str]:
    """The choices that pack wrong bits, without and with the fused mask. For a process of its own: it also compiles."""
    setting = prepare(argparse.Namespace(**{**vars(options), "layers": 1}))
    return wrong_packs(setting, choices, plain)


def wrong_packs(setting: Setting, choices: list[Choice], launch: Launch) -> list[str]:
    """The choices that do not pack the bits of the output and of the eagerly masked LSE."""
    batch = digest_batch(setting)
    return [str(choice) for choice in choices for b in (None, batch) if not _is_right(setting, choice, b, launch)]


def digest_batch(setting: Setting) -> BatchMetadata:
    """A batch of the setting's size with about half of its rows empty."""
    options = setting.options
    requests = options.requests or max(1, options.rows * 13 // 14)
    generator = torch.Generator().manual_seed(1)
    return digest_metadata(options.rows, requests, options.rows, options.ranks, generator).to("cuda")


def _is_right(setting: Setting, choice: Choice, batch: BatchMetadata | None, launch: Launch) -> bool:
    layer, ranks = setting.layers[0], setting.options.ranks
    lse = layer.lse.clone()
    if batch is not None:
        mask_dcp_empty_shards_(lse, batch.seq_lens, batch.query_start_loc)
    send = layer.send_of(choice.layout).zero_()
    launch(layer, choice, batch)
    payload, slots = split(send, setting.options.head_dim, choice.layout)
    bits = bits_dtype(send.dtype)
    payload_is_right = torch.equal(payload.contiguous().view(bits), _by_rank(layer.out, ranks).view(bits))
    return payload_is_right and torch.equal(decode_lse(slots), _by_rank(lse, ranks))


def _by_rank(tensor: torch.Tensor, ranks: int) -> torch.Tensor:
    """``[R, H, ...]`` as ``[N, R, h, ...]``."""
    return tensor.unflatten(1, (ranks, -1)).transpose(0, 1).contiguous()


def unpacks_agree(setting: Setting) -> bool:
    """Whether every layout and number of warps gives the same bits.

    Raises:
        AssertionError: one is further from double precision than its dtype allows.
    """
    options, layer = setting.options, setting.layers[0]
    generator = torch.Generator(device="cuda").manual_seed(2)
    shape = (options.ranks, options.rows, options.heads // options.ranks)
    sent = torch.randn(*shape, options.head_dim, device="cuda", generator=generator).to(layer.out.dtype)
    lse = 3 * torch.randn(shape, device="cuda", generator=generator)
    lse[0, ::2], sent[0, ::2] = float("-inf"), float("nan")
    expected, _ = combine(sent, lse)
    results = []
    for layout in Layout:
        payload, slots = split(layer.recv_of(layout), options.head_dim, layout)
        payload.copy_(sent)
        slots.copy_(encode_lse(lse, sent.dtype).view(sent.dtype))
        for warps in UNPACK_WARPS:
            unpacking(layer, layout, warps)
            torch.testing.assert_close(layer.result.double(), expected, rtol=3e-2, atol=3e-2)
            results.append(layer.result.clone())
    return all(torch.equal(results[0], result) for result in results)
