"""QSA attention of one layer as a model runs it: the split kernel and, with several splits, the merge."""

from __future__ import annotations

from contextlib import nullcontext

import torch

from profkit.kernels.qsa.merge import Merge, merge_splits
from profkit.kernels.qsa.operands import Operands, Workspace
from profkit.kernels.qsa.split import split_attention
from profkit.kernels.qsa.tables import Launch
from profkit.model.workload import Scope


def no_scope(name: str) -> nullcontext[None]:
    """A `Scope` that opens nothing."""
    return nullcontext()


def attend(
    operands: Operands,
    launch: Launch,
    out: torch.Tensor,
    workspace: Workspace,
    merge: Merge | None = None,
    scope: Scope = no_scope,
) -> None:
    """Gated attention of every row to its selected tokens: one kernel with one split, else two.

    Args:
        operands: query, gate, cache and selection.
        launch: of the split kernel.
        out: ``[R, HQ, D]`` in the query's type, contiguous; written.
        workspace: has room for `launch.splits`.
        merge: see `merge_splits`.
        scope: opens the ranges ``split`` and, with several splits, ``merge``.
    """
    partials = workspace.partials(launch.splits)
    with scope("split"):
        split_attention(operands, launch, out, partials)
    if partials is not None:
        with scope("merge"):
            merge_splits(partials, operands.gate, out, merge)
