"""The inputs of `dsa-candidates`: logits without ties, and the contexts of the timed and of the digested batch."""

from __future__ import annotations

import torch

#: How far apart in the one random sequence neighbouring rows begin: odd, so that their blocks hold different columns.
_ROW_SHIFT = 1009


class LogitSource:
    """Logits of any number of layers, cut from one random sequence that is a few megabytes in size.

    Every row is a window of the sequence. All of its numbers differ, so no two blocks of a row tie; it has one NaN, and
    about the middle a run of -inf a few blocks long.
    """

    def __init__(
        self, rows: int, width: int, layers: int, block_size: int, device: str, generator: torch.Generator
    ) -> None:
        self._shape = (rows, width)
        length = width + _ROW_SHIFT * (rows + layers)
        # Whole numbers below 2^24 over a power of two: exact in fp32, hence distinct; between about -8 and 8.
        values = torch.randperm(length, generator=generator) - length // 2
        sequence = values.float() * 2.0 ** (4 - length.bit_length())
        sequence[width // 5 :: width] = float("nan")
        sequence[length // 2 : length // 2 + 4 * block_size] = float("-inf")
        self._sequence = sequence.to(device)

    def layer(self, number: int) -> torch.Tensor:
        """``[R, W]`` fp32 of one layer: a view whose rows overlap, to be read only."""
        return self._sequence[number * _ROW_SHIFT :].as_strided(
            self._shape, (_ROW_SHIFT, 1), self._sequence.storage_offset() + number * _ROW_SHIFT
        )


def most_tokens(rows: int, layers: int) -> int:
    """The widest logits whose values can still all differ in fp32."""
    return (1 << 24) - _ROW_SHIFT * (rows + layers)


def digest_contexts(rows: int, width: int, candidate_columns: int) -> list[int]:
    """Tokens of each row of the digested batch: most rows have more than their candidates can cover.

    Args:
        candidate_columns: ``K * BS``, the most columns that candidates keep.

    Returns:
        From the whole width down to just above `candidate_columns`, evenly; in a batch of four or more the last two
        rows are a padding row of no token and one that its candidates cover.
    """
    special = [min(width, max(1, candidate_columns // 2)), 0] if rows >= 4 else []
    spread = rows - len(special)
    least = min(width, candidate_columns + 1)
    steps = max(1, spread - 1)
    return [width - (width - least) * row // steps for row in range(spread)] + special


def masked_share(contexts: list[int], candidate_columns: int) -> float:
    """The least share of the live columns that masks must hit: candidates cover at most `candidate_columns` a row."""
    live = sum(contexts)
    return sum(max(0, tokens - candidate_columns) for tokens in contexts) / live if live else 0.0
