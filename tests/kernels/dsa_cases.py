"""Inputs of the candidate-block tests, and what may be asked of a list of candidates.

Logits have a column stride of 2 unless a case says otherwise, a run of zeros, which makes ties, and a NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from profkit.kernels.dsa.bounds import num_blocks

ROWS = 6
NEG_INF = float("-inf")


@dataclass(frozen=True)
class Case:
    """Logits and bounds; decode rows come in pairs that share an end and have no start."""

    width: int
    block_size: int
    slots: int
    decode: bool = False

    def __str__(self) -> str:
        return f"{self.width}-{self.block_size}-{self.slots}{'-decode' if self.decode else ''}"

    @property
    def blocks(self) -> int:
        return num_blocks(self.width, self.block_size)

    @property
    def row_repeat(self) -> int:
        return 2 if self.decode else 1

    def bounds(self, device: str) -> tuple[torch.Tensor | None, torch.Tensor]:
        """starts and ends; among them empty rows, one token, the whole width and one less."""
        width = self.width
        if self.decode:
            return None, torch.tensor([0, 1, width], dtype=torch.int32, device=device)
        starts = torch.tensor([0, 5, 3, 0, 7, 1], dtype=torch.int32, device=device)
        return starts, torch.tensor([0, width, width - 1, 1, 11, width], dtype=torch.int64, device=device)

    def logits(self, device: str, seed: int = 0) -> torch.Tensor:
        logits = strided_randn(ROWS, self.width, device, seed)
        logits[1, 10:40] = 0.0
        logits[5, 20] = float("nan")
        return logits


CASES = (Case(73, 8, 16), Case(97, 3, 7), Case(32768, 8, 2048), Case(32768, 8, 2048, decode=True))


def strided_randn(rows: int, width: int, device: str, seed: int = 0) -> torch.Tensor:
    """``[R, W]`` with a column stride of 2."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 2 * width, generator=generator).to(device)[:, ::2]


def overridden(candidates: torch.Tensor, blocks: int) -> torch.Tensor:
    """Candidates as a packed batch may have them: one far past the width, and block 0 twice."""
    changed = candidates.clone()
    changed[1, 0] = blocks + 10
    changed[2, 0] = 0
    changed[2, -1] = 0
    return changed


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Bits as integers, on the CPU: NaN equals itself, and 0 differs from -0."""
    return tensor.contiguous().view(torch.int32).cpu()


def assert_candidates(candidates: torch.Tensor, scores: torch.Tensor) -> None:
    """That each row lists, once each, blocks with the highest of its scores, and then only -1.

    Args:
        candidates: ``[R, K]``, in any order.
        scores: ``[R, B]`` fp64, of the reference. Of blocks that tie for the last slots, any may be listed.
    """
    for listed, row in zip(candidates.tolist(), scores.cpu(), strict=True):
        blocks = [block for block in listed if block != -1]
        assert listed == blocks + [-1] * (len(listed) - len(blocks)), "-1 may only follow the last candidate"
        assert len(set(blocks)) == len(blocks)
        ranked = sorted((_rank(score) for score in row.tolist() if score != NEG_INF), reverse=True)
        found = sorted((_rank(row[block].item()) for block in blocks), reverse=True)
        assert found == ranked[: len(listed)]


def _rank(score: float) -> tuple[int, float]:
    return (1, 0.0) if score != score else (0, score)
