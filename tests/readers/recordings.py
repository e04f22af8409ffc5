"""One recording in every format: a test states kernels, launches and ranges once and reads them through each reader."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from builders import (
    annotation,
    call,
    csv_call,
    csv_kernel,
    json_dispatch,
    json_process,
    json_record,
    kineto_trace,
    op,
    rocpd_db,
    rocprof_csv,
    rocprof_json,
)

#: What no output may hold; every recording below holds it where its profiler would have written it.
SECRET = "TOKEN=hunter2"
#: nsys puts a machine id above pid and tid.
_MACHINE = 1 << 48


@dataclass(frozen=True)
class Kernel:
    """A kernel of process `pid`, launched by the call with its correlation id."""

    name: str
    start: int
    end: int
    correlation: int = 1
    pid: int = 10


@dataclass(frozen=True)
class Launch:
    """A call on the first thread of process `pid`; None as name is the format's kernel launch."""

    start: int
    correlation: int = 1
    pid: int = 10
    name: str | None = None


@dataclass(frozen=True)
class Range:
    """A push/pop range on the first thread of process `pid`."""

    text: str
    start: int
    end: int
    pid: int = 10


@dataclass(frozen=True)
class Recording:
    """What a profiler saw."""

    kernels: Sequence[Kernel] = ()
    launches: Sequence[Launch] = ()
    ranges: Sequence[Range] = ()

    @property
    def pids(self) -> list[int]:
        """The processes, ascending; 10 where nothing ran."""
        return sorted({r.pid for r in (*self.kernels, *self.launches, *self.ranges)}) or [10]

    def of(self, pid: int) -> Recording:
        """What one process did."""

        def own(rows: Sequence[Any]) -> list[Any]:
            return [r for r in rows if r.pid == pid]

        return Recording(own(self.kernels), own(self.launches), own(self.ranges))


def nsys_tables(recording: Recording) -> dict[str, dict[str, list[Any]]]:
    """Tables of an export, by column; those without rows are left out, as the exporter does."""
    ids: dict[str, int] = {SECRET: 1}

    def text(value: str) -> int:
        return ids.setdefault(value, len(ids) + 1)

    def thread(pid: int) -> int:
        return _MACHINE | pid << 24 | pid

    kernels = {
        "start": [k.start for k in recording.kernels],
        "end": [k.end for k in recording.kernels],
        "deviceId": [0 for _ in recording.kernels],
        "streamId": [7 for _ in recording.kernels],
        "correlationId": [k.correlation for k in recording.kernels],
        "globalPid": [_MACHINE | k.pid << 24 for k in recording.kernels],
        "demangledName": [text(k.name) for k in recording.kernels],
        "graphNodeId": [None for _ in recording.kernels],
    }
    calls = {
        "start": [c.start for c in recording.launches],
        "end": [c.start + 1 for c in recording.launches],
        "globalTid": [thread(c.pid) for c in recording.launches],
        "correlationId": [c.correlation for c in recording.launches],
        "nameId": [text(c.name or "cudaLaunchKernel_v7000") for c in recording.launches],
    }
    ranges = {
        "start": [r.start for r in recording.ranges],
        "end": [r.end for r in recording.ranges],
        "eventType": [59 for _ in recording.ranges],
        "text": [r.text for r in recording.ranges],
        "globalTid": [thread(r.pid) for r in recording.ranges],
    }
    environment = "PROCESS_0:ENVIRONMENT_VARIABLE"
    tables: dict[str, dict[str, list[Any]]] = {
        "CUPTI_ACTIVITY_KIND_KERNEL": kernels,
        "CUPTI_ACTIVITY_KIND_RUNTIME": calls,
        "NVTX_EVENTS": ranges,
        "META_DATA_CAPTURE": {"name": [environment], "value": [SECRET]},
        "META_DATA_EXPORT": {"name": ["EXPORT_PRODUCT_VERSION"], "value": ["2025.3.1.90"]},
        "DIAGNOSTIC_EVENT": {"severity": [2, 2], "text": [f"Setting {SECRET}", "Cannot open /home/hunter2/x"]},
        "StringIds": {"id": list(ids.values()), "value": list(ids)},
    }
    return {name: columns for name, columns in tables.items() if next(iter(columns.values()))}


def nsys_sqlite(folder: Path, recording: Recording) -> Path:
    """An SQLite export."""
    path = folder / "run.sqlite"
    database = sqlite3.connect(path)
    for name, columns in nsys_tables(recording).items():
        database.execute(f"CREATE TABLE {name} ({', '.join(f'{c!r}' for c in columns)})")
        marks = ", ".join("?" * len(columns))
        database.executemany(f"INSERT INTO {name} VALUES ({marks})", zip(*columns.values(), strict=True))
    database.commit()
    database.close()
    return path


