"""The batches that a step runs: which tokens each row selects, of which request, in which blocks of the cache.

Two kinds. *Timing*: full selections, as in decode at long context. *Digest*: the same with everything that a kernel may
get wrong: short contexts, gaps in selections, missing pages, rows of no request.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from profkit.kernels.qsa.selection import RATIO, expand, visible_groups

#: A row chooses this many groups in each stretch of its context, and shares all but `STEP` with its neighbour.
CHOSEN = 8
STEP = 2


@dataclass(frozen=True)
class Batch:
    """``indices [R, W + 1]``, ``block_table [requests, pages]``, ``token_to_req [R]``; see `Operands`."""

    indices: torch.Tensor
    block_table: torch.Tensor
    token_to_req: torch.Tensor

    def copy_(self, other: Batch) -> None:
        """Take the contents of a batch of the same sizes."""
        self.indices.copy_(other.indices)
        self.block_table.copy_(other.block_table)
        self.token_to_req.copy_(other.token_to_req)

    def clone(self) -> Batch:
        return Batch(self.indices.clone(), self.block_table.clone(), self.token_to_req.clone())


@dataclass(frozen=True)
class BatchSizes:
    """Sizes of a batch.

    Args:
        rows: R.
        rows_per_request: consecutive positions of one request; the last request may have fewer.
        budget: tokens in the groups that a row chooses, a multiple of ``RATIO * CHOSEN``.
        context: tokens of a request, its own rows included.
        page: tokens in a block of the cache.
    """

    rows: int
    rows_per_request: int
    budget: int
    context: int
    page: int

    @property
    def requests(self) -> int:
        return -(-self.rows // self.rows_per_request)

    @property
    def pages(self) -> int:
        """Pages of a request."""
        return -(-self.context // self.page)

    @property
    def blocks(self) -> int:
        """Blocks of a cache that holds every page of every request once."""
        return self.requests * self.pages


def timing_batch(sizes: BatchSizes, generator: torch.Generator) -> Batch:
    """A batch in which every request has `BatchSizes.context` tokens.

    A row chooses 8 groups of 4 tokens in each of as many equal stretches of its context as its budget allows, and
    shares 6 of the 8 with the row before it in the request. Rank order is random, and so is the place of a page in the
    cache. A row that sees fewer groups than its budget chooses all.

    Args:
        generator: on the device on which the batch is made.
    """
    contexts = torch.full((sizes.requests,), sizes.context, device=generator.device)
    return _batch(sizes, contexts, generator)


def digest_batch(sizes: BatchSizes, generator: torch.Generator) -> Batch:
    """A batch of the same sizes with what may go wrong in it.

    Every third request, the second one first, has a context shorter than its budget. Every other row has gaps in its
    selection and a token beyond its request's pages; every fourth request lacks a page. Of a batch of 8 rows or more
    one row has a request of -1 and the last one a request past the table.
    """
    rows, requests = sizes.rows, sizes.requests
    request = torch.arange(requests, device=generator.device)
    short = (sizes.rows_per_request + 97 * request).clamp(max=max(sizes.budget - 1, sizes.rows_per_request))
    contexts = torch.where(request % 3 == 1, short.clamp(max=sizes.context), sizes.context)
    batch = _batch(sizes, contexts, generator)
    batch.indices[1::2, 5:-1:37] = -1
    batch.indices[1::2, 2] = 2**30
    batch.block_table[::4, sizes.pages // 2] = -1
    if rows >= 8:
        batch.token_to_req[5] = -1
        batch.token_to_req[-1] = requests
    return batch


def _batch(sizes: BatchSizes, contexts: torch.Tensor, generator: torch.Generator) -> Batch:
    """A batch whose requests have `contexts` ``[requests]`` tokens, their own rows included."""
    device = generator.device
    row = torch.arange(sizes.rows, device=device)
    request, place = row // sizes.rows_per_request, row % sizes.rows_per_request
    own_rows = torch.full_like(contexts, sizes.rows_per_request)
    own_rows[-1] = sizes.rows - (sizes.requests - 1) * sizes.rows_per_request
    first = contexts - own_rows
    positions = first[request] + place
    groups = _groups(sizes, visible_groups(first), visible_groups(positions), request, place, generator)
    blocks = torch.randperm(sizes.blocks, generator=generator, device=device)
    return Batch(
        expand(groups, positions),
        blocks.view(sizes.requests, sizes.pages).to(torch.int32),
        request.to(torch.int32),
    )


def _groups(
    sizes: BatchSizes,
    seen_first: torch.Tensor,
    seen: torch.Tensor,
    request: torch.Tensor,
    place: torch.Tensor,
    generator: torch.Generator,
) -> torch.Tensor:
    """``[R, K]``: the groups that each row chooses, in random rank order.

    Args:
        seen_first: ``[requests]``, groups that the first row of a request sees; its rows choose among these.
        seen: ``[R]``, groups that a row sees.
        request, place: ``[R]``, a row's request, and its place among the request's rows.
    """
    device = generator.device
    budget_groups = sizes.budget // RATIO
    stretches = budget_groups // CHOSEN
    length = (seen_first // stretches).clamp(min=1)
    longest = int(length.max())
    order = torch.rand(sizes.requests, stretches, longest, generator=generator, device=device)
    order.masked_fill_(torch.arange(longest, device=device) >= length.view(-1, 1, 1), 2.0)
    order = order.argsort(dim=-1)
    turn = STEP * place.view(-1, 1) + torch.arange(CHOSEN, device=device)
    turn = (turn % length[request].view(-1, 1)).unsqueeze(1)
    stretch = torch.arange(stretches, device=device).view(1, -1, 1)
    chosen = stretch * length[request].view(-1, 1, 1) + order[request.view(-1, 1, 1), stretch, turn]
    every = torch.arange(budget_groups, device=device)
    all_seen = (seen_first[request] < budget_groups).unsqueeze(1)
    groups = torch.where(all_seen, every, chosen.flatten(1))
    rank = torch.rand(sizes.rows, budget_groups, generator=generator, device=device)
    rank.masked_fill_(every >= seen.unsqueeze(1), 2.0)
    return groups.gather(1, rank.argsort(dim=1))
