"""Parts of `dcp_arms.py`: why pack costs more behind a gap, and pack with programmatic launch."""

# ruff: noqa: N803

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
import triton.language.extra.cuda
from dcp_checks import wrong_packs
from dcp_contexts import Choice, contexts, plain
from dcp_kernels import Body, LayerTensors, Setting

from profkit.capture.floor_kernels import element_pair, launch_chain
from profkit.kernels.dcp.layout import Layout
from profkit.kernels.dcp.metadata import BatchMetadata
from profkit.kernels.dcp.pack import PackConfig, pack, pack_arguments, pack_kernel

if TYPE_CHECKING:
    from dcp_arms import Results

#: Larger than the L2 cache.
_SWEEP_BYTES = 1 << 27


def gaps(results: Results, first: LayerTensors, now: Choice, planar: Choice) -> None:
    """Print what pack costs behind other kernels beyond the sum of both.

    If the excess is the write-back of what earlier packs wrote, it stays with shared outputs and goes with a shared
    send buffer; and pack is dearer behind a fill that is larger than the cache than behind a read of as much.
    """
    x = element_pair("cuda")
    swept = torch.zeros(_SWEEP_BYTES // 4, device="cuda")
    largest = torch.zeros((), device="cuda")
    heads: dict[str, Callable[[], object]] = {
        f"{count} empty": partial(launch_chain, "empty", x, count) for count in (1, 2, 4, 8, 16)
    }
    heads["large read"] = lambda: torch.amax(swept, dim=0, out=largest)
    heads["large fill"] = swept.zero_
    streaming = PackConfig(8, 4, "evict_first", ".cs")
    choices = dict.fromkeys([now, Choice(now.layout, streaming), Choice(Layout.PLANAR, streaming), planar])

    def packs(choice: Choice, own_out: bool, own_send: bool) -> Body:
        def run(layer: LayerTensors) -> None:
            out, send = (layer if own_out else first).out, (layer if own_send else first).send_of(choice.layout)
            pack(out, layer.lse, send, layout=choice.layout, config=choice.config)

        return run

    def behind(head: Callable[[], object], body: Body | None) -> Body:
        def run(layer: LayerTensors) -> None:
            head()
            if body is not None:
                body(layer)

        return run

    bodies: dict[str, Body] = {name: behind(head, None) for name, head in heads.items()}
    # What every graph costs, which a sum of two holds twice.
    bodies["overhead"] = lambda layer: launch_chain("empty", x, 1) if layer is first else None
    sums: dict[str, tuple[str, str]] = {}
    for choice in choices:
        for own_out, own_send in ((True, True), (False, True), (True, False), (False, False)):
            shared = [name for name, own in (("outputs", own_out), ("send buffer", own_send)) if not own]
            name = f"{choice}" + (f", shared {' and '.join(shared)}" if shared else "")
            bodies[name] = packs(choice, own_out, own_send)
            for head in heads if not shared else ("8 empty",):
                sums[f"{head} > {name}"] = (head, name)
                bodies[f"{head} > {name}"] = behind(heads[head], bodies[name])
    samples = results.measure(bodies, 8)
    rows: dict[str, dict[str, Any]] = {}
    for name, sample in samples.items():
        rows[name] = asdict(sample)
        text = f"  {name:94} {sample.median_us:6.2f} ({sample.p25_us:.2f} - {sample.p75_us:.2f})"
        if name in sums:
            excess = sample.median_us + samples["overhead"].median_us
            excess -= sum(samples[part].median_us for part in sums[name])
            rows[name]["excess_us"] = excess
            text += f"  {excess:+.2f}"
        print(text, flush=True)
    results.keep("gaps", rows)


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


def early(layer: LayerTensors, choice: Choice, batch: BatchMetadata | None) -> None:
    """Pack, launched so that it may start before the kernel in front of it ends."""
    metadata = (batch.seq_lens, batch.query_start_loc) if batch else (None, None)
    grid, arguments, constants = pack_arguments(
        layer.out, layer.lse, layer.send_of(choice.layout), *metadata, layout=choice.layout, config=choice.config
    )
    waiting_pack_kernel[grid](*arguments, **constants, launch_pdl=True)


def programmatic(setting: Setting, results: Results, choices: list[Choice]) -> None:
    """Print choices in every context, launched as ever and programmatically."""
    try:
        wrong = wrong_packs(setting, choices, early)
        if wrong:
            print(f"  programmatic pack writes wrong bits: {'; '.join(wrong)}")
            return
        rows = {}
        launches = {"": contexts(setting.batch, plain), "programmatic": contexts(setting.batch, early)}
        for context in launches[""]:
            bodies = {
                f"{choice} {how}".strip(): of[context](choice) for choice in choices for how, of in launches.items()
            }
            print(f"  {context}")
            for name, sample in results.measure(bodies, 6).items():
                rows[f"{context}: {name}"] = asdict(sample)
                print(f"    {name:66} {sample.median_us:6.2f} ({sample.p25_us:.2f} - {sample.p75_us:.2f})", flush=True)
        results.keep("programmatic", rows)
    except (RuntimeError, triton.TritonError) as error:
        print(f"  programmatic launch failed: {error}")
