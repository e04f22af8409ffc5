"""Times the merges of `qsa-attention` on a GPU, untraced: microseconds a call, in CUDA graphs of sixteen calls.

Plain and looping, with the registers and spills of each compiled kernel. Their inputs are those that the split kernel
has just written, so they are timed hot. The floor is the bytes that must move, at the bandwidth measured here.

    python benchmarks/qsa_merges.py --output qsa-merges.json    # 4, 16 and 64 rows: about 15 seconds
"""

from __future__ import annotations

import argparse
import itertools
import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gpu_timing import Device, capture, measure, this_device

from profkit.kernels.qsa.cost import merge_bytes
from profkit.kernels.qsa.merge import NARROW, PLAIN, Merge, merge_for, merge_launch
from profkit.kernels.qsa.operands import Partials

#: None is what `merge_for` chooses.
MERGES = {
    "plain": PLAIN,
    "plain, 4 warps": Merge("plain", warps=4),
    "loop": Merge("loop"),
    "loop, 16 at a time": Merge("loop", chunk=16),
    "loop, 2 programs": Merge("loop", programs=2),
    "loop, 16 at a time, 4 programs of 1 warp": NARROW,
    "chosen by the number of splits": None,
    "plain, again (control)": PLAIN,
}
SPLITS = (2, 4, 8, 16, 32, 33, 64)
HEADS, HEAD_DIM = 12, 256
CALLS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--output", type=Path, default=None, help="write the results there as JSON")
    options = parser.parse_args()
    device = this_device()
    print(f"{device.name}, torch {device.torch}, triton {device.triton}")
    print(f"copy {device.copy_bytes_per_second / 1e12:.2f} TB/s, an empty kernel in a graph {device.launch_us:.2f} us")
    rows = [row for size in itertools.product(options.rows, SPLITS) for row in time_merges(*size, device)]
    show(rows)
    if options.output is not None:
        document = {"schema": "profkit.qsa-kernels/1", "device": asdict(device), "merge": rows}
        options.output.write_text(json.dumps(document, indent=1) + "\n")


def time_merges(rows: int, splits: int, device: Device) -> list[dict[str, Any]]:
    """Every arm at one size; one row of the report each."""
    partials = Partials(
        torch.randn(splits, rows, HEADS, HEAD_DIM, device="cuda"),
        torch.randn(splits, rows, HEADS, device="cuda"),
    )
    gate = torch.randn(rows, HEADS, HEAD_DIM, device="cuda").bfloat16()
    out = torch.empty_like(gate)
    # What the graphs work on must outlive them.
    calls, graphs, compiled = {}, {}, {}
    launched = {name: merge or merge_for(splits) for name, merge in MERGES.items()}
    for name, merge in launched.items():
        kernel, grid, arguments, constants = merge_launch(partials, gate, out, merge)
        calls[name] = partial(kernel[grid], *arguments, **constants)
        compiled[name] = calls[name]()
        graphs[name] = capture([calls[name]] * CALLS)
    moved = merge_bytes(partials, gate, out)
    floor_us = device.floor_us(moved - out.numel() * 2, out.numel() * 2)
    return [
        {
            "rows": rows,
            "splits": splits,
            "arm": name,
            "launch": asdict(launched[name]),
            **asdict(sample),
            "registers": compiled[name].n_regs,
            "spills": compiled[name].n_spills,
            "bytes": moved,
            "floor_us": floor_us,
            "share": floor_us / sample.median_us,
        }
        for name, sample in measure(graphs, CALLS).items()
    ]


def show(rows: list[dict[str, Any]]) -> None:
    print(f"\nmerge of {HEADS} heads of {HEAD_DIM}, us a call")
    print(f"{'rows':>4} {'splits':>6}  {'arm':42} {'median':>7} {'p25':>7} {'p75':>7} {'floor':>6} {'regs':>4} spills")
    for row in rows:
        print(
            f"{row['rows']:4} {row['splits']:6}  {row['arm']:42} {row['median_us']:7.2f} {row['p25_us']:7.2f} "
            f"{row['p75_us']:7.2f} {row['floor_us']:6.2f} {row['registers']:4} {row['spills']:6}"
        )


if __name__ == "__main__":
    main()
