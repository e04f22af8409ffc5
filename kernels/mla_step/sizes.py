"""The shapes of `mla-step`, checked."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from profkit.errors import ProfkitError
from profkit.kernels.shapes import positive, power_of_two, real_requests, whole_heads
from profkit.model.workload import BuildContext

NAME = "mla-step"
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_POSITIVE = (
    *("rows", "heads", "ranks", "layers", "hidden", "context"),
    *("q_lora", "kv_lora", "qk_nope", "qk_rope", "v_head"),
)


@dataclass(frozen=True)
class Sizes:
    """Every size of a step; the names are those of the shapes, and of a model's configuration."""

    rows: int
    requests: int
    heads: int
    ranks: int
    layers: int
    hidden: int
    context: int
    q_lora: int
    kv_lora: int
    qk_nope: int
    qk_rope: int
    v_head: int
    dtype: torch.dtype

    @classmethod
    def of(cls, context: BuildContext) -> Sizes:
        """Read from a context.

        Raises:
            ProfkitError: shapes that do not fit together.
        """
        shape = positive(NAME, context, _POSITIVE)
        requests = real_requests(NAME, context, shape["rows"])
        whole_heads(NAME, shape["heads"], shape["ranks"])
        for name in ("kv_lora", "qk_rope"):
            power_of_two(NAME, name, shape[name], least=16)
        if shape["context"] < shape["ranks"]:
            raise ProfkitError(
                f"{NAME}: --shape context={shape['context']} leaves a rank of {shape['ranks']} without a token. "
                "Give at least one token a rank."
            )
        dtype = context.shapes["dtype"]
        if dtype not in _DTYPES:
            raise ProfkitError(f"{NAME}: --shape dtype={dtype} is not known. Choose from {', '.join(_DTYPES)}.")
        return cls(requests=requests, dtype=_DTYPES[str(dtype)], **shape)

    @property
    def local_heads(self) -> int:
        """h: the heads of one rank."""
        return self.heads // self.ranks

    @property
    def latent_width(self) -> int:
        """Of a token's row in the KV cache, and of a query head after absorption."""
        return self.kv_lora + self.qk_rope

    @property
    def query_width(self) -> int:
        """Of a query head before absorption."""
        return self.qk_nope + self.qk_rope

    @property
    def scale(self) -> float:
        """Factor of the scores: absorption changes a head's width and not its scores."""
        return float(self.query_width**-0.5)
