"""Files that are packed, cut off, still being written, or no files: read as they are, or refused with what to do."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from builders import SHARED, kineto_trace, op
from recordings import FORMATS, Kernel, Launch, Range, Recording, nsys_parquet, nsys_sqlite
from recordings import kineto as write_kineto
from recordings import rocpd as write_rocpd

from profkit import readers
from profkit.cli import main
from profkit.errors import ProfkitError
from profkit.readers import arrow, files

RECORDING = Recording(
    [Kernel("a", 100, 130), Kernel("b", 140, 150, 2)], [Launch(5), Launch(12, 2)], [Range("layers.0", 1, 20)]
)
IN_ONE_FILE = {name: write for name, write in FORMATS.items() if name != "nsys parquet"}
Write = Callable[[Path, Recording], Path]
one_file = pytest.mark.parametrize("write", IN_ONE_FILE.values(), ids=IN_ONE_FILE.keys())


def refusal(path: Path) -> str:
    with pytest.raises(ProfkitError) as caught:
        readers.read(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def pack(path: Path) -> Path:
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return packed


# -- packed -----------------------------------------------------------------------------------------------------------


@one_file
def test_a_gzipped_file_is_read_like_the_file(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path, RECORDING)
    plain = readers.read(path)
    (packed,) = [p for p in map(pack, list(tmp_path.iterdir())) if p.name.startswith(path.name)]

    trace = readers.read(packed)

    assert trace.info.source == str(packed)
    assert trace.info.processes == plain.info.processes
    for name in ("ops", "launches", "ranges", "nodes"):
        pd.testing.assert_frame_equal(getattr(trace, name), getattr(plain, name))


@one_file
def test_a_cut_gzip_is_damaged(tmp_path: Path, write: Write) -> None:
    path = pack(write(tmp_path, RECORDING))
    path.write_bytes(path.read_bytes()[:-9])

    assert "the gzip data ends or is damaged" in refusal(path)


def test_of_a_file_packed_and_unpacked_one_is_read(tmp_path: Path) -> None:
    path = FORMATS["rocprofv3 csv"](tmp_path, RECORDING)
    for beside in list(tmp_path.iterdir()):
        beside.with_name(beside.name + ".gz").write_bytes(gzip.compress(beside.read_bytes()))

    for opened in (path, path.with_name(path.name + ".gz")):
        trace = readers.read(opened)
        assert (len(trace.ops), len(trace.launches)) == (2, 2)


def test_what_unpacks_beyond_bounds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN bounds that a file of zeros exceeds, and no trace
    monkeypatch.setattr(files, "_LIMIT", 1 << 20)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (64 << 20) + b"]}"))

    assert f"holds more than {100 * path.stat().st_size:,} bytes" in refusal(path)

    monkeypatch.setenv(files.LIMIT_VARIABLE, str(1 << 27))
    assert "no GPU activity" in refusal(path)
    monkeypatch.setenv(files.LIMIT_VARIABLE, "much")
    with pytest.raises(ProfkitError, match="PROFKIT_UNPACKED_BYTES is 'much'"):
        readers.read(path)


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b"PK\x03\x04....", "zip archive"),
        (b"\x28\xb5\x2f\xfd....", "zstd -d"),
        (b"\xfd7zXZ\x00....", "xz -d"),
        (b"BZh91AY....", "bzip2 -d"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 12\n", "git lfs pull"),
        ("{}".encode("utf-16"), "UTF-16"),
    ],
)
def test_other_wrappings_are_named_with_what_to_do(tmp_path: Path, head: bytes, what: str) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(head)

    assert what in refusal(path)


def test_a_trace_of_jax_is_named_with_what_to_record(tmp_path: Path) -> None:
    event = {"ph": "X", "pid": 1, "tid": 13, "ts": 1, "dur": 2, "name": "k", "args": {"hlo_module": "jit_step"}}
    path = kineto_trace(tmp_path / "trace.json", [event])

    said = refusal(path)

    assert "JAX" in said
    assert "nsys" in said


@one_file
def test_a_byte_order_mark_before_a_text_changes_nothing(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path, RECORDING)
    if path.read_bytes().startswith(readers.SQLITE_MAGIC):
        pytest.skip("a database is no text")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())

    assert readers.read(path).ops["name"].tolist() == ["a", "b"]


@pytest.mark.parametrize("indent", [None, 1])
def test_the_order_of_keys_tells_nothing(tmp_path: Path, indent: int | None) -> None:
    # GIVEN each JSON format with its keys sorted, behind so much that its first page does not tell what it is
    documents = {"kineto": write_kineto(tmp_path, RECORDING)}
    (tmp_path / "rocm").mkdir()
    documents["rocprofv3 json"] = FORMATS["rocprofv3 json"](tmp_path / "rocm", RECORDING)
    documents["profkit dispatch"] = tmp_path / "dispatch.json"
    op_row = {"order": 1, "name": "k", "kind": "kernel", "grid": None}
    documents["profkit dispatch"].write_text(
        json.dumps({"schema": "profkit.dispatch/1", "torch": "2", "ranges": [], "ops": [op_row]})
    )
    for name, path in documents.items():
        content = {"a": "x" * 100_000, **json.loads(path.read_text())}
        path.write_text(json.dumps(content, sort_keys=True, indent=indent))

        assert readers.read(path).info.format == name


def test_a_bare_array_with_sorted_keys(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    events = json.loads(write_kineto(tmp_path, RECORDING).read_text())["traceEvents"]
    path.write_text(json.dumps(events, sort_keys=True))

    assert readers.read(path).ops["name"].tolist() == ["a", "b"]


# -- cut off, or still being written ----------------------------------------------------------------------------------

DATABASES = {"nsys sqlite": nsys_sqlite, "rocpd": write_rocpd}
databases = pytest.mark.parametrize("write", DATABASES.values(), ids=DATABASES.keys())


@databases
@pytest.mark.parametrize("lost", [1, 100, 4096])
def test_a_database_that_is_shorter_than_its_header_says(tmp_path: Path, write: Write, lost: int) -> None:
    path = write(tmp_path, RECORDING)
    path.write_bytes(path.read_bytes()[:-lost])

    assert "is cut off: it has" in refusal(path)


@databases
@pytest.mark.parametrize("mode", ["WAL", "DELETE", "PERSIST"])
def test_a_database_whose_writer_was_killed_is_refused_until_it_is_mended(
    tmp_path: Path, write: Write, mode: str
) -> None:
    # GIVEN what lies there in the middle of a transaction that has outgrown the cache
    (tmp_path / "whole").mkdir()
    path = write(tmp_path / "whole", RECORDING)
    writer = sqlite3.connect(path, isolation_level=None)
    for pragma in (f"journal_mode={mode}", "cache_spill=1", "cache_size=1"):
        writer.execute(f"PRAGMA {pragma}")
    writer.execute("BEGIN")
    writer.execute("CREATE TABLE more (x)")
    writer.executemany("INSERT INTO more VALUES (?)", [(f"{i:>500}",) for i in range(500)])
    killed = shutil.copytree(path.parent, tmp_path / "killed") / path.name
    writer.execute("COMMIT")
    writer.close()

    said = refusal(killed)

    assert "is still being written" in said
    assert "SELECT count(*) FROM sqlite_master" in said
    database = sqlite3.connect(killed)
    database.execute("SELECT count(*) FROM sqlite_master").fetchall()
    database.close()
    for mended in (killed, path):
        assert readers.read(mended).ops["name"].tolist() == ["a", "b"]


@pytest.mark.parametrize("length", [0, 3, -1])
def test_a_parquet_file_without_its_footer(tmp_path: Path, length: int) -> None:
    # GIVEN a table that nothing refers to
    path = nsys_parquet(tmp_path, RECORDING)
    part = path / "DIAGNOSTIC_EVENT.parquet"
    part.write_bytes(part.read_bytes()[:length])

    with pytest.raises(ProfkitError, match=r"DIAGNOSTIC_EVENT\.parquet cannot be read \(it is cut off"):
        readers.read(path)


# -- no plain tables --------------------------------------------------------------------------------------------------


@databases
def test_a_view_in_place_of_a_table_is_refused(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path, RECORDING)
    database = sqlite3.connect(path)
    (table,) = database.execute(
        "SELECT name FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL' OR name LIKE 'rocpd_kernel_disp%'"
    ).fetchone()
    database.execute(f'ALTER TABLE "{table}" RENAME TO kept')
    database.execute(f'CREATE VIEW "{table}" AS SELECT * FROM kept')
    database.commit()
    database.close()

    assert f"{table} is a view" in refusal(path)


def test_rows_joined_by_ids_that_are_not_unique_are_refused(tmp_path: Path) -> None:
    path = write_rocpd(tmp_path, RECORDING)
    database = sqlite3.connect(path)
    (event,) = database.execute("SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_event%'").fetchone()
    database.execute(f'CREATE TABLE copy AS SELECT * FROM "{event}"')
    database.execute(f'DROP TABLE "{event}"')
    database.execute(f'CREATE TABLE "{event}" AS SELECT * FROM copy UNION ALL SELECT * FROM copy')
    database.commit()
    database.close()

    assert "ids that are not unique" in refusal(path)


def test_a_table_whose_pages_refer_to_one_another_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN pages of a tree, each of which leads to the next in all its branches: each level multiplies the rows
    path = tmp_path / "run.sqlite"
    database = sqlite3.connect(path)
    database.execute("PRAGMA page_size=512")
    database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value)")
    database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, demangledName)")
    rows = [(i, i + 1) for i in range(20_000)]
    database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 1)", rows)
    database.commit()
    (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name LIKE 'CUPTI%'").fetchone()
    database.close()
    data = bytearray(path.read_bytes())
    inner = [page for page in range(0, len(data), 512) if data[page] == 5]
    inner.sort(key=lambda page: page != (root - 1) * 512)
    assert len(inner) > 5
    for page, after in pairwise(inner):
        child = (after // 512 + 1).to_bytes(4, "big")
        data[page + 8 : page + 12] = child
        for cell in range(int.from_bytes(data[page + 3 : page + 5], "big")):
            place = page + int.from_bytes(data[page + 12 + 2 * cell : page + 14 + 2 * cell], "big")
            data[place : place + 4] = child
    path.write_bytes(data)
    monkeypatch.setattr(arrow, "_SECONDS", 0.2)

    assert "table CUPTI_ACTIVITY_KIND_KERNEL" in refusal(path)


# -- no files ---------------------------------------------------------------------------------------------------------


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)

    assert "is a pipe or a device" in refusal(path)
    with pytest.raises(SystemExit) as ended:
        main(["layers", str(path)])
    assert ended.value.code == 2
    assert "Give a file" in capsys.readouterr().err


def test_a_pipe_beside_the_files_of_a_run_is_not_waited_for(tmp_path: Path) -> None:
    path = FORMATS["rocprofv3 csv"](tmp_path, RECORDING)
    os.mkfifo(path.with_name("10_agent_info.csv"))

    with pytest.raises(ProfkitError, match=r"agent_info\.csv is a pipe"):
        readers.read(path)


# -- much of what is not meant to be much -----------------------------------------------------------------------------


def test_a_million_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "1_kernel_trace.csv"
    names = ["Kernel_Name", "Start_Timestamp", "End_Timestamp", *(f"k{i}" for i in range(1_000_000))]
    path.write_text(",".join(names) + "\n")

    assert "1,000,003 columns" in refusal(path)


def test_arrays_of_the_same_name_inside_one_another_take_no_longer_than_their_text(tmp_path: Path) -> None:
    # GIVEN 200,000 places that look like the array, before the array
    path = tmp_path / "trace.json"
    inner = '{"traceEvents": [1], "x": "\\""}, ' * 200_000
    path.write_text('{"before": [' + inner + '0], "traceEvents": ' + json.dumps([op_event()]) + "}")

    assert readers.read(path).ops["name"].tolist() == ["k"]


def op_event() -> dict[str, object]:
    event = op("k", 1000, 2000)
    return {**event, "ts": 1, "dur": 2}


# -- mutants ----------------------------------------------------------------------------------------------------------

FUZZ = SHARED / "fuzz" / "cases.tar.xz"


@pytest.mark.skipif(not FUZZ.exists(), reason="the mutants are not here: ../shared/fuzz")
def test_every_mutant_is_read_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tarfile.open(FUZZ) as archive:
        archive.extractall(tmp_path, filter="data")
    cases = [case for folder in sorted(tmp_path.iterdir()) for case in sorted(folder.iterdir())]
    assert len(cases) > 50
    for case in cases:
        for command in (["layers", str(case)], ["scrub", str(case), str(tmp_path / f"scrubbed {case.name}")]):
            code: object = 0
            try:
                main(command)
            except SystemExit as ended:
                code = ended.code
            said = capsys.readouterr().err
            assert code in (0, 2, 3), command
            assert (code == 0) == (not said), command
            assert "nothing was written" not in said, command
            if "accepted_truncated" in case.parent.name:
                assert code == 2, command
