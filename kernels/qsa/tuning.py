"""Sweeping the split kernel's launch: the regions of the tables, and the problem that each of them poses."""

from __future__ import annotations

import torch

from profkit.kernels.qsa.attention import attend
from profkit.kernels.qsa.compiled import shared_memory_bytes, shared_memory_limit_bytes
from profkit.kernels.qsa.cost import attention_bytes
from profkit.kernels.qsa.inputs import timing_batch
from profkit.kernels.qsa.operands import Operands, Workspace
from profkit.kernels.qsa.reference import gated_attention
from profkit.kernels.qsa.regions import WARPS
from profkit.kernels.qsa.sizes import draw_operands, sizes_of
from profkit.kernels.qsa.step import TOLERANCE, half_of_cache, merge_of
from profkit.kernels.qsa.tables import TABLES, Entry, entry, launch
from profkit.kernels.qsa.variants import DROPPED
from profkit.model.workload import BuildContext, Configuration, Problem

#: Splits are there to fill a device. More programs than this are over thirty waves on any of today's, and their partial
#: outputs gigabytes; the known tables ask for 8,192 at most.
MOST_PROGRAMS = 32768
#: What a product of tiles needs at least in each direction that is summed over.
LEAST_BLOCK_N = 16
#: Elements of a key tile that one thread may hold. Beyond it (128 tokens of 256 columns on one warp) the compiler
#: spills kilobytes a thread, and takes seconds to do so.
TILE_ELEMENTS = 512


def build_problem(context: BuildContext) -> Problem:
    """One layer's attention on the timing batch, under any launch.

    Args:
        context: the variant decides the merge; its table's entry is one of those known.

    Raises:
        ProfkitError: an unknown variant, or shapes that do not fit together.
    """
    merge = merge_of(context.variant)
    sizes = sizes_of(context)
    generator = torch.Generator(device=context.device).manual_seed(context.seed)
    operands = draw_operands(sizes, timing_batch(sizes.batch, generator), generator)
    seen = half_of_cache(operands) if context.variant == DROPPED else operands
    out = torch.zeros_like(operands.query)
    pairs = sizes.batch.rows * sizes.kv_heads
    known = {
        table: entry(table, sizes.batch.rows, sizes.kv_heads, prefill=sizes.prefill, fp8=sizes.fp8) for table in TABLES
    }
    most = max(MOST_PROGRAMS // pairs, *(launch(chosen, sizes.width).splits for chosen in known.values()))
    workspace = Workspace(min(most, launch(Entry(LEAST_BLOCK_N, most, 1), sizes.width).splits), operands.query)

    def run(configuration: Configuration) -> None:
        attend(seen, launch(_entry(configuration), sizes.width), out, workspace, merge)

    def rejects(configuration: Configuration) -> str | None:
        chosen = _entry(configuration)
        reason = _impossible(chosen)
        if reason is None and chosen not in known.values():
            reason = _pointless(chosen, sizes.width, sizes.head_dim, pairs)
        return reason if reason is not None else _too_large(operands, out, workspace, chosen)

    return Problem(
        run=run,
        outputs=lambda: {"out": out},
        reference=lambda: {"out": gated_attention(operands)},
        poison=lambda: _poison(out),
        rejects=rejects,
        known={table: _configuration(chosen) for table, chosen in known.items()},
        least_bytes=attention_bytes(operands),
        tolerance=TOLERANCE,
    )


def _entry(configuration: Configuration) -> Entry:
    return Entry(configuration["block_n"], configuration["splits"], configuration["warps"])


def _configuration(chosen: Entry) -> Configuration:
    return {"block_n": chosen.block_n, "splits": chosen.splits, "warps": chosen.warps}


def _poison(out: torch.Tensor) -> None:
    out.fill_(float("nan"))


def _pointless(chosen: Entry, width: int, head_dim: int, pairs: int) -> str | None:
    """Why a configuration that could be launched is not worth compiling; None where it is.

    Args:
        pairs: of row and KV head.
    """
    tiles = launch(chosen, width).tiles
    if chosen.splits // 2 >= tiles:
        return f"{tiles} tiles leave {chosen.splits} splits idle: it is the launch of {chosen.splits // 2} splits."
    if _programs(chosen, width, pairs) > MOST_PROGRAMS:
        return f"{chosen.splits} splits of {pairs} pairs of row and KV head are more than {MOST_PROGRAMS} programs."
    elements = chosen.block_n * head_dim // (32 * chosen.warps)
    if elements > TILE_ELEMENTS:
        return f"a thread would hold {elements} elements of a tile, more than {TILE_ELEMENTS}, and spill them."
    return None


def _programs(chosen: Entry, width: int, pairs: int) -> int:
    return pairs * launch(chosen, width).splits


def _impossible(chosen: Entry) -> str | None:
    """Why the kernel cannot be compiled for a configuration; None where it can."""
    for name, value in (("block_n", chosen.block_n), ("warps", chosen.warps)):
        if value < 1 or value & (value - 1):
            return f"{name} must be a power of two, not {value}."
    if chosen.block_n < LEAST_BLOCK_N:
        return f"block_n {chosen.block_n} is less than the {LEAST_BLOCK_N} that a product of tiles needs."
    if chosen.warps > max(WARPS):
        return f"{chosen.warps} warps are more than the {max(WARPS)} that a tile of this size can use."
    return f"splits must be at least 1, not {chosen.splits}." if chosen.splits < 1 else None


def _too_large(operands: Operands, out: torch.Tensor, workspace: Workspace, chosen: Entry) -> str | None:
    """Why the device cannot launch a configuration; None where it can, and on a CPU, which has no such limit."""
    if operands.query.device.type != "cuda":
        return None
    launched = launch(chosen, operands.width)
    needed = shared_memory_bytes(operands, launched, out, workspace.partials(launched.splits))
    limit = shared_memory_limit_bytes()
    return f"it needs {needed} bytes of shared memory; a program has {limit} here." if needed > limit else None
