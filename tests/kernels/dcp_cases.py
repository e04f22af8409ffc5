"""The bitwise cases of the mask inside the pack kernel: 336 uniform and 16 ragged ones, head dimension 512.

All of them run on a GPU. Without one, a subset runs in Triton's interpreter, which takes some ten milliseconds a
program (one row, one head): the uniform cases of at most 8 programs, one with 16 heads a rank, one with 52 requests,
and one ragged case per dtype. Every sequence-length list, dtype, head layout, span and padding occurs in the subset.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from dcp_oracle import Batch

HEAD_DIM = 512
DTYPES = (torch.bfloat16, torch.float16)
LAYOUTS = ((8, 2), (8, 16), (4, 4), (2, 1))
SPANS = (1, 2, 3)
PADDING = (0, 2)
SEQ_LENS: tuple[list[int], ...] = (
    [16] * 4,
    [16, 0, 16, 0],
    [0] * 4,
    [16, 16, 0, 0],
    [0, 16, 16, 16],
    [16] * 52,
    [7],
)
#: Batches that each have one peculiarity.
EDGES = {
    "trailing": Batch([5, 5, 0], [2, 1, 2], 0),
    "leading": Batch([0, 5, 5], [2, 1, 2], 0),
    "interior": Batch([5, 0, 5], [2, 1, 2], 0),
    "all-empty": Batch([0, 0], [2, 1], 1),
    "single": Batch([7], [3], 2),
    "zero-length-leading": Batch([0, 5, 5], [0, 2, 1], 1),
    "zero-length-interior": Batch([5, 0, 0, 5], [2, 0, 0, 1], 1),
    "zero-length-trailing": Batch([5, 0, 0], [2, 0, 0], 2),
    "zero-length-with-kv": Batch([0, 9, 0], [1, 0, 2], 0),
    "no-real-rows": Batch([5, 5], [0, 0], 3),
    "no-requests": Batch([], [], 3),
}
RAGGED_SEEDS = range(8)
INTERPRETED_PROGRAMS = 8


@dataclass(frozen=True)
class Case:
    """One bitwise case: N ranks with h heads each."""

    dtype: torch.dtype
    ranks: int
    heads: int
    batch: Batch
    name: str

    @property
    def programs(self) -> int:
        return self.batch.rows * self.heads

    def tensors(self, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """out ``[R, H, D]``, lse ``[R, H]`` and an uninitialised send buffer; random, the same for every call."""
        generator = torch.Generator().manual_seed(self.programs)
        rows, num_heads = self.batch.rows, self.ranks * self.heads
        out = torch.randn(rows, num_heads, HEAD_DIM, generator=generator).to(self.dtype)
        lse = torch.randn(rows, num_heads, generator=generator)
        slots = 4 // self.dtype.itemsize
        send = torch.full((self.ranks, rows, self.heads, HEAD_DIM + slots), 7.0, dtype=self.dtype)
        return out.to(device), lse.to(device), send.to(device)


def _uniform() -> Iterator[Case]:
    for dtype in DTYPES:
        for ranks, heads in LAYOUTS:
            for span in SPANS:
                for padding in PADDING:
                    for index, seq_lens in enumerate(SEQ_LENS):
                        batch = Batch(seq_lens, [span] * len(seq_lens), padding)
                        name = f"{_short(dtype)}-N{ranks}h{heads}-span{span}-pad{padding}-lens{index}"
                        yield Case(dtype, ranks, heads, batch, name)


def _ragged() -> Iterator[Case]:
    for dtype in DTYPES:
        for seed in RAGGED_SEEDS:
            draw = random.Random(seed)
            spans = [draw.randint(1, 4) for _ in range(17)]
            order = draw.sample(range(17), 17)
            seq_lens = [16] * 17
            # Requests are emptied in random order until half of the rows are, and the shares stay within 50 to 65 %.
            rows, masked = sum(spans) + 3, 3
            for request in order:
                if masked < 0.5 * rows and masked + spans[request] <= 0.65 * rows:
                    seq_lens[request] = 0
                    masked += spans[request]
            yield Case(dtype, 8, 2, Batch(seq_lens, spans, 3), f"{_short(dtype)}-ragged{seed}")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


UNIFORM = tuple(_uniform())
RAGGED = tuple(_ragged())


def _interpreted(case: Case) -> bool:
    exceptions = {
        "bfloat16-N8h16-span1-pad0-lens6",
        "float16-N2h1-span1-pad2-lens5",
        "bfloat16-N2h1-span3-pad2-lens1",
        "bfloat16-ragged0",
        "float16-ragged1",
    }
    uniform_and_small = "ragged" not in case.name and case.programs <= INTERPRETED_PROGRAMS
    return uniform_and_small or case.name in exceptions


def params() -> list[object]:
    """Every case, those outside the interpreted subset marked ``gpu``."""
    return [
        pytest.param(case, id=case.name, marks=() if _interpreted(case) else pytest.mark.gpu)
        for case in (*UNIFORM, *RAGGED)
    ]
