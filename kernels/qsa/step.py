"""Building a step of `qsa-attention`: its layers, its two batches, and what each variant launches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import torch

from profkit.errors import ProfkitError
from profkit.kernels.qsa.attention import attend
from profkit.kernels.qsa.inputs import Batch, digest_batch, timing_batch
from profkit.kernels.qsa.merge import LOOP, PLAIN, Merge
from profkit.kernels.qsa.operands import Operands, Workspace
from profkit.kernels.qsa.reference import gated_attention
from profkit.kernels.qsa.sizes import Sizes, draw_operands, sizes_of
from profkit.kernels.qsa.tables import Launch, entry, launch, region, table_for
from profkit.kernels.qsa.variants import DROPPED, LOOP_SUFFIX, PLAIN_SUFFIX, VARIANTS, table_of
from profkit.model.workload import BuildContext, InputSet, Layer, References, Scope, Step

#: rtol and atol: those of the upstream kernel's tests.
TOLERANCE = (2e-2, 2e-2)


def build_step(context: BuildContext) -> Step:
    """One step of `qsa-attention`.

    Every layer has a cache, a query and a batch of its own; nothing but the splits' workspace is shared.

    Args:
        context: shapes, variant, device and seed. Random inputs are drawn on the device.

    Raises:
        ProfkitError: an unknown variant, or shapes that do not fit together.
    """
    merge = merge_of(context.variant)
    sizes = sizes_of(context)
    chosen = entry(table_of(context.variant), sizes.batch.rows, sizes.kv_heads, prefill=sizes.prefill, fp8=sizes.fp8)
    launched = launch(chosen, sizes.width)
    generator = torch.Generator(device=context.device).manual_seed(context.seed)
    numbers = range(sizes.layers)
    batches: dict[InputSet, list[Batch]] = {
        "timing": [timing_batch(sizes.batch, generator) for _ in numbers],
        "digest": [digest_batch(sizes.batch, generator) for _ in numbers],
    }
    running = [batch.clone() for batch in batches["timing"]]
    operands = [draw_operands(sizes, batch, generator) for batch in running]
    outputs = [torch.zeros_like(layer.query) for layer in operands]
    workspace = Workspace(launched.splits, operands[0].query)

    def layer(number: int) -> Callable[[Scope], None]:
        seen = half_of_cache(operands[number]) if context.variant == DROPPED else operands[number]
        return lambda scope: attend(seen, launched, outputs[number], workspace, merge, scope)

    def refresh(inputs: InputSet) -> None:
        for batch, content in zip(running, batches[inputs], strict=True):
            batch.copy_(content)

    def references() -> Mapping[str, torch.Tensor]:
        return {f"{layers[number].scope}/out": gated_attention(operands[number]) for number in numbers}

    layers = [Layer(number, "qsa", layer(number)) for number in numbers]
    return Step(
        layers=layers,
        refresh=refresh,
        outputs=lambda: {f"{layers[number].scope}/out": outputs[number] for number in numbers},
        notes=_notes(context, sizes, launched, batches["digest"][0]),
        references=References(references, *TOLERANCE),
    )


def merge_of(variant: str) -> Merge | None:
    """How `variant` merges; None where the number of splits decides.

    Raises:
        ProfkitError: an unknown variant.
    """
    if variant not in VARIANTS:
        raise ProfkitError(f"qsa-attention has no variant {variant!r}. It has: {', '.join(VARIANTS)}.")
    if variant.endswith(LOOP_SUFFIX):
        return LOOP
    return PLAIN if variant.endswith(PLAIN_SUFFIX) else None


def half_of_cache(operands: Operands) -> Operands:
    """The same with the second half of the cache's blocks out of reach."""
    blocks = operands.keys.shape[0] // 2
    return dataclasses.replace(operands, keys=operands.keys[:blocks], values=operands.values[:blocks])


def _notes(context: BuildContext, sizes: Sizes, launched: Launch, digest: Batch) -> dict[str, object]:
    """What is worth knowing beside a run.

    Args:
        digest: the digest batch of one layer; those of the others differ in their tokens alone.
    """
    requests = digest.token_to_req
    inert = int(((requests < 0) | (requests >= sizes.batch.requests)).sum())
    short = int((digest.indices[:, -1] < sizes.batch.budget).sum())
    notes: dict[str, object] = {
        "region": region(sizes.batch.rows, sizes.kv_heads, prefill=sizes.prefill),
        "block_n": launched.block_n,
        "splits": launched.splits,
        "warps": launched.warps,
        "digest_inputs": f"{short} of {sizes.batch.rows} rows with a short context and {inert} of no request, "
        "gaps in selections, missing pages",
    }
    if context.device != "cpu":
        device = torch.cuda.get_device_properties(torch.cuda.current_device())
        notes["table_of_device"] = table_for((device.major, device.minor), device.multi_processor_count)
    return notes
