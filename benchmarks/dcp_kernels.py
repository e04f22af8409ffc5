"""Times the kernels of `dcp-combine` and `dcp-ag-rs` on a GPU, untraced: microseconds a layer over one CUDA graph.

Each layer has buffers of its own, so that with the default shapes a layer's data has left the L2 cache when its turn
comes again. Arms are interleaved, in alternating order; one arm is measured twice as a control. Beside each time stands
its floor: the bytes that it must move, at the bandwidth of a large device copy measured here. The whole combines are
compared first: the same bits in every layout, with either mask. The table printed is Markdown.

    python benchmarks/dcp_kernels.py --output dcp_kernels.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from gpu_timing import Device, Sample, capture, measure, this_device

from profkit.kernels.dcp.ag_rs import correct, mask_copy
from profkit.kernels.dcp.ag_rs_combine import AgRsBuffers, AgRsCombine, local_all_gather, local_reduce_scatter
from profkit.kernels.dcp.combine import Metadata, local_copy
from profkit.kernels.dcp.layout import Layout, bits_dtype, buffer_shape
from profkit.kernels.dcp.mask import mask_dcp_empty_shards_, row_mask
from profkit.kernels.dcp.metadata import BatchMetadata, timing_metadata
from profkit.kernels.dcp.pack import pack
from profkit.kernels.dcp.unpack import unpack_combine
from profkit.model.workload import no_ranges

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class LayerTensors:
    """One layer's buffers, as in `profkit.kernels.dcp`; `ag_rs` shares the inputs and has the rest of its own."""

    out: torch.Tensor
    lse: torch.Tensor
    send: Mapping[Layout, torch.Tensor]
    recv: Mapping[Layout, torch.Tensor]
    result: torch.Tensor
    ag_rs: AgRsBuffers


Body = Callable[[LayerTensors], object]
MaskAndPack = Callable[[LayerTensors, Layout, BatchMetadata], None]


@dataclass(frozen=True)
class Arm:
    """What one layer runs, and the bytes that it must read and write.

    0 where launches dominate, and for several kernels in a row, which find each other's data in L2.
    """

    body: Body
    bytes: int = 0


@dataclass(frozen=True)
class Setting:
    """What every arm works on."""

    options: argparse.Namespace
    batch: BatchMetadata
    layers: list[LayerTensors]

    @property
    def payload_bytes(self) -> int:
        return self.layers[0].out.numel() * self.layers[0].out.itemsize

    @property
    def lse_bytes(self) -> int:
        return self.layers[0].lse.numel() * 4

    def graph(self, body: Body) -> torch.cuda.CUDAGraph:
        return capture([partial(body, layer) for layer in self.layers])

    def measure(self, graphs: Mapping[str, torch.cuda.CUDAGraph], turns: int) -> dict[str, Sample]:
        return measure(graphs, len(self.layers), turns)


def main() -> None:
    options = parser(__doc__).parse_args()
    device = this_device()
    setting = prepare(options)
    check(setting)
    arms = all_arms(setting)
    samples = setting.measure({name: setting.graph(arm.body) for name, arm in arms.items()}, options.turns)
    report(device, setting, arms, samples)


def parser(description: str | None) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=56)
    options.add_argument("--requests", type=int, default=0, help="0: 13 of every 14 rows")
    options.add_argument("--heads", type=int, default=96)
    options.add_argument("--ranks", type=int, default=8)
    options.add_argument("--head-dim", type=int, default=512)
    options.add_argument("--layers", type=int, default=24)
    options.add_argument("--dtype", choices=sorted(DTYPES), default="bf16")
    options.add_argument("--turns", type=int, default=10, help="times that every arm's turn comes")
    options.add_argument("--output", type=Path, default=None, help="write the results there as JSON")
    return options


