"""Checks and times the decode attention of `mla-step` on a GPU, under several launch configurations.

Every configuration is first compared with double precision; then microseconds a layer over one CUDA graph whose layers
have KV caches of their own, so that none is found in the L2 cache. Configurations are interleaved, in alternating
order. The floor is the bytes that must move (latents and queries in, outputs and LSEs out), at the bandwidth of a large
device copy measured here. Exit status 1 where a configuration is wrong.

    python benchmarks/mla_decode.py --output mla_decode.json
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
import triton
from dcp_kernels import capture, copy_bandwidth, measure

from profkit.kernels.dcp.metadata import BatchMetadata
from profkit.kernels.dcp.reference import attend
from profkit.kernels.mla_step.decode import DecodeBuffers, DecodeConfig, decode, decode_config, multiprocessors
from profkit.kernels.mla_step.inputs import Inputs, LayerInputs, draw_inputs
from profkit.kernels.mla_step.sizes import Sizes
from profkit.kernels.mla_step.workload import MLA_STEP
from profkit.workload import BuildContext

#: Block of heads, tokens a turn, splits, warps, stages.
CANDIDATES = (
    *((64, 32, 1, 8, 2), (64, 32, 1, 8, 3), (64, 32, 1, 8, 4), (64, 64, 1, 8, 2), (64, 16, 1, 8, 4)),
    *((64, 32, 2, 8, 3), (64, 32, 3, 8, 3), (64, 32, 5, 8, 3), (64, 64, 2, 8, 2), (64, 64, 5, 8, 2)),
    *((32, 32, 1, 4, 2), (32, 32, 1, 4, 3), (32, 32, 1, 8, 3), (32, 64, 1, 4, 2), (32, 32, 3, 4, 2)),
    *((16, 32, 1, 4, 2), (16, 32, 1, 4, 3), (16, 64, 1, 4, 2), (16, 32, 2, 4, 2)),
)
#: Rounding of outputs and softmax weights to 16 bits, and of the latter in another order than the reference's.
TOLERANCE, LSE_TOLERANCE = 1e-2, 1e-3


@dataclass(frozen=True)
class Problem:
    """What every configuration attends to.

    Args:
        sizes: of the step.
        inputs: of the step; only the KV caches and the timing batch are read.
        query: ``[N, R, h, width]``.
        expected: output and LSE of layer 0's real rows, float64.
    """

    sizes: Sizes
    inputs: Inputs
    query: torch.Tensor
    expected: tuple[torch.Tensor, torch.Tensor]

    def run(self, layer: LayerInputs, buffers: DecodeBuffers) -> None:
        batch = self.inputs.batches["timing"]
        decode(self.query, layer.kv, batch.seq_lens, batch.query_start_loc, buffers, self.sizes.scale)

    def buffers(self, config: DecodeConfig) -> DecodeBuffers:
        sizes = self.sizes
        return DecodeBuffers.zeros(sizes.rows, sizes.heads, sizes.kv_lora, sizes.dtype, "cuda", config)

    @property
    def tokens(self) -> int:
        return int(self.inputs.batches["timing"].seq_lens.sum())

    @property
    def moved_bytes(self) -> int:
        """By one layer: latents and queries in, outputs and LSEs out."""
        query_out = self.sizes.rows * self.sizes.heads * (self.sizes.latent_width + self.sizes.kv_lora)
        return self.inputs.timing_kv_bytes + query_out * self.query.itemsize + self.sizes.rows * self.sizes.heads * 4

    @property
    def flops(self) -> int:
        """Of one layer's score and value products."""
        return 2 * self.sizes.heads * (self.sizes.latent_width + self.sizes.kv_lora) * self.tokens


@dataclass(frozen=True)
class Measurement:
    """One configuration: how its results compare, and microseconds a layer; null where it cannot run."""

    config: DecodeConfig
    check: str
    median_us: float | None
    p25_us: float | None
    p75_us: float | None


def main() -> None:
    options = parse_options()
    if not torch.cuda.is_available():
        raise SystemExit("mla_decode.py measures a GPU, and torch sees none here.")
    problem = make_problem(options)
    sizes, kv = problem.sizes, problem.inputs.layers[0].kv
    chosen = decode_config(sizes.rows, sizes.heads, kv.shape[1], multiprocessors("cuda"))
    configs = list(dict.fromkeys([chosen, *(DecodeConfig(*candidate) for candidate in CANDIDATES)]))

    checks: dict[DecodeConfig, str] = {}
    graphs: dict[DecodeConfig, torch.cuda.CUDAGraph] = {}
    kept = []
    for config in configs:
        buffers = problem.buffers(config)
        try:
            problem.run(problem.inputs.layers[0], buffers)
        except triton.OutOfResources as error:
            checks[config] = f"does not fit: {error}"
            continue
        checks[config] = compare(buffers, problem.expected, sizes.requests)
        graphs[config] = capture(partial(problem.run, buffers=buffers), problem.inputs.layers)
        # Held until the last replay: the graph writes there.
        kept.append(buffers)
    samples = measure(graphs, options.rounds, options.replays)

    measurements = []
    for config in configs:
        low = middle = high = None
        if config in samples:
            low, middle, high = statistics.quantiles([value / sizes.layers for value in samples[config]], n=4)
        measurements.append(Measurement(config, checks[config], middle, low, high))
    report(options, problem, chosen, copy_bandwidth(), measurements)
    sys.exit(any(check.startswith("WRONG") for check in checks.values()))


