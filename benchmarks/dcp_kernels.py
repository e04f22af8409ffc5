"""Times the kernels of `dcp-combine` and `dcp-ag-rs` on a GPU, untraced: microseconds a layer over one CUDA graph.

Each layer has buffers of its own, so that with the default shapes a layer's data has left the L2 cache when its turn
comes again. Arms are interleaved, in alternating order; one arm is measured twice as a control. Beside each time stands
its floor: the bytes that it must move, at the bandwidth of a large device copy measured here.

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
from profkit.kernels.dcp.ag_rs_combine import local_all_gather, local_reduce_scatter
from profkit.kernels.dcp.combine import local_copy
from profkit.kernels.dcp.layout import Layout, buffer_shape
from profkit.kernels.dcp.mask import mask_dcp_empty_shards_, row_mask
from profkit.kernels.dcp.metadata import BatchMetadata, timing_metadata
from profkit.kernels.dcp.pack import PackConfig, pack
from profkit.kernels.dcp.unpack import unpack_combine

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class LayerTensors:
    """One layer's buffers, as in `profkit.kernels.dcp`; `wide_send` and `wide_recv` are of the padded layout."""

    out: torch.Tensor
    lse: torch.Tensor
    send: torch.Tensor
    recv: torch.Tensor
    wide_send: torch.Tensor
    wide_recv: torch.Tensor
    masked: torch.Tensor
    gathered: torch.Tensor
    corrected: torch.Tensor
    result: torch.Tensor

    def send_of(self, layout: Layout) -> torch.Tensor:
        return self.wide_send if layout is Layout.PADDED else self.send

    def recv_of(self, layout: Layout) -> torch.Tensor:
        return self.wide_recv if layout is Layout.PADDED else self.recv


Body = Callable[[LayerTensors], object]


@dataclass(frozen=True)
class Arm:
    """What one layer runs, and the bytes that it must read and write; 0 where launches dominate."""

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
    shape = buffer_shape(ranks, rows, heads, head_dim, dtype)
    wide = buffer_shape(ranks, rows, heads, head_dim, dtype, Layout.PADDED)

    def zeros(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device="cuda")

    return LayerTensors(
        out=torch.randn(rows, heads, head_dim, device="cuda").to(dtype),
        lse=torch.randn(rows, heads, device="cuda"),
        send=zeros(*shape),
        recv=zeros(*shape),
        wide_send=zeros(*wide),
        wide_recv=zeros(*wide),
        masked=torch.zeros(rows, heads, device="cuda"),
        gathered=torch.zeros(ranks, rows, heads, device="cuda"),
        corrected=zeros(ranks, rows, heads // ranks, head_dim),
        result=zeros(rows, heads // ranks, head_dim),
    )


def all_arms(setting: Setting) -> dict[str, Arm]:
    """The arms by name, in the order of the table."""
    seq_lens, starts = setting.batch.seq_lens, setting.batch.query_start_loc
    empty = row_mask(setting.batch.empty.numel(), seq_lens, starts)
    payload, lse, ranks = setting.payload_bytes, setting.lse_bytes, setting.options.ranks
    packed = 2 * (payload + lse)
    combined = payload + lse + payload // ranks

    def eager_mask(layer: LayerTensors) -> None:
        mask_dcp_empty_shards_(layer.lse, seq_lens, starts)

    def plain(layer: LayerTensors) -> None:
        pack(layer.out, layer.lse, layer.send)

    def eager_and_pack(layer: LayerTensors) -> None:
        eager_mask(layer)
        plain(layer)

    def row_masked(layer: LayerTensors) -> None:
        pack(layer.out, layer.lse, layer.send, row_mask=empty)

    def correction(layer: LayerTensors) -> None:
        correct(layer.out, layer.masked, layer.gathered, layer.corrected)

    arms = {"eager mask": Arm(eager_mask), "pack": Arm(plain, packed), "pack, row mask": Arm(row_masked, packed)}
    for layout in Layout:
        arms[f"pack, {layout.value}"] = Arm(partial(packing, layout=layout), packed)
        arms[f"pack, {layout.value}, fused mask"] = Arm(partial(packing, layout=layout, batch=setting.batch), packed)
    arms["eager mask, then pack"] = Arm(eager_and_pack)
    arms["exchange"] = Arm(lambda layer: local_copy(layer.send, layer.recv), packed)
    for layout in Layout:
        arms[f"unpack, {layout.value}"] = Arm(partial(unpacking, layout=layout), combined)
    return arms | {
        "ag-rs mask and copy": Arm(lambda layer: mask_copy(layer.lse, layer.masked, seq_lens, starts)),
        "ag-rs gather": Arm(lambda layer: local_all_gather(layer.masked, layer.gathered)),
        "ag-rs correct": Arm(correction, 2 * payload + lse * ranks),
        "ag-rs scatter": Arm(
            lambda layer: local_reduce_scatter(layer.corrected, layer.result), payload + payload // ranks
        ),
        "pack, again (control)": Arm(plain, packed),
    }


def packing(
    layer: LayerTensors,
    layout: Layout,
    batch: BatchMetadata | None = None,
    config: PackConfig | None = None,
) -> None:
    """Pack in a layout, with the fused mask where there is a batch."""
    metadata = (batch.seq_lens, batch.query_start_loc) if batch else (None, None)
    pack(layer.out, layer.lse, layer.send_of(layout), *metadata, layout=layout, config=config)


def unpacking(layer: LayerTensors, layout: Layout, warps: int | None = None) -> None:
    """Combine what lies in the receive buffer of a layout."""
    unpack_combine(layer.recv_of(layout), layer.result, layout=layout, warps=warps)


def report(device: Device, setting: Setting, arms: Mapping[str, Arm], samples: Mapping[str, Sample]) -> None:
    """Print the table, and write the JSON where it is asked for."""
    options = setting.options
    print(f"{device.name}, torch {device.torch}, triton {device.triton}, ", end="")
    print(f"copy {device.copy_bytes_per_second / 1e12:.2f} TB/s, empty node {device.launch_us:.2f} us")
    shapes = {name: value for name, value in vars(options).items() if name != "output"}
    print(", ".join(f"{name} {value}" for name, value in shapes.items()))
    print(f"{'us per layer':44} {'median':>8} {'p25':>8} {'p75':>8} {'floor':>8} {'ratio':>7}")
    rows = []
    for name, sample in samples.items():
        floor = arms[name].bytes / device.copy_bytes_per_second * 1e6 or None
        ratio = sample.median_us / floor if floor else None
        print(f"{name:44} {sample.median_us:8.2f} {sample.p25_us:8.2f} {sample.p75_us:8.2f}", end=" ")
        print(f"{floor:8.2f} {ratio:7.2f}" if floor and ratio else f"{'-':>8} {'-':>7}")
        rows.append({"arm": name, **asdict(sample), "floor_us": floor})
    if options.output is not None:
        document = {"schema": "profkit.dcp-kernels/2", "device": asdict(device), "options": shapes, "arms": rows}
        options.output.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
