"""Steps: which ops form one forward pass, and which steps are of the same kind; `profkit.counting.steps` finds them.

Kinds are never averaged over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profkit.model.trace import Diagnostic

#: Above this share of replays that lost ops, a trace answers no question: the rest may have lost some too. One lost
#: replay at either end of a recording of twenty is usual, since recording starts and stops between launches.
UNDER_RECORDED_SHARE = 0.1
#: `Steps.method` where nothing divides the recording.
WHOLE_RECORDING = "the whole recording"


@dataclass(frozen=True)
class StepKind:
    """Steps that do the same work.

    Args:
        id: ``graph 5`` (by graph id) or ``sequence 1`` (by order of GPU time).
        replayed: it holds graph replays.
        batch: what ranges tell of it, ``decode 8`` or ``batch 4``; "" where they tell nothing.
        steps: how many there are.
        ops_per_step: launches in each.
        gpu_ns: sum over all of them of their ops' durations.
        one_graph: each step is one replay of one executable graph, so a node is the same launch in all of them.
    """

    id: str
    steps: int
    ops_per_step: int
    gpu_ns: int
    one_graph: bool
    replayed: bool = True
    batch: str = ""

    @property
    def name(self) -> str:
        """How reports call it: ``decode 8 (graph 5)``."""
        return f"{self.batch} ({self.id})" if self.batch else self.id


@dataclass(frozen=True)
class Steps:
    """The steps of a trace.

    Args:
        step: for each op its step, numbered from 0 in order of start, -1 outside steps.
        kind: for each step, an index into `kinds`.
        kinds: most GPU time first.
        method: how steps were found, one phrase.
        incomplete: replays left out because they lost ops.
        launched: graph launches in the recording, 0 where steps are no replays.
        diagnostics: doubled and partial replays, launches without ops.
        under_recorded: so many replays lost ops that no answer holds.
    """

    step: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int32]
    kinds: Sequence[StepKind]
    method: str
    incomplete: int
    launched: int
    diagnostics: Sequence[Diagnostic]
    under_recorded: bool
