"""Judges a recorded sweep again by the present rule of `profkit/sweep/statistics.py`, from the times in it.

    python benchmarks/qsa_rejudge.py sweep.json again.json

Times stay as they are, verdicts, intervals and p are written anew. What sweeps of before did not record is made up for,
and the rule in the document says so: the scatter of samples is taken from the quartiles of all of them (which holds
what differs between orders too), and the orders of the reference's copies are left out.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from profkit.sweep.record import difference_record, protocol
from profkit.sweep.statistics import Noise, Timed, differences

#: The quartiles of a normal distribution lie as many standard deviations apart.
QUARTILES = 1.3489795
SAID = "; judged again from recorded times, the scatter of samples by their quartiles, without the copies' orders"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path, help="JSON of profkit sweep, not compact")
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    document = json.loads(options.sweep.read_text(encoding="utf-8"))
    moved: Counter[tuple[str, str]] = Counter()
    for region in document["regions"]:
        for state in region["timing"]:
            moved += judge(region, state, document["protocol"]["orders"])
    recorded = document["protocol"]
    fresh = protocol(*(recorded[name] for name in ("orders", "replays", "screen", "methods")))
    recorded["rule"] = fresh["rule"] + SAID
    options.output.write_text(json.dumps(document), encoding="utf-8")
    for (before, after), count in sorted(moved.items()):
        print(f"{before:6} -> {after:6} {count:6}")


def judge(region: dict[str, Any], state: str, orders: int) -> Counter[tuple[str, str]]:
    """Write the verdicts of one state anew; how many went from what to what."""
    left = [index for index, one in enumerate(region["configurations"]) if state in one["times"]]
    found = [region["configurations"][index]["times"][state] for index in left]
    parameters = [region["configurations"][index]["parameters"] for index in left]
    timing = region["timing"][state]
    medians = timing["noise"]["copies_us"]
    noise = Noise(float(np.log(medians).std(ddof=1)), len(medians), medians)
    times = [timed(one, orders) for one in found]
    moved: Counter[tuple[str, str]] = Counter()
    for name, anchor in timing["anchors"].items():
        judged = differences(times, left.index(anchor), parameters.index(region["reference"]), noise)
        for one, difference in zip(found, judged, strict=True):
            before, after = one["against"][name], difference_record(difference)
            if before is not None and after is not None:
                moved[before["verdict"], after["verdict"]] += 1
            one["against"][name] = after
    return moved


def timed(times: Mapping[str, Any], orders: int) -> Timed:
    """Of recorded times, the scatter of samples by their quartiles."""
    deviation = np.log(times["p75_us"] / times["p25_us"]) / QUARTILES
    return Timed(
        us=times["us"],
        orders_us=times["orders_us"],
        copies=times["copies"],
        sampling_variance=float(np.pi / 2 * deviation**2 / times["samples"]),
        sampling_freedom=times["samples"] - orders * times["copies"],
    )


if __name__ == "__main__":
    main()
