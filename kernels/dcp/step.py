"""Building a step of `dcp-combine`: its inputs, its buffers, and what each variant launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from profkit.errors import ProfkitError
from profkit.kernels.dcp.combine import Collective, Combine, CombineBuffers, Metadata, local_copy
from profkit.kernels.dcp.exchange import DISTRIBUTED
from profkit.kernels.dcp.layout import buffer_shape, heads_per_rank
from profkit.kernels.dcp.metadata import BatchMetadata, batch_notes, digest_metadata, timing_metadata
from profkit.kernels.shapes import positive, power_of_two, real_requests, whole_heads
from profkit.workload import BuildContext, InputSet, Layer, Scope, Step

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class _Sizes:
    """The workload's shapes, checked."""

    rows: int
    requests: int
    heads: int
    ranks: int
    head_dim: int
    layers: int
    gemm_in: int
    gemm_out: int
    dtype: torch.dtype


@dataclass(frozen=True)
class _LayerBuffers:
    """One layer's tensors; nothing is shared between layers, so caches are as cold as in a model.

    Args:
        hidden: ``[R, gemm_in]``.
        weight: ``[gemm_in, gemm_out]``.
        projected: ``[R, gemm_out]``, the GEMM's output.
    """

    hidden: torch.Tensor
    weight: torch.Tensor
    projected: torch.Tensor
    combine: CombineBuffers


def build_step(context: BuildContext, collective: Collective = local_copy) -> Step:
    """One step of `dcp-combine`.

    The digest inputs mask about half of the rows; in both input sets the padding rows' payload is NaN, and the LSE of
    rows to be masked is an ordinary number, so that a mask that is left out shows in the result.

    Where the ranks are processes, all of them run one batch, each with the lengths of its own shard, its own empty rows
    and its own random inputs; else this process stands for the last rank.

    Args:
        context: shapes, variant, device, seed and rank. Random inputs are drawn on the CPU, so they are the same
            everywhere.
        collective: the exchange; a real all-to-all on several GPUs.

    Raises:
        ProfkitError: an unknown variant, or shapes that do not fit together.
    """
    sizes = _sizes(context)
    generator = torch.Generator(device="cpu").manual_seed(context.seed)
    distributed = context.shapes.get("exchange") == DISTRIBUTED
    rank = context.rank if distributed else None
    slots = sizes.rows
    batch_sizes = (sizes.rows, sizes.requests, slots, sizes.ranks)
    batches: dict[InputSet, BatchMetadata] = {
        "timing": timing_metadata(*batch_sizes, generator, rank=rank).to(context.device),
        "digest": digest_metadata(*batch_sizes, generator, rank=rank).to(context.device),
    }
    if distributed:
        generator.manual_seed(context.seed + 1 + context.rank)
    metadata = Metadata.zeros(slots, context.device)
    combine = Combine("dcp-combine", context.variant, sizes.rows, metadata, collective)
    pristine_lse = torch.randn(sizes.layers, sizes.rows, sizes.heads, generator=generator).to(context.device)
    lse = pristine_lse.clone()
    buffers = _layer_buffers(sizes, lse, context.device, generator)

    def refresh(inputs: InputSet) -> None:
        lse.copy_(pristine_lse)
        metadata.write(batches[inputs])

    def outputs() -> Mapping[str, torch.Tensor]:
        named: dict[str, torch.Tensor] = {}
        for layer in layers:
            named[f"{layer.scope}/gemm"] = buffers[layer.number].projected
            named[f"{layer.scope}/out"] = buffers[layer.number].combine.result
        return named

    refresh("timing")
    layers = [Layer(number, "mla", _layer(layer, combine)) for number, layer in enumerate(buffers)]
    return Step(
        layers=layers,
        refresh=refresh,
        outputs=outputs,
        once=combine.once,
        notes=batch_notes(batches),
    )


def _layer(buffers: _LayerBuffers, combine: Combine) -> Callable[[Scope], None]:
    def run(scope: Scope) -> None:
        with scope("gemm"):
            torch.mm(buffers.hidden, buffers.weight, out=buffers.projected)
        combine.run(scope, buffers.combine)

    return run


def _layer_buffers(sizes: _Sizes, lse: torch.Tensor, device: str, generator: torch.Generator) -> list[_LayerBuffers]:
    """The buffers of every layer. One draw serves all layers, each of which gets it rolled by its own number."""
    hidden = torch.randn(sizes.rows, sizes.gemm_in, generator=generator).to(sizes.dtype).to(device)
    weight = torch.randn(sizes.gemm_in, sizes.gemm_out, generator=generator) * sizes.gemm_in**-0.5
    weight = weight.to(sizes.dtype).to(device)
    payload = torch.randn(sizes.rows, sizes.heads, sizes.head_dim, generator=generator)
    payload[sizes.requests :] = float("nan")
    payload = payload.to(sizes.dtype).to(device)
    shape = buffer_shape(sizes.ranks, sizes.rows, sizes.heads, sizes.head_dim, sizes.dtype)
    heads = heads_per_rank(sizes.heads, sizes.ranks)

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=sizes.dtype, device=device)

    return [
        _LayerBuffers(
            hidden=hidden,
            weight=weight.roll(number, 0),
            projected=zeros(sizes.rows, sizes.gemm_out),
            combine=CombineBuffers(
                out=payload.roll(number, 1),
                lse=lse[number],
                send=zeros(*shape),
                recv=zeros(*shape),
                result=zeros(sizes.rows, heads, sizes.head_dim),
            ),
        )
        for number in range(sizes.layers)
    ]


def _sizes(context: BuildContext) -> _Sizes:
    names = ("rows", "heads", "ranks", "head_dim", "layers", "gemm_in", "gemm_out")
    shape = positive("dcp-combine", context, names)
    requests = real_requests("dcp-combine", context, shape["rows"])
    whole_heads("dcp-combine", shape["heads"], shape["ranks"])
    power_of_two("dcp-combine", "head_dim", shape["head_dim"], least=2)
    dtype = context.shapes["dtype"]
    if dtype not in _DTYPES:
        raise ProfkitError(f"dcp-combine: --shape dtype={dtype} is not known. Choose from {', '.join(_DTYPES)}.")
    return _Sizes(requests=requests, dtype=_DTYPES[str(dtype)], **shape)
