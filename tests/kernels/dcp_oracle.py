"""The mask and the send buffer, element by element in plain Python: written from the formulas, sharing no code with the
kernels or with the eager mask."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import torch

WIDTH_DTYPE = {2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Batch:
    """Lengths and spans of the requests of a batch, and its rows, padding included."""

    seq_lens: list[int]
    spans: list[int]
    padding: int

    @property
    def rows(self) -> int:
        return sum(self.spans) + self.padding

    @property
    def starts(self) -> list[int]:
        starts = [0]
        for span in self.spans:
            starts.append(starts[-1] + span)
        return starts

    def tensors(self, device: str) -> tuple[torch.Tensor, torch.Tensor]:
        """seq_lens ``[S]`` and query_start_loc ``[S + 1]``."""
        return (
            torch.tensor(self.seq_lens, dtype=torch.int32, device=device),
            torch.tensor(self.starts, dtype=torch.int32, device=device),
        )


def is_empty(row: int, seq_lens: list[int], starts: list[int]) -> bool:
    """own(r) = #{j in 1..S : qsl[j] <= r}; empty(r) = r >= qsl[S] or seq_lens[min(own(r), S - 1)] == 0."""
    requests = len(seq_lens)
    if requests == 0:
        return True
    own = sum(1 for j in range(1, requests + 1) if starts[j] <= row)
    return row >= starts[requests] or seq_lens[min(own, requests - 1)] == 0


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's bits as integers, on the CPU."""
    return tensor.contiguous().view(WIDTH_DTYPE[tensor.itemsize]).cpu()


def planar_bits(interleaved: torch.Tensor, head_dim: int) -> torch.Tensor:
    """The bits of ``[N, R, h, D + P]`` in the planar order: chunk by chunk, all outputs and then all LSEs."""
    chunks = []
    for chunk in interleaved:
        heads = [head for row in chunk for head in row]
        chunks.append(torch.cat([head[:head_dim] for head in heads] + [head[head_dim:] for head in heads]))
    return torch.stack(chunks).reshape(interleaved.shape)


def padded_bits(interleaved: torch.Tensor, head_dim: int, filler: torch.Tensor) -> torch.Tensor:
    """The bits of ``[N, R, h, D + P]`` in heads of D elements and 16 bytes, whose rest is the `filler`'s."""
    width = head_dim + 16 // interleaved.itemsize
    padded = filler.expand(*interleaved.shape[:3], width).clone()
    padded[..., : interleaved.shape[3]] = interleaved
    return padded


def send_bits(out: torch.Tensor, lse: torch.Tensor, ranks: int, empty: list[bool]) -> torch.Tensor:
    """The bits that an interleaved send buffer ``[N, R, h, D + P]`` must hold."""
    rows, num_heads, head_dim = out.shape
    heads = num_heads // ranks
    payload = bits(out)
    values = lse.float().cpu().tolist()
    packing = "<hh" if out.itemsize == 2 else "<i"
    slots = 4 // out.itemsize
    send = torch.zeros(ranks, rows, heads, head_dim + slots, dtype=payload.dtype)
    for rank in range(ranks):
        for row in range(rows):
            for head in range(heads):
                value = -math.inf if empty[row] else values[row][rank * heads + head]
                words = struct.unpack(packing, struct.pack("<f", value))
                send[rank, row, head, :head_dim] = payload[row, rank * heads + head]
                send[rank, row, head, head_dim:] = torch.tensor(words, dtype=payload.dtype)
    return send
