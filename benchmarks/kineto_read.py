"""Reads a generated Kineto trace and compares with a plain JSON parse of the same file.

    python benchmarks/kineto_read.py [--kernels 200000] [--gzip]

Each reading runs in a process of its own, so that its peak memory is its own. Prints seconds, MB/s of JSON text, peak
memory, and the ratio of the two times.
"""

from __future__ import annotations

import argparse
import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

LAYERS, KERNELS_PER_LAYER = 24, 11

_READ = """
import resource, sys, time
from pathlib import Path
started = time.perf_counter()
{work}
seconds = time.perf_counter() - started
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, found)
"""
_PROFKIT = """
from profkit.readers import kineto
found = len(kineto.read(Path(sys.argv[1])).ops)
"""
_JSON = """
import gzip, json
opened = gzip.open if sys.argv[1].endswith(".gz") else open
with opened(sys.argv[1], "rb") as file:
    events = json.load(file)["traceEvents"]
found = sum(e.get("cat") == "kernel" for e in events)
"""


def write_trace(path: Path, kernels: int) -> int:
    """Graph replays as PyTorch writes them: launches, kernels with their arguments, flows. Returns the text's bytes."""
    per_replay = LAYERS * KERNELS_PER_LAYER
    names = [
        f"void at::native::vectorized_elementwise_kernel<4, at::native::Functor{i}<c10::BFloat16>, "
        f"std::array<char*, {i % 4 + 1}ul> >(int, std::array<char*, {i % 4 + 1}ul>)"
        for i in range(KERNELS_PER_LAYER)
    ]
    size = 0
    with gzip.open(path, "wt", compresslevel=1) if path.suffix == ".gz" else path.open("w") as file:
        size += file.write(
            '{\n  "schemaVersion": 1,\n  "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],\n'
            '  "cupti_version": 130001,\n  "traceEvents": [\n'
        )
        for kernel in range(kernels):
            replay = kernel // per_replay
            start_ns = 5_103_758_998_909_095 + kernel * 2_113
            ts = f"{start_ns // 1000}.{start_ns % 1000:03d}"
            if kernel % per_replay == 0:
                size += file.write(
                    f'  {{\n    "ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 824, "tid": 824,\n'
                    f'    "ts": {ts}, "dur": 195.702,\n    "args": {{\n      "cbid": 311, "correlation": {replay + 1}\n'
                    "    }\n  },\n"
                )
            size += file.write(
                f'  {{\n    "ph": "X", "cat": "kernel", "name": "{names[kernel % KERNELS_PER_LAYER]}", "pid": 0, '
                f'"tid": 7,\n    "ts": {ts}, "dur": 1.{kernel % 1000:03d},\n    "args": {{\n      "queued": 0, '
                f'"device": 0, "context": 1,\n      "stream": 7, "correlation": {replay + 1},\n      '
                '"registers per thread": 22,\n      "shared memory": 0,\n      "blocks per SM": 0.007576,\n      '
                '"warps per SM": 0.030303,\n      "grid": [1, 1, 1],\n      "block": [128, 1, 1],\n      '
                '"est. achieved occupancy %": 0\n    }\n  },\n'
                f'  {{\n    "ph": "f", "id": {replay + 1}, "pid": 0, "tid": 7, "ts": {ts},\n    "cat": "ac2g", '
                '"name": "ac2g", "bp": "e"\n  },\n'
            )
        size += file.write(
            '  {\n    "name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 1\n  }\n'
            '  ],\n  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": 1790857026000000000\n}\n'
        )
    return size


def measure(label: str, work: str, path: Path, megabytes: float) -> float:
    """Run `work` on `path` in a fresh interpreter, print its line and return its seconds."""
    script = _READ.format(work=work)
    result = subprocess.run([sys.executable, "-c", script, str(path)], check=True, capture_output=True, text=True)
    seconds, peak_mb, found = result.stdout.split()
    rate = megabytes / float(seconds)
    print(f"{label:12} {float(seconds):6.2f} s  {rate:6.0f} MB/s  peak {float(peak_mb):6.0f} MB  {found} kernels")
    return float(seconds)


def main() -> None:
    """Generate, read twice, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=200_000)
    parser.add_argument("--gzip", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("trace.json.gz" if options.gzip else "trace.json")
        megabytes = write_trace(path, options.kernels) / 1e6
        print(f"{options.kernels} kernels, {megabytes:.0f} MB of JSON")
        ours = measure("profkit", _PROFKIT, path, megabytes)
        plain = measure("json.load", _JSON, path, megabytes)
        print(f"ratio        {ours / plain:6.2f}  (profkit to json.load)")


if __name__ == "__main__":
    main()
