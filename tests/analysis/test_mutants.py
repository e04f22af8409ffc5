"""Random mutants of recorded runs: whatever is lost, moved, renamed or regridded, no verdict hides it.

`MUTANTS` in the environment says how many (500 if not given); the counts of verdicts are printed with ``-rP``.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from bench import SHARED

from profkit import readers
from profkit.attribution import attribute
from profkit.comparison.compare import compare
from profkit.comparison.model import Comparison, Gates, Input
from profkit.counting.count import take_census
from profkit.counting.steps import graph_ids
from profkit.model.run import RunRecord
from profkit.model.scope import place
from profkit.model.trace import NONE, Trace
from profkit.runs import run_dir

ROOT = Path(__file__).parents[2] / "traces"
ARCHIVE = SHARED / "real/recordings.tar.xz"
#: Of one rank, and of two.
BASES = (
    *(("dcp-combine/eager",), ("dcp-combine/fused",), ("mla-step/fused",), ("dsa-candidates/new",)),
    ("dcp-ag-rs-2gpu/fused/0", "dcp-ag-rs-2gpu/fused/1"),
    # Of real programs, where their recordings are beside the repository.
    *((("hf_fused",), ("vllm_mla_custom",)) if ARCHIVE.exists() else ()),
)
#: Mutants, all parts together; each part is one test, so that they run side by side.
MUTANTS, PARTS = int(os.environ.get("MUTANTS", "500")), 10
REPLAYS = 10
Rows = npt.NDArray[np.int64]

#: Reasons that name a loss, so that a verdict beside them says what it is about.
NAMED = frozenset(
    {
        *("partial-replay", "under-recorded", "nodes-without-ops", "launches-without-ops", "fewer-replays"),
        *("gone-unexplained", "cannot-tell-work", "unexpected-removal", "beyond-steps-differ", "launches-moved"),
        *("launch-collapsed", "eager-launches-without-ops"),
    }
)


@dataclass(frozen=True)
class Base:
    """A recorded run, cut to a few replays.

    Args:
        slots: rows of the ops of each launch slot of a step, in every replay, by layer (-1 outside) and by what is the
            same slot in other layers.
    """

    name: str
    trace: Trace
    side: Input
    slots: Mapping[tuple[int, object], Rows]

    @property
    def layers(self) -> list[int]:
        """All numbers of layers."""
        return sorted({layer for layer, _ in self.slots if layer >= 0})


@cache
def unpacked() -> Path:
    """The recordings of real programs, in a folder that lasts as long as this process."""
    folder = tempfile.mkdtemp(prefix="profkit-real.")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return Path(folder)


@cache
def base(name: str) -> Base:
    run = run_dir.load(ROOT / name if (ROOT / name).exists() else unpacked() / name)
    whole = readers.read(run.trace_path, detail=True)
    ops = whole.ops
    in_graph = ops["node"] != NONE
    # Of one graph: in a recording of several, the first that is replayed.
    first = in_graph & (graph_ids(ops) == graph_ids(ops)[in_graph.to_numpy()][0])
    kept = pd.unique(ops["correlation"][first])[:REPLAYS]
    # Without the replays that are left out; their launches go too.
    stay = ~in_graph | ops["correlation"].isin(kept)
    gone = ops["correlation"][~stay].unique()
    trace = replace(
        whole,
        ops=ops[stay].reset_index(drop=True),
        launches=whole.launches[~whole.launches["correlation"].isin(gone)].reset_index(drop=True),
    )
    attribution = attribute(trace)
    found: dict[tuple[int, object], list[int]] = defaultdict(list)
    seen: Counter[object] = Counter()
    for row, (correlation, node, kernel) in enumerate(
        zip(trace.ops["correlation"].tolist(), trace.ops["node"].tolist(), trace.ops["name"].astype(str), strict=True)
    ):
        if node == NONE:
            continue
        where = place(attribution.paths[attribution.scope[row]])
        layer = -1 if where.layer is None else where.layer.number
        slot = (where.inside, kernel)
        seen[correlation, layer, slot] += 1
        found[layer, (*slot, seen[correlation, layer, slot])].append(row)
    record = msgspec.structs.replace(run.record, replays=REPLAYS)
    side = Input(name, take_census(trace), record, numbers=run.outputs())
    return Base(name, trace, side, {key: np.array(rows) for key, rows in found.items()})


@dataclass(frozen=True)
class Mutant:
    """What was done to a run.

    Args:
        where: all, one (layer), outside, or replay (one op of one replay); all layers of one rank are "one" too.
    """

    what: str
    where: str
    trace: Trace


def _lost(one: Base, rows: Rows, *, nodes: bool) -> Trace:
    """Without the ops of `rows`, and the graph's nodes for them if `nodes`."""
    ops = one.trace.ops
    known = one.trace.nodes
    if nodes:
        known = known[~known["node"].isin(ops["node"].iloc[rows].unique())]
    return replace(one.trace, ops=ops.drop(index=rows).reset_index(drop=True), nodes=known.reset_index(drop=True))


def _changed(one: Base, rows: Rows, **values: object) -> Trace:
    ops = one.trace.ops.copy()
    for column, value in values.items():
        if column == "name":
            ops["name"] = ops["name"].cat.add_categories([value])
        ops.loc[rows, column] = value
    return replace(one.trace, ops=ops)


