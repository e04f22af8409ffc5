"""One layer's combine, in every variant: mask and pack, exchange, unpack.

It is what `dcp-combine` measures alone, and what a whole MLA step runs behind its attention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from profkit.errors import ProfkitError
from profkit.kernels.dcp.layout import Layout
from profkit.kernels.dcp.mask import mask_dcp_empty_shards_, row_mask
from profkit.kernels.dcp.metadata import BatchMetadata
from profkit.kernels.dcp.pack import pack
from profkit.kernels.dcp.unpack import unpack_combine
from profkit.model.workload import Scope

#: Moves ``send`` to ``recv``, both ``[N, R, h, W]``, on the current stream: ``recv[n]`` is what rank n sent here.
Collective = Callable[[torch.Tensor, torch.Tensor], None]


def local_copy(send: torch.Tensor, recv: torch.Tensor) -> None:
    """The stand-in for the all-to-all on one GPU: the whole buffer, device-locally, as one memcpy."""
    recv.copy_(send)


@dataclass(frozen=True)
class Metadata:
    """What all layers share: ``seq_lens [S]`` and ``query_start_loc [S + 1]``, int32 on the device."""

    seq_lens: torch.Tensor
    query_start_loc: torch.Tensor

    @classmethod
    def zeros(cls, slots: int, device: str) -> Metadata:
        """For at most `slots` requests."""
        return cls(
            torch.zeros(slots, dtype=torch.int32, device=device),
            torch.zeros(slots + 1, dtype=torch.int32, device=device),
        )

    def write(self, batch: BatchMetadata) -> None:
        """Copy a batch of as many slots into these addresses."""
        self.seq_lens.copy_(batch.seq_lens)
        self.query_start_loc.copy_(batch.query_start_loc)


@dataclass(frozen=True)
class CombineBuffers:
    """What one layer's combine reads and writes.

    Args:
        out: ``[R, H, D]``, the partial attention output of this rank.
        lse: ``[R, H]`` fp32, its LSE; the eager mask overwrites it.
        send, recv: ``[N, R, h, W]``, in the variant's layout (see `layout.buffer_shape`).
        result: ``[R, h, D]``.
    """

    out: torch.Tensor
    lse: torch.Tensor
    send: torch.Tensor
    recv: torch.Tensor
    result: torch.Tensor


class _RowMask:
    """The hoisted variants' row mask: computed once a step, read by every layer."""

    def __init__(self, rows: int, metadata: Metadata) -> None:
        self._rows = rows
        self._metadata = metadata
        self._mask: torch.Tensor | None = None

    def compute(self, scope: Scope) -> None:
        with scope("row_mask"):
            # Kept, so that a captured graph's memory for it stays in use. The ops are the eager mask's own.
            self._mask = row_mask(self._rows, self._metadata.seq_lens, self._metadata.query_start_loc)

    @property
    def mask(self) -> torch.Tensor:
        if self._mask is None:
            raise RuntimeError("the row mask is read before Step.once computed it")
        return self._mask


_MaskAndPack = Callable[[Scope, CombineBuffers], None]

#: Of the variants whose buffers are not as upstream sends them.
_LAYOUTS = {"fused-planar": Layout.PLANAR, "fused-padded": Layout.PADDED}


class Combine:
    """The combine of every layer of a step, in one variant.

    Args:
        workload: named in errors.
        variant: one of `COMBINE_VARIANTS`.
        rows: of the batch, padding included.
        metadata: what all layers share.
        collective: the exchange.

    Raises:
        ProfkitError: an unknown variant.
    """

    def __init__(self, workload: str, variant: str, rows: int, metadata: Metadata, collective: Collective) -> None:
        self._metadata = metadata
        self._collective = collective
        self._row_mask = _RowMask(rows, metadata)
        arms = self._arms()
        if variant not in arms:
            raise ProfkitError(f"{workload} has no variant {variant!r}. It has: {', '.join(arms)}.")
        self._mask_and_pack = arms[variant]
        #: Of the buffers `send` and `recv`.
        self.layout = _LAYOUTS.get(variant, Layout.INTERLEAVED)
        #: Work done once a step, before the layers; None where the variant has none.
        self.once = self._row_mask.compute if variant.startswith("hoisted") else None

    def run(self, scope: Scope, buffers: CombineBuffers) -> None:
        """Launch one layer's combine on the current stream, inside the range ``combine``."""
        with scope("combine"):
            self._mask_and_pack(scope, buffers)
            with scope("exchange"):
                self._collective(buffers.send, buffers.recv)
            with scope("unpack"):
                unpack_combine(buffers.recv, buffers.result, layout=self.layout)

    def _arms(self) -> dict[str, _MaskAndPack]:
        """How each variant brings a layer's output and LSE into the send buffer."""
        metadata, hoisted = self._metadata, self._row_mask

        def eager(scope: Scope, layer: CombineBuffers) -> None:
            with scope("mask"):
                mask_dcp_empty_shards_(layer.lse, metadata.seq_lens, metadata.query_start_loc)
            pack_only(scope, layer)

        def fused(scope: Scope, layer: CombineBuffers) -> None:
            with scope("pack"):
                pack(
                    layer.out,
                    layer.lse,
                    layer.send,
                    metadata.seq_lens,
                    metadata.query_start_loc,
                    layout=self.layout,
                )

        def hoisted_fill(scope: Scope, layer: CombineBuffers) -> None:
            with scope("mask"):
                layer.lse.masked_fill_(hoisted.mask.unsqueeze(1), float("-inf"))
            pack_only(scope, layer)

        def hoisted_pack(scope: Scope, layer: CombineBuffers) -> None:
            with scope("pack"):
                pack(layer.out, layer.lse, layer.send, row_mask=hoisted.mask)

        def pack_only(scope: Scope, layer: CombineBuffers) -> None:
            with scope("pack"):
                pack(layer.out, layer.lse, layer.send)

        return {
            "eager": eager,
            "fused": fused,
            **dict.fromkeys(_LAYOUTS, fused),
            "hoisted": hoisted_fill,
            "hoisted-pack": hoisted_pack,
            "dropped": pack_only,
        }