def nsys_parquet(folder: Path, recording: Recording) -> Path:
    """A Parquet export."""
    path = folder / "run_pqtdir"
    path.mkdir()
    for name, columns in nsys_tables(recording).items():
        pq.write_table(pa.table(columns), path / f"{name}.parquet")
    return path


def kineto(folder: Path, recording: Recording) -> Path:
    """A trace of torch.profiler; each process on a device of its own."""
    devices = {pid: index for index, pid in enumerate(recording.pids)}
    events = [
        *[call(c.name or "cudaLaunchKernel", c.start, 1, pid=c.pid, correlation=c.correlation)
          for c in recording.launches],
        *[annotation(r.text, r.start, r.end - r.start, pid=r.pid, tid=r.pid) for r in recording.ranges],
        *[op(k.name, k.start, k.end - k.start, correlation=k.correlation, device=devices[k.pid])
          for k in recording.kernels],
        {"ph": "M", "name": "process_labels", "pid": 10, "args": {"labels": SECRET}},
    ]  # fmt: skip
    header = {"cupti_version": 130001, "hostname": SECRET, "traceName": f"/home/{SECRET}/trace.json"}
    return kineto_trace(folder / "run.json", events, **header)


def csv(folder: Path, recording: Recording) -> Path:
    """CSV of rocprofv3; several processes wrote into one set of files."""
    kernels = [csv_kernel(k.name, k.start, k.end, Correlation_Id=k.correlation, Thread_Id=k.pid)
               for k in recording.kernels]  # fmt: skip
    calls = [
        csv_call(
            c.name or "hipLaunchKernel",
            c.start,
            c.start + 1,
            Process_Id=c.pid,
            Thread_Id=c.pid,
            Correlation_Id=c.correlation,
        )
        for c in recording.launches
    ]
    markers = [csv_call(r.text, r.start, r.end, domain="MARKER_CORE_API", Process_Id=r.pid, Thread_Id=r.pid)
               for r in recording.ranges]  # fmt: skip
    return rocprof_csv(folder, str(recording.pids[0]), kernels=kernels, calls=calls, markers=markers)


def json(folder: Path, recording: Recording) -> Path:
    """JSON of rocprofv3, an element for each process."""
    return rocprof_json(folder / "run.json", *[_json_process(recording.of(pid), pid) for pid in recording.pids])


def _json_process(recording: Recording, pid: int) -> dict[str, Any]:
    symbols = dict(enumerate(dict.fromkeys(k.name for k in recording.kernels), 1))
    number = {name: i for i, name in symbols.items()}
    messages = {1000 + i: r.text for i, r in enumerate(recording.ranges)}
    operations = {"hipLaunchKernel": 1, "hipGraphLaunch": 2, "hipMemcpyAsync": 3}
    return json_process(
        pid,
        symbols=symbols,
        messages=messages,
        kernel_dispatch=[
            json_dispatch(number[k.name], k.start, k.end, correlation=k.correlation, thread_id=pid)
            for k in recording.kernels
        ],
        hip_api=[
            json_record(c.start, c.start + 1, correlation=c.correlation, kind=1,
                        operation=operations[c.name or "hipLaunchKernel"], thread_id=pid)
            for c in recording.launches
        ],
        marker_api=[
            json_record(r.start, r.end, correlation=1000 + i, kind=2, operation=1, thread_id=pid)
            for i, r in enumerate(recording.ranges)
        ],
    )  # fmt: skip


def rocpd(folder: Path, recording: Recording) -> Path:
    """A rocpd database, merged from one for each process."""
    path = folder / "run.db"
    for number, (pid, _) in enumerate(groupby(recording.pids)):
        own = recording.of(pid)
        names = list(dict.fromkeys(k.name for k in own.kernels)) or ["none"]
        rocpd_db(
            path,
            guid=f"0000000{number}-9106-7106-804d-ebe920342aed",
            pid=pid,
            names=[f"{name}.kd" for name in names],
            kernels=[
                {"start": k.start, "end": k.end, "kernel": names.index(k.name), "stack": k.correlation}
                for k in own.kernels
            ],
            regions=[
                *[{"name": c.name or "hipLaunchKernel", "category": "HIP_RUNTIME_API_EXT", "start": c.start,
                   "end": c.start + 1, "stack": c.correlation} for c in own.launches],
                *[{"name": "roctxRangePushA", "category": "MARKER_CORE_RANGE_API", "start": r.start, "end": r.end,
                   "message": r.text} for r in own.ranges],
            ],
        )  # fmt: skip
    return path


#: Every format that holds kernels with their launches.
FORMATS: dict[str, Callable[[Path, Recording], Path]] = {
    "nsys sqlite": nsys_sqlite,
    "nsys parquet": nsys_parquet,
    "kineto": kineto,
    "rocprofv3 csv": csv,
    "rocprofv3 json": json,
    "rocpd": rocpd,
}
