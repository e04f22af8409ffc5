"""How often profkit's verdicts err: on captures repeated on one machine, and on simulated ones.

    profkit capture dcp-combine --variant eager --against fused --pairs 28 -o DIRECTORY
    python benchmarks/verdict_errors.py --pool DIRECTORY... --keep pool.npz    recorded; keeps the censuses' times
    python benchmarks/verdict_errors.py --kept pool.npz                        the same from what was kept
    python benchmarks/verdict_errors.py --simulate                             processes made of the shipped runs

A process is a census with times of its own. Of an arm against itself anything but "neutral" is false; of eager against
fused anything but "confirmed", and any other launch that is called changed.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from profkit.comparison.compare import compare
from profkit.comparison.model import Comparison, Input
from profkit.comparison.verdict import other_changes
from profkit.counting.ranks import is_collective
from profkit.model.census import KindCensus
from profkit.model.run import RunRecord
from profkit.model.selection import Selection
from profkit.runs import sides

TRACES = Path(__file__).parents[1] / "traces"
Times = Mapping[str, npt.NDArray[Any]]
#: What is kept of a run: nanoseconds of slots and of what runs outside layers by step, the step's span, and quartiles
#: of the untraced step in µs.
PARTS = ("slot_ns", "outside_ns", "step_span_ns", "untraced_us")


def load(spec: str | Path) -> Iterator[Input]:
    """The runs that `spec` names, the ones that their capture set aside left out."""
    for run in sides.find(str(spec)):
        if not (run.record and run.record.set_aside):
            census = sides.count_runs(run, Selection())[0].census
            numbers = run.directory.outputs() if run.directory else {}
            yield Input(run.label, census, run.record, str(run.trace), numbers=numbers)


def times_of(run: Input) -> Times:
    chosen, untraced = run.census.chosen, run.record.untraced if run.record else None
    assert untraced is not None
    quartiles = np.array([untraced.p25, untraced.median, untraced.p75])
    return {
        "slot_ns": chosen.slot_ns.astype(np.int32),
        "outside_ns": chosen.outside_ns.astype(np.int32),
        "step_span_ns": chosen.step_span_ns.astype(np.int32),
        "untraced_us": quartiles,
    }


def with_times(template: Input, times: Times, name: str) -> Input:
    """A run like `template` that took these times."""
    chosen, record = template.census.chosen, template.record
    assert record is not None
    assert record.untraced is not None
    slot_ns, outside_ns = (times[part].astype(np.int64) for part in ("slot_ns", "outside_ns"))
    kind: KindCensus = dataclasses.replace(
        chosen,
        kind=dataclasses.replace(chosen.kind, gpu_ns=int(slot_ns.sum() + outside_ns.sum())),
        slots=chosen.slots.assign(ns=slot_ns.sum(axis=1)),
        slot_ns=slot_ns,
        outside=chosen.outside.assign(ns=outside_ns.sum(axis=1)),
        outside_ns=outside_ns,
        step_span_ns=times["step_span_ns"].astype(np.int64),
    )
    p25, median, p75 = times["untraced_us"].tolist()
    untraced = msgspec.structs.replace(record.untraced, p25=p25, median=median, p75=p75)
    kinds = [kind if k is chosen else k for k in template.census.kinds]
    own: RunRecord = msgspec.structs.replace(record, untraced=untraced, ranks=None)
    return dataclasses.replace(
        template, label=name, identity=name, census=dataclasses.replace(template.census, kinds=kinds), record=own
    )


def simulated(template: Input, random: np.random.Generator, clock: float, kernels: float) -> Input:
    """Another process: its clock and each of its launches last longer or shorter by normal shares, and its replays are
    drawn from those of `template`."""
    own = times_of(template)
    slots = template.census.chosen.slots
    names, of_slot = np.unique(slots["canonical"].to_numpy(dtype=str), return_inverse=True)
    # Waiting for others is no work of the kernel's.
    scatter = np.where([is_collective(name) for name in names], 4 * kernels, kernels)
    pace = 1 + random.normal(0, clock)
    replays = random.integers(own["slot_ns"].shape[1], size=own["slot_ns"].shape[1])
    factor = pace * (1 + random.normal(0, scatter))[of_slot][:, None]
    made = {
        "slot_ns": np.rint(own["slot_ns"][:, replays] * factor),
        "outside_ns": np.rint(own["outside_ns"][:, replays] * pace),
        "step_span_ns": np.rint(own["step_span_ns"][replays] * pace),
        "untraced_us": own["untraced_us"] * pace * (1 + random.normal(0, kernels / 4)),
    }
    return with_times(template, made, f"{template.label} {random.integers(1 << 40)}")


def side(runs: Sequence[Input], label: str) -> Input:
    return dataclasses.replace(runs[0], label=label, own=runs[0].label, more=tuple(runs[1:]))


def tried(title: str, pairs: Iterator[tuple[Sequence[Input], Sequence[Input]]]) -> None:
    """Print what is said of every pair of sides."""
    results: list[Comparison] = [compare(side(one, "one"), side(other, "other")) for one, other in pairs]
    verdicts = Counter(r.verdict for r in results)
    others = sum(bool(other_changes(r)) for r in results)
    nets = [r.net.ns_per_layer / 1e3 for r in results if r.net is not None]
    span = f"{min(nets):+.3f} to {max(nets):+.3f}" if nets else ""
    said = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.most_common())
    print(f"| {title} | {said} | {others} | {span} |")


HEAD = "| | verdicts | something else moved | net, µs a layer |\n|---|---|---|---|"


def resampled(arms: Mapping[str, Sequence[Input]], random: np.random.Generator, runs: int, times: int) -> None:
    for (first, one), (second, other) in itertools.combinations_with_replacement(arms.items(), 2):

        def drawn(
            one: Sequence[Input] = one, other: Sequence[Input] = other
        ) -> Iterator[tuple[Sequence[Input], Sequence[Input]]]:
            for _ in range(times):
                if one is other:
                    both = [one[i] for i in random.permutation(len(one))[: 2 * runs]]
                    yield both[:runs], both[runs:]
                else:
                    yield (
                        [one[i] for i in random.permutation(len(one))[:runs]],
                        [other[i] for i in random.permutation(len(other))[:runs]],
                    )

        against = "itself" if first == second else second
        tried(f"{first} against {against}, {runs} a side", drawn())


def without_outputs(run: Input) -> Input:
    assert run.record is not None
    return dataclasses.replace(run, record=msgspec.structs.replace(run.record, digests=None), numbers={})


def simulate(random: np.random.Generator, times: int) -> None:
    shipped = {name: next(load(TRACES / name)) for name in ("dcp-combine/eager", "dcp-combine/fused", "mla-step/fused")}
    dropped = without_outputs(next(load(TRACES / "dcp-combine/dropped")))
    eager, fused = shipped["dcp-combine/eager"], shipped["dcp-combine/fused"]
    print(f"{times} pairs each\n\n{HEAD}")
    for clock, kernels in ((0.0, 0.003), (0.005, 0.003), (0.01, 0.005)):
        noise = f"clock {clock:.1%}, launches {kernels:.1%}"
        for runs in (1, 7):

            def processes(
                one: Input, other: Input, runs: int = runs, clock: float = clock, kernels: float = kernels
            ) -> Iterator[tuple[Sequence[Input], Sequence[Input]]]:
                def make(arm: Input) -> list[Input]:
                    return [simulated(arm, random, clock, kernels) for _ in range(runs)]

                return ((make(one), make(other)) for _ in range(times))

            for name, run in shipped.items():
                tried(f"{noise}; {name} against itself, {runs} a side", processes(run, run))
            tried(f"{noise}; eager against fused, {runs} a side", processes(eager, fused))
            tried(f"{noise}; eager against dropped without outputs, {runs} a side", processes(eager, dropped))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool", nargs="+", default=[])
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--kept", type=Path)
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    random = np.random.default_rng(options.seed)
    if options.simulate:
        simulate(random, options.times)
        return
    arms: dict[str, list[Input]] = {}
    templates = {arm: next(load(TRACES / "dcp-combine" / arm)) for arm in ("eager", "fused")}
    if options.kept:
        with np.load(options.kept) as kept:
            for arm, template in templates.items():
                blocks = [kept[f"{arm} {part}"] for part in PARTS]
                arms[arm] = [
                    with_times(template, dict(zip(PARTS, one, strict=True)), f"{arm} {number}")
                    for number, one in enumerate(zip(*blocks, strict=True))
                ]
    else:
        for run in itertools.chain.from_iterable(map(load, options.pool)):
            arm = run.label.split("/")[0]
            ours, theirs = (c.chosen.slots[["inside", "canonical"]] for c in (run.census, templates[arm].census))
            if ours.to_numpy().tolist() != theirs.to_numpy().tolist():
                raise SystemExit(f"{run.label} has other launches than the shipped {arm}")
            arms.setdefault(arm, []).append(
                with_times(templates[arm], times_of(run), f"{arm} {len(arms.get(arm, []))}")
            )
    if options.keep:
        found = {arm: [times_of(run) for run in runs] for arm, runs in arms.items()}
        np.savez_compressed(
            options.keep,
            **{f"{arm} {part}": np.stack([t[part] for t in times]) for arm, times in found.items() for part in PARTS},
        )
    for arm, runs in arms.items():
        medians = [run.record.untraced.median for run in runs if run.record and run.record.untraced]
        print(
            f"{arm}: {len(runs)} runs, untraced {np.median(medians):.1f} µs ({min(medians):.1f} to {max(medians):.1f})"
        )
        table = np.array([r.census.chosen.slot_ns.sum(axis=1) / r.census.chosen.kind.steps for r in runs])
        slots = runs[0].census.chosen.slots
        for name, rows in slots.groupby("canonical", sort=False).groups.items():
            us = table[:, list(rows)].sum(axis=1) / slots["layer"].nunique() / 1e3
            print(f"  {str(name)[:60]:60} {us.mean():7.3f} µs, sd of runs {us.std(ddof=1):.4f}, range {np.ptp(us):.3f}")
    print(f"\n{options.times} draws each\n\n{HEAD}")
    for count in (1, options.runs):
        resampled(arms, random, count, options.times)


if __name__ == "__main__":
    main()
