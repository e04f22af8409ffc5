"""Damaged files of every format through every command: an answer or one refusal, never a traceback or a wrong count.

A mutant is a small valid file of which tables, columns, cells, values or bytes were changed by a seeded generator, so
its format and number name it. The tests make a few hundred; ``make fuzz FUZZ=100000`` makes more, from number
``FUZZ_FROM`` on.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import gzip
import io
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import recordings
from builders import LEGACY_HEADER, write_csv
from recordings import Kernel, Launch, Range, Recording

from profkit.cli import main

#: Mutants of each format, and the number of the first.
COUNT, FIRST = -(-int(os.environ.get("FUZZ", "300")) // 10), int(os.environ.get("FUZZ_FROM", "0"))
#: Of processor time; the machine may have more to do. The other is for what never ends.
SECONDS, WALL_SECONDS = 5, 60

Columns = dict[str, list[Any]]
Tables = dict[str, Columns]


# -- small valid files ------------------------------------------------------------------------------------------------


def _steps(graph_launch: str) -> Recording:
    """Three eager steps of two layers of three kernels, and three replays of a graph of four."""
    kernels, launches, ranges = [], [], []
    ident, now = 0, 1000
    for _ in range(3):
        began = now
        for layer in range(2):
            ranges.append(Range(f"layers.{layer}", now, now + 90))
            for name in ("gemm", "norm", "pack"):
                ident, now = ident + 1, now + 20
                launches.append(Launch(now, ident))
                kernels.append(Kernel(name, now + 1000, now + 1015, ident))
            now += 50
        ranges.append(Range("step", began - 5, now))
    for _ in range(3):
        ident, now = ident + 1, now + 1000
        launches.append(Launch(now, ident, name=graph_launch))
        kernels += [Kernel(f"inner{i % 2}", now + 5000 + 50 * i, now + 5040 + 50 * i, ident) for i in range(4)]
    return Recording(kernels, launches, ranges)


def _nsys(folder: Path) -> Path:
    """With nodes and their creation, copies, sets, devices, enumerations, domains and registered texts."""
    path = recordings.nsys_sqlite(folder, _steps("cudaGraphLaunch_v10000"))
    kernel, thread = "CUPTI_ACTIVITY_KIND_KERNEL", (1 << 48) | 10 << 24 | 10
    activity = (
        "SELECT start + 5 AS start, end + 5 AS end, deviceId, streamId, correlationId, globalPid, graphNodeId, "
        f"1 %s FROM {kernel}"
    )
    with sqlite3.connect(path) as database:
        for sql in (
            f"ALTER TABLE {kernel} ADD COLUMN contextId INTEGER DEFAULT 1",
            f"ALTER TABLE {kernel} ADD COLUMN graphId INTEGER",
            f"UPDATE {kernel} SET graphId = 3, graphNodeId = (3 << 32) + (start / 50) % 20 WHERE start > 6000",
            f"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY AS {activity % 'AS copyKind'} LIMIT 2",
            f"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET AS {activity % 'AS value'} LIMIT 2",
            "CREATE TABLE CUDA_GRAPH_NODE_EVENTS AS SELECT start - 900 AS start, start - 899 AS end, "
            f"{thread} AS globalTid, graphNodeId, graphNodeId - (1 << 32) AS originalGraphNodeId FROM {kernel} "
            "WHERE graphNodeId IS NOT NULL",
            "ALTER TABLE NVTX_EVENTS ADD COLUMN textId INTEGER",
            "ALTER TABLE NVTX_EVENTS ADD COLUMN domainId INTEGER DEFAULT 0",
            "CREATE TABLE TARGET_INFO_GPU (id, name, cuDevice)",
            "INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200', 0)",
            "CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id, label)",
            "INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1, 'Host-to-Device')",
            "INSERT INTO META_DATA_CAPTURE VALUES ('CUDA_GRAPH_TRACE_OPTIONS:MODE', 'Node')",
        ):
            database.execute(sql)
    database.close()
    return path


def _parquet(folder: Path) -> Path:
    path = folder / "run_pqtdir"
    path.mkdir()
    export = _nsys(folder)
    _dump_parquet(path, _load_sqlite(export))
    export.unlink()
    return path


def _packed(folder: Path) -> Path:
    path = recordings.kineto(folder, _steps("cudaGraphLaunch"))
    packed = folder / "run.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return packed


def _legacy(folder: Path) -> Path:
    rows = [
        {"Index": i, "KernelName": k.name, "pid": 10, "tid": 10, "BeginNs": k.start, "EndNs": k.end, "DurationNs": 15}
        for i, k in enumerate(_steps("hipGraphLaunch").kernels)
    ]
    return write_csv(folder / "results.csv", LEGACY_HEADER, rows)


def _dispatch(folder: Path) -> Path:
    ranges, ops, tick = [], [], 0
    for _ in range(3):
        for layer in range(2):
            ranges.append({"text": f"layers.{layer}", "start": tick + 1, "end": tick + 4})
            for order, name in ((tick + 2, "aten::mm"), (tick + 3, "pack")):
                ops.append({"order": order, "name": name, "kind": "kernel", "source": "aten", "grid": [4, 1, 1]})
            tick += 4
    path = folder / "dispatch.json"
    whole = {"schema": "profkit.dispatch/1", "run_bodies": True, "torch": "2.13", "triton": None}
    path.write_text(json.dumps({**whole, "ranges": ranges, "ops": ops}))
    return path


# -- tables of a file, and back ---------------------------------------------------------------------------------------


def _load_sqlite(path: Path) -> Tables:
    with contextlib.closing(sqlite3.connect(path)) as database:
        names = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        tables = {}
        for name in names:
            cursor = database.execute(f'SELECT * FROM "{name}"')
            rows = cursor.fetchall()
            tables[name] = {column[0]: [row[i] for row in rows] for i, column in enumerate(cursor.description)}
    return tables


def _dump_sqlite(path: Path, tables: Tables) -> None:
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as database:
        for name, columns in tables.items():
            if columns:
                declared = ", ".join('"{}"'.format(column.replace('"', '""')) for column in columns)
                database.execute(f'CREATE TABLE "{name}" ({declared})')
                marks = ", ".join("?" * len(columns))
                rows = zip(*([_sql(value) for value in values] for values in columns.values()), strict=True)
                database.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
        database.commit()


def _sql(value: Any) -> Any:
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return float(value)
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) and _is_broken(value) else value


def _is_broken(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)


def _load_parquet(path: Path) -> Tables:
    return {file.stem: pq.read_table(file).to_pydict() for file in sorted(path.glob("*.parquet"))}


def _dump_parquet(path: Path, tables: Tables) -> None:
    for file in path.glob("*.parquet"):
        file.unlink()
    for name, columns in tables.items():
        pq.write_table(
            pa.table({column: _arrow(values) for column, values in columns.items()}), path / f"{name}.parquet"
        )


def _arrow(values: Sequence[Any]) -> pa.Array:
    kinds = {type(value) for value in values if value is not None}
    large = [v for v in values if isinstance(v, int) and not -(1 << 63) <= v < 1 << 63]
    if (kinds <= {int} and not large) or (len(kinds) == 1 and kinds <= {float, bool, bytes}):
        return pa.array(values)
    if kinds == {int} and not any(v is not None and not 0 <= v < 1 << 64 for v in values):
        return pa.array(values, pa.uint64())
    if kinds <= {int, float, bool}:
        return pa.array([None if v is None else float(v) for v in values])
    texts = [v.encode("utf-8", "surrogatepass") if isinstance(v, str) else v for v in values]
    raw = pa.array([v if v is None or isinstance(v, bytes) else str(v).encode() for v in texts], pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers(), raw.null_count)


def _load_csv(path: Path) -> Tables:
    tables = {}
    for file in sorted(path.parent.glob("*.csv")):
        header, *rows = csv.reader(io.StringIO(file.read_text()))
        tables[file.name] = {name: [row[i] for row in rows] for i, name in enumerate(header)}
    return tables


def _dump_csv(path: Path, tables: Tables) -> None:
    for file in path.parent.glob("*.csv"):
        if file.name not in tables:
            file.unlink()
    for name, columns in tables.items():
        text = io.StringIO()
        writer = csv.writer(text, quoting=csv.QUOTE_ALL if name == path.name else csv.QUOTE_MINIMAL)
        writer.writerows([list(columns), *zip(*columns.values(), strict=True)])
        (path.parent / name).write_bytes(text.getvalue().encode("utf-8", "surrogatepass"))


# -- mutations --------------------------------------------------------------------------------------------------------

_ODD: Sequence[Any] = (
    *(None, 0, 1, -1, 2, True, 0.5, 1e300, float("inf"), float("nan"), "", "7", "7.0", "x", "layers.0", "\x00", "a\nb"),
    *(
        (1 << 31) - 1,
        1 << 31,
        (1 << 63) - 1,
        1 << 63,
        -(1 << 63),
        (1 << 64) - 1,
        1 << 64,
        10**30,
        b"\xff\xfe",
        "x" * 5000,
    ),
    *(
        "é" * 40,
        "\ud800",
        'quo"te,comma',
        "=1+1",
        "\x1b[31m",
        "layers.99999999999999999999",
        "nan",
        "9" * 30,
        b"7",
        "١",
    ),
)


def _mutate_tables(tables: Tables, dice: random.Random) -> None:
    name = dice.choice(list(tables))
    columns = tables[name]
    if not columns:
        return
    column = dice.choice(list(columns))
    values = columns[column]
    rows = len(values)
    row, other = (dice.randrange(rows) if rows else 0 for _ in range(2))
    match dice.randrange(14 if rows else 3):
        case 0:
            del tables[name]
        case 1:
            del columns[column]
        case 2:
            columns[dice.choice([column.upper(), column + "2", "", dice.choice(list(columns))])] = columns.pop(column)
        case 3:
            columns[column] = [dice.choice(_ODD)] * rows
        case 4 | 5 | 6:
            values[row] = dice.choice(_ODD)
        case 7:
            columns[column] = [dice.choice([str, float, repr])(v) if isinstance(v, int) else v for v in values]
        case 8:
            values[row], values[other] = values[other], values[row]
        case 9:
            source = columns[dice.choice(list(columns))]
            columns[column] = list(source)
        case 10:
            times = dice.choice([1, 1, 3, 20])
            for own in columns.values():
                own[other:other] = [own[row]] * times
        case 11:
            for own in columns.values():
                del own[row:other]
        case 12:
            order = dice.sample(range(rows), rows)
            tables[name] = {key: [own[i] for i in order] for key, own in columns.items()}
        case 13:
            step = dice.choice([1, -1, 1 << 20, 1 << 40, 10**18])
            columns[column] = [v + step if isinstance(v, int) else v for v in values]


def _mutate_json(value: Any, dice: random.Random) -> Any:
    """`value` with one change somewhere below it."""
    inner = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not inner or dice.random() < 0.08:
        return copy.deepcopy(dice.choice(_JSON_ODD))
    place = dice.choice(inner)
    match dice.randrange(12):
        case 0 if isinstance(value, dict):
            del value[place]
        case 1 if isinstance(value, dict):
            value[place], other = value[dice.choice(inner)], value[place]
            value[dice.choice(inner)] = other
        case 2 if isinstance(value, list):
            value[place:place] = [value[dice.choice(inner)]] * dice.choice([1, 1, 3, 20])
        case 3 if isinstance(value, list):
            del value[place : dice.choice(inner) + 1]
        case 4 if isinstance(value, list):
            dice.shuffle(value)
        case _:
            value[place] = _mutate_json(value[place], dice)
    return value


_JSON_ODD: Sequence[Any] = [odd for odd in _ODD if not isinstance(odd, bytes)] + [[], {}, [[]], {"a": [1]}, ["x", None]]


def _mutate_bytes(data: bytes, dice: random.Random) -> tuple[bytes, bool]:
    """The mutant, and whether it is the beginning of `data`."""
    at = dice.randrange(len(data) + 1)
    match dice.randrange(10):
        case 0 | 1 | 2:
            return data[:at], at < len(data)
        case 3 | 4:
            changed = bytearray(data)
            for _ in range(dice.choice([1, 1, 8, 100]) if data else 0):
                changed[dice.randrange(len(data))] = dice.randrange(256)
            return bytes(changed), False
        case 5:
            return data[:at] + bytes(dice.randrange(256) for _ in range(dice.choice([1, 16]))) + data[at:], False
        case 6:
            return data[:at] + b"\0" * min(512, len(data) - at) + data[at + 512 :], False
        case 7:
            return dice.choice([b"\xef\xbb\xbf" + data, data + b"\n", b"\n" + data, data + data[:at]]), False
        case 8:
            return data.decode("latin-1").encode(dice.choice(["utf-16", "utf-8", "utf-32"])), False
    packed = gzip.compress(data)
    return dice.choice([packed, packed[: len(packed) * 2 // 3], packed + packed, gzip.compress(packed)]), False


# -- what is right ----------------------------------------------------------------------------------------------------


def _count_of(*names: str) -> Callable[[Tables], int]:
    def count(tables: Tables) -> int:
        found = [columns for name, columns in tables.items() if name.startswith(names) and columns]
        return sum(len(next(iter(columns.values()))) for columns in found)

    return count


def _count_csv(tables: Tables) -> int:
    found = [(name, columns) for name, columns in tables.items() if not name.endswith("api_trace.csv")]
    return sum(len(next(iter(columns.values()))) for _, columns in found if columns)


def _count_kineto(document: Any) -> int:
    events = document["traceEvents"] if isinstance(document, dict) else document
    kinds = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
    return sum(event.get("ph") == "X" and event.get("cat") in kinds for event in events)


def _count_rocprof(document: Any) -> int:
    buffers = [process.get("buffer_records", {}) for process in document["rocprofiler-sdk-tool"]]
    return sum(len(own.get(name, [])) for own in buffers for name in ("kernel_dispatch", "memory_copy"))


def _count_dispatch(document: Any) -> int:
    return len(document["ops"])


Mutate = Callable[[Path, random.Random], int]


def _in_tables(
    load: Callable[[Path], Tables], dump: Callable[[Path, Tables], None], count: Callable[[Tables], int]
) -> Mutate:
    def mutate(path: Path, dice: random.Random) -> int:
        tables = load(path)
        for _ in range(dice.choice([0, 1, 1, 2, 3])):
            if tables:
                _mutate_tables(tables, dice)
        dump(path, tables)
        return count(tables)

    return mutate


def _in_json(count: Callable[[Any], int]) -> Mutate:
    def mutate(path: Path, dice: random.Random) -> int:
        packed = path.suffix == ".gz"
        raw = path.read_bytes()
        document = json.loads(gzip.decompress(raw) if packed else raw)
        for _ in range(dice.choice([0, 1, 1, 2, 3])):
            document = _mutate_json(document, dice)
        text = json.dumps(document, ensure_ascii=dice.random() < 0.5).encode("utf-8", "surrogatepass")
        path.write_bytes(gzip.compress(text, 1) if packed else text)
        try:
            return count(document)
        except (AttributeError, KeyError, TypeError):  # the mutant has another form, and must be refused
            return -1

    return mutate


_ACTIVITIES = tuple(f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "MEMCPY", "MEMSET"))
_nsys_tables = _in_tables(_load_sqlite, _dump_sqlite, _count_of(*_ACTIVITIES))
_csv_tables = _in_tables(_load_csv, _dump_csv, _count_csv)

#: Format to the writer of its valid file, and what changes it and counts its ops.
FORMATS: dict[str, tuple[Callable[[Path], Path], Mutate]] = {
    "nsys sqlite": (_nsys, _nsys_tables),
    "nsys parquet": (_parquet, _in_tables(_load_parquet, _dump_parquet, _count_of(*_ACTIVITIES))),
    "eager nsys": (lambda folder: recordings.nsys_sqlite(folder, _steps("cudaGraphLaunch")), _nsys_tables),
    "kineto": (lambda folder: recordings.kineto(folder, _steps("hipGraphLaunch")), _in_json(_count_kineto)),
    "packed kineto": (_packed, _in_json(_count_kineto)),
    "rocprofv3 csv": (lambda folder: recordings.csv(folder, _steps("hipGraphLaunch")), _csv_tables),
    "rocprof csv": (_legacy, _csv_tables),
    "rocprofv3 json": (lambda folder: recordings.json(folder, _steps("hipGraphLaunch")), _in_json(_count_rocprof)),
    "rocpd": (
        lambda folder: recordings.rocpd(folder, _steps("hipGraphLaunch")),
        _in_tables(_load_sqlite, _dump_sqlite, _count_of("rocpd_kernel_dispatch", "rocpd_memory_copy")),
    ),
    "dispatch": (_dispatch, _in_json(_count_dispatch)),
}


class _TooLongError(Exception):
    """A command that does not end."""


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(WALL_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _run(*arguments: str | Path) -> tuple[int, str, str]:
    """Exit status, output and errors of the command line in this process."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    hook = sys.excepthook
    code: Any = 0
    try:
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]), _alarm():
            main([*map(str, arguments)])
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        sys.excepthook = hook
    output, errors = (stream.buffer.getvalue().decode() for stream in streams)  # type: ignore[attr-defined]
    return int(code), output, errors


