"""Building a step of `dsa-candidates`: its inputs, its buffers, and what each variant launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from profkit.errors import ProfkitError
from profkit.kernels.dsa.apply import MaskForm, apply_candidate_mask
from profkit.kernels.dsa.checksum import row_checksums
from profkit.kernels.dsa.flags import empty_flags, flag_candidates
from profkit.kernels.dsa.inputs import LogitSource, digest_contexts, masked_share, most_tokens
from profkit.kernels.dsa.mask import mask_columns
from profkit.kernels.dsa.select import SelectForm, select_candidate_blocks
from profkit.kernels.shapes import positive
from profkit.model.workload import BuildContext, InputSet, Layer, Scope, Step

#: DeepSeek-V4.1-Flash: layer 20 chooses the candidates, and every fourth layer after it reads them.
SOURCE_LAYER = 20
CONSUMER_SPACING = 4


@dataclass(frozen=True)
class Sizes:
    """The workload's shapes, checked: R rows of W columns, blocks of BS columns, K candidates a row."""

    rows: int
    width: int
    context: int
    block_size: int
    candidates: int
    consumers: int


@dataclass(frozen=True)
class _Buffers:
    """The step's tensors, on the device.

    Args:
        source: ``[R, W]`` fp32, the logits of the layer that chooses; never written.
        logits: ``[R, W]`` fp32 of each consumer, masked in place; not shared, so caches are as cold as in a model.
        ends: ``[R]`` int32, the context of every row, shared by all layers.
        candidates: ``[R, K]`` int32.
        flags: ``[R, edge slot + 16]`` uint8, read by all consumers of the hoisted variant.
    """

    source: torch.Tensor
    logits: list[torch.Tensor]
    ends: torch.Tensor
    candidates: torch.Tensor
    flags: torch.Tensor


@dataclass(frozen=True)
class _Variant:
    """What a variant launches; `mask` is None where the flags are made once, behind the candidates."""

    select: SelectForm
    mask: MaskForm | None


_VARIANTS = {
    "old": _Variant("full-width", "full-width"),
    "new": _Variant("live", "live"),
    "bounded": _Variant("bounded", "bounded"),
    "one-kernel": _Variant("bounded", "one-kernel"),
    "hoisted": _Variant("bounded", None),
}


def build_step(context: BuildContext) -> Step:
    """One decode step of `dsa-candidates`: one row a request, no starts.

    The digest inputs have contexts that the candidates cannot cover, so that a mask left out shows in every row but
    the two which say otherwise. Outputs are the candidates as sorted sets, and a checksum of each row's live columns.

    Raises:
        ProfkitError: an unknown variant, or shapes that do not fit together.
    """
    sizes = checked_sizes(context)
    if context.variant not in _VARIANTS:
        raise ProfkitError(f"dsa-candidates has no variant {context.variant!r}. It has: {', '.join(_VARIANTS)}.")
    variant = _VARIANTS[context.variant]
    generator = torch.Generator(device="cpu").manual_seed(context.seed)
    rows, width, device = sizes.rows, sizes.width, context.device
    pristine = LogitSource(rows, width, sizes.consumers + 1, sizes.block_size, device, generator)
    candidate_columns = sizes.candidates * sizes.block_size
    contexts: dict[InputSet, list[int]] = {
        "timing": [sizes.context] * rows,
        "digest": digest_contexts(rows, width, candidate_columns),
    }
    ends = {name: torch.tensor(tokens, dtype=torch.int32, device=device) for name, tokens in contexts.items()}
    buffers = _Buffers(
        source=pristine.layer(0).clone(memory_format=torch.contiguous_format),
        logits=[torch.empty(rows, width, device=device) for _ in range(sizes.consumers)],
        ends=torch.empty(rows, dtype=torch.int32, device=device),
        candidates=torch.empty(rows, sizes.candidates, dtype=torch.int32, device=device),
        flags=empty_flags(rows, width, sizes.block_size, device),
    )

    def refresh(inputs: InputSet) -> None:
        for number, logits in enumerate(buffers.logits):
            logits.copy_(pristine.layer(number + 1))
        buffers.ends.copy_(ends[inputs])

    def outputs() -> Mapping[str, torch.Tensor]:
        limits = [min(max(int(end), 0), width) for end in buffers.ends.tolist()]
        named = {f"{layers[0].scope}/candidates": buffers.candidates.sort(dim=1).values}
        for layer, logits in zip(layers[1:], buffers.logits, strict=True):
            named[f"{layer.scope}/live_logits"] = row_checksums(logits, limits)
        return named

    refresh("timing")
    layers = [Layer(SOURCE_LAYER, "source", _source(variant, sizes, buffers))]
    for index, logits in enumerate(buffers.logits):
        number = SOURCE_LAYER + CONSUMER_SPACING * (index + 1)
        layers.append(Layer(number, "consumer", _consumer(variant, sizes, buffers, logits)))
    share = masked_share(contexts["digest"], candidate_columns)
    return Step(
        layers=layers,
        refresh=refresh,
        outputs=outputs,
        notes={
            "masked_share_timing": round(masked_share(contexts["timing"], candidate_columns), 4),
            "masked_share_digest": round(share, 4),
            "digest_inputs": f"at least {share:.0%} of the live columns masked",
        },
    )


def _source(variant: _Variant, sizes: Sizes, buffers: _Buffers) -> Callable[[Scope], None]:
    def run(scope: Scope) -> None:
        ends, candidates = buffers.ends, buffers.candidates
        select_candidate_blocks(
            *(buffers.source, None, ends, candidates, sizes.block_size), form=variant.select, scope=scope
        )
        if variant.mask is None:
            with scope("flags"):
                flag_candidates(buffers.flags, candidates, None, ends, sizes.width, sizes.block_size)

    return run


def _consumer(variant: _Variant, sizes: Sizes, buffers: _Buffers, logits: torch.Tensor) -> Callable[[Scope], None]:
    def run(scope: Scope) -> None:
        ends, candidates = buffers.ends, buffers.candidates
        if variant.mask is None:
            with scope("mask"):
                mask_columns(logits, buffers.flags, None, ends, sizes.block_size)
        else:
            apply_candidate_mask(logits, None, ends, candidates, sizes.block_size, form=variant.mask, scope=scope)

    return run


def checked_sizes(context: BuildContext) -> Sizes:
    """The shapes of `context`.

    Raises:
        ProfkitError: one that is too small or too large.
    """
    names = ("rows", "width", "context", "block_size", "candidates", "consumers")
    sizes = Sizes(**positive("dsa-candidates", context, names))
    most = most_tokens(sizes.rows, sizes.consumers + 1)
    if sizes.width > most:
        raise ProfkitError(
            f"dsa-candidates: --shape width={sizes.width} is too wide for {sizes.rows} rows of logits that all differ. "
            f"Give at most {most}, or fewer rows."
        )
    if sizes.context > sizes.width:
        raise ProfkitError(f"dsa-candidates: --shape context={sizes.context} must not be above width={sizes.width}.")
    return sizes
