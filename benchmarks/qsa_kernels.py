"""Times the kernels of `qsa-attention` on a GPU, untraced: microseconds a call, in CUDA graphs of many calls.

First the merges, plain and looping, with the registers and spills of each compiled kernel. Their inputs are those that
the split kernel has just written, so they are timed hot. Then the split kernel and the whole attention under the known
tables, hot (one layer's operands in every call) and cold (the operands of as many layers in turn as exceed the L2
cache), beside the bytes that they must move, the floor that these set at measured bandwidth, and the operations.

    python benchmarks/qsa_kernels.py --output qsa_kernels.json        # about three minutes
    python benchmarks/qsa_kernels.py --quick                          # the points that decide, about one
    python benchmarks/qsa_kernels.py --quick --merges                 # of the merges alone, about 15 seconds
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gpu_timing import Device, capture, measure, this_device

from profkit.kernels.qsa.attention import attend
from profkit.kernels.qsa.cost import attention_bytes, attention_operations, gathered_bytes, merge_bytes
from profkit.kernels.qsa.inputs import timing_batch
from profkit.kernels.qsa.merge import NARROW, PLAIN, Merge, merge_for, merge_launch
from profkit.kernels.qsa.operands import Operands, Partials, Workspace
from profkit.kernels.qsa.regions import DECODE_ROWS, GROUP_PAGES
from profkit.kernels.qsa.sizes import Sizes, draw_operands, sizes_of
from profkit.kernels.qsa.split import split_arguments, split_attention, split_kernel
from profkit.kernels.qsa.tables import TABLES, entry, launch
from profkit.kernels.qsa.workload import QSA_ATTENTION
from profkit.model.workload import BuildContext

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
MERGE_SPLITS = (2, 4, 8, 16, 32, 33, 64)
MERGE_ROWS = (1, 4, 16, 64, 128)
QUICK_MERGE_ROWS = (4, 16, 64)
MERGE_HEADS, HEAD_DIM = 12, 256

ROWS = (4, 16, 64, 256, 512, 2048)
QUICK_ROWS = (4, 16, 512)
GROUPS = (12, 3)
DTYPES = ("bf16", "fp8")
CALLS = 16
#: More than the L2 cache of any device so far, twice over; and the most layers that are made to reach it.
COLD_BYTES = 128 << 20
MOST_LAYERS = 48


def main() -> None:
    options = parse_options()
    began = time.monotonic()
    device = this_device()
    print(f"{device.name}, torch {device.torch}, triton {device.triton}")
    print(f"copy {device.copy_bytes_per_second / 1e12:.2f} TB/s, an empty kernel in a graph {device.launch_us:.2f} us")
    document: dict[str, Any] = {"schema": "profkit.qsa-kernels/1", "device": asdict(device), "merge": [], "split": []}
    merge_points = itertools.product(QUICK_MERGE_ROWS if options.quick else MERGE_ROWS, MERGE_SPLITS)
    for rows, splits in merge_points:
        document["merge"] += time_merges(rows, splits, device)
        save(options.output, document)
    print_merges(document["merge"])
    if not options.merges:
        for rows, group, dtype in itertools.product(QUICK_ROWS if options.quick else ROWS, GROUPS, DTYPES):
            document["split"] += time_attention(rows, group, dtype, device)
            save(options.output, document)
        print_attention(document["split"])
    print(f"{time.monotonic() - began:.0f} s in all")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer points")
    parser.add_argument("--merges", action="store_true", help="the merges alone")
    parser.add_argument("--output", type=Path, default=None, help="write the results there as JSON")
    return parser.parse_args()


def time_merges(rows: int, splits: int, device: Device) -> list[dict[str, Any]]:
    """Every arm at one size; one row of the report each."""
    partials = Partials(
        torch.randn(splits, rows, MERGE_HEADS, HEAD_DIM, device="cuda"),
        torch.randn(splits, rows, MERGE_HEADS, device="cuda"),
    )
    gate = torch.randn(rows, MERGE_HEADS, HEAD_DIM, device="cuda").bfloat16()
    out = torch.empty_like(gate)
    calls, compiled = {}, {}
    launched = {name: merge or merge_for(splits) for name, merge in MERGES.items()}
    for name, merge in launched.items():
        kernel, grid, arguments, constants = merge_launch(partials, gate, out, merge)
        calls[name] = partial(kernel[grid], *arguments, **constants)
        compiled[name] = calls[name]()
    samples = timed({name: [call] * CALLS for name, call in calls.items()})
    moved = merge_bytes(partials, gate, out)
    floor_us = device.floor_us(moved - out.numel() * 2, out.numel() * 2)
    return [
        {
            "rows": rows,
            "splits": splits,
            "arm": name,
            "launch": asdict(launched[name]),
            **sample,
            "registers": compiled[name].n_regs,
            "spills": compiled[name].n_spills,
            "bytes": moved,
            "floor_us": floor_us,
            "share": floor_us / sample["median_us"],
        }
        for name, sample in samples.items()
    ]


def time_attention(rows: int, group: int, dtype: str, device: Device) -> list[dict[str, Any]]:
    """The split kernel and the whole attention at one size under every table; one row of the report each."""
    sizes = attention_sizes(rows, group, dtype)
    generator = torch.Generator(device="cuda").manual_seed(0)
    layers = [draw(sizes, generator)]
    moved = attention_bytes(layers[0])
    while len(layers) * moved < COLD_BYTES and len(layers) < MOST_LAYERS:
        layers.append(draw(sizes, generator))
    out = torch.empty_like(layers[0].query)
    workspace = Workspace(64, layers[0].query)
    chosen = {name: entry(name, rows, 1, prefill=False, fp8=sizes.fp8) for name in TABLES}
    report = []
    bodies: dict[str, list[Callable[[], None]]] = {}
    details: dict[str, dict[str, Any]] = {}
    for table, one in chosen.items():
        launched = launch(one, sizes.width)
        partials = workspace.partials(launched.splits)
        arguments, constants = split_arguments(layers[0], launched, out, partials)
        compiled = split_kernel[(rows, 1, launched.splits)](*arguments, **constants)
        kernels: dict[str, Callable[[Operands], None]] = {
            "split": partial(split_attention, launch=launched, out=out, partials=partials),
            "attention": partial(attend, launch=launched, out=out, workspace=workspace),
        }
        for kernel, state in itertools.product(kernels, ("hot", "cold")):
            count = max(CALLS, len(layers)) if state == "cold" else CALLS
            operands = [layers[call % len(layers)] if state == "cold" else layers[0] for call in range(count)]
            name = f"{kernel} {table} {state}"
            bodies[name] = [partial(kernels[kernel], one) for one in operands]
            details[name] = {
                **{"kernel": kernel, "table": table, "state": state, **asdict(launched)},
                **{"registers": compiled.n_regs, "spills": compiled.n_spills, "shared": compiled.metadata.shared},
            }
    samples = timed(bodies)
    read = moved - out.numel() * out.itemsize
    floor_us = device.floor_us(read, out.numel() * out.itemsize)
    costs = {
        "bytes": moved,
        "gathered_bytes": gathered_bytes(layers[0]),
        "operations": attention_operations(layers[0]),
        "floor_us": floor_us,
        "layers": len(layers),
        "exceeds_l2": len(layers) * moved >= COLD_BYTES,
    }
    for name, sample in samples.items():
        share = floor_us / sample["median_us"]
        point = {"rows": rows, "group": group, "dtype": dtype}
        report.append({**point, **details[name], **sample, **costs, "share": share})
    return report


def attention_sizes(rows: int, group: int, dtype: str) -> Sizes:
    shapes = {name: shape.default for name, shape in QSA_ATTENTION.shapes.items()}
    shapes |= {"rows": rows, "rows_per_request": DECODE_ROWS, "q_heads": group, "kv_heads": 1}
    shapes |= {"page": GROUP_PAGES[group], "dtype": dtype, "layers": 1}
    return sizes_of(BuildContext("default", shapes, "cuda", 0))


def draw(sizes: Sizes, generator: torch.Generator) -> Operands:
    return draw_operands(sizes, timing_batch(sizes.batch, generator), generator)


def timed(bodies: dict[str, list[Callable[[], Any]]]) -> dict[str, dict[str, float]]:
    """Time a call of each body; bodies of as many calls take turns. The graphs are gone when this returns."""
    found = {}
    for count in sorted({len(calls) for calls in bodies.values()}):
        graphs = {name: capture(calls) for name, calls in bodies.items() if len(calls) == count}
        found |= {name: asdict(sample) for name, sample in measure(graphs, count).items()}
        graphs.clear()
        gc.collect()
    return {name: found[name] for name in bodies}


def print_merges(rows: list[dict[str, Any]]) -> None:
    print(f"\nmerge of {MERGE_HEADS} heads of {HEAD_DIM}, us a call")
    print(f"{'rows':>4} {'splits':>6}  {'arm':42} {'median':>7} {'p25':>7} {'p75':>7} {'floor':>6} {'regs':>4} spills")
    for row in rows:
        print(
            f"{row['rows']:4} {row['splits']:6}  {row['arm']:42} {row['median_us']:7.2f} {row['p25_us']:7.2f} "
            f"{row['p75_us']:7.2f} {row['floor_us']:6.2f} {row['registers']:4} {row['spills']:6}"
        )


def print_attention(rows: list[dict[str, Any]]) -> None:
    print("\nsplit kernel and attention, 1 KV head, us a call; * operands may stay in L2 although cold is meant")
    head = f"{'rows':>5} {'grp':>3} {'dtype':5} {'kernel':9} {'table':8} {'launch':10} {'state':5} "
    print(f"{head}{'median':>8} {'p25':>8} {'p75':>8} {'floor':>8} {'share':>6} {'TFLOP/s':>8} {'regs':>4} spills")
    for row in rows:
        launched = f"{row['block_n']},{row['splits']},{row['warps']}"
        state = row["state"] + ("*" if row["state"] == "cold" and not row["exceeds_l2"] else "")
        tflops = row["operations"] / row["median_us"] / 1e6
        print(
            f"{row['rows']:5} {row['group']:3} {row['dtype']:5} {row['kernel']:9} {row['table']:8} {launched:10} "
            f"{state:5} {row['median_us']:8.2f} {row['p25_us']:8.2f} {row['p75_us']:8.2f} {row['floor_us']:8.2f} "
            f"{row['share']:6.0%} {tflops:8.2f} {row['registers']:4} {row['spills']:6}"
        )


def save(path: Path | None, document: dict[str, Any]) -> None:
    """What is measured so far, so that an interrupted run loses only its last point."""
    if path is not None:
        path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