def _problems(seed: Path, mutant: Path, ops: int | None, cut: bool) -> Iterator[str]:
    """What is wrong with the answers about `mutant`.

    Args:
        seed: the file that it was made from.
        ops: how many it has; None where its bytes were changed.
        cut: whether its end is missing.
    """
    folder, target = mutant.parent, mutant.parent / "scrubbed"
    before = sorted(folder.iterdir())
    sides = [seed, mutant] if len(mutant.name) % 2 else [mutant, seed]
    for arguments in (["layers", mutant, "--format", "json"], ["diff", *sides], ["scrub", mutant, target]):
        command, began = arguments[0], time.process_time()
        try:
            code, output, errors = _run(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever a user would see as a defect of profkit
            last = [f for f in traceback.extract_tb(error.__traceback__) if "profkit" in f.filename][-1]
            yield f"{command}: {type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {error}"
            continue
        if (took := time.process_time() - began) > SECONDS:
            yield f"{command}: took {took:.1f} s"
        if code not in (0, 1, 2, 3) or "cannot read or write" in errors or "Traceback" in errors:
            yield f"{command}: exit status {code}: {errors}"
        if code in (2, 3) and not (output + errors).strip():
            yield f"{command}: exit status {code} without a word"
        if command == "layers" and code == 0 and cut:
            yield "layers: a file that is cut off is accepted"
        if command == "layers" and output and ops is not None:
            ledgers = [run["ledger"] for run in json.loads(output)["runs"]]
            if (counted := sum(ledger["ops"] + ledger["set_aside"] for ledger in ledgers)) != ops:
                yield f"layers: {counted} ops, placed or set aside, of {ops}"
        if "scrubbing would change" in errors:
            yield f"scrub: {errors}"
    after = sorted(path for path in folder.iterdir() if path != target)
    if after != before or target.exists() != (code == 0):
        yield f"scrub: left {[path.name for path in folder.iterdir() if path not in before]}, exit status {code}"


def _copied(source: Path, folder: Path) -> Path:
    """A copy of the trace at `source`, with the files beside it, in the new `folder`."""
    shutil.copytree(source.parent, folder)
    return folder / source.name


@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_file_is_answered_or_refused(tmp_path: Path, name: str) -> None:
    write, mutate = FORMATS[name]
    (tmp_path / "seed").mkdir()
    seed = write(tmp_path / "seed")
    assert _run("layers", seed, "--format", "json")[0] in (0, 3)
    found: dict[str, str] = {}
    for number in range(FIRST, FIRST + COUNT):
        dice = random.Random(f"{name} {number}")
        mutant = _copied(seed, tmp_path / "mutant")
        ops: int | None = mutate(mutant, dice)
        cut = False
        if dice.random() < 0.3:
            files = sorted(mutant.glob("*") if mutant.is_dir() else mutant.parent.glob("*"))
            if files:
                file = dice.choice(files)
                data, cut = _mutate_bytes(file.read_bytes(), dice)
                file.write_bytes(data)
                ops, cut = None, cut and file.suffix != ".csv"
        for problem in _problems(seed, mutant, ops, cut):
            kind = "".join(c for c in problem[:60] if not c.isdigit())
            if kind not in found:
                found[kind] = f"{name} {number}: {problem}"
                if keep := os.environ.get("FUZZ_KEEP"):
                    shutil.copytree(mutant.parent, Path(keep) / f"{name} {number}", dirs_exist_ok=True)
        shutil.rmtree(mutant.parent)
    assert not found, "\n".join(found.values())
