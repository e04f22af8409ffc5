"""Checks `profkit sweep` on a GPU against what is known by other means; about two minutes.

    python benchmarks/sweep_smoke.py --output sweep_smoke.json

* hot is faster than evicted where the data fit in L2, and as fast where they do not;
* a run that does nothing takes about a microsecond hot, and a few as a bracket of its own (evicted);
* the times of a configuration agree with Triton's do_bench_cudagraph (hot) and do_bench (evicted);
* configurations that are equal by construction are never told apart, or once in many;
* a configuration that cannot compile is listed as failed, and the sweep goes on;
* a sweep without options takes less than 20 seconds, with its kernels to compile and with all compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import triton.testing
from copy_tunable import COPY, DEFAULT, build_problem

from profkit.model.workload import BuildContext

TUNABLE = f"{Path(__file__).with_name('copy_tunable.py')}:COPY"
TWINS = 24


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=None, help="write what was seen there as JSON")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("sweep_smoke.py checks a GPU, and torch sees none here.")
    checks: list[tuple[str, bool, str]] = []
    documents: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as cache:
        for name in ("cold cache", "warm cache"):
            document, seconds = sweep(cache)
            documents[name] = document
            checks.append((f"default sweep, {name}", seconds < 20, f"{seconds:.1f} s"))
        documents["both"], seconds = sweep(cache, "--region", "all")
        print(f"both regions: {seconds:.1f} s")
        documents["evicted"], _ = sweep(cache, "--region", "beyond-l2", "--state", "evicted")
        documents["twins"], seconds = sweep(
            cache, "--set", "block=1024", "--set", "warps=4", "--set", f"twin={','.join(map(str, range(TWINS)))}"
        )
        documents["failing"], _ = sweep(cache, "--set", "block=1024,4194304", "--set", "warps=4", "--jobs", "1")
    for name in ("cold cache", "warm cache", "both"):
        print_phases(name, documents[name])
    checks += check_regions(documents["both"], documents["evicted"])
    checks += check_twins(documents["twins"])
    checks += check_failing(documents["failing"])
    for name, good, told in checks:
        print(f"{'ok  ' if good else 'BAD '} {name:44} {told}")
    if options.output is not None:
        seen = [{"check": name, "good": good, "seen": told} for name, good, told in checks]
        options.output.write_text(json.dumps({"checks": seen, "sweeps": documents}, indent=1) + "\n", encoding="utf-8")
    sys.exit(0 if all(good for _, good, _ in checks) else 1)


def sweep(cache: str, *arguments: str) -> tuple[dict[str, Any], float]:
    """The JSON of a sweep of the copy kernel, and how many seconds it took."""
    command = [sys.executable, "-m", "profkit.cli", "sweep", TUNABLE, "--format", "json", *arguments]
    begun = time.monotonic()
    done = subprocess.run(
        command, env={**os.environ, "TRITON_CACHE_DIR": cache}, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with status {done.returncode}")
    return json.loads(done.stdout), time.monotonic() - begun


def print_phases(name: str, document: dict[str, Any]) -> None:
    """Where the seconds of a sweep went; the start of Python and the report are in none."""
    print(f"{name}, start: {document['start_s']:.2f} s")
    for region in document["regions"]:
        phases = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in region["phases_s"].items())
        print(f"{name}, {region['name']}: {phases} s")


def check_regions(document: dict[str, Any], evicted: dict[str, Any]) -> list[tuple[str, bool, str]]:
    """Hot against evicted, the method's floor, and both against Triton's own measures.

    Args:
        evicted: the region that is left out evicted in `document`, timed evicted alone.
    """
    checks = []
    for region in document["regions"]:
        name = region["name"]
        left_out = list(region["left_out"])
        fits = name == "fits-l2"
        checks.append(
            (f"{name}: left out", left_out == ([] if fits else ["evicted"]), ", ".join(left_out) or "nothing")
        )
        regions = {"hot": region, "evicted": region if fits else evicted["regions"][0]}
        defaults = {s: next(c for c in r["configurations"] if c["parameters"] == DEFAULT) for s, r in regions.items()}
        hot_us, evicted_us = (defaults[state]["times"][state]["us"] for state in ("hot", "evicted"))
        told = f"hot {hot_us:.2f}, evicted {evicted_us:.2f} us"
        good = hot_us < 0.95 * evicted_us if fits else 0.9 < evicted_us / hot_us < 1.15
        checks.append((f"{name}: hot {'<' if fits else '='} evicted", good, told))
        for state, low_us, high_us in (("hot", 0.3, 2.5), ("evicted", 0.5, 6.0)):
            timing = regions[state]["timing"][state]
            nothing_us = timing["nothing_us"]
            noise = timing["noise"]
            checks.append((f"{name}: nothing, {state}", low_us < nothing_us < high_us, f"{nothing_us:.2f} us"))
            told = f"{noise['percent']:.2f} %, largest A/A {noise['largest_percent']:.2f} %"
            checks.append((f"{name}: noise, {state}", noise["percent"] < 5, told))
        problem = build_problem(BuildContext("triton", region["shapes"], "cuda", 0))
        other_hot_us = 1e3 * median_ms(triton.testing.do_bench_cudagraph, problem)
        other_evicted_us = 1e3 * median_ms(triton.testing.do_bench, problem)
        for state, ours, theirs in (("hot", hot_us, other_hot_us), ("evicted", evicted_us, other_evicted_us)):
            good = abs(ours - theirs) < 0.1 * theirs + 2.0
            checks.append((f"{name}: against do_bench, {state}", good, f"{ours:.2f} here, {theirs:.2f} us there"))
        del problem
    return checks


def median_ms(bench: Any, problem: Any) -> float:
    """The default configuration's median by one of Triton's measures, in ms."""
    with torch.cuda.stream(torch.cuda.Stream()):
        problem.run(DEFAULT)
        return float(bench(lambda: problem.run(DEFAULT), rep=100, return_mode="median"))


def check_twins(document: dict[str, Any]) -> list[tuple[str, bool, str]]:
    """Equal configurations: how many were told apart, and how far the farthest is."""
    checks = []
    (region,) = document["regions"]
    for state in document["protocol"]["states"]:
        found = [c["times"][state]["against"]["default"] for c in region["configurations"] if c["status"] == "timed"]
        others = [one for one in found if one is not None]
        apart = sum(one["verdict"] in ("better", "worse") for one in others)
        farthest = max(abs(one["ratio"] - 1) for one in others)
        told = f"{apart} of {len(others)} told apart, farthest {100 * farthest:.2f} %"
        checks.append((f"twins, {state}", apart == 0 and len(others) == TWINS - 1, told))
    return checks


def check_failing(document: dict[str, Any]) -> list[tuple[str, bool, str]]:
    """A block that Triton refuses is listed, with its reason."""
    (region,) = document["regions"]
    failed = [c for c in region["configurations"] if c["status"] == "failed"]
    good = len(failed) == 1 and bool(region["timing"])
    return [("a block that is too large fails alone", good, failed[0]["reason"] if failed else "none failed")]


if __name__ == "__main__":
    assert COPY.tunable is not None
    main()
