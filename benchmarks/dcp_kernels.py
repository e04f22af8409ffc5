"""Times the kernels of `dcp-combine` on a GPU, untraced: microseconds a layer over one CUDA graph of all layers.

Each layer has buffers of its own, so that with the default shapes a layer's data has left the L2 cache when its turn
comes again. Arms are interleaved, in alternating order; one arm is measured twice as a control. Beside each time stands
its floor: the bytes that it must move, at the bandwidth of a large device copy measured here.

    python benchmarks/dcp_kernels.py --output dcp_kernels.json
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import triton

from profkit.kernels.dcp.combine import local_copy
from profkit.kernels.dcp.layout import buffer_shape
from profkit.kernels.dcp.mask import mask_dcp_empty_shards_, row_mask
from profkit.kernels.dcp.metadata import BatchMetadata, timing_metadata
from profkit.kernels.dcp.pack import pack
from profkit.kernels.dcp.unpack import unpack_combine

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
COPY_BYTES = 1 << 30
PACKS = ("pack", "pack with fused mask", "pack with row mask", "pack, again (control)")


@dataclass(frozen=True)
class LayerTensors:
    """One layer's buffers, as in `profkit.kernels.dcp`."""

    out: torch.Tensor
    lse: torch.Tensor
    send: torch.Tensor
    recv: torch.Tensor
    result: torch.Tensor


@dataclass(frozen=True)
class Measurement:
    """One arm: microseconds a layer, and the floor that its bytes set (null where launches dominate)."""

    arm: str
    median_us: float
    p25_us: float
    p75_us: float
    floor_us: float | None


def main() -> None:
    options = parse_options()
    if not torch.cuda.is_available():
        raise SystemExit("dcp_kernels.py measures a GPU, and torch sees none here.")
    dtype = DTYPES[options.dtype]
    requests = options.requests or max(1, options.rows * 13 // 14)
    generator = torch.Generator().manual_seed(0)
    batch = timing_metadata(options.rows, requests, options.rows, options.ranks, generator).to("cuda")
    layers = [layer_tensors(options, dtype) for _ in range(options.layers)]
    bandwidth = copy_bandwidth()

    payload = options.rows * options.heads * options.head_dim * dtype.itemsize
    buffer = layers[0].send.numel() * dtype.itemsize
    lse = options.rows * options.heads * 4
    moved_bytes = {
        **dict.fromkeys(PACKS, payload + lse + buffer),
        "exchange": 2 * buffer,
        "unpack": buffer + payload // options.ranks,
    }
    # Held until the last replay: the graphs read tensors that the bodies own.
    bodies = arms(batch)
    graphs = {name: capture(body, layers) for name, body in bodies.items()}
    samples = measure(graphs, options.rounds, options.replays)

    measurements = []
    for name, step_us in samples.items():
        low, middle, high = statistics.quantiles([value / options.layers for value in step_us], n=4)
        floor = moved_bytes[name] / bandwidth * 1e6 if name in moved_bytes else None
        measurements.append(Measurement(name, middle, low, high, floor))
    report(options, bandwidth, measurements)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=56)
    parser.add_argument("--requests", type=int, default=0, help="0: 13 of every 14 rows")
    parser.add_argument("--heads", type=int, default=96)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=512)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="bf16")
    parser.add_argument("--rounds", type=int, default=10, help="times that every arm's turn comes")
    parser.add_argument("--replays", type=int, default=20, help="graph replays a turn")
    parser.add_argument("--output", type=Path, default=None, help="write the results there as JSON")
    return parser.parse_args()


