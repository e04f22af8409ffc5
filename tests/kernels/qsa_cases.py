"""Operands for the QSA kernels: the shapes that the upstream kernel is tested at, and small ones for the interpreter.

Triton's interpreter computes products of bf16 wrongly, so there queries and 16-bit caches are fp16.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch

from profkit import kernels
from profkit.kernels.qsa.inputs import Batch, digest_batch, timing_batch
from profkit.kernels.qsa.operands import Operands
from profkit.kernels.qsa.sizes import draw_cache, draw_operands, sizes_of
from profkit.model.workload import BuildContext, ShapeValue

WORKLOAD = kernels.get("qsa-attention")
SMALL: dict[str, ShapeValue] = {
    **{"rows": 5, "rows_per_request": 2, "q_heads": 6, "kv_heads": 2, "head_dim": 16, "width": 35},
    **{"page": 5, "context": 60, "layers": 2, "dtype": "fp16"},
}
#: Blocks of the caches that the large cases share among all requests.
POOL = 130


@dataclass(frozen=True)
class Case:
    """One shape of upstream's tests: 65 pages of context, of which about 64 are selected from."""

    rows: int
    q_heads: int
    kv_heads: int
    page: int
    dtype: str = "bf16"
    mode: str = "decode"
    mixed: bool = True

    @property
    def name(self) -> str:
        kind = self.mode if self.mixed else f"{self.mode}-uniform"
        return f"r{self.rows}-{self.q_heads}q{self.kv_heads}kv-p{self.page}-{self.dtype}-{kind}"


#: Head splits and pages: 24/2 with 1568 or 1600 on one rank, 12/1 with the same on two, 6/1 with 784 or 800 on four.
UPSTREAM = (
    Case(1, 24, 2, 1568),
    Case(16, 12, 1, 1600),
    Case(32, 6, 1, 784),
    Case(128, 24, 2, 1600),
    Case(257, 12, 1, 1568),
    Case(513, 6, 1, 800),
    Case(700, 24, 2, 1568),
    Case(1024, 12, 1, 1600),
    Case(2048, 24, 2, 1568, mode="prefill"),
    Case(2048, 6, 1, 784, mixed=False),
    Case(1, 6, 1, 784, dtype="fp8"),
    Case(32, 12, 1, 1568, dtype="fp8"),
    Case(257, 24, 2, 1600, dtype="fp8"),
    Case(2048, 24, 2, 1568, dtype="fp8", mode="prefill"),
)


def context(variant: str = "default", device: str = "cpu", seed: int = 0, **shapes: ShapeValue) -> BuildContext:
    """A context of the workload at small shapes."""
    defaults = {name: shape.default for name, shape in WORKLOAD.shapes.items()}
    return BuildContext(variant, {**defaults, **SMALL, **shapes}, device, seed)


def small_operands(device: str, *, mixed: bool = True, seed: int = 0, **shapes: ShapeValue) -> Operands:
    """Operands of one layer at small shapes; `mixed` has everything in it that the digest inputs have."""
    sizes = sizes_of(context(device=device, seed=seed, **shapes))
    generator = torch.Generator(device=device).manual_seed(seed)
    batch = (digest_batch if mixed else timing_batch)(sizes.batch, generator)
    return draw_operands(sizes, batch, generator)


def case_operands(case: Case, device: str) -> Operands:
    """Operands of an upstream case; requests share a cache of `POOL` blocks, as their own would not fit."""
    shapes: dict[str, ShapeValue] = {
        **{"rows": case.rows, "rows_per_request": 1024 if case.mode == "prefill" else 4, "q_heads": case.q_heads},
        **{"kv_heads": case.kv_heads, "head_dim": 256, "width": 2051, "page": case.page},
        **{"context": 65 * case.page, "dtype": case.dtype, "mode": case.mode},
    }
    sizes = sizes_of(context(device=device, **shapes))
    generator = torch.Generator(device=device).manual_seed(case.rows)
    batch = (digest_batch if case.mixed else timing_batch)(sizes.batch, generator)
    table = torch.where(batch.block_table >= 0, batch.block_table % POOL, -1)
    shared = dataclasses.replace(sizes, batch=dataclasses.replace(sizes.batch, context=1, rows_per_request=case.rows))
    drawn = draw_operands(shared, Batch(batch.indices, table, batch.token_to_req), generator)
    keys, values = draw_cache(POOL, case.kv_heads, case.page, 256, sizes.cache_dtype, generator)
    return dataclasses.replace(drawn, keys=keys, values=values)