def make_problem(options: argparse.Namespace) -> Problem:
    given = {name: getattr(options, name) for name in ("rows", "requests", "heads", "ranks", "context", "layers")}
    shapes = {name: shape.default for name, shape in MLA_STEP.shapes.items()}
    context = BuildContext("fused", {**shapes, **given}, "cuda", 0)
    sizes = Sizes.of(context)
    inputs = draw_inputs(context, sizes)
    shape = (sizes.ranks, sizes.rows, sizes.local_heads, sizes.latent_width)
    query = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to("cuda", sizes.dtype)
    return Problem(sizes, inputs, query, reference(query, inputs.layers[0].kv, inputs.batches["timing"], sizes))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=56)
    parser.add_argument("--requests", type=int, default=0, help="0: 13 of every 14 rows")
    parser.add_argument("--heads", type=int, default=96)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=6, help="times that every configuration's turn comes")
    parser.add_argument("--replays", type=int, default=10, help="graph replays a turn")
    parser.add_argument("--output", type=Path, default=None, help="write the results there as JSON")
    return parser.parse_args()


def reference(
    query: torch.Tensor, kv: torch.Tensor, batch: BatchMetadata, sizes: Sizes
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and LSE of the real rows, one request each, in double precision."""
    heads = query.transpose(0, 1).reshape(sizes.rows, sizes.heads, sizes.latent_width)
    out, lse = [], []
    for row, length in enumerate(batch.seq_lens[: sizes.requests].tolist()):
        tokens = kv[row, :length]
        part, part_lse = attend(heads[row : row + 1], tokens, tokens[:, : sizes.kv_lora], sizes.scale)
        out.append(part)
        lse.append(part_lse)
    return torch.cat(out), torch.cat(lse)


def compare(buffers: DecodeBuffers, expected: tuple[torch.Tensor, torch.Tensor], real: int) -> str:
    out_error = float((buffers.out[:real].double() - expected[0]).abs().max())
    lse_error = float((buffers.lse[:real].double() - expected[1]).abs().max())
    # Not "greater than": NaN is wrong too.
    right = out_error <= TOLERANCE and lse_error <= LSE_TOLERANCE
    return f"{'right' if right else 'WRONG'} (errors {out_error:.1e}, LSE {lse_error:.1e})"


def report(
    options: argparse.Namespace,
    problem: Problem,
    chosen: DecodeConfig,
    bandwidth: float,
    measurements: list[Measurement],
) -> None:
    device, sizes = torch.cuda.get_device_name(), problem.sizes
    floor_us = problem.moved_bytes / bandwidth * 1e6
    print(f"{device}, torch {torch.__version__}, triton {triton.__version__}, copy {bandwidth / 1e12:.2f} TB/s")
    print(f"rows {sizes.rows} ({sizes.requests} real), heads {sizes.heads}, {problem.tokens} local tokens, bf16")
    print(f"a layer: {problem.moved_bytes / 1e6:.1f} MB, floor {floor_us:.2f} us; {problem.flops / 1e9:.1f} GFLOP")
    print("heads tokens splits warps stages      us     p25     p75  x floor  TFLOP/s")
    for row in sorted(measurements, key=lambda row: row.median_us or math.inf):
        config = "{block_heads:5} {block_tokens:6} {splits:6} {num_warps:5} {num_stages:6}".format(**asdict(row.config))
        times = ""
        if row.median_us is not None:
            times = f"{row.median_us:7.2f} {row.p25_us:7.2f} {row.p75_us:7.2f} {row.median_us / floor_us:8.2f}"
            times += f" {problem.flops / row.median_us / 1e6:8.0f}"
        print(f"{config} {times}  {row.check}{' <- chosen' if row.config == chosen else ''}")
    if options.output is not None:
        document = {
            "schema": "profkit.mla-decode/1",
            "device": device,
            "torch": torch.__version__,
            "triton": triton.__version__,
            "copy_bytes_per_second": bandwidth,
            "bytes_a_layer": problem.moved_bytes,
            "flops_a_layer": problem.flops,
            "floor_us": floor_us,
            "options": {name: value for name, value in vars(options).items() if name != "output"},
            "chosen": asdict(chosen),
            "configurations": [asdict(row) for row in measurements],
        }
        options.output.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
