"""The dispatch profiler's file: which launches a step would make, in order, each with its ranges.

Schema ``profkit.dispatch/1``::

    schema      "profkit.dispatch/1"
    run_bodies  whether kernel bodies ran (in Triton's interpreter) or were skipped
    torch, triton   versions, triton null where absent
    ranges      [{text, start, end}]  on one clock that ticks once for each range opened, range closed and launch
    ops         [{order, name, kind, source, grid, scope}]
                order: its tick; kind: kernel or memcpy; source: aten (any torch operator) or triton;
                grid: a Triton launch's three sizes, else null; scope: the texts of the open ranges, outermost first

There are no times. An operator may launch several kernels on a GPU or none, so these are dispatch counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SCHEMA = "profkit.dispatch/1"
TRACE_FILE = "dispatch.json"


@dataclass
class Recording:
    """What is recorded so far; `to_dict` is the file's content but for the versions."""

    ops: list[dict[str, Any]] = field(default_factory=list)
    ranges: list[dict[str, Any]] = field(default_factory=list)
    _open: list[dict[str, Any]] = field(default_factory=list)
    _clock: int = 0

    def tick(self) -> int:
        """The next time on the recording's clock."""
        self._clock += 1
        return self._clock

    def push(self, text: str) -> None:
        """Open a range."""
        opened = {"text": text, "start": self.tick(), "end": None}
        self.ranges.append(opened)
        self._open.append(opened)

    def pop(self) -> None:
        """Close the innermost open range."""
        self._open.pop()["end"] = self.tick()

    def launch(self, name: str, kind: str, source: str, grid: tuple[int, int, int] | None = None) -> None:
        """Record one launch in the ranges that are open."""
        self.ops.append(
            {
                "order": self.tick(),
                "name": name,
                "kind": kind,
                "source": source,
                "grid": list(grid) if grid is not None else None,
                "scope": [opened["text"] for opened in self._open],
            }
        )
