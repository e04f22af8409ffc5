"""Public nsys exports of other versions: the reader's counts against plain SQL."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from builders import SHARED

from profkit.attribution import attribute
from profkit.readers import nsys

FIXTURES = SHARED / "corpus" / "GindaChen+nsys-ai" / "tests" / "fixtures"
pytestmark = pytest.mark.skipif(not FIXTURES.is_dir(), reason="no corpus beside the repository")
FILES = pytest.mark.parametrize("name", ["mock.sqlite", "h100_2gpu_1s.sqlite"])
PROCESS = "~16777215"  # clears the thread bits of a globalTid


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """Plain SQL, without profkit."""
    db = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


@FILES
@pytest.mark.parametrize("kind", ["kernel", "memcpy", "memset"])
def test_ops_are_the_rows_of_their_table(name: str, kind: str) -> None:
    path = FIXTURES / name
    table = f"CUPTI_ACTIVITY_KIND_{kind.upper()}"
    expected = [0, 0, 0]
    if query(path, f"SELECT 1 FROM sqlite_master WHERE name = '{table}'"):
        sums = 'COUNT(*), COALESCE(SUM("end" - start), 0), COALESCE(SUM(start), 0)'
        expected = list(query(path, f"SELECT {sums} FROM {table}")[0])
    ops = nsys.read(path).ops
    mine = ops[ops["kind"] == kind]
    assert [len(mine), int((mine["end"] - mine["start"]).sum()), int(mine["start"].sum())] == expected


@FILES
def test_launches_per_kernel_name(name: str) -> None:
    path = FIXTURES / name
    sql = "SELECT value, COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds s ON s.id = demangledName GROUP BY 1"
    ops = nsys.read(path).ops
    counts = ops[ops["kind"] == "kernel"]["name"].value_counts()
    assert {k: int(v) for k, v in counts.items() if v} == dict(query(path, sql))


@FILES
def test_the_join_with_launches_is_by_process(name: str) -> None:
    path = FIXTURES / name
    sql = (
        "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k WHERE EXISTS (SELECT 1 FROM CUPTI_ACTIVITY_KIND_RUNTIME r "
        f"WHERE r.correlationId = k.correlationId AND (r.globalTid & {PROCESS}) = (k.globalPid & {PROCESS}))"
    )
    trace = nsys.read(path)
    kernels = (trace.ops["kind"] == "kernel").to_numpy()
    joined = attribute(trace).joined.row >= 0
    assert int((joined & kernels).sum()) == query(path, sql)[0][0]


def test_user_ranges_are_those_of_the_table() -> None:
    path = FIXTURES / "h100_2gpu_1s.sqlite"
    ((count, ns),) = query(path, 'SELECT COUNT(*), SUM("end" - start) FROM NVTX_EVENTS WHERE eventType IN (59, 60)')
    ranges = nsys.read(path).ranges
    closed = ranges[~ranges["clipped"]]
    assert len(ranges) == count
    assert int((closed["end"] - closed["start"]).sum()) == ns


def test_nothing_of_the_recorded_environment_is_kept() -> None:
    # GIVEN every value of the recorded environment that is long enough to be recognised
    path = FIXTURES / "mock.sqlite"
    values = [str(v) for (v,) in query(path, "SELECT value FROM META_DATA_CAPTURE WHERE name LIKE '%ENVIRONMENT%'")]
    secrets = {part for v in values for part in v.split("=")[1:] if len(part) > 8}
    trace = nsys.read(path)
    kept = [trace.info.profiler, *trace.info.devices.values(), *(d.message for d in trace.info.diagnostics)]
    for table in (trace.ops, trace.launches, trace.ranges):
        for column in ("name", "text", "domain", "kernel"):
            kept += [str(c) for c in table[column].cat.categories] if column in table else []
    assert [s for s in secrets if any(s in text for text in kept)] == []
