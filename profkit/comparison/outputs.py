"""Whether two runs' outputs are the same: in bits, or as near as other orders of the same arithmetic leave them.

Reads the numbers that a run keeps of its outputs (`profkit.runs.run_dir.Run.outputs`), no tensor. A block is as many
rows as the run could keep numbers for. Two are near enough where their sums differ by at most ``k ε norm`` and so do
their 2-norms, with the larger of the two norms, the dtype's ε and a k of its own for sums and for norms: a rounding
error is a share of its element, so that the errors of many elements add up as a share of the norm, however many there
are. Lost work shows where it changes a block by more than that.

What this cannot see is told by `OutputComparison`: `allowed` is the share of a block's norm below which a change hides,
and `rows` how many rows are in a block. A row of usual size whose work is lost changes the sum of its block by about
``1 / sqrt(rows)`` of the norm. Where rounding is enlarged afterwards (the softmax of large values), equal work may lie
further apart: a workload's `References` are the sharper way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from profkit.model.outputs import Floats, OutputNumbers


@dataclass(frozen=True)
class Tolerance:
    """How near outputs of one dtype must be.

    Args:
        epsilon: the unit: the distance from 1 to the next number, of 16-bit dtypes half of it.
        k_sum, k_norm: in units of ``epsilon`` times a block's norm.
    """

    epsilon: float
    k_sum: float
    k_norm: float


#: By dtype; others must have equal bits. The k are the powers of two above the largest that
#: benchmarks/output_tolerance.py found, of norms twice that (torch 2.13 on a CPU, 2026-12-01; 1 to 16 layers that feed
#: one another, against eager operators: split and reversed sums, attention in tiles, intermediates that stay float32,
#: partial sums that are rounded). In 16-bit dtypes that was 4.6 and 1.0 after one layer, 22.9 and 1.7 after sixteen; in
#: fp8 0.8 and 0.1, 2.3 and 0.2; in float32 19 and 3, 53 and 4; of rows of 512 elements and of 2048 alike.
TOLERANCES: Mapping[str, Tolerance] = {
    "bfloat16": Tolerance(2.0**-8, 32.0, 4.0),
    "float16": Tolerance(2.0**-11, 32.0, 4.0),
    "float32": Tolerance(2.0**-23, 64.0, 16.0),
    # What sums of many elements in double precision leave of it.
    "float64": Tolerance(2.0**-40, 64.0, 16.0),
    "float8_e4m3fn": Tolerance(2.0**-3, 4.0, 0.5),
    "float8_e5m2": Tolerance(2.0**-2, 4.0, 0.5),
}

Verdict = Literal["equal", "within-tolerance", "differs", "other-kind", "missing-before", "missing-after"]


@dataclass(frozen=True)
class OutputComparison:
    """One output of both runs.

    Args:
        name: e.g. ``layers.3.mla/out``.
        verdict: ``equal`` bits; ``within-tolerance``; ``differs`` beyond it; ``other-kind``: of another dtype or shape;
            or it is missing on a side.
        says: of an output that differs, a clause that says by what: ``the sum of rows 4 to 7 is off by 31.2% of their
            norm, 12.5% are allowed``. "" where nothing is to be said.
        rows: how many rows a block holds; 0 where nothing but bits was compared.
        block: the worst block, from 0; None where no block was compared.
        first_row, last_row: of the worst block, counted over all axes but the last.
        difference: how far that block is off, of its sum or its norm, as a share of its norm.
        allowed: how far that may be.
        part: whose difference that is.
    """

    name: str
    verdict: Verdict
    says: str = ""
    rows: int = 0
    block: int | None = None
    first_row: int | None = None
    last_row: int | None = None
    difference: float | None = None
    allowed: float | None = None
    part: Literal["sum", "norm"] | None = None


@dataclass(frozen=True)
class OutputsComparison:
    """All outputs of both runs, in order of name.

    Args:
        outputs: each one that a side has.
    """

    outputs: Sequence[OutputComparison]

    def of(self, *verdicts: Verdict) -> list[OutputComparison]:
        """Those with one of `verdicts`."""
        return [output for output in self.outputs if output.verdict in verdicts]

    @property
    def are_same(self) -> bool:
        """Whether both runs have outputs, and each is equal or within the tolerance."""
        return len(self.outputs) > 0 and len(self.of("equal", "within-tolerance")) == len(self.outputs)


def compare_outputs(before: Mapping[str, OutputNumbers], after: Mapping[str, OutputNumbers]) -> OutputsComparison:
    """Each output of `before` beside that of the same name in `after`."""
    found: list[OutputComparison] = []
    for name in sorted({**before, **after}):
        if name not in after:
            found.append(OutputComparison(name, "missing-after"))
        elif name not in before:
            found.append(OutputComparison(name, "missing-before"))
        else:
            found.append(_compared(name, before[name], after[name]))
    return OutputsComparison(found)


def _compared(name: str, before: OutputNumbers, after: OutputNumbers) -> OutputComparison:
    kinds = [f"{own.dtype}{list(own.shape)}" for own in (before, after)]
    if kinds[0] != kinds[1]:
        return OutputComparison(name, "other-kind", f"it was {kinds[0]} and is {kinds[1]}")
    if before.digest == after.digest:
        return OutputComparison(name, "equal")
    tolerance = TOLERANCES.get(before.dtype)
    if tolerance is None:
        return OutputComparison(name, "differs", f"its bits differ, and {before.dtype} has no tolerance")
    if before.nonfinite != after.nonfinite:
        counts = f"{before.nonfinite} of its elements were infinite or NaN and {after.nonfinite} are"
        return OutputComparison(name, "differs", counts, rows=before.rows)
    rows = max(before.rows, after.rows)
    before, after = before.coarser(rows), after.coarser(rows)
    norms = np.maximum(before.norms, after.norms)
    # A share is NaN where sums or norms are beyond a double: nothing tells then that they are near.
    with np.errstate(invalid="ignore", divide="ignore"):
        off_sum = _share(np.abs(before.sums - after.sums), norms)
        off_norm = _share(np.abs(before.norms - after.norms), norms)
    allowed_sum, allowed_norm = tolerance.k_sum * tolerance.epsilon, tolerance.k_norm * tolerance.epsilon
    excess = np.maximum(off_sum / allowed_sum, off_norm / allowed_norm)
    block = int(np.argmax(excess))
    by_sum = bool(off_sum[block] / allowed_sum == excess[block])
    difference, allowed = (float(off_sum[block]), allowed_sum) if by_sum else (float(off_norm[block]), allowed_norm)
    first = block * rows
    last = min(first + rows, before.total_rows) - 1
    part: Literal["sum", "norm"] = "sum" if by_sum else "norm"
    says, whose = "", f"row {first}" if first == last else f"rows {first} to {last}"
    if differs := bool(excess[block] > 1.0):
        says = f"the {part} of {whose} is off by {difference:.3g} of the norm, where {allowed:.3g} is allowed"
    return OutputComparison(
        name,
        "differs" if differs else "within-tolerance",
        says,
        rows=rows,
        block=block,
        first_row=first,
        last_row=last,
        difference=difference,
        allowed=allowed,
        part=part,
    )


def _share(difference: Floats, norms: Floats) -> Floats:
    """`difference` as a share of `norms`: 0 of nothing, infinite where it cannot be told."""
    share = np.where(difference == 0.0, 0.0, difference / norms)
    return np.where(np.isnan(share), np.inf, share)