def _unplaced(one: Base, rows: Rows) -> Trace:
    """With the nodes of `rows` created in no range of a layer: the launches run outside the layers."""
    trace = one.trace
    created = trace.nodes.copy()
    # Clones lead to the node of the capture, which is what lies in a range.
    family = set(trace.ops["node"].iloc[rows])
    parent = dict(zip(created["node"], created["origin"], strict=True))
    for node in list(family):
        while (node := parent.get(node, NONE)) != NONE and node not in family:
            family.add(node)
    earliest = int(min(trace.ranges["start"].min(), trace.nodes["created"].min())) - 1_000
    created.loc[created["node"].isin(family), "created"] = earliest
    return replace(trace, nodes=created)


def mutant(one: Base, random: np.random.Generator) -> Mutant:
    where = str(random.choice(["all", "one", "outside", "replay"]))
    inside = [key for key in one.slots if key[0] >= 0]
    outside = [key for key in one.slots if key[0] < 0]
    if where == "outside" and not outside:
        where = "one"
    keys = outside if where == "outside" else inside
    layer, slot = keys[int(random.integers(len(keys)))]
    rows = one.slots[layer, slot]
    # What one layer alone runs is gone from all that ran it.
    if where == "one" and sum(other == slot and number >= 0 for number, other in one.slots) == 1:
        where = "all"
    if where == "all":
        rows = np.concatenate([r for (_, other), r in one.slots.items() if other == slot])
    if where == "replay":
        return Mutant("lost", where, _lost(one, rows[int(random.integers(len(rows)))][None], nodes=False))
    actions: Sequence[tuple[str, Callable[[], Trace]]] = [
        ("lost", lambda: _lost(one, rows, nodes=True)),
        ("unrecorded", lambda: _lost(one, rows, nodes=False)),
        ("renamed", lambda: _changed(one, rows, name="void other_kernel<float>(int)")),
        ("regridded", lambda: _changed(one, rows, grid_x=one.trace.ops["grid_x"].iloc[rows].to_numpy() * 2 + 1)),
        ("moved", lambda: _unplaced(one, rows)),
    ]
    if where == "outside":
        actions = actions[:4]
    if one.trace.ops["kind"].iloc[rows[0]] != "kernel":
        actions = [action for action in actions if action[0] not in ("renamed", "regridded")]
        actions += [("resized", lambda: _changed(one, rows, bytes=one.trace.ops["bytes"].iloc[rows].to_numpy() // 2))]
    what, make = actions[int(random.integers(len(actions)))]
    return Mutant(what, where, make())


def judged(
    parts: Sequence[Base], changed: int, made: Mutant, *, outputs: bool, expect_removed: int | None
) -> Comparison:
    """The parts as they are, and with the mutant of one of them in its place."""
    sides: list[list[Input]] = [[], []]
    for index, part in enumerate(parts):
        # Without outputs, what remains of run.json is which rank it is of.
        side = part.side if outputs else replace(part.side, record=_without_outputs(part.side.record), numbers={})
        sides[0].append(side)
        sides[1].append(replace(side, census=take_census(made.trace), label="mutant") if index == changed else side)
    before, after = (replace(first, own=first.label, more=tuple(more)) for first, *more in sides)
    return compare(before, after, Gates(expect_removed=expect_removed))


def _without_outputs(record: RunRecord | None) -> RunRecord | None:
    return None if record is None else RunRecord(trace=record.trace, ranks=record.ranks)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_verdict_hides_what_was_done(part: int) -> None:
    random = np.random.default_rng(1000 + part)
    counts: Counter[tuple[str, str, bool, str]] = Counter()
    for _ in range(MUTANTS // PARTS):
        parts = [base(name) for name in BASES[int(random.integers(len(BASES)))]]
        changed = int(random.integers(len(parts)))
        one = parts[changed]
        made = mutant(one, random)
        if len(parts) > 1 and made.where == "all":
            made = replace(made, where="one")
        outputs = bool(random.random() < 0.5)
        expected = [None, 0, 8][int(random.integers(3))]
        result = judged(parts, changed, made, outputs=outputs, expect_removed=expected)
        codes = {reason.code for reason in result.reasons}
        told = (made.what, made.where, outputs, result.verdict)
        context = (one.name, told, expected, [(r.code, r.message) for r in result.reasons])
        counts[told] += 1
        if result.verdict == "neutral":
            assert made.where == "replay", context
            assert codes & NAMED, context
        if result.verdict == "confirmed" and made.where != "replay":
            # With equal outputs, what is gone from every layer is confirmed, and it is gone.
            assert outputs, context
            assert made.where == "all", context
            assert made.what in ("lost", "moved"), context
            assert any(layer.removed > 0 for layer in result.layers), context
        if result.verdict == "changed":
            assert (
                any(f.status != "unchanged" for f in (*result.findings, *result.outside, *result.elsewhere))
                or codes & NAMED
            ), context
    sys.stdout.writelines(f"{number:4} {' '.join(map(str, told))}\n" for told, number in sorted(counts.items()))
    assert counts.total() == MUTANTS // PARTS
