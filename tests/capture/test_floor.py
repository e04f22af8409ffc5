"""The dispatch floor: what the kernels do, what is read from a trace of them, and what is said without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from capture_cli import STUB_NSYS, environment, names, profkit

from profkit.capture import floor
from profkit.capture.floor import traced_times
from profkit.capture.options import TRACED_NODES, Options
from profkit.capture.profilers.dispatch import Dispatch
from profkit.capture.profilers.nsys import Nsys
from profkit.capture.profilers.torch_profiler import TorchProfiler
from profkit.capture.record import quartiles
from profkit.capture.workers import Workers
from profkit.commands.floor import as_text
from profkit.errors import ProfkitError
from profkit.model.run import FloorRecord, MessageRecord, QuartilesRecord
from profkit.model.trace import LAUNCHES, NODES, OPS, RANGES, Info, Process, Trace, table
from profkit.readers.installed import NSYS

torch = pytest.importorskip("torch", reason="the floor is measured with torch")
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="shows what is said without a CUDA device")

#: Compiles both kernels for an H200, which need not be there, and prints their global loads and stores.
COMPILE = """
import json, warnings
warnings.simplefilter("ignore")
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from profkit.capture.floor_kernels import KERNELS, NUM_WARPS

found = {}
for name, kernel in KERNELS.items():
    source, target = ASTSource(kernel, {"x_ptr": "*fp32"}), GPUTarget("cuda", 90, 32)
    compiled = triton.compile(source, target=target, options={"num_warps": NUM_WARPS})
    ptx = compiled.asm["ptx"]
    found[name] = [compiled.metadata.name, ptx.count("ld.global"), ptx.count("st.global")]
