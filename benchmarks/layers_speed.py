"""`profkit layers` on a large nsys export, beside `nsys stats -r cuda_gpu_kern_sum` on the same file if nsys is here.

    python benchmarks/layers_speed.py traces/dcp-combine/eager/trace.sqlite --kernels 1000000 5000000

Grows the recording (see grow.py), then runs both tools in turn as whole processes, and prints the median time of each,
the peak memory and the ratio. `nsys stats` may keep its own processed copy beside the file; each run starts without it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from grow import grow

from profkit.errors import ProfkitError
from profkit.readers.installed import NSYS


def timed(command: list[str]) -> tuple[float, float]:
    """Seconds and peak megabytes of one run of `command`.

    Raises:
        SystemExit: it failed.
    """
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None  # by stderr=PIPE
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if status != 0:
        raise SystemExit(f"{' '.join(command)} failed: {errors.decode(errors='replace')[-400:]}")
    return seconds, usage.ru_maxrss / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--kernels", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    try:
        peer = NSYS.find()
    except ProfkitError as error:
        peer = None
        print(f"no ratio: {error}")
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} cores, {options.runs} runs each, in turn; medians")
    for kernels in options.kernels:
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "grown.sqlite"
            count = grow(options.source, file, kernels)
            own = [sys.executable, "-m", "profkit.cli", "layers", str(file)]
            timed(own)
            times: dict[str, list[float]] = {"profkit layers": [], "nsys stats": []}
            memory = 0.0
            for _ in range(options.runs):
                seconds, peak = timed(own)
                times["profkit layers"].append(seconds)
                memory = max(memory, peak)
                if peer is not None:
                    command = [str(peer.path), "stats", "-q", "-r", "cuda_gpu_kern_sum", "-f", "csv", str(file)]
                    times["nsys stats"].append(timed(command)[0])
            mine = statistics.median(times["profkit layers"])
            line = (
                f"{count:>9,} kernels, {file.stat().st_size / 1e6:.0f} MB: profkit layers {mine:.2f} s, {memory:.0f} MB"
            )
            if peer is not None:
                theirs = statistics.median(times["nsys stats"])
                line += f"; nsys {peer.version} stats {theirs:.2f} s; ratio {mine / theirs:.2f}"
            print(line)


if __name__ == "__main__":
    main()
