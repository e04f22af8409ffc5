"""The decode attention: all query heads over one rank's share of the latents, as multi-query flash decoding.

A token's latent row, ``LATENT + ROPE`` wide, is its key for every head; its first LATENT entries are its value. One
program takes a block of heads of one row over one split of the row's tokens, so the score and value products run on
tensor cores and each latent is read once per block of heads. Nothing is atomic: equal inputs give equal bits.

It is a background and no contender: at the defaults of `mla-step` it takes 84.5 us a layer on an H200, 4.6 times the
floor of its bytes, at 141 TFLOP/s. Of a second block of 64 heads only 32 exist, and Triton 3.6 has both warpgroups of a
program compute the whole score product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from profkit.kernels.dcp.live import row_spans
from profkit.kernels.mla_step.merge import merge_kernel

#: What an H200 has; taken for a CPU too, so that counting launches there says what an H200 would run.
H200_MULTIPROCESSORS = 132

#: The finite LSE that rows without local tokens are left with. Any number that real rows could have does.
STALE_LSE = 8.0


@dataclass(frozen=True)
class DecodeConfig:
    """How the decode kernel is launched.

    Args:
        block_heads: heads a program, a power of two from 16 up; 64 is the height of a Hopper tensor core product.
        block_tokens: tokens a turn of the loop, a power of two from 16 up.
        splits: programs that share the tokens of one row and block of heads; more than one need a merge kernel.
        num_warps: 4 or 8.
        num_stages: tiles of latents in flight.
    """

    block_heads: int
    block_tokens: int
    splits: int
    num_warps: int
    num_stages: int


def decode_config(rows: int, num_heads: int, capacity: int, multiprocessors: int) -> DecodeConfig:
    """The configuration for a shape; it looks at no contents, so that a captured launch fits every batch.

    A program of 64 heads fills a multiprocessor, so tokens are split only as far as that gives each one a program.
    """
    block_heads = min(64, max(16, triton.next_power_of_2(num_heads)))
    block_tokens = 64
    programs = max(rows, 1) * triton.cdiv(num_heads, block_heads)
    splits = min(max(1, multiprocessors // programs), triton.cdiv(capacity, block_tokens))
    return DecodeConfig(block_heads, block_tokens, splits, num_warps=8 if block_heads == 64 else 4, num_stages=2)


def multiprocessors(device: torch.device | str) -> int:
    """How many multiprocessors a CUDA device has; a CPU is taken for an H200."""
    if torch.device(device).type != "cuda":
        return H200_MULTIPROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@triton.jit(do_not_specialize=["num_rows", "num_seqs", "capacity"])  # type: ignore[untyped-decorator]
def decode_kernel(
    query_ptr: tl.tensor,
    kv_ptr: tl.tensor,
    seq_lens_ptr: tl.tensor,
    query_start_loc_ptr: tl.tensor,
    out_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    partial_lse_ptr: tl.tensor,
    scale_log2: tl.tensor,
    num_rows: tl.tensor,
    num_seqs: tl.tensor,
    capacity: tl.tensor,
    HEADS: tl.constexpr,
    HEADS_PER_RANK: tl.constexpr,
    LATENT: tl.constexpr,
    ROPE: tl.constexpr,
    NUM_SEQS_POW2: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    SPLITS: tl.constexpr,
    STALE: tl.constexpr,
) -> None:
    """One (block of heads, row, split); a row's blocks of heads are neighbours, so they share latents through L2."""
    row = tl.program_id(1).to(tl.int64)
    split = tl.program_id(2)
    WIDTH: tl.constexpr = LATENT + ROPE

    seq = tl.arange(0, NUM_SEQS_POW2)
    spans = row_spans(row, query_start_loc_ptr, num_seqs, NUM_SEQS_POW2).to(tl.int32)
    lengths = tl.load(seq_lens_ptr + seq, mask=seq < num_seqs, other=0)
    spanned = tl.sum(spans, axis=0)
    length = tl.sum(spans * lengths, axis=0)
    request = tl.sum(spans * seq, axis=0).to(tl.int64)

    head = tl.program_id(0) * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
    present = head < HEADS
    dim = tl.arange(0, LATENT)
    rope_dim = tl.arange(0, ROPE)
    query_row = ((head // HEADS_PER_RANK) * num_rows.to(tl.int64) + row) * HEADS_PER_RANK + head % HEADS_PER_RANK
    query = tl.load(query_ptr + query_row[:, None] * WIDTH + dim[None, :], mask=present[:, None], other=0.0)
    query_rope = tl.load(
        query_ptr + query_row[:, None] * WIDTH + LATENT + rope_dim[None, :], mask=present[:, None], other=0.0
    )

    target = row * HEADS + head
    if (length == 0) & (split == 0):
        # What is left where there is nothing to attend to: a finite LSE beside a payload that means nothing, NaN in
        # padding rows. It is the mask's task to keep it out. Here, so that the query need not stay in registers.
        garbage = tl.where(spanned > 0, query.to(tl.float32), float("nan")).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + target[:, None] * LATENT + dim[None, :], garbage, mask=present[:, None])
        tl.store(lse_ptr + target, tl.full([BLOCK_HEADS], STALE, dtype=tl.float32), mask=present)

    kv_ptr += request * capacity * WIDTH
    tiles = tl.cdiv(tl.cdiv(length, BLOCK_TOKENS), SPLITS)
    first = split * tiles * BLOCK_TOKENS
    last = tl.minimum(length, first + tiles * BLOCK_TOKENS)
    highest = tl.full([BLOCK_HEADS], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_HEADS], dtype=tl.float32)
    weighted = tl.zeros([BLOCK_HEADS, LATENT], dtype=tl.float32)
    for start in range(first, last, BLOCK_TOKENS):
        token = start + tl.arange(0, BLOCK_TOKENS)
        inside = token < last
        source = kv_ptr + token[:, None] * WIDTH
        latent = tl.load(source + dim[None, :], mask=inside[:, None], other=0.0)
        rope = tl.load(source + LATENT + rope_dim[None, :], mask=inside[:, None], other=0.0)
        scores = tl.dot(query, tl.trans(latent))
        scores = tl.dot(query_rope, tl.trans(rope), acc=scores)
        scores = tl.where(inside[None, :], scores * scale_log2, float("-inf"))
        peak = tl.maximum(highest, tl.max(scores, axis=1))
        shrink = tl.exp2(highest - peak)
        weight = tl.exp2(scores - peak[:, None])
        total = total * shrink + tl.sum(weight, axis=1)
        weighted = tl.dot(weight.to(latent.dtype), latent, acc=weighted * shrink[:, None])
        highest = peak

    if first < last:
        result = weighted / total[:, None]
        log2_sum = highest + tl.log2(total)
        if SPLITS == 1:
            result = result.to(out_ptr.dtype.element_ty)
            tl.store(out_ptr + target[:, None] * LATENT + dim[None, :], result, mask=present[:, None])
            # Base 2 to natural: ln 2.
            tl.store(lse_ptr + target, log2_sum * 0.6931471805599453, mask=present)
        else:
            partial = (split.to(tl.int64) * num_rows * HEADS + target)[:, None] * LATENT + dim[None, :]
            tl.store(partial_ptr + partial, result, mask=present[:, None])
            tl.store(partial_lse_ptr + split.to(tl.int64) * num_rows * HEADS + target, log2_sum, mask=present)
    elif SPLITS > 1:
        nothing = tl.full([BLOCK_HEADS], float("-inf"), dtype=tl.float32)
        tl.store(partial_lse_ptr + split.to(tl.int64) * num_rows * HEADS + target, nothing, mask=present)


