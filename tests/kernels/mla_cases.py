"""Small steps of `mla-step`, and batches for its attention kernel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from dcp_oracle import Batch

from profkit import kernels
from profkit.kernels.dcp.reference import attend
from profkit.kernels.mla_step.decode import DecodeBuffers, DecodeConfig, decode
from profkit.model.workload import BuildContext, ShapeValue

WORKLOAD = kernels.get("mla-step")

#: fp16, because the interpreter's product of bf16 matrices is wrong.
TINY: dict[str, ShapeValue] = {
    **{"rows": 4, "requests": 3, "heads": 4, "ranks": 2, "layers": 2, "hidden": 64, "context": 16},
    **{"q_lora": 32, "kv_lora": 16, "qk_nope": 16, "qk_rope": 16, "v_head": 16, "dtype": "fp16"},
}
LATENT, ROPE = 32, 16
WIDTH = LATENT + ROPE
#: Scores of unit variance for unit inputs.
SCALE = WIDTH**-0.5


def context(variant: str, device: str = "cpu", seed: int = 0, **shapes: ShapeValue) -> BuildContext:
    """A tiny step on the CPU or a GPU."""
    defaults = {name: shape.default for name, shape in WORKLOAD.shapes.items()}
    return BuildContext(variant, {**defaults, **TINY, **shapes}, device, seed)


def config(block_heads: int = 16, block_tokens: int = 16, splits: int = 1) -> DecodeConfig:
    return DecodeConfig(block_heads, block_tokens, splits, num_warps=4, num_stages=2)


@dataclass(frozen=True)
class Attention:
    """One batch for the attention kernel.

    Args:
        batch: lengths, spans and padding.
        query: ``[N, R, h, WIDTH]``.
        kv: ``[S, capacity, WIDTH]``; NaN past each request's tokens, which nothing may read.
    """

    batch: Batch
    query: torch.Tensor
    kv: torch.Tensor

    @classmethod
    def drawn(cls, batch: Batch, heads: tuple[int, int], device: str, seed: int = 0) -> Attention:
        """With ``(N, h)`` heads, fp16."""
        generator = torch.Generator().manual_seed(seed)
        ranks, local = heads
        query = torch.randn(ranks, batch.rows, local, WIDTH, generator=generator)
        kv = torch.randn(len(batch.seq_lens), max([16, *batch.seq_lens]), WIDTH, generator=generator)
        for request, length in enumerate(batch.seq_lens):
            kv[request, length:] = float("nan")
        return cls(batch, query.half().to(device), kv.half().to(device))

    def run(self, config: DecodeConfig) -> tuple[torch.Tensor, torch.Tensor]:
        """The kernel's output ``[R, H, LATENT]`` and LSE ``[R, H]``, in buffers that held something else before."""
        ranks, rows, local, _ = self.query.shape
        buffers = DecodeBuffers.zeros(rows, ranks * local, LATENT, self.query.dtype, str(self.query.device), config)
        buffers.out.fill_(77.0)
        buffers.lse.fill_(77.0)
        for tensor in (buffers.partial, buffers.partial_lse):
            if tensor is not None:
                tensor.fill_(float("nan"))
        decode(self.query, self.kv, *self.batch.tensors(str(self.query.device)), buffers, SCALE)
        return buffers.out, buffers.lse

    def expected(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Reference output and LSE, float64; NaN in rows without tokens."""
        ranks, rows, local, _ = self.query.shape
        query = self.query.transpose(0, 1).reshape(rows, ranks * local, WIDTH)
        out = torch.full((rows, ranks * local, LATENT), float("nan"), dtype=torch.float64, device=query.device)
        lse = torch.full((rows, ranks * local), float("nan"), dtype=torch.float64, device=query.device)
        starts = self.batch.starts
        for request, length in enumerate(self.batch.seq_lens):
            if length:
                span = slice(starts[request], starts[request + 1])
                tokens = self.kv[request, :length]
                out[span], lse[span] = attend(query[span], tokens, tokens[:, :LATENT], SCALE)
        return out, lse
