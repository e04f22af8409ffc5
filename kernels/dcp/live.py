"""Finding a row's request inside a kernel, and whether it has KV on this rank, from the batch's metadata."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def row_spans(
    row: tl.tensor, query_start_loc_ptr: tl.tensor, num_seqs: tl.tensor, NUM_SEQS_POW2: tl.constexpr
) -> tl.tensor:
    """Which request spans the row, ``[NUM_SEQS_POW2]`` bool: one, or none for padding rows and where S = 0.

    The spans [begin, end) partition the real rows, so the loads do not depend on each other as a search's would. The
    first span begins at the first row whatever query_start_loc[0] says, as a search over the ends has it.
    """
    seq = tl.arange(0, NUM_SEQS_POW2)
    begin = tl.load(query_start_loc_ptr + seq, mask=(seq > 0) & (seq < num_seqs), other=0)
    end = tl.load(query_start_loc_ptr + 1 + seq, mask=seq < num_seqs, other=0)
    return (begin <= row) & (end > row)


@triton.jit  # type: ignore[untyped-decorator]
def row_is_live(
    row: tl.tensor,
    seq_lens_ptr: tl.tensor,
    query_start_loc_ptr: tl.tensor,
    num_seqs: tl.tensor,
    NUM_SEQS_POW2: tl.constexpr,
) -> tl.tensor:
    """Whether some request both spans the row and has KV here."""
    seq = tl.arange(0, NUM_SEQS_POW2)
    length = tl.load(seq_lens_ptr + seq, mask=seq < num_seqs, other=0)
    spans = row_spans(row, query_start_loc_ptr, num_seqs, NUM_SEQS_POW2) & (length != 0)
    return tl.max(spans.to(tl.int32), axis=0) > 0
