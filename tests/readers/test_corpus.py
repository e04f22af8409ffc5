"""Every recorded file of the corpus reads with the counts of an independent parse, or is refused with a reason.

The corpus lies beside the repository and is not part of it; without it these tests are skipped.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from builders import SHARED

from profkit.errors import ProfkitError
from profkit.model.trace import NONE
from profkit.readers import read

CORPUS = SHARED / "corpus"
H200 = SHARED / "h200"
LAUNCH = re.compile(r"^(cuda|cu|hip)\w*(Launch(Kernel|Cooperative)|GraphLaunch$|Mem(cpy|set)(?!Node))")
OP_CATEGORIES = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
RANGE_CATEGORIES = {"user_annotation": "", "cpu_op": "cpu_op", "python_function": "python_function"}


def files(folder: Path, pattern: str) -> list[Any]:
    """Test parameters: the files, or one skipped stand-in."""
    if not folder.is_dir():
        return [pytest.param(folder, marks=pytest.mark.skip(reason=f"no {folder.name} beside the repository"))]
    return [pytest.param(p, id="/".join(p.parts[-3:])) for p in sorted(folder.rglob(pattern))]


def exact_ns(event: dict[str, Any], base_ns: int) -> tuple[int, int]:
    start = int(event["ts"] * 1000) + base_ns
    return start, start + int(event["dur"] * 1000)


@pytest.mark.parametrize("path", files(CORPUS, "*.gz") + files(H200, "*.kineto.json.gz"))
def test_kineto_file(path: Path) -> None:
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    events = [e for e in document["traceEvents"] if e.get("ph") == "X"]
    base_ns = document.get("baseTimeNanoseconds", 0)

    trace = read(path)

    ops = [e for e in events if e["cat"] in OP_CATEGORIES]
    expected = Counter(
        (OP_CATEGORIES[e["cat"]], e["name"], e["args"]["correlation"], *exact_ns(e, base_ns)) for e in ops
    )
    columns = ["kind", "name", "correlation", "start", "end"]
    assert Counter(trace.ops[columns].itertuples(index=False, name=None)) == expected

    calls = [e for e in events if e["cat"] in ("cuda_runtime", "cuda_driver") and LAUNCH.match(e["name"])]
    expected = Counter((e["name"], e["tid"], e["args"]["correlation"], *exact_ns(e, base_ns)) for e in calls)
    columns = ["name", "thread", "correlation", "start", "end"]
    assert Counter(trace.launches[columns].itertuples(index=False, name=None)) == expected

    ranges = [e for e in events if e["cat"] in RANGE_CATEGORIES]
    expected = Counter((RANGE_CATEGORIES[e["cat"]], e["name"], *exact_ns(e, base_ns)) for e in ranges)
    columns = ["domain", "text", "start", "end"]
    assert Counter(trace.ranges[columns].itertuples(index=False, name=None)) == expected

    pids = {e["pid"] for e in events if e["cat"] in ("cuda_runtime", "user_annotation")}
    assert {p.pid for p in trace.info.processes} == pids
    information = document.get("distributedInfo") or {}
    assert {p.rank for p in trace.info.processes} == {information.get("rank")}
    assert not len(trace.set_aside)


@pytest.mark.parametrize("path", files(H200, "toy_eager.kineto.json.gz"))
def test_replayed_kernels_of_the_h200_are_told_from_captured_ones(path: Path) -> None:
    trace = read(path)

    graphs = trace.launches.loc[trace.launches["api"] == "graph", "correlation"]
    per_replay = trace.ops[trace.ops["correlation"].isin(graphs)].groupby("correlation").size()
    assert trace.info.graph_trace == "node"
    assert trace.info.devices == {0: "NVIDIA H200"}
    assert set(per_replay) == {24 * 11}
    assert len(per_replay) == 20


def rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="") as file:
        yield from csv.DictReader(file)


@pytest.mark.parametrize("path", files(CORPUS, "*kernel_trace*.csv"))
def test_rocprof_kernels(path: Path) -> None:
    trace = read(path)

    times = ("Correlation_Id", "Start_Timestamp", "End_Timestamp")
    expected = Counter(
        (r["Kernel_Name"], int(r["Agent_Id"].split()[-1]), *(int(r[t]) for t in times)) for r in rows(path)
    )
    columns = ["name", "device", "correlation", "start", "end"]
    assert Counter(trace.ops[columns].itertuples(index=False, name=None)) == expected
    assert set(trace.ops["kind"]) == {"kernel"}


@pytest.mark.parametrize("path", files(CORPUS, "*memory_copy_trace.csv"))
def test_rocprof_copies(path: Path) -> None:
    trace = read(path)

    times = ("Start_Timestamp", "End_Timestamp")
    expected = Counter(tuple(int(r[t]) for t in times) for r in rows(path))
    assert Counter(trace.ops[["start", "end"]].itertuples(index=False, name=None)) == expected
    assert set(trace.ops["name"]) <= {"memcpy HtoD", "memcpy DtoH"}


@pytest.mark.parametrize("path", [p for n in ("hip_trace", "hip_runtime_trace", "marker_api_trace", "rocpd-to-csv")
                                  for p in files(CORPUS, f"{n}.csv")])  # fmt: skip
def test_rocprof_calls_and_markers(path: Path) -> None:
    trace = read(path)

    calls = [r for r in rows(path) if r["Domain"].startswith("HIP") and LAUNCH.match(r["Function"])]
    markers = [r for r in rows(path) if r["Domain"].startswith("MARKER") and r["Start_Timestamp"] != r["End_Timestamp"]]

    def expected(chosen: list[dict[str, str]]) -> Counter[Any]:
        numbers = ("Thread_Id", "Start_Timestamp", "End_Timestamp")
        return Counter((r["Function"], *(int(r[n]) for n in numbers)) for r in chosen)

    launches = trace.launches[["name", "thread", "start", "end"]].itertuples(index=False, name=None)
    ranges = trace.ranges[["text", "thread", "start", "end"]].itertuples(index=False, name=None)
    assert Counter(launches) == expected(calls)
    assert Counter(ranges) == expected(markers)
    assert {str(p.pid) for p in trace.info.processes} == {r["Process_Id"] for r in rows(path)}
    assert calls or markers


REFUSED = {
    "hip_compile_trace.csv": r"no kernel, copy, launch or marker in this file\. Open that of the kernels",
    "hsa_api_trace.csv": r"no kernel, copy, launch or marker in this file\. Open that of the kernels",
    "rccl_trace.csv": r"no kernel, copy, launch or marker in this file\. Open that of the kernels",
    "hip_api_stats.csv": "holds sums per kernel or call",
    "hip_domain_stats.csv": "holds sums per kernel or call",
    "scratch_memory_trace.csv": "a file of rocprofv3 without kernels",
    "memory_allocation_trace.csv": "a file of rocprofv3 without kernels",
    "execution_details.json": "lists capture traces and is none itself",
}


@pytest.mark.parametrize(("path", "reason"), [
    pytest.param(*p.values, REFUSED[name], marks=p.marks, id=p.id) for name in REFUSED for p in files(CORPUS, name)
])  # fmt: skip
def test_refused_file(path: Path, reason: str) -> None:
    with pytest.raises(ProfkitError, match=reason) as caught:
        read(path)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("path", files(CORPUS, "*_results.db"))
def test_rocpd_file(path: Path) -> None:
    before = {p.name: p.stat().st_mtime_ns for p in path.parent.iterdir()}
    database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    kernels = database.execute('SELECT name, stack_id, "start", "end", agent_abs_index, pid FROM kernels').fetchall()
    calls = database.execute('SELECT name, stack_id, tid, "start", "end" FROM regions').fetchall()
    (environment,) = database.execute("SELECT environment FROM rocpd_info_process").fetchone()
    database.close()

    trace = read(path)

    columns = ["name", "correlation", "start", "end", "device"]
    assert Counter(trace.ops[columns].itertuples(index=False, name=None)) == Counter(k[:5] for k in kernels)
    columns = ["name", "correlation", "thread", "start", "end"]
    launches = Counter(trace.launches[columns].itertuples(index=False, name=None))
    assert launches == Counter(c for c in calls if LAUNCH.match(c[0]))
    assert {p.pid for p in trace.info.processes} == {k[5] for k in kernels}
    assert set(trace.ops["correlation"]) <= set(trace.launches["correlation"])
    assert set(trace.ops["node"]) == {NONE}
    assert environment
    assert environment not in repr(trace.info)
    assert {p.name: p.stat().st_mtime_ns for p in path.parent.iterdir()} == before


def test_no_file_of_these_formats_is_left_out() -> None:
    """What the corpus holds beside nsys exports, which have tests of their own, is in one of the tests above."""
    if not CORPUS.is_dir():
        pytest.skip("no corpus beside the repository")
    tested = [
        r".*\.gz",
        r".*kernel_trace.*\.csv",
        r".*memory_copy_trace\.csv",
        r".*_results\.db",
        *map(re.escape, REFUSED),
    ]
    tested += [r"(hip_trace|hip_runtime_trace|marker_api_trace|rocpd-to-csv)\.csv", r".*\.sqlite", r"INDEX\.tsv"]
    names = {p.name for p in CORPUS.rglob("*") if p.is_file()}
    assert {n for n in names if not any(re.fullmatch(t, n) for t in tested)} == set()
