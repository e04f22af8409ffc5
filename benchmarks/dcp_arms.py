"""Layouts and launches of pack and unpack side by side, and why the eager mask and pack are dearer together.

For choosing, once: it goes when the choice is made. Untraced, as `dcp_kernels.py`, with its options. Results are
checked before they are timed. The parts, printed as they come:

* pack: every layout, heads a program, warps, cache hints; the kernel as it was before.
* unpack: every layout and number of warps; the kernel as it was before.
* the best of each layout: with its masks, and as the chain pack, exchange, unpack.
* together: kernels alone and one behind the other (`dcp_together.py`).
* programmatic: pack launched so that it may start before the kernel in front of it ends. Last, as it may fail.

    python benchmarks/dcp_arms.py --output dcp_arms.json
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from functools import partial
from typing import Any

import dcp_before_pack
import dcp_before_unpack
import torch
from dcp_kernels import Body, LayerTensors, Setting, packing, parser, prepare, unpacking
from dcp_together import programmatic, together
from gpu_timing import this_device

from profkit.kernels.dcp.combine import local_copy
from profkit.kernels.dcp.layout import Layout, bits_dtype, decode_lse, encode_lse, split
from profkit.kernels.dcp.mask import mask_dcp_empty_shards_, row_mask
from profkit.kernels.dcp.metadata import BatchMetadata, digest_metadata
from profkit.kernels.dcp.pack import PackConfig, pack
from profkit.kernels.dcp.reference import combine

#: Heads a program and warps.
SHAPES = ((8, 4), (8, 1), (8, 2), (8, 8), (2, 1), (4, 1), (4, 2), (4, 4), (16, 4), (16, 8), (32, 8), (32, 16))
#: Eviction of loads and cache modifier of stores, at 8 heads and 4 warps.
HINTS = (("evict_first", ""), ("", ".cs"), ("", ".cg"), ("evict_first", ".cs"))
CONFIGS = [PackConfig(heads, warps) for heads, warps in SHAPES] + [
    PackConfig(8, 4, evict, store)  # type: ignore[arg-type]
    for evict, store in HINTS
]
UNPACK_WARPS = (1, 2, 4, 8)


class Table:
    """Measures a part's arms in turn, prints them as they come, and keeps them for the JSON."""

    def __init__(self, setting: Setting, bytes_per_second: float) -> None:
        self._setting = setting
        self._bytes_per_second = bytes_per_second
        self.parts: dict[str, list[dict[str, Any]]] = {}

    def measure(
        self,
        part: str,
        bodies: dict[str, Body],
        moved: int = 0,
        sums: dict[str, tuple[str, ...]] | None = None,
        overhead: str = "",
    ) -> dict[str, float]:
        """Medians in microseconds a layer, by arm.

        Args:
            moved: the bytes that set the floor; 0 for none.
            sums: arm to the arms that it consists of; the excess over them is printed.
            overhead: the arm that costs what every graph does; a sum of arms holds it too often.
        """
        begun = time.perf_counter()
        graphs = {name: self._setting.graph(body) for name, body in bodies.items()}
        samples = self._setting.measure(graphs, self._setting.options.turns)
        floor = moved / self._bytes_per_second * 1e6
        print(f"\n{part} ({time.perf_counter() - begun:.0f} s)" + (f", floor {floor:.2f} us" if moved else ""))
        medians = {name: sample.median_us for name, sample in samples.items()}
        for name, sample in samples.items():
            parts = (sums or {}).get(name, ())
            row = {"arm": name, **asdict(sample), "floor_us": floor or None}
            text = f"  {name:50} {sample.median_us:7.2f} ({sample.p25_us:.2f} - {sample.p75_us:.2f})"
            if moved:
                text += f"  {sample.median_us / floor:.2f} x floor"
            if parts:
                row["parts"] = parts
                counted_twice = medians[overhead] * (len(parts) - 1) if overhead else 0.0
                row["excess_us"] = sample.median_us - sum(medians[one] for one in parts) + counted_twice
                text += f"  {row['excess_us']:+.2f} over {' + '.join(parts)}"
            print(text, flush=True)
            self.parts.setdefault(part, []).append(row)
        return medians


