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
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
import triton
from gpu_timing import Device, Sample, capture, measure, this_device

from profkit.kernels.dcp.metadata import BatchMetadata
from profkit.kernels.dcp.reference import attend
from profkit.kernels.mla_step.decode import DecodeBuffers, DecodeConfig, decode, decode_config, multiprocessors
from profkit.kernels.mla_step.inputs import Inputs, LayerInputs, draw_inputs
from profkit.kernels.mla_step.sizes import Sizes
from profkit.kernels.mla_step.workload import MLA_STEP
from profkit.model.workload import BuildContext

#: Block of heads, tokens a turn, splits, warps, stages.
CANDIDATES = (
    *((64, 32, 1, 8, 2), (64, 32, 1, 8, 3), (64, 32, 1, 8, 4), (64, 64, 1, 8, 2), (64, 64, 2, 8, 2), (64, 64, 5, 8, 2)),
    *((32, 32, 1, 4, 2), (32, 32, 1, 4, 3), (32, 64, 1, 4, 2), (32, 64, 1, 4, 3), (32, 64, 1, 8, 2), (32, 64, 3, 4, 2)),
    *((16, 32, 1, 4, 2), (16, 32, 1, 4, 3), (16, 64, 1, 4, 2), (16, 64, 1, 4, 3), (16, 64, 1, 8, 2), (16, 64, 2, 4, 2)),
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
    def written_bytes(self) -> int:
        """By one layer: outputs and LSEs."""
        heads = self.sizes.rows * self.sizes.heads
        return heads * (self.sizes.kv_lora * self.query.itemsize + 4)

    @property
    def moved_bytes(self) -> int:
        """By one layer: latents and queries read, and what is written."""
        return self.inputs.timing_kv_bytes + self.query.numel() * self.query.itemsize + self.written_bytes

    @property
    def flops(self) -> int:
        """Of one layer's score and value products."""
        return 2 * self.sizes.heads * (self.sizes.latent_width + self.sizes.kv_lora) * self.tokens


def main() -> None:
    options = parse_options()
    device = this_device()
    problem = make_problem(options)
    sizes, layers = problem.sizes, problem.inputs.layers
    chosen = decode_config(sizes.rows, sizes.heads, layers[0].kv.shape[1], multiprocessors("cuda"))
    configs = list(dict.fromkeys([chosen, *(DecodeConfig(*candidate) for candidate in CANDIDATES)]))

    checks: dict[DecodeConfig, str] = {}
    graphs: dict[str, torch.cuda.CUDAGraph] = {}
    kept = []
    for config in configs:
        buffers = problem.buffers(config)
        try:
            problem.run(layers[0], buffers)
        except triton.OutOfResources as error:
            checks[config] = f"does not fit: {error}"
            continue
        checks[config] = compare(buffers, problem.expected, sizes.requests)
        graphs[describe(config)] = capture([partial(problem.run, layer, buffers) for layer in layers])
        # Held until the last replay: the graph writes there.
        kept.append(buffers)
    samples = measure(graphs, len(layers), options.turns)
    report(options, device, problem, chosen, checks, samples)
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
    parser.add_argument("--turns", type=int, default=6, help="times that every configuration's turn comes")
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


def describe(config: DecodeConfig) -> str:
    return "{block_heads:5} {block_tokens:6} {splits:6} {num_warps:5} {num_stages:6}".format(**asdict(config))


def report(
    options: argparse.Namespace,
    device: Device,
    problem: Problem,
    chosen: DecodeConfig,
    checks: dict[DecodeConfig, str],
    samples: dict[str, Sample],
) -> None:
    """Print the table, fastest first, and write the JSON."""
    sizes = problem.sizes
    floor_us = device.floor_us(problem.moved_bytes - problem.written_bytes, problem.written_bytes)
    copy_rate = device.copy_bytes_per_second / 1e12
    print(f"{device.name}, torch {device.torch}, triton {device.triton}, copy {copy_rate:.2f} TB/s")
    print(f"rows {sizes.rows} ({sizes.requests} real), heads {sizes.heads}, {problem.tokens} local tokens, bf16")
    print(f"a layer: {problem.moved_bytes / 1e6:.1f} MB, floor {floor_us:.2f} us; {problem.flops / 1e9:.1f} GFLOP")
    print("heads tokens splits warps stages      us     p25     p75  x floor  TFLOP/s")
    rows = [(config, samples.get(describe(config))) for config in checks]
    for config, sample in sorted(rows, key=lambda row: row[1].median_us if row[1] else math.inf):
        times = ""
        if sample is not None:
            times = f"{sample.median_us:7.2f} {sample.p25_us:7.2f} {sample.p75_us:7.2f}"
            times += f" {sample.median_us / floor_us:8.2f} {problem.flops / sample.median_us / 1e6:8.0f}"
        print(f"{describe(config)} {times}  {checks[config]}{' <- chosen' if config == chosen else ''}")
    if options.output is not None:
        document = {
            "schema": "profkit.mla-decode/1",
            "device": asdict(device),
            "bytes_a_layer": problem.moved_bytes,
            "flops_a_layer": problem.flops,
            "floor_us": floor_us,
            "options": {name: value for name, value in vars(options).items() if name != "output"},
            "chosen": asdict(chosen),
            "configurations": [
                {"config": asdict(config), "check": checks[config], "us": asdict(sample) if sample else None}
                for config, sample in rows
            ],
        }
        options.output.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
