"""The workload's shapes, checked, and the tensors of one layer drawn for them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from profkit.errors import ProfkitError
from profkit.kernels.qsa.inputs import CHOSEN, Batch, BatchSizes
from profkit.kernels.qsa.operands import Operands
from profkit.kernels.qsa.selection import RATIO, selection_width
from profkit.kernels.shapes import positive, power_of_two
from profkit.model.workload import BuildContext

_WORKLOAD = "qsa-attention"

#: Query and cache dtype by the name of the shape, and an fp8 cache's scales.
_DTYPES = {
    "bf16": (torch.bfloat16, torch.bfloat16),
    "fp16": (torch.float16, torch.float16),
    "fp8": (torch.bfloat16, torch.float8_e4m3fn),
    "fp8-fp16": (torch.float16, torch.float8_e4m3fn),
}
K_SCALE, V_SCALE = 0.5, 2.0

#: Standard deviation of the scores. Weights then lie on a few tokens and outputs are near 1 in size, so that a token
#: that is left out shows: with even weights over 2,000 tokens every output would be within the tolerance of 0.
SPREAD = 4.0

#: Cache elements that are drawn at a time.
_DRAWN = 1 << 28


@dataclass(frozen=True)
class Sizes:
    """The workload's shapes."""

    batch: BatchSizes
    q_heads: int
    kv_heads: int
    head_dim: int
    layers: int
    prefill: bool
    query_dtype: torch.dtype
    cache_dtype: torch.dtype

    @property
    def fp8(self) -> bool:
        return self.cache_dtype != self.query_dtype

    @property
    def width(self) -> int:
        """W, the most tokens that a row selects."""
        return selection_width(self.batch.budget)


def sizes_of(context: BuildContext) -> Sizes:
    """The sizes that a context asks for.

    Raises:
        ProfkitError: shapes that do not fit together.
    """
    names = ("rows", "rows_per_request", "q_heads", "kv_heads", "head_dim", "width", "page", "context", "layers")
    shape = positive(_WORKLOAD, context, names)
    if shape["q_heads"] % shape["kv_heads"]:
        raise ProfkitError(
            f"qsa-attention: q_heads={shape['q_heads']} cannot be divided evenly over kv_heads={shape['kv_heads']}."
        )
    head_dim, width = shape["head_dim"], shape["width"]
    power_of_two(_WORKLOAD, "head_dim", head_dim, 16)
    budget = width - (RATIO - 1)
    if budget < 1 or budget % (RATIO * CHOSEN):
        raise ProfkitError(
            f"qsa-attention: --shape width={width} must be {RATIO - 1} more than a multiple of {RATIO * CHOSEN}: a "
            "budget of whole groups, and an open group."
        )
    rows_per_request = min(shape["rows_per_request"], shape["rows"])
    if shape["context"] < rows_per_request:
        raise ProfkitError(
            f"qsa-attention: --shape context={shape['context']} must hold the {rows_per_request} rows of a request."
        )
    mode, dtype = context.shapes["mode"], context.shapes["dtype"]
    if mode not in ("decode", "prefill"):
        raise ProfkitError(f"qsa-attention: --shape mode={mode} is not known. Choose decode or prefill.")
    if dtype not in _DTYPES:
        raise ProfkitError(f"qsa-attention: --shape dtype={dtype} is not known. Choose from {', '.join(_DTYPES)}.")
    query_dtype, cache_dtype = _DTYPES[str(dtype)]
    return Sizes(
        batch=BatchSizes(shape["rows"], rows_per_request, budget, shape["context"], shape["page"]),
        q_heads=shape["q_heads"],
        kv_heads=shape["kv_heads"],
        head_dim=head_dim,
        layers=shape["layers"],
        prefill=mode == "prefill",
        query_dtype=query_dtype,
        cache_dtype=cache_dtype,
    )


def draw_operands(sizes: Sizes, batch: Batch, generator: torch.Generator) -> Operands:
    """One layer's operands with a cache, query and gate of its own.

    Args:
        batch: shared by the layers that are to attend to the same selection; may be rewritten later.
        generator: on the device of the tensors.
    """
    rows, heads, head_dim = sizes.batch.rows, sizes.q_heads, sizes.head_dim
    device = generator.device
    k_scale, v_scale = (K_SCALE, V_SCALE) if sizes.fp8 else (1.0, 1.0)
    keys, values = draw_cache(
        sizes.batch.blocks, sizes.kv_heads, sizes.batch.page, head_dim, sizes.cache_dtype, generator
    )
    query = torch.randn(rows, heads, head_dim, generator=generator, device=device) * (SPREAD / k_scale)
    gate = torch.randn(rows, heads, head_dim, generator=generator, device=device)
    return Operands(
        query=query.to(sizes.query_dtype),
        gate=gate.to(sizes.query_dtype),
        keys=keys,
        values=values,
        indices=batch.indices,
        block_table=batch.block_table,
        token_to_req=batch.token_to_req,
        k_scale=k_scale,
        v_scale=v_scale,
    )


def draw_cache(
    blocks: int, kv_heads: int, page: int, head_dim: int, dtype: torch.dtype, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values ``[blocks, page, HK, D]``, standard normal: two views of one ``[blocks, HK, page, 2 * D]``."""
    cache = torch.empty(blocks, kv_heads, page, 2 * head_dim, dtype=dtype, device=generator.device)
    step = max(1, _DRAWN // cache[0].numel()) if blocks else 1
    for start in range(0, blocks, step):
        part = cache[start : start + step]
        part.copy_(torch.randn(part.shape, generator=generator, device=generator.device))
    by_token = cache.permute(0, 2, 1, 3)
    return by_token[..., :head_dim], by_token[..., head_dim:]
