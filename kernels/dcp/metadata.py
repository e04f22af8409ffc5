"""The two sets of batch metadata that a step is run with: realistic lengths, and lengths that make the mask matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from profkit.kernels.dcp.sharding import local_length
from profkit.model.workload import InputSet

#: An 8k context, as in the measurements that the workloads mirror; each request is up to an eighth of it further.
CONTEXT_TOKENS = 8192
GENERATED_SHARE = 8

#: The digest inputs mask at least the first and at most the second share of the rows, as the ragged cases of the
#: mask's upstream tests do. Both outcomes must be common for an omitted or an excessive mask to show.
MASKED_SHARE = (0.50, 0.65)


@dataclass(frozen=True)
class BatchMetadata:
    """Which rows belong to which request, and how much KV each request has here.

    Args:
        seq_lens: ``[S]`` int32, local KV lengths.
        query_start_loc: ``[S + 1]`` int32.
        empty: ``[R]`` bool, the rows that the mask must hit.
    """

    seq_lens: torch.Tensor
    query_start_loc: torch.Tensor
    empty: torch.Tensor

    def to(self, device: str) -> BatchMetadata:
        """The same on `device`."""
        return BatchMetadata(self.seq_lens.to(device), self.query_start_loc.to(device), self.empty.to(device))

    @property
    def masked_share(self) -> float:
        """The share of rows that are empty, padding included."""
        return float(self.empty.float().mean()) if self.empty.numel() else 0.0


def timing_metadata(
    rows: int,
    requests: int,
    slots: int,
    ranks: int,
    generator: torch.Generator,
    context_tokens: int = CONTEXT_TOKENS,
    *,
    rank: int | None = None,
) -> BatchMetadata:
    """A decode batch at one context length: one row a request, the rest of `rows` is padding.

    Args:
        rows: R.
        requests: real requests, at most `rows`.
        slots: S, at least `requests`; the slots past them have no rows and no KV.
        ranks: N.
        generator: in one state on all ranks, which run one batch.
        context_tokens: tokens of a request, over all ranks; no shard is empty if there are at least as many as ranks.
        rank: whose local lengths they are; None for the last rank, which gets the fewest tokens.
    """
    rank = ranks - 1 if rank is None else rank
    generated = max(1, context_tokens // GENERATED_SHARE)
    extra = torch.randint(0, generated, (requests,), generator=generator).tolist()
    lengths = [local_length(context_tokens + tokens, rank, ranks) for tokens in extra]
    padding = slots - requests
    return _metadata(rows, [1] * requests + [0] * padding, lengths + [0] * padding)


def digest_metadata(
    rows: int,
    requests: int,
    slots: int,
    ranks: int,
    generator: torch.Generator,
    context_tokens: int = CONTEXT_TOKENS,
    *,
    rank: int | None = None,
) -> BatchMetadata:
    """A batch of the same sizes with ragged spans, requests without rows, and about half of its rows empty: other ones
    on each rank.

    The same arguments as `timing_metadata`. A batch of very few rows may miss `MASKED_SHARE`; its own share says so.
    """
    rank = ranks - 1 if rank is None else rank
    spans = _ragged_spans(requests, slots, generator)
    masked = rows - requests
    lengths = [0] * slots
    order = torch.randperm(slots, generator=generator).roll((rank + 1) % ranks * slots // ranks)
    for index in order.tolist():
        fits = masked + spans[index] <= MASKED_SHARE[1] * rows
        if spans[index] > 0 and masked < MASKED_SHARE[0] * rows and fits:
            masked += spans[index]
        else:
            lengths[index] = local_length(context_tokens + 8 * index, rank, ranks)
    return _metadata(rows, spans, lengths)


def batch_notes(batches: Mapping[InputSet, BatchMetadata]) -> dict[str, int | float | str]:
    """What a step of these batches records in its notes."""
    timing, digest = batches["timing"], batches["digest"]
    real_rows = int(timing.query_start_loc[-1])
    return {
        "real_rows": real_rows,
        "padding_rows": timing.empty.numel() - real_rows,
        "masked_share_timing": round(timing.masked_share, 4),
        "masked_share_digest": round(digest.masked_share, 4),
        "digest_inputs": f"{digest.masked_share:.0%} of the rows masked",
    }


def _ragged_spans(rows: int, slots: int, generator: torch.Generator) -> list[int]:
    """Spans of 1 to 4 rows, and some of none, that sum to `rows` over at least as many `slots`."""
    # In a small batch one long span would be too large a share of the rows to mask or to spare.
    longest = max(1, min(4, rows // 8))
    spans: list[int] = []
    while sum(spans) < rows:
        span = int(torch.randint(1, longest + 1, (1,), generator=generator)) if len(spans) % 2 else 1
        spans.append(min(span, rows - sum(spans)))
    spans += [0] * (slots - len(spans))
    return [spans[index] for index in torch.randperm(slots, generator=generator).tolist()]


def _metadata(rows: int, spans: list[int], lengths: list[int]) -> BatchMetadata:
    starts = [0]
    empty = []
    for span, length in zip(spans, lengths, strict=True):
        starts.append(starts[-1] + span)
        empty += [length == 0] * span
    empty += [True] * (rows - len(empty))
    return BatchMetadata(
        torch.tensor(lengths, dtype=torch.int32),
        torch.tensor(starts, dtype=torch.int32),
        torch.tensor(empty, dtype=torch.bool),
    )
