"""What a pool of repeated captures says about profkit's own verdicts (see record_pool.sh).

    python benchmarks/pool_statistics.py POOL... --output pool.json

For each arm: every kernel's mean time over runs and how much it differs from run to run. Then resamples: drawn without
replacement, `--pairs` runs a side, of one arm against itself (A/A: any "confirmed" or "changed" is false) and of the
two arms (A/B: anything but "confirmed" is false). A POOL is a directory with the arms' directories in it; several
sittings may be given. Writes the numbers of every run, so that the tables can be made again without the traces.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from profkit.comparison.compare import compare
from profkit.comparison.model import Comparison, Input
from profkit.model.selection import Selection
from profkit.runs import sides


def load(pools: list[str]) -> dict[str, list[Input]]:
    """Arm to its runs, the ones that their capture set aside left out."""
    arms: dict[str, list[Input]] = {}
    for pool in pools:
        for run in sides.find(pool):
            if not (run.record and run.record.set_aside):
                label = f"{pool}/{run.label}"
                arms.setdefault(run.label.split("/")[0], []).append(
                    Input(label, sides.count_runs(run, Selection())[0].census, run.record, label)
                )
    return arms


def kernel_means(run: Input) -> dict[str, float]:
    """µs per layer of each kernel of the selected layers, by scope and name."""
    kind = run.census.chosen
    per = kind.selected_layers * kind.kind.steps * 1e3
    sums = kind.selected_slots.groupby(["inside", "canonical"], sort=False)["ns"].sum() / per
    return {f"{inside}: {run.census.display[name]}": round(us, 4) for (inside, name), us in sums.items()}


def side(members: list[Input], label: str) -> Input:
    """Several runs as one side."""
    return dataclasses.replace(members[0], label=label, more=tuple(members[1:]))


def describe(comparison: Comparison) -> dict[str, Any]:
    """What is kept of one resample."""
    net, untraced = comparison.net, comparison.untraced
    if net is None or untraced is None:
        raise SystemExit(f"The pool's runs cannot be compared: {comparison.reasons[0].message}")
    return {
        "verdict": comparison.verdict,
        "changed": [f.row.name for f in comparison.findings if f.status == "changed"],
        "net_us_per_layer": round(net.ns_per_layer / 1e3, 4),
        "ci": [round(net.low / 1e3, 4), round(net.high / 1e3, 4)],
        "untraced_us_per_step": round(untraced.delta_us, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pool", nargs="+")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--resamples", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    arms = load(options.pool)
    chance = random.Random(options.seed)
    document: dict[str, Any] = {"pairs": options.pairs, "seed": options.seed, "runs": {}, "resamples": {}}
    for arm, members in arms.items():
        table = [kernel_means(run) for run in members]
        untraced = [run.record.untraced.median for run in members]
        document["runs"][arm] = [{"kernels_us": row, "untraced_us": u} for row, u in zip(table, untraced, strict=True)]
        span = f"{min(untraced):.1f} to {max(untraced):.1f}"
        print(f"{arm}: {len(members)} runs, untraced step {np.median(untraced):.1f} us ({span})")
        for name in table[0]:
            us = np.array([row[name] for row in table])
            print(
                f"  {name[:70]:70} {us.mean():7.3f} us, sd between runs {us.std(ddof=1):.4f}, "
                f"largest difference {us.max() - us.min():.3f}"
            )
    first, second = arms
    tests = [(f"{arm} against itself", arm, arm) for arm in arms] + [(f"{first} against {second}", first, second)]
    for title, one, other in tests:
        results = []
        for _ in range(options.resamples):
            if one == other:
                drawn = chance.sample(arms[one], 2 * options.pairs)
                sides = drawn[: options.pairs], drawn[options.pairs :]
            else:
                sides = chance.sample(arms[one], options.pairs), chance.sample(arms[other], options.pairs)
            results.append(describe(compare(side(sides[0], one), side(sides[1], other))))
        document["resamples"][title] = results
        counted = Counter(r["verdict"] for r in results)
        nets = [r["net_us_per_layer"] for r in results]
        changed = Counter(name for r in results for name in r["changed"])
        print(f"{title}, {options.resamples} resamples of {options.pairs} runs a side: {dict(counted)}")
        print(
            f"  net {min(nets):+.3f} to {max(nets):+.3f} us a layer; launches called changed: {dict(changed) or 'none'}"
        )
    if options.output is not None:
        options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
