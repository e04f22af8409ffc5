"""Layouts, launches and cache hints of pack side by side, alone and within a layer's combine.

For choosing, once: it goes when the choice is made. Untraced, as `dcp_kernels.py`, with its options. What is timed is
checked first, in processes side by side, which also compile it. The parts, printed as they come:

* every choice in every context of `dcp_contexts.py`: the ten best, which are then measured again, and the present one.
* the choices that are best somewhere, in all contexts.
* gaps: pack behind ever more empty kernels, with buffers of its own or shared, behind clean or dirty caches.
* programmatic: planar pack launched so that it may start before the kernel in front of it ends. Last, as it may fail.

    python benchmarks/dcp_arms.py --output dcp_arms.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from typing import Any

import torch
from dcp_checks import check_packs, unpacks_agree
from dcp_contexts import CHOICES, MASK_PACK, Choice, combines, contexts, present
from dcp_kernels import Body, Setting, parser, prepare
from dcp_together import gaps, programmatic
from gpu_timing import Sample, this_device

from profkit.kernels.dcp.layout import Layout

_WORKERS = 15
_SCREEN_TURNS = 4
_BEST = 10
_CONTROL = "present choice, again"
#: The combines of both variants, as unpack is launched now.
_WHOLE = [name for name, (_, warps) in combines().items() if warps == 2]


class Results:
    """What was measured, for the JSON and for choosing."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._begun = time.perf_counter()
        self.document: dict[str, Any] = {}
        #: Context to choice to the screening's median in microseconds a layer.
        self.medians: dict[str, dict[Choice, float]] = {}

    def title(self, text: str) -> None:
        print(f"\n{text} [{time.perf_counter() - self._begun:.0f} s]")

    def measure(self, bodies: Mapping[str, Body], turns: int) -> dict[str, Sample]:
        return self._setting.measure({name: self._setting.graph(body) for name, body in bodies.items()}, turns)

    def keep(self, part: str, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Add rows by arm, and write all that there is."""
        self.document[part] = [{"arm": arm, **row} for arm, row in rows.items()]
        output = self._setting.options.output
        if output is not None:
            output.write_text(json.dumps(self.document, indent=2) + "\n")


def main() -> None:
    options = parser(__doc__).parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("This measures a GPU, and torch sees none here.")
    setting = prepare(options)
    results = Results(setting)
    check(setting)
    results.title("checked")
    device = this_device()
    print(f"{device.name}, torch {device.torch}, triton {device.triton}, ", end="")
    print(f"copy {device.copy_bytes_per_second / 1e12:.2f} TB/s, empty node {device.launch_us:.2f} us")
    shapes = {name: value for name, value in vars(options).items() if name != "output"}
    results.document |= {"device": asdict(device), "options": shapes}
    now = present(options.head_dim)
    for context in contexts(setting.batch):
        compare(setting, results, context, now)
    results.title("best somewhere, in all contexts")
    summary(results, now)
    results.title("gaps")
    gaps(results, setting.layers[0], now, best(results, Layout.PLANAR, ["pack"])[0])
    results.title("programmatic")
    choices = dict.fromkeys(best(results, Layout.PLANAR, names)[0] for names in (["pack"], [MASK_PACK], _WHOLE))
    programmatic(setting, results, list(choices))
    results.title("done")


def check(setting: Setting) -> None:
    """Compile and check every choice, and unpack.

    Raises:
        SystemExit: one writes wrong bits.
    """
    options: argparse.Namespace = setting.options
    workers = min(_WORKERS, len(os.sched_getaffinity(0)))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        shares = [pool.submit(check_packs, options, CHOICES[start::workers]) for start in range(workers)]
        same = unpacks_agree(setting)
        wrong = [name for share in shares for name in share.result()]
    if wrong:
        raise SystemExit(f"pack writes wrong bits: {'; '.join(wrong)}")
    print(f"pack: all {len(CHOICES)} choices write the expected bits, without and with the fused mask")
    print(f"unpack: agrees with the reference; equal bits in every layout and number of warps: {same}")


def compare(setting: Setting, results: Results, context: str, now: Choice) -> None:
    """Measure every choice in a context, then the best ones and the present one again; print these."""
    make = contexts(setting.batch)[context]
    results.title(f"{context}: median (p25 - p75), measured again, us a layer")
    graphs = {str(choice): setting.graph(make(choice)) for choice in CHOICES}
    graphs[_CONTROL] = setting.graph(make(now))
    screened = setting.measure(graphs, _SCREEN_TURNS)
    medians = {choice: screened[str(choice)].median_us for choice in CHOICES}
    results.medians[context] = medians
    shown = [str(choice) for choice in sorted(medians, key=medians.__getitem__)[:_BEST]]
    shown += [name for name in (str(now), _CONTROL) if name not in shown]
    again = setting.measure({name: graphs[name] for name in shown}, setting.options.turns)
    for name in shown:
        first = screened[name]
        mark = "  <- present" if name == str(now) else ""
        print(f"  {name:52} {first.median_us:6.2f} ({first.p25_us:.2f} - {first.p75_us:.2f})", end="")
        print(f"  {again[name].median_us:6.2f}{mark}")
    results.keep(
        context,
        {
            name: {**asdict(sample), "again": asdict(again[name]) if name in again else None}
            for name, sample in screened.items()
        },
    )


def best(results: Results, layout: Layout, names: list[str]) -> tuple[Choice, float]:
    """The choice of a layout with the least sum over the contexts named, and that sum."""
    sums = {
        choice: sum(results.medians[name][choice] for name in names) for choice in CHOICES if choice.layout is layout
    }
    choice = min(sums, key=sums.__getitem__)
    return choice, sums[choice]


def summary(results: Results, now: Choice) -> None:
    """Print, in all contexts, the present choice and each layout's best of each context and of both combines."""
    names = list(results.medians)
    for number, name in enumerate(names, 1):
        print(f"  ({number}) {name}")
    print(f"  {'':52}" + "".join(f"{f'({number})':>8}" for number in range(1, len(names) + 1)))
    leaders = [now]
    for layout in Layout:
        for wanted in [*([name] for name in names), _WHOLE]:
            choice = best(results, layout, wanted)[0]
            if choice not in leaders:
                leaders.append(choice)
    for choice in leaders:
        mark = "  <- present" if choice == now else ""
        print(f"  {choice!s:52}" + "".join(f"{results.medians[name][choice]:8.2f}" for name in names) + mark)
    for layout in Layout:
        choice, total = best(results, layout, _WHOLE)
        print(f"  {layout.value}: least for both combines: {choice}, {total:.2f} us")


if __name__ == "__main__":
    main()
