"""Parts of `dcp_arms.py`: what pack can be launched as, and what it is measured within."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dcp_kernels import Body, LayerTensors, packing, unpacking

from profkit.kernels.dcp.combine import local_copy
from profkit.kernels.dcp.layout import Layout
from profkit.kernels.dcp.mask import mask_dcp_empty_shards_
from profkit.kernels.dcp.metadata import BatchMetadata
from profkit.kernels.dcp.pack import PackConfig, default_config

#: Eviction of the payload's loads and cache modifier of its stores.
HINTS = (("", ""), ("evict_first", ""), ("", ".cs"), ("evict_first", ".cs"), ("evict_first", ".cg"))
#: Heads a program and warps.
SHAPES = ((8, 4), (4, 2), (8, 1), (8, 2), (16, 4), (16, 2))
UNPACK_WARPS = (2, 4)

MASK_PACK = "eager mask > pack"
FUSED_PACK = "fused pack"


@dataclass(frozen=True)
class Choice:
    """A layout of the buffers and a launch of pack."""

    layout: Layout
    config: PackConfig

    def __str__(self) -> str:
        config = self.config
        hints = [text for text in (config.evict, config.store_cache) if text] or ["no hints"]
        return " ".join([f"{self.layout.value}, {config.heads} heads, {config.warps} warps,", *hints])


CHOICES = [
    Choice(layout, PackConfig(heads, warps, evict, store))  # type: ignore[arg-type]
    for layout in Layout
    for evict, store in HINTS
    for heads, warps in SHAPES
]

#: Packs a layer, with the fused mask where there is a batch.
Launch = Callable[[LayerTensors, Choice, BatchMetadata | None], None]


def present(head_dim: int) -> Choice:
    """What pack does now where nothing is asked for."""
    return Choice(Layout.INTERLEAVED, default_config(head_dim))


def plain(layer: LayerTensors, choice: Choice, batch: BatchMetadata | None) -> None:
    """Pack as it is."""
    packing(layer, choice.layout, batch, choice.config)


def combines() -> dict[str, tuple[str, int]]:
    """The name of every whole combine, to what comes before its exchange and the warps of its unpack."""
    return {
        f"{head} > exchange > unpack, {warps} warps": (head, warps)
        for head in (MASK_PACK, FUSED_PACK)
        for warps in UNPACK_WARPS
    }


def contexts(batch: BatchMetadata, launch: Launch = plain) -> dict[str, Callable[[Choice], Body]]:
    """What a layer runs, by name, for a choice."""

    def pack_alone(choice: Choice) -> Body:
        return lambda layer: launch(layer, choice, None)

    def fused_alone(choice: Choice) -> Body:
        return lambda layer: launch(layer, choice, batch)

    def behind_mask(choice: Choice) -> Body:
        def run(layer: LayerTensors) -> None:
            mask_dcp_empty_shards_(layer.lse, batch.seq_lens, batch.query_start_loc)
            launch(layer, choice, None)

        return run

    heads = {"pack": pack_alone, FUSED_PACK: fused_alone, MASK_PACK: behind_mask}

    def combine(head: str, warps: int) -> Callable[[Choice], Body]:
        def of(choice: Choice) -> Body:
            first = heads[head](choice)

            def run(layer: LayerTensors) -> None:
                first(layer)
                local_copy(layer.send_of(choice.layout), layer.recv_of(choice.layout))
                unpacking(layer, choice.layout, warps)

            return run

        return of

    return heads | {name: combine(*parts) for name, parts in combines().items()}