@dataclass(frozen=True)
class DecodeBuffers:
    """What the decode attention writes.

    Args:
        out: ``[R, H, LATENT]``, the dtype of the query.
        lse: ``[R, H]`` fp32, natural logarithms.
        partial: ``[splits, R, H, LATENT]`` fp32, or None where there is one split.
        partial_lse: ``[splits, R, H]`` fp32, base-2 logarithms, or None.
        config: what all of it was made for.
    """

    out: torch.Tensor
    lse: torch.Tensor
    partial: torch.Tensor | None
    partial_lse: torch.Tensor | None
    config: DecodeConfig

    @classmethod
    def zeros(
        cls, rows: int, num_heads: int, latent: int, dtype: torch.dtype, device: str, config: DecodeConfig
    ) -> DecodeBuffers:
        """Zeroed buffers for a batch and a configuration."""
        shape = (config.splits, rows, num_heads)
        split = config.splits > 1
        return cls(
            torch.zeros(rows, num_heads, latent, dtype=dtype, device=device),
            torch.zeros(rows, num_heads, device=device),
            torch.zeros(*shape, latent, device=device) if split else None,
            torch.zeros(shape, device=device) if split else None,
            config,
        )


def decode(
    query: torch.Tensor,
    kv: torch.Tensor,
    seq_lens: torch.Tensor,
    query_start_loc: torch.Tensor,
    buffers: DecodeBuffers,
    scale: float,
) -> None:
    """Attend over the local tokens of every row's request: one kernel, and a merge where tokens are split.

    All rows of a request see all of its local tokens. Every row's output and LSE are written. A row whose request has
    no local token gets `STALE_LSE` and its own query as output, a padding row `STALE_LSE` and NaN.

    Args:
        query: ``[N, R, h, LATENT + ROPE]``, contiguous: head ``n * h + k`` is ``query[n, :, k]``, as an all-gather
            leaves it. LATENT and ROPE are powers of two from 16 up.
        kv: ``[S, capacity, LATENT + ROPE]``, contiguous, dtype of `query`; request s has its tokens in ``kv[s]``.
        seq_lens: ``[S]`` int32, at most the capacity.
        query_start_loc: ``[S + 1]`` int32.
        buffers: written; LATENT is the width of its output.
        scale: factor of the scores.

    Raises:
        ValueError: shapes, dtypes or strides that do not fit.
    """
    _check_tensors(query, kv, seq_lens, query_start_loc, buffers)
    ranks, rows, heads_per_rank, width = query.shape
    if rows == 0:
        return
    config, latent, num_heads = buffers.config, buffers.out.shape[-1], ranks * heads_per_rank
    grid = (triton.cdiv(num_heads, config.block_heads), rows, config.splits)
    decode_kernel[grid](
        query,
        kv,
        seq_lens,
        query_start_loc,
        buffers.out,
        buffers.lse,
        buffers.partial,
        buffers.partial_lse,
        scale * math.log2(math.e),
        rows,
        seq_lens.numel(),
        kv.shape[1],
        HEADS=num_heads,
        HEADS_PER_RANK=heads_per_rank,
        LATENT=latent,
        ROPE=width - latent,
        NUM_SEQS_POW2=triton.next_power_of_2(max(seq_lens.numel(), 1)),
        BLOCK_HEADS=config.block_heads,
        BLOCK_TOKENS=config.block_tokens,
        SPLITS=config.splits,
        STALE=STALE_LSE,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )
    if buffers.partial is not None:
        merge_kernel[(num_heads, rows)](
            buffers.partial,
            buffers.partial_lse,
            buffers.out,
            buffers.lse,
            rows,
            HEADS=num_heads,
            LATENT=latent,
            SPLITS=config.splits,
            num_warps=4,
        )


