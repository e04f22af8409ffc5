"""Detects just-in-time compilation: what was compiled before the recorded window and what inside it.

Triton reports through its compilation listener (triton 3.4 and later), torch.compile through the list of seconds that
Dynamo keeps for each frame. A kernel that Triton loads from its disk cache inside the window counts as well: it costs
host time there, and on a machine with a cold cache it would have been compiled.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

#: Dynamo's metric with one entry for each frame that it compiles (torch._dynamo.utils.compilation_time_metrics).
_DYNAMO_METRIC = "_compile.compile_inner"


class CompileWatch:
    """Watches from construction on; `open_window` and `close_window` bound what counts as inside.

    `triton_watched` is false where an older triton is installed, whose compilations cannot be seen.
    """

    def __init__(self) -> None:
        self.before = 0
        self.inside: list[dict[str, Any]] = []
        self.triton_watched = True
        self._window = False
        self._frames_at_open = 0
        self._install()

    def _install(self) -> None:
        if find_spec("triton") is None:
            return
        try:
            from triton import knobs
        except ImportError:
            self.triton_watched = False
            return
        previous = knobs.compilation.listener

        def listener(**event: Any) -> None:
            if previous is not None:
                previous(**event)
            self._record(str(event["metadata"].get("name", "triton kernel")), event["times"].total / 1e6)

        knobs.compilation.listener = listener

    def _record(self, name: str, seconds: float) -> None:
        if self._window:
            self.inside.append({"name": name, "seconds": round(seconds, 6)})
        else:
            self.before += 1

    def open_window(self) -> None:
        """From here on compilations are inside the window."""
        self._frames_at_open = len(_dynamo_frames())
        self.before += self._frames_at_open
        self._window = True

    def close_window(self) -> None:
        """End of the window."""
        for seconds in _dynamo_frames()[self._frames_at_open :]:
            self._record("torch.compile frame", seconds)
        self._window = False

    def to_dict(self) -> dict[str, Any]:
        """The `compiles` field of run.json."""
        return {"before": self.before, "inside": self.inside}


def _dynamo_frames() -> list[float]:
    """Seconds of each frame that Dynamo compiled so far in this process; empty where it is not loaded."""
    module = sys.modules.get("torch._dynamo.utils")
    return list(module.compilation_time_metrics.get(_DYNAMO_METRIC, [])) if module is not None else []
