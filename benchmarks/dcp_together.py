"""Parts of `dcp_arms.py`: what kernels cost behind one another beyond their sum, and pack with programmatic launch."""

# ruff: noqa: N803

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
import triton.language.extra.cuda
from dcp_kernels import Body, LayerTensors, Setting, packing

from profkit.capture.floor_kernels import element_pair, launch_chain
from profkit.kernels.dcp.combine import local_copy
from profkit.kernels.dcp.layout import Layout
from profkit.kernels.dcp.mask import mask_dcp_empty_shards_, row_mask
from profkit.kernels.dcp.metadata import timing_metadata
from profkit.kernels.dcp.pack import PackConfig, default_config, pack, pack_arguments, pack_kernel

if TYPE_CHECKING:
    from dcp_arms import Table

OVERHEAD = "one empty node in the whole graph"


def together(setting: Setting, table: Table) -> None:
    """Which of these makes the eager mask and pack cost more than each alone.

    The excess of "mask > pack" goes away with: a shared LSE, if it is the fill's cold read; one set of buffers, if it
    is the memory traffic of pack; 8 empty nodes in the mask's place, if it is what the mask's kernels read.
    """
    options, first = setting.options, setting.layers[0]
    seq_lens, starts = setting.batch.seq_lens, setting.batch.query_start_loc
    requests = options.requests or max(1, options.rows * 13 // 14)
    exact = timing_metadata(options.rows, requests, requests, options.ranks, torch.Generator().manual_seed(0)).to(
        "cuda"
    )
    empty = row_mask(options.rows, seq_lens, starts).unsqueeze(1)
    scratch = first.lse.clone()
    x = element_pair("cuda")
    small = torch.zeros(options.rows, dtype=torch.int32, device="cuda")

    def overhead(layer: LayerTensors) -> None:
        if layer is first:
            launch_chain("empty", x, 1)

    def torch_tiny(_: LayerTensors) -> None:
        for _number in range(8):
            small.add_(1)

    parts: dict[str, Body] = {
        OVERHEAD: overhead,
        "mask": lambda layer: mask_dcp_empty_shards_(layer.lse, seq_lens, starts),
        "mask, a shared LSE": lambda layer: mask_dcp_empty_shards_(scratch, seq_lens, starts),
        "mask, 52 slots": lambda layer: mask_dcp_empty_shards_(layer.lse, exact.seq_lens, exact.query_start_loc),
        "row mask": lambda layer: row_mask(options.rows, seq_lens, starts),
        "fill": lambda layer: layer.lse.masked_fill_(empty, float("-inf")),
        "fill, a shared LSE": lambda layer: scratch.masked_fill_(empty, float("-inf")),
        "1 empty": lambda layer: launch_chain("empty", x, 1),
        "8 empty": lambda layer: launch_chain("empty", x, 8),
        "8 load and store": lambda layer: launch_chain("load_store", x, 8),
        "8 torch adds": torch_tiny,
        "pack": lambda layer: pack(layer.out, layer.lse, layer.send),
        "pack, one set of buffers": lambda layer: pack(first.out, layer.lse, first.send),
        "pack, planar": lambda layer: packing(layer, Layout.PLANAR),
        "exchange": lambda layer: local_copy(layer.send, layer.recv),
    }
    heads = ["mask", "mask, a shared LSE", "mask, 52 slots", "row mask", "fill", "fill, a shared LSE"]
    heads += ["1 empty", "8 empty", "8 load and store", "8 torch adds"]
    pairs = [(head, "pack") for head in heads]
    pairs += [("mask", "pack, one set of buffers"), ("8 empty", "pack, one set of buffers"), ("mask", "pack, planar")]
    pairs += [("mask", "exchange"), ("8 empty", "exchange"), ("mask", "8 empty"), ("pack", "exchange")]

    def behind(one: str, other: str) -> Body:
        def run(layer: LayerTensors) -> None:
            parts[one](layer)
            parts[other](layer)

        return run

    def of_shared(layer: LayerTensors) -> None:
        mask_dcp_empty_shards_(scratch, seq_lens, starts)
        pack(layer.out, scratch, layer.send)

    bodies = dict(parts) | {f"{one} > {other}": behind(one, other) for one, other in pairs}
    sums: dict[str, tuple[str, ...]] = {f"{one} > {other}": (one, other) for one, other in pairs}
    bodies["mask, a shared LSE > pack of that LSE"] = of_shared
    sums["mask, a shared LSE > pack of that LSE"] = ("mask, a shared LSE", "pack")
    table.measure("together", bodies, sums=sums, overhead=OVERHEAD)


@triton.jit  # type: ignore[untyped-decorator]
def waiting_pack_kernel(
    out_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    send_ptr: tl.tensor,
    seq_lens_ptr: tl.tensor,
    query_start_loc_ptr: tl.tensor,
    row_mask_ptr: tl.tensor,
    num_rows: tl.tensor,
    num_seqs: tl.tensor,
    out_stride_row: tl.tensor,
    out_stride_head: tl.tensor,
    out_stride_dim: tl.tensor,
    lse_stride_row: tl.tensor,
    lse_stride_head: tl.tensor,
    N: tl.constexpr,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    LSE_SLOTS: tl.constexpr,
    CHUNK_WIDTH: tl.constexpr,
    HEAD_STRIDE: tl.constexpr,
    LSE_PLANE: tl.constexpr,
    MASK: tl.constexpr,
    NUM_SEQS_POW2: tl.constexpr,
    OUT_VECTOR: tl.constexpr,
    DIM_CONTIGUOUS: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    EVICT: tl.constexpr,
    STORE_CACHE: tl.constexpr,
) -> None:
    """The pack kernel behind a wait for the kernel in front, so that only its launch overlaps."""
    tl.extra.cuda.gdc_launch_dependents()
    tl.extra.cuda.gdc_wait()
    pack_kernel(
        out_ptr,
        lse_ptr,
        send_ptr,
        seq_lens_ptr,
        query_start_loc_ptr,
        row_mask_ptr,
        num_rows,
        num_seqs,
        out_stride_row,
        out_stride_head,
        out_stride_dim,
        lse_stride_row,
        lse_stride_head,
        N,
        HEADS,
        D,
        LSE_SLOTS,
        CHUNK_WIDTH,
        HEAD_STRIDE,
        LSE_PLANE,
        MASK,
        NUM_SEQS_POW2,
        OUT_VECTOR,
        DIM_CONTIGUOUS,
        BLOCK_HEADS,
        EVICT,
        STORE_CACHE,
    )


def programmatic(setting: Setting, table: Table, planar: PackConfig) -> None:
    """Pack with programmatic launch, alone, behind empty nodes and behind the eager mask."""
    batch = setting.batch
    x = element_pair("cuda")

    def launched(layout: Layout, config: PackConfig, early: bool) -> Body:
        def run(layer: LayerTensors) -> None:
            grid, arguments, constants = pack_arguments(layer.out, layer.lse, layer.send, layout=layout, config=config)
            extra: dict[str, Any] = {"launch_pdl": True} if early else {}
            (waiting_pack_kernel if early else pack_kernel)[grid](*arguments, **constants, **extra)

        return run

    def behind(head: Body, body: Body) -> Body:
        def run(layer: LayerTensors) -> None:
            head(layer)
            body(layer)

        return run

    heads: dict[str, Body] = {
        "8 empty": lambda layer: launch_chain("empty", x, 8),
        "mask": lambda layer: mask_dcp_empty_shards_(layer.lse, batch.seq_lens, batch.query_start_loc),
    }
    bodies: dict[str, Body] = {}
    for layout, config in (
        (Layout.INTERLEAVED, default_config(setting.options.head_dim)),
        (Layout.PLANAR, planar),
    ):
        for early in (False, True):
            name = f"pack, {layout.value}{', PDL' if early else ''}"
            body = launched(layout, config, early)
            bodies[name] = body
            for head_name, head in heads.items():
                bodies[f"{head_name} > {name}"] = behind(head, body)
    try:
        table.measure("programmatic", bodies)
    except (RuntimeError, triton.TritonError) as error:
        print(f"programmatic launch failed: {error}")