def _check_tensors(
    query: torch.Tensor,
    kv: torch.Tensor,
    seq_lens: torch.Tensor,
    query_start_loc: torch.Tensor,
    buffers: DecodeBuffers,
) -> None:
    if query.dim() != 4 or not query.is_contiguous():
        raise ValueError(f"query must be [N, R, h, width] and contiguous; it is {list(query.shape)}")
    ranks, rows, heads, width = query.shape
    latent = buffers.out.shape[-1]
    for name, size in (("latent", latent), ("rope", width - latent)):
        if size < 16 or size & (size - 1):
            raise ValueError(f"the {name} part must be a power of two from 16 up, not {size}")
    if kv.dim() != 3 or kv.shape[2] != width or kv.dtype != query.dtype or not kv.is_contiguous():
        raise ValueError(
            f"kv must be [S, capacity, {width}], {query.dtype} and contiguous; it is {list(kv.shape)}, {kv.dtype}"
        )
    if seq_lens.shape != (kv.shape[0],) or query_start_loc.shape != (kv.shape[0] + 1,):
        raise ValueError(
            f"for kv of {kv.shape[0]} requests seq_lens must be [{kv.shape[0]}] and query_start_loc one longer; "
            f"they are {list(seq_lens.shape)} and {list(query_start_loc.shape)}"
        )
    if buffers.out.shape != (rows, ranks * heads, latent) or buffers.out.dtype != query.dtype:
        raise ValueError(
            f"out must be [{rows}, {ranks * heads}, {latent}] and {query.dtype}; "
            f"it is {list(buffers.out.shape)}, {buffers.out.dtype}"
        )
    if (buffers.partial is None) != (buffers.config.splits == 1):
        raise ValueError(f"partial results go with more than one split; there are {buffers.config.splits}")
