"""How many programs walk a row: decided by shapes alone, so that a captured graph serves every context length."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProgramPolicy:
    """Programs a row: enough to fill the device with all rows together, and never fewer than a floor.

    Args:
        floor: the fewest programs a row, where it has as many tiles.
        total: the programs of all rows together that are aimed for.
    """

    floor: int
    total: int

    def __post_init__(self) -> None:
        if self.floor < 1 or self.total < 1:
            raise ValueError(f"floor is {self.floor} and total {self.total}; both must be at least 1")

    def row_programs(self, rows: int, tiles: int) -> int:
        """``max(1, min(tiles, max(floor, ceil(total / rows))))``.

        Args:
            rows: R, at least 1.
            tiles: tiles in a row of full width.
        """
        return max(1, min(tiles, max(self.floor, -(-self.total // rows))))


#: The constants of vLLM #57459, which states that they were not swept.
PR_POLICY = ProgramPolicy(floor=8, total=8192)
