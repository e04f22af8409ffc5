"""Doubles one thing of a recording at a time and prints by how much longer profkit takes: 2 is linear.

    python benchmarks/doubling.py [--scale 1]

Recordings are made in memory, so that reading a file is not in the times. A growth is the smallest of three runs at
twice the size over that at the size itself.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable, Mapping

import msgspec
import numpy as np
from rich.console import Console

from profkit.comparison.compare import compare
from profkit.comparison.model import Input
from profkit.counting.count import take_census
from profkit.counting.ranks import divided
from profkit.model.trace import LAUNCHES, NODES, NONE, OP_DETAIL, OPS, RANGES, Info, Process, Trace, table
from profkit.reporters import diff, layers, terminal
from profkit.runs.sides import Counted

BASE = {"replays": 40, "layers": 20, "launches": 30, "kinds": 1, "names": 30, "open": 0, "ranks": 1}


def recording(gone: int = 0, **sizes: int) -> Trace:
    """Replays of `kinds` graphs on each of `ranks` processes, whose layers hold `launches` launches of `names` names.

    Args:
        gone: launches that every layer lacks.
    """
    own = {**BASE, **sizes}
    a_layer, layers, kinds = own["launches"] - gone, own["layers"], own["kinds"]
    per_step = a_layer * layers
    replays = max(own["replays"], kinds)
    ops: dict[str, list[np.ndarray]] = {
        name: [] for name in ("start", "node", "graph", "correlation", "process", "name")
    }
    launches: dict[str, list[np.ndarray]] = {name: [] for name in ("start", "correlation", "process")}
    nodes: dict[str, list[np.ndarray]] = {name: [] for name in ("node", "created", "process")}
    ranges: dict[str, list[np.ndarray]] = {name: [] for name in ("start", "end", "process", "text")}
    for rank in range(own["ranks"]):
        for kind in range(kinds):
            # Each graph has an op more than the one before, so that they are unlike.
            count = per_step + kind
            index = np.arange(count)
            node = (np.int64(kind + 1) << 32) + index
            created = 1_000_000 * (kind + 1) * 10 + index * 10
            nodes["node"].append(node)
            nodes["created"].append(created)
            nodes["process"].append(np.full(count, rank))
            first = created[np.arange(layers) * a_layer]
            ranges["start"].append(first - 2)
            ranges["end"].append(first + a_layer * 10 - 4)
            ranges["process"].append(np.full(layers, rank))
            ranges["text"].append(np.array([f"model.layers.{i}" for i in range(layers)], dtype=object))
            for replay in range(kind, replays, kinds):
                begin = 10**12 + replay * (count + 10) * 2000
                ops["start"].append(begin + index * 2000)
                ops["node"].append(node)
                ops["graph"].append(np.full(count, kind + 1))
                ops["correlation"].append(np.full(count, replay + 1))
                ops["process"].append(np.full(count, rank))
                ops["name"].append((index % a_layer + gone) % own["names"] + (index // a_layer % 7) * own["names"] * 0)
                launches["start"].append(np.array([begin - 500]))
                launches["correlation"].append(np.array([replay + 1]))
                launches["process"].append(np.array([rank]))
        if own["open"]:
            depth = np.arange(own["open"])
            ranges["start"].append(depth)
            ranges["end"].append(np.full(own["open"], 10**15) - depth)
            ranges["process"].append(np.full(own["open"], rank))
            ranges["text"].append(np.array([f"open {i}" for i in depth], dtype=object))
    columns = {name: np.concatenate(parts) for name, parts in ops.items()}
    random = np.random.default_rng(0)
    total = len(columns["start"])
    columns["end"] = columns["start"] + random.integers(1000, 1100, total)
    names = [f"void kernel_{i}<float, {i}>(float*)" for i in range(own["names"])]
    whole = {
        **columns,
        "name": np.array(names, dtype=object)[columns["name"]],
        "kind": "kernel",
        "device": np.zeros(total, np.int32),
        "stream": np.full(total, 7),
    }
    host = {name: np.concatenate(parts) for name, parts in launches.items()}
    marks = {name: np.concatenate(parts) for name, parts in ranges.items()}
    made = {name: np.concatenate(parts) for name, parts in nodes.items()}
    return Trace(
        ops=table({**OPS, **OP_DETAIL}, whole).sort_values(["process", "start"]).reset_index(drop=True),
        launches=table(
            LAUNCHES, {**host, "end": host["start"] + 100, "thread": host["process"], "api": "graph", "name": "launch"}
        ),
        ranges=table(RANGES, {**marks, "thread": marks["process"], "nested": np.ones(len(marks["start"]), bool)}),
        nodes=table(NODES, {**made, "thread": made["process"], "origin": np.full(len(made["node"]), NONE)}),
        info=Info("made", "made", "nvidia", "none", {0: "GPU"}, [Process(pid=r) for r in range(own["ranks"])], "node"),
        set_aside=table(OPS),
    )


def _counted(trace: Trace) -> list[Counted]:
    return [
        Counted(f"rank {i}", take_census(part), None, str(i), rank) for i, (rank, part) in enumerate(divided(trace))
    ]


def _side(counted: list[Counted], label: str) -> Input:
    first, *more = (Input(f"{label} {c.label}", c.census, None, f"{label} {c.label}", rank=c.rank) for c in counted)
    return Input(label, first.census, None, first.identity, tuple(more), first.label, first.rank)


WORK: Mapping[str, Callable[[list[Counted], list[Counted]], object]] = {
    "layers, text": lambda one, _: terminal.render(layers.answer(one, None).blocks(), Console(file=io.StringIO())),
    "layers, json": lambda one, _: msgspec.json.encode(layers.answer(one, None).document()),
    "diff": lambda one, other: compare(_side(one, "before"), _side(other, "after")),
    "diff, text": lambda one, other: terminal.render(
        diff.report(compare(_side(one, "before"), _side(other, "after"))), Console(file=io.StringIO())
    ),
}


def _took(work: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=1)
    options = parser.parse_args()
    grown = {
        "replays": 400,
        "launches": 1500,
        "layers": 400,
        "kinds": 150,
        "names": 3000,
        "open": 1000,
        "ranks": 8,
    }
    for what, size in grown.items():
        took: dict[str, list[float]] = {}
        for factor in (1, 2):
            sizes = {what: size * factor * options.scale}
            if what == "names":
                sizes |= {"launches": size * factor * options.scale, "layers": 4}
            traces = recording(**sizes), recording(gone=1, **sizes)
            took.setdefault("census", []).append(_took(lambda t=traces: _counted(t[0])))  # type: ignore[misc]
            one, other = map(_counted, traces)
            for name, work in WORK.items():
                took.setdefault(name, []).append(_took(lambda w=work, a=one, b=other: w(a, b)))  # type: ignore[misc]
        for name, (small, large) in took.items():
            print(f"{what:9} {size * options.scale:6} {name:13} {small:7.2f} s  × {large / max(small, 1e-3):.2f}")


if __name__ == "__main__":
    main()
