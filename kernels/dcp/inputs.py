"""What the combine workloads work on: the same sizes, batches, GEMMs and partial outputs, whatever combines them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from profkit.errors import ProfkitError
from profkit.kernels.dcp.combine import Metadata
from profkit.kernels.dcp.exchange import DISTRIBUTED
from profkit.kernels.dcp.metadata import BatchMetadata, batch_notes, digest_metadata, timing_metadata
from profkit.kernels.shapes import positive, power_of_two, real_requests, whole_heads
from profkit.model.workload import BuildContext, InputSet, Layer, Scope, Step

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class Sizes:
    """A workload's shapes, checked."""

    rows: int
    requests: int
    heads: int
    ranks: int
    head_dim: int
    layers: int
    gemm_in: int
    gemm_out: int
    dtype: torch.dtype

    @classmethod
    def of(cls, workload: str, context: BuildContext) -> Sizes:
        """Those of a context.

        Raises:
            ProfkitError: they do not fit together.
        """
        names = ("rows", "heads", "ranks", "head_dim", "layers", "gemm_in", "gemm_out")
        shape = positive(workload, context, names)
        requests = real_requests(workload, context, shape["rows"])
        whole_heads(workload, shape["heads"], shape["ranks"])
        power_of_two(workload, "head_dim", shape["head_dim"], least=2)
        dtype = context.shapes["dtype"]
        if dtype not in _DTYPES:
            raise ProfkitError(f"{workload}: --shape dtype={dtype} is not known. Choose from {', '.join(_DTYPES)}.")
        return cls(requests=requests, dtype=_DTYPES[str(dtype)], **shape)


@dataclass(frozen=True)
class LayerInputs:
    """One layer's tensors; nothing is shared between layers, so caches are as cold as in a model.

    Args:
        hidden: ``[R, gemm_in]``.
        weight: ``[gemm_in, gemm_out]``.
        projected: ``[R, gemm_out]``, the GEMM's output.
        out: ``[R, H, D]``, the partial attention output of this rank.
        lse: ``[R, H]`` fp32, its LSE.
    """

    hidden: torch.Tensor
    weight: torch.Tensor
    projected: torch.Tensor
    out: torch.Tensor
    lse: torch.Tensor


class Inputs:
    """The inputs of every layer of a step.

    The digest inputs mask about half of the rows; in both input sets the padding rows' payload is NaN, and the LSE of
    rows to be masked is an ordinary number, so that a mask that is left out shows in the result.

    Where the ranks are processes, all of them run one batch, each with the lengths of its own shard, its own empty rows
    and its own random inputs; else this process stands for the last rank.

    Args:
        workload: named in errors.
        context: shapes, device, seed and rank. Random inputs are drawn on the CPU, so they are the same everywhere.
        lse_heads_first: a layer's LSE is a transposed ``[H, R]`` tensor.

    Raises:
        ProfkitError: shapes that do not fit together.
    """

    def __init__(self, workload: str, context: BuildContext, *, lse_heads_first: bool = False) -> None:
        self.sizes = sizes = Sizes.of(workload, context)
        self.device = context.device
        generator = torch.Generator(device="cpu").manual_seed(context.seed)
        slots = sizes.rows
        distributed = context.shapes.get("exchange") == DISTRIBUTED
        rank = context.rank if distributed else None
        batch_sizes = (sizes.rows, sizes.requests, slots, sizes.ranks)
        self._batches: dict[InputSet, BatchMetadata] = {
            "timing": timing_metadata(*batch_sizes, generator, rank=rank).to(context.device),
            "digest": digest_metadata(*batch_sizes, generator, rank=rank).to(context.device),
        }
        if distributed:
            generator.manual_seed(context.seed + 1 + context.rank)
        #: What all layers share, at addresses that stay.
        self.metadata = Metadata.zeros(slots, context.device)
        self._pristine_lse = torch.randn(sizes.layers, sizes.rows, sizes.heads, generator=generator).to(context.device)
        if lse_heads_first:
            self._lse = self._pristine_lse.transpose(1, 2).contiguous().transpose(1, 2)
        else:
            self._lse = self._pristine_lse.clone()
        self.layers = self._draw_layers(generator)
        self.refresh("timing")

    def refresh(self, inputs: InputSet) -> None:
        """Restore the LSEs, which a mask may have overwritten, and write one input set's metadata."""
        self._lse.copy_(self._pristine_lse)
        self.metadata.write(self._batches[inputs])

    def zeros(self, *shape: int) -> torch.Tensor:
        """A buffer of the outputs' dtype."""
        return torch.zeros(shape, dtype=self.sizes.dtype, device=self.device)

    def step(
        self,
        combine: Sequence[Callable[[Scope], None]],
        results: Sequence[torch.Tensor],
        once: Callable[[Scope], None] | None = None,
    ) -> Step:
        """The step that runs each layer's GEMM and then its combine.

        Args:
            combine: of each layer.
            results: what each layer's combine writes.
            once: see `Step`.
        """
        layers = [Layer(number, "mla", _layer(inputs, combine[number])) for number, inputs in enumerate(self.layers)]

        def outputs() -> Mapping[str, torch.Tensor]:
            named: dict[str, torch.Tensor] = {}
            for layer in layers:
                named[f"{layer.scope}/gemm"] = self.layers[layer.number].projected
                named[f"{layer.scope}/out"] = results[layer.number]
            return named

        return Step(layers, self.refresh, outputs, once, batch_notes(self._batches))

    def _draw_layers(self, generator: torch.Generator) -> list[LayerInputs]:
        """One draw serves all layers, each of which gets it rolled by its own number."""
        sizes = self.sizes
        hidden = torch.randn(sizes.rows, sizes.gemm_in, generator=generator).to(sizes.dtype).to(self.device)
        weight = torch.randn(sizes.gemm_in, sizes.gemm_out, generator=generator) * sizes.gemm_in**-0.5
        weight = weight.to(sizes.dtype).to(self.device)
        payload = torch.randn(sizes.rows, sizes.heads, sizes.head_dim, generator=generator)
        payload[sizes.requests :] = float("nan")
        payload = payload.to(sizes.dtype).to(self.device)
        return [
            LayerInputs(
                hidden=hidden,
                weight=weight.roll(number, 0),
                projected=self.zeros(sizes.rows, sizes.gemm_out),
                out=payload.roll(number, 1),
                lse=self._lse[number],
            )
            for number in range(sizes.layers)
        ]


def _layer(inputs: LayerInputs, combine: Callable[[Scope], None]) -> Callable[[Scope], None]:
    def run(scope: Scope) -> None:
        with scope("gemm"):
            torch.mm(inputs.hidden, inputs.weight, out=inputs.projected)
        combine(scope)

    return run