print(json.dumps(found))
"""


def floor_trace(rows: list[tuple[str, int, int, int]]) -> Trace:
    """A trace of kernels given as (name, start_ns, end_ns, correlation)."""
    columns = {
        "start": [start for _, start, _, _ in rows],
        "end": [end for _, _, end, _ in rows],
        "kind": ["kernel"] * len(rows),
        "name": [name for name, _, _, _ in rows],
        "process": 0,
        "device": 0,
        "stream": 7,
        "correlation": [correlation for _, _, _, correlation in rows],
    }
    info = Info("t.sqlite", "nsys sqlite", "nvidia", "Nsight Systems 2025.3.1", {0: "NVIDIA H200"}, [Process(1)])
    return Trace(table(OPS, columns), table(LAUNCHES), table(RANGES), table(NODES), info, table(OPS))


def chain(name: str, begin_ns: int, duration_ns: int, gap_ns: int, correlation: int) -> list[tuple[str, int, int, int]]:
    """Three kernels one after the other."""
    step_ns = duration_ns + gap_ns
    return [(name, begin_ns + i * step_ns, begin_ns + i * step_ns + duration_ns, correlation) for i in range(3)]


EMPTY, LOADED = floor.TRACED_KERNELS
TWO_REPLAYS = [
    *chain(EMPTY, 0, 800, 600, 1),
    *chain(LOADED, 5_000, 1200, 700, 1),
    *chain(EMPTY, 90_000, 820, 610, 2),
    *chain(LOADED, 95_000, 1240, 710, 2),
]


def test_one_kernel_does_nothing_and_the_other_one_load_and_one_store(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env=environment(TRITON_CACHE_DIR=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"empty": [EMPTY, 0, 0], "load_store": [LOADED, 1, 1]}


def test_the_traced_graph_is_one_chain_of_each_kernel(tmp_path: Path) -> None:
    (own,) = floor.workers_under(Dispatch()).record(tmp_path)
    ops = json.loads((own.recording.work / "dispatch.json").read_text())["ops"]
    launched = [(op["name"], op["grid"], op["scope"]) for op in ops]
    assert launched == [
        *[(EMPTY, [1, 1, 1], ["layers.0.empty"])] * TRACED_NODES,
        *[(LOADED, [1, 1, 1], ["layers.1.load_store"])] * TRACED_NODES,
    ]


def test_durations_and_gaps_are_read_per_kernel_and_never_across_replays() -> None:
    times = traced_times(floor_trace(TWO_REPLAYS), nodes=3, replays=2)
    (empty_durations, empty_gaps), (loaded_durations, loaded_gaps) = times["empty"], times["load_store"]
    assert quartiles(empty_durations) == QuartilesRecord(median=0.81, p25=0.8, p75=0.82, count=6)
    assert quartiles(loaded_durations) == QuartilesRecord(median=1.22, p25=1.2, p75=1.24, count=6)
    # Two gaps in each of two replays: the 88 us between the replays is none.
    assert quartiles(empty_gaps) == QuartilesRecord(median=0.605, p25=0.6, p75=0.61, count=4)
    assert len(loaded_gaps) == 4


def test_the_order_of_rows_in_the_file_does_not_matter() -> None:
    shuffled = floor_trace(TWO_REPLAYS)
    ops: pd.DataFrame = shuffled.ops.iloc[::-1]
    mixed = Trace(ops, shuffled.launches, shuffled.ranges, shuffled.nodes, shuffled.info, shuffled.set_aside)
    assert traced_times(mixed, nodes=3, replays=2) == traced_times(floor_trace(TWO_REPLAYS), nodes=3, replays=2)


@pytest.mark.parametrize("rows", [TWO_REPLAYS[:-1], [*TWO_REPLAYS, TWO_REPLAYS[-1]], []])
def test_a_trace_that_lacks_or_doubles_a_node_is_no_measurement(rows: list[tuple[str, int, int, int]]) -> None:
    with pytest.raises(ProfkitError, match=r"Nsight Systems 2025\.3\.1 recorded [057] of 6 rows of floor_"):
        traced_times(floor_trace(rows), nodes=3, replays=2)


@without_gpu
def test_without_a_device_it_is_one_error(tmp_path: Path) -> None:
    done = profkit("floor", "-o", "floor.json", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("profkit: error: The dispatch floor cannot be measured: torch ")
    assert ("finds no CUDA device" if torch.version.cuda else "is built without CUDA") in done.stderr
    assert done.stderr.count("\n") == 1
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "xml"], "No format 'xml'. Known: text, json."),
        (
            ["--profiler", "dispatch"],
            "--profiler dispatch does not go with the dispatch floor; that needs nsys or torch.",
        ),
        (["-o", "there"], "there exists and will not be overwritten"),
    ],
)
def test_misuse_is_one_error(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "there").touch()
    done = profkit("floor", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


@without_gpu
def test_a_capture_goes_on_without_a_floor_that_cannot_be_measured_and_says_so() -> None:
    why = floor.beside(Workers(Options("w"), Nsys(NSYS.check(STUB_NSYS))))
    assert isinstance(why, MessageRecord)
    assert why.code == "floor-not-measured"
    assert "finds no CUDA device" in str(why.message)


@pytest.mark.parametrize(
    "unmeasured",
    [Workers(Options("w", with_floor=False), TorchProfiler()), Workers(Options("w"), Dispatch())],
)
def test_a_floor_that_is_not_wanted_or_has_no_times_is_no_warning(unmeasured: Workers) -> None:
    assert floor.beside(unmeasured) is None


def test_the_table_shows_medians_and_quartiles() -> None:
    def summary(median: float) -> dict[str, Any]:
        return {"median": median, "p25": median - 0.01, "p75": median + 0.02, "count": 50}

    fields = ("untraced_per_node", "traced_duration", "traced_gap")
    content = {
        "device": "NVIDIA H200",
        "profiler": {"name": "nsys", "version": "2025.3.1"},
        "empty": dict(zip(fields, map(summary, (0.68, 0.8, 0.6)), strict=True)),
        "load_store": dict(zip(fields, map(summary, (1.1, 1.25, 0.7)), strict=True)),
    }
    first, _, empty, loaded = as_text(msgspec.convert(content, FloorRecord)).splitlines()
    assert first == "dispatch floor of NVIDIA H200; traced by nsys 2025.3.1"
    assert empty.split("  ")[-1].strip() == "0.600 (0.590-0.620)"
    assert loaded.strip().startswith("one load and store")
    assert "1.100 (1.090-1.120)" in loaded
