"""One rank of a real combine: attention over its shard of a KV cache, exchanged with the other ranks, against attention
over the whole. Run by `test_dcp_ranks` as a process of its own: ``python dcp_rank.py DTYPE VARIANT…``.

A variant of the combine by all-gather and reduce-scatter is called ``ag-rs/VARIANT``. It prints a line for each variant
and ends with status 1 where a result is wrong.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist

from profkit.kernels.dcp import reference
from profkit.kernels.dcp.ag_rs_combine import AgRsBuffers, AgRsCombine, Collectives
from profkit.kernels.dcp.collective import all_gather, all_to_all, reduce_scatter
from profkit.kernels.dcp.combine import Combine, CombineBuffers, Metadata
from profkit.kernels.dcp.layout import buffer_shape
from profkit.kernels.dcp.sharding import local_length, owner
from profkit.model.workload import no_ranges

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
#: bf16 keeps 8 bits of the partial outputs and of the result.
TOLERANCE = {"fp32": 2e-5, "fp16": 4e-3, "bf16": 3e-2}
HEAD_DIM, WIDTH, HEADS_A_RANK, PADDING = 16, 24, 2, 2
#: Tokens of each request, one row each: shards are empty on some ranks of the short ones, on all of none.
LENGTHS = (1, 40, 2, 17, 5, 33)
ROWS = len(LENGTHS) + PADDING
SCALE = WIDTH**-0.5


def attention() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """This rank's partial output ``[R, H, D]`` and LSE ``[R, H]``, and the whole attention ``[R, H, D]``; float64.

    Rows that have no KV here hold what a decode kernel leaves: NaN, and an LSE of an ordinary number.
    """
    generator = torch.Generator().manual_seed(7)
    heads = RANKS * HEADS_A_RANK
    out = torch.full((ROWS, heads, HEAD_DIM), float("nan"), dtype=torch.float64)
    lse = torch.randn(ROWS, heads, generator=generator, dtype=torch.float64)
    whole = torch.zeros_like(out)
    for row, length in enumerate(LENGTHS):
        query = torch.randn(1, heads, WIDTH, generator=generator)
        keys = torch.randn(length, WIDTH, generator=generator)
        values = torch.randn(length, HEAD_DIM, generator=generator)
        whole[row] = reference.attend(query, keys, values, SCALE)[0][0]
        mine = [position for position in range(length) if owner(position, RANKS) == RANK]
        assert len(mine) == local_length(length, RANK, RANKS)
        if mine:
            partial, partial_lse = reference.attend(query, keys[mine], values[mine], SCALE)
            out[row], lse[row] = partial[0], partial_lse[0]
    return out, lse, whole


def combined(variant: str, dtype: torch.dtype, device: str, run: Callable[[Callable[[], None]], None]) -> torch.Tensor:
    """This rank's heads of the combined attention, ``[R, h, D]``, by the kernels and real collectives."""
    out, pristine_lse, _ = attention()
    out, pristine_lse = out.to(dtype).to(device), pristine_lse.float().to(device)
    lse = pristine_lse.clone()
    metadata = Metadata.zeros(ROWS, device)
    lengths = [local_length(length, RANK, RANKS) for length in LENGTHS]
    metadata.seq_lens[: len(LENGTHS)] = torch.tensor(lengths, dtype=torch.int32)
    starts = [min(slot, len(LENGTHS)) for slot in range(ROWS + 1)]
    metadata.query_start_loc.copy_(torch.tensor(starts, dtype=torch.int32))
    make = ag_rs if variant.startswith("ag-rs/") else all_to_all_combine
    launch, result = make(variant.removeprefix("ag-rs/"), out, lse, metadata)

    def step() -> None:
        lse.copy_(pristine_lse)
        launch()

    run(step)
    return result.cpu()


Made = tuple[Callable[[], None], torch.Tensor]


def all_to_all_combine(variant: str, out: torch.Tensor, lse: torch.Tensor, metadata: Metadata) -> Made:
    """What launches the combine by all-to-all, and what it writes."""
    zeros = partial(torch.zeros, dtype=out.dtype, device=out.device)
    combine = Combine("test", variant, ROWS, metadata, all_to_all)
    shape = buffer_shape(RANKS, ROWS, out.shape[1], HEAD_DIM, out.dtype, combine.layout)
    buffers = CombineBuffers(out, lse, zeros(shape), zeros(shape), zeros((ROWS, HEADS_A_RANK, HEAD_DIM)))

    def launch() -> None:
        if combine.once is not None:
            combine.once(no_ranges)
        combine.run(no_ranges, buffers)

    return launch, buffers.result


def ag_rs(variant: str, out: torch.Tensor, lse: torch.Tensor, metadata: Metadata) -> Made:
    """What launches the combine by all-gather and reduce-scatter, and what it writes."""
    zeros = partial(torch.zeros, device=out.device)
    buffers = AgRsBuffers(
        out=out,
        lse=lse,
        masked=zeros(lse.shape),
        gathered=zeros((RANKS, *lse.shape)),
        corrected=zeros((RANKS, ROWS, HEADS_A_RANK, HEAD_DIM), dtype=out.dtype),
        result=zeros((ROWS, HEADS_A_RANK, HEAD_DIM), dtype=out.dtype),
    )
    combine = AgRsCombine("test", variant, metadata, Collectives(all_gather, reduce_scatter))
    return partial(combine.run, no_ranges, buffers), buffers.result


def at_once(step: Callable[[], None]) -> None:
    """Run the step as it is."""
    step()


def in_a_graph(step: Callable[[], None]) -> None:
    """Run the step once, capture it into a CUDA graph and replay that."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        step()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()


def collectives_are_right(device: str) -> bool:
    """Whether gathering and scattering sums do what they say."""
    source = torch.arange(6, dtype=torch.float32, device=device).view(2, 3) + 10 * RANK
    gathered = torch.zeros(RANKS, 2, 3, device=device)
    all_gather(source, gathered)
    summed = torch.zeros(2, 3, device=device)
    reduce_scatter(torch.stack([source + 100 * n for n in range(RANKS)]), summed)
    expected = torch.stack([source - 10 * RANK + 10 * n for n in range(RANKS)])
    return torch.equal(gathered, expected) and torch.equal(summed, expected.sum(0) + 100 * RANK * RANKS)


def say(text: str) -> None:
    """One line of the report."""
    sys.stdout.write(f"rank {RANK} of {RANKS}, {text}\n")
    sys.stdout.flush()


def main(dtype_name: str, variants: list[str]) -> int:
    """Check each variant; 0 where all are right."""
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(RANK)
    group = {"backend": "nccl", "device_id": torch.device("cuda", RANK)} if gpu else {"backend": "gloo"}
    dist.init_process_group(timeout=timedelta(seconds=60), **group)
    device = "cuda" if gpu else "cpu"
    mine = attention()[2][:, RANK * HEADS_A_RANK : (RANK + 1) * HEADS_A_RANK]
    wrong = 0
    for variant in variants:
        for run in (at_once, in_a_graph) if gpu else (at_once,):
            result = combined(variant, DTYPES[dtype_name], device, run)
            error = float((result.double() - mine).abs().max())
            # A comparison with NaN is false.
            right = error <= TOLERANCE[dtype_name]
            wrong += not right
            say(f"{variant}, {run.__name__}: largest error {error:.2e}")
    right = collectives_are_right(device)
    say(f"all_gather and reduce_scatter: {'right' if right else 'WRONG'}")
    if gpu:
        torch.cuda.synchronize()
    dist.barrier()
    dist.destroy_process_group()
    return 1 if wrong or not right else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