def prepare(options: argparse.Namespace) -> Setting:
    """The batch and every layer's tensors."""
    requests = options.requests or max(1, options.rows * 13 // 14)
    generator = torch.Generator().manual_seed(0)
    batch = timing_metadata(options.rows, requests, options.rows, options.ranks, generator).to("cuda")
    return Setting(options, batch, [layer_tensors(options) for _ in range(options.layers)])


def layer_tensors(options: argparse.Namespace) -> LayerTensors:
    rows, heads, ranks, head_dim = options.rows, options.heads, options.ranks, options.head_dim
    dtype = DTYPES[options.dtype]

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device="cuda")

    def exchanged() -> dict[Layout, torch.Tensor]:
        shapes = {layout: buffer_shape(ranks, rows, heads, head_dim, dtype, layout) for layout in Layout}
        # Layouts of one size share a buffer: no arm has two of them.
        buffers = {shape: zeros(*shape) for shape in set(shapes.values())}
        return {layout: buffers[shape] for layout, shape in shapes.items()}

    out = torch.randn(rows, heads, head_dim, device="cuda").to(dtype)
    lse = torch.randn(rows, heads, device="cuda")
    ag_rs = AgRsBuffers(
        out=out,
        lse=lse,
        masked=torch.zeros(rows, heads, device="cuda"),
        gathered=torch.zeros(ranks, rows, heads, device="cuda"),
        corrected=zeros(ranks, rows, heads // ranks, head_dim),
        result=zeros(rows, heads // ranks, head_dim),
    )
    return LayerTensors(out, lse, exchanged(), exchanged(), zeros(rows, heads // ranks, head_dim), ag_rs)


def masking(layer: LayerTensors, batch: BatchMetadata) -> None:
    """The eager mask, which overwrites the layer's LSE."""
    mask_dcp_empty_shards_(layer.lse, batch.seq_lens, batch.query_start_loc)


def packing(layer: LayerTensors, layout: Layout, batch: BatchMetadata | None = None) -> None:
    """Pack in a layout, with the fused mask where there is a batch."""
    metadata = (batch.seq_lens, batch.query_start_loc) if batch else (None, None)
    pack(layer.out, layer.lse, layer.send[layout], *metadata, layout=layout)


def masking_and_packing(layer: LayerTensors, layout: Layout, batch: BatchMetadata) -> None:
    masking(layer, batch)
    packing(layer, layout)


def exchanging(layer: LayerTensors, layout: Layout) -> None:
    local_copy(layer.send[layout], layer.recv[layout])


def unpacking(layer: LayerTensors, layout: Layout) -> None:
    """Combine what lies in the receive buffer of a layout."""
    unpack_combine(layer.recv[layout], layer.result, layout=layout)


def combining(layer: LayerTensors, layout: Layout, batch: BatchMetadata, mask_and_pack: MaskAndPack) -> None:
    """A layer's whole combine, with the eager or the fused mask."""
    mask_and_pack(layer, layout, batch)
    exchanging(layer, layout)
    unpacking(layer, layout)


def check(setting: Setting) -> None:
    """Compile the whole combines, and compare their results.

    Raises:
        SystemExit: one differs in a bit, or is no number.
    """
    layer = setting.layers[0]
    results = {}
    # The fused mask first: it leaves the LSE as it was.
    for name, mask_and_pack in (("fused", packing), ("eager", masking_and_packing)):
        for layout in Layout:
            layer.result.fill_(float("nan"))
            combining(layer, layout, setting.batch, mask_and_pack)
            results[f"{name}, {layout.value}"] = layer.result.view(bits_dtype(layer.result.dtype)).clone()
    first, *others = results
    wrong = [name for name in others if not torch.equal(results[name], results[first])]
    if wrong or layer.result.isnan().any():
        raise SystemExit(f"combines differ from {first!r} or are NaN: {', '.join(wrong)}")


def all_arms(setting: Setting) -> dict[str, Arm]:
    """The arms by name, in the order of the table."""
    batch = setting.batch
    metadata = Metadata(batch.seq_lens, batch.query_start_loc)
    empty = row_mask(batch.empty.numel(), batch.seq_lens, batch.query_start_loc)
    payload, lse, ranks = setting.payload_bytes, setting.lse_bytes, setting.options.ranks
    packed = 2 * (payload + lse)
    unpacked = payload + lse + payload // ranks
    corrected, scattered = 2 * payload + lse * ranks, payload + payload // ranks

    def row_masked(layer: LayerTensors) -> None:
        pack(layer.out, layer.lse, layer.send[Layout.INTERLEAVED], row_mask=empty)

    def of_layouts(name: str, body: Callable[..., None], moved: int = 0, **fixed: object) -> dict[str, Arm]:
        return {f"{name}, {layout.value}": Arm(partial(body, layout=layout, **fixed), moved) for layout in Layout}

    def ag_rs_whole(variant: str) -> Arm:
        combine = AgRsCombine("dcp-ag-rs", variant, metadata)
        return Arm(lambda layer: combine.run(no_ranges, layer.ag_rs))

    return {
        "eager mask": Arm(partial(masking, batch=batch)),
        **of_layouts("pack", packing, packed),
        **of_layouts("pack with fused mask", packing, packed, batch=batch),
        "pack with row mask, interleaved": Arm(row_masked, packed),
        **of_layouts("eager mask, then pack", masking_and_packing, batch=batch),
        **of_layouts("exchange", exchanging, packed),
        **of_layouts("unpack", unpacking, unpacked),
        **of_layouts("whole combine, eager mask", combining, batch=batch, mask_and_pack=masking_and_packing),
        **of_layouts("whole combine, fused mask", combining, batch=batch, mask_and_pack=packing),
        "ag-rs mask and copy": Arm(
            lambda layer: mask_copy(layer.lse, layer.ag_rs.masked, batch.seq_lens, batch.query_start_loc)
        ),
        "ag-rs gather": Arm(lambda layer: local_all_gather(layer.ag_rs.masked, layer.ag_rs.gathered)),
        "ag-rs correct": Arm(
            lambda layer: correct(layer.out, layer.ag_rs.masked, layer.ag_rs.gathered, layer.ag_rs.corrected), corrected
        ),
        "ag-rs scatter": Arm(lambda layer: local_reduce_scatter(layer.ag_rs.corrected, layer.ag_rs.result), scattered),
        "whole ag-rs combine, eager mask": ag_rs_whole("eager"),
        "whole ag-rs combine, fused mask": ag_rs_whole("fused"),
        "pack, interleaved, again (control)": Arm(partial(packing, layout=Layout.INTERLEAVED), packed),
    }


def report(device: Device, setting: Setting, arms: Mapping[str, Arm], samples: Mapping[str, Sample]) -> None:
    """Print the table, and write the JSON where it is asked for."""
    options = setting.options
    print(f"{device.name}, torch {device.torch}, triton {device.triton}, ", end="")
    print(f"copy {device.copy_bytes_per_second / 1e12:.2f} TB/s, empty node {device.launch_us:.2f} us")
    shapes = {name: value for name, value in vars(options).items() if name != "output"}
    print(", ".join(f"{name} {value}" for name, value in shapes.items()))
    print(f"\n| {'µs a layer':38} | median | quartiles | floor | ratio |\n|---|---:|---:|---:|---:|")
    rows = []
    for name, sample in samples.items():
        floor = arms[name].bytes / device.copy_bytes_per_second * 1e6 or None
        ratio = sample.median_us / floor if floor else None
        print(f"| {name:38} | {sample.median_us:.2f} | {sample.p25_us:.2f}–{sample.p75_us:.2f} |", end="")
        print(f" {floor:.2f} | {ratio:.2f} |" if floor and ratio else " | |")
        rows.append({"arm": name, **asdict(sample), "floor_us": floor})
    if options.output is not None:
        document = {"schema": "profkit.dcp-kernels/2", "device": asdict(device), "options": shapes, "arms": rows}
        options.output.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