def main() -> None:
    options = parser(__doc__).parse_args()
    device = this_device()
    setting = prepare(options)
    print(f"{device.name}, torch {device.torch}, triton {device.triton}, ", end="")
    print(f"copy {device.copy_bytes_per_second / 1e12:.2f} TB/s, empty node {device.launch_us:.2f} us")
    table = Table(setting, device.copy_bytes_per_second)
    payload, lse = setting.payload_bytes, setting.lse_bytes

    def write() -> None:
        if options.output is not None:
            shapes = {name: value for name, value in vars(options).items() if name != "output"}
            document = {"device": asdict(device), "options": shapes, "parts": table.parts}
            options.output.write_text(json.dumps(document, indent=2) + "\n")

    for layout in Layout:
        for config in CONFIGS:
            check_pack(setting, layout, config, None)
    print("pack: every layout and configuration writes the expected bits")
    packs: dict[str, Body] = {"before": lambda layer: dcp_before_pack.pack(layer.out, layer.lse, layer.send)}
    for layout in Layout:
        for config in CONFIGS:
            packs[pack_name(layout, config)] = partial(packing, layout=layout, config=config)
    pack_us = table.measure("pack", packs, 2 * (payload + lse))

    check_unpack(setting)
    unpacks: dict[str, Body] = {"before": lambda layer: dcp_before_unpack.unpack_combine(layer.recv, layer.result)}
    for layout in Layout:
        for warps in UNPACK_WARPS:
            unpacks[unpack_name(layout, warps)] = partial(unpacking, layout=layout, warps=warps)
    unpack_us = table.measure("unpack", unpacks, payload + lse + payload // options.ranks)
    write()

    best = {
        layout: (
            min(CONFIGS, key=lambda config, layout=layout: pack_us[pack_name(layout, config)]),  # type: ignore[misc]
            min(UNPACK_WARPS, key=lambda warps, layout=layout: unpack_us[unpack_name(layout, warps)]),  # type: ignore[misc]
        )
        for layout in Layout
    }
    for layout, (config, _) in best.items():
        check_pack(setting, layout, config, digest_batch(setting))
    table.measure("the best of each layout", best_arms(setting, best), 2 * (payload + lse))
    together(setting, table)
    write()
    programmatic(setting, table, best[Layout.PLANAR][0])
    write()


def pack_name(layout: Layout, config: PackConfig) -> str:
    hints = [text for text in (config.evict, config.store_cache) if text]
    return " ".join([f"{layout.value}, {config.heads} heads, {config.warps} warps", *hints])


def unpack_name(layout: Layout, warps: int) -> str:
    return f"{layout.value}, {warps} warps"


def digest_batch(setting: Setting) -> BatchMetadata:
    """A batch of the setting's size with about half of its rows empty."""
    options = setting.options
    requests = options.requests or max(1, options.rows * 13 // 14)
    generator = torch.Generator().manual_seed(1)
    return digest_metadata(options.rows, requests, options.rows, options.ranks, generator).to("cuda")


def check_pack(setting: Setting, layout: Layout, config: PackConfig, batch: BatchMetadata | None) -> None:
    """Whether what is packed has the bits of the output and of the eagerly masked LSE.

    Raises:
        SystemExit: it has not.
    """
    layer, ranks = setting.layers[0], setting.options.ranks
    lse = layer.lse.clone()
    if batch is not None:
        mask_dcp_empty_shards_(lse, batch.seq_lens, batch.query_start_loc)
    send = layer.send_of(layout).zero_()
    packing(layer, layout, batch, config)
    payload, slots = split(send, setting.options.head_dim, layout)
    bits = bits_dtype(send.dtype)
    payload_is_right = torch.equal(payload.contiguous().view(bits), by_rank(layer.out, ranks).view(bits))
    if not payload_is_right or not torch.equal(decode_lse(slots), by_rank(lse, ranks)):
        raise SystemExit(f"pack, {pack_name(layout, config)}: wrong bits")


def by_rank(tensor: torch.Tensor, ranks: int) -> torch.Tensor:
    """``[R, H, ...]`` as ``[N, R, h, ...]``."""
    return tensor.unflatten(1, (ranks, -1)).transpose(0, 1).contiguous()


def check_unpack(setting: Setting) -> None:
    """Every layout and number of warps against double precision; prints whether all have the same bits.

    Raises:
        AssertionError: one is further from the reference than its dtype allows.
    """
    options, layer = setting.options, setting.layers[0]
    generator = torch.Generator(device="cuda").manual_seed(2)
    shape = (options.ranks, options.rows, options.heads // options.ranks)
    sent = torch.randn(*shape, options.head_dim, device="cuda", generator=generator).to(layer.out.dtype)
    lse = 3 * torch.randn(shape, device="cuda", generator=generator)
    lse[0, ::2], sent[0, ::2] = float("-inf"), float("nan")
    expected, _ = combine(sent, lse)

    def fill(layout: Layout) -> None:
        payload, slots = split(layer.recv_of(layout), options.head_dim, layout)
        payload.copy_(sent)
        slots.copy_(encode_lse(lse, sent.dtype).view(sent.dtype))

    results = []
    for layout in Layout:
        fill(layout)
        for warps in UNPACK_WARPS:
            unpacking(layer, layout, warps)
            torch.testing.assert_close(layer.result.double(), expected, rtol=3e-2, atol=3e-2)
            results.append(layer.result.clone())
    fill(Layout.INTERLEAVED)
    dcp_before_unpack.unpack_combine(layer.recv, layer.result)
    same = all(torch.equal(results[0], result) for result in results)
    before = torch.equal(results[0], layer.result)
    print("unpack: every layout and number of warps agrees with the reference; ", end="")
    print(f"equal in bits among themselves: {same}, with the kernel before: {before}")


def best_arms(setting: Setting, best: dict[Layout, tuple[PackConfig, int]]) -> dict[str, Body]:
    """The best configuration of each layout with and without mask, and the chain of a layer."""
    batch = setting.batch
    rows = row_mask(setting.options.rows, batch.seq_lens, batch.query_start_loc)
    arms: dict[str, Body] = {}
    for layout, (config, _) in best.items():
        name = pack_name(layout, config)
        arms[name] = partial(packing, layout=layout, config=config)
        arms[f"{name}, again"] = partial(packing, layout=layout, config=config)
        arms[f"{name}, fused mask"] = partial(packing, layout=layout, batch=batch, config=config)

        def row_masked(layer: LayerTensors, layout: Layout = layout, config: PackConfig = config) -> None:
            pack(layer.out, layer.lse, layer.send_of(layout), row_mask=rows, layout=layout, config=config)

        arms[f"{name}, row mask"] = row_masked
    for layout, (config, warps) in best.items():

        def chain(
            layer: LayerTensors, layout: Layout = layout, config: PackConfig = config, warps: int = warps
        ) -> None:
            packing(layer, layout, batch, config)
            local_copy(layer.send_of(layout), layer.recv_of(layout))
            unpacking(layer, layout, warps)

        arms[f"{layout.value}: fused pack, exchange, unpack"] = chain

    def chain_before(layer: LayerTensors) -> None:
        dcp_before_pack.pack(layer.out, layer.lse, layer.send, batch.seq_lens, batch.query_start_loc)
        local_copy(layer.send, layer.recv)
        dcp_before_unpack.unpack_combine(layer.recv, layer.result)

    arms["before: fused pack, exchange, unpack"] = chain_before
    return arms


if __name__ == "__main__":
    main()