def layer_tensors(options: argparse.Namespace, dtype: torch.dtype) -> LayerTensors:
    rows, heads, ranks, head_dim = options.rows, options.heads, options.ranks, options.head_dim
    shape = buffer_shape(ranks, rows, heads, head_dim, dtype)
    return LayerTensors(
        out=torch.randn(rows, heads, head_dim, device="cuda").to(dtype),
        lse=torch.randn(rows, heads, device="cuda"),
        send=torch.zeros(shape, dtype=dtype, device="cuda"),
        recv=torch.zeros(shape, dtype=dtype, device="cuda"),
        result=torch.zeros(rows, heads // ranks, head_dim, dtype=dtype, device="cuda"),
    )


def arms(batch: BatchMetadata) -> dict[str, Callable[[LayerTensors], None]]:
    """What one layer runs, by the arm's name."""
    seq_lens, starts = batch.seq_lens, batch.query_start_loc
    empty = row_mask(batch.empty.numel(), seq_lens, starts)

    def eager_mask(layer: LayerTensors) -> None:
        mask_dcp_empty_shards_(layer.lse, seq_lens, starts)

    def plain(layer: LayerTensors) -> None:
        pack(layer.out, layer.lse, layer.send)

    def eager_and_pack(layer: LayerTensors) -> None:
        eager_mask(layer)
        plain(layer)

    return {
        "eager mask": eager_mask,
        "pack": plain,
        "pack with fused mask": lambda layer: pack(layer.out, layer.lse, layer.send, seq_lens, starts),
        "pack with row mask": lambda layer: pack(layer.out, layer.lse, layer.send, row_mask=empty),
        "eager mask + pack": eager_and_pack,
        "exchange": lambda layer: local_copy(layer.send, layer.recv),
        "unpack": lambda layer: unpack_combine(layer.recv, layer.result),
        "pack, again (control)": plain,
    }


def capture(body: Callable[[LayerTensors], None], layers: list[LayerTensors]) -> torch.cuda.CUDAGraph:
    """A graph that runs `body` for every layer, after a run outside it that compiles what there is to compile."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for layer in layers:
            body(layer)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for layer in layers:
            body(layer)
    return graph


def measure(graphs: dict[str, torch.cuda.CUDAGraph], rounds: int, replays: int) -> dict[str, list[float]]:
    """Microseconds of every replay, by arm."""
    samples: dict[str, list[float]] = {name: [] for name in graphs}
    for turn in range(rounds):
        names = list(graphs) if turn % 2 == 0 else list(reversed(graphs))
        for name in names:
            # The first replay of a turn finds the caches as the arm before left them.
            graphs[name].replay()
            samples[name] += timed_us(graphs[name].replay, replays)
    return samples


def timed_us(run: Callable[[], None], count: int) -> list[float]:
    """Microseconds of each of `count` runs on the current stream, by CUDA events."""
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
    for start, end in events:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) * 1e3 for start, end in events]


def copy_bandwidth() -> float:
    """Bytes a second, read plus written, of a device copy far larger than the L2 cache."""
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)

    timed_us(copy, 3)
    return 2 * COPY_BYTES / (statistics.median(timed_us(copy, 10)) * 1e-6)


def report(options: argparse.Namespace, bandwidth: float, measurements: list[Measurement]) -> None:
    device = torch.cuda.get_device_name()
    print(f"{device}, torch {torch.__version__}, triton {triton.__version__}, copy {bandwidth / 1e12:.2f} TB/s")
    print(
        f"rows {options.rows}, heads {options.heads}, ranks {options.ranks}, {options.layers} layers, {options.dtype}"
    )
    print(f"{'us per layer':24} {'median':>8} {'p25':>8} {'p75':>8} {'floor':>8}")
    for row in measurements:
        floor = "-" if row.floor_us is None else f"{row.floor_us:.2f}"
        print(f"{row.arm:24} {row.median_us:8.2f} {row.p25_us:8.2f} {row.p75_us:8.2f} {floor:>8}")
    if options.output is not None:
        shapes = {name: value for name, value in vars(options).items() if name != "output"}
        document = {
            "schema": "profkit.dcp-kernels/1",
            "device": device,
            "torch": torch.__version__,
            "triton": triton.__version__,
            "copy_bytes_per_second": bandwidth,
            "options": shapes,
            "arms": [asdict(row) for row in measurements],
        }
        options.output.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
