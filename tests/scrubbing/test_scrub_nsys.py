"""A scrubbed nsys export holds no text that nobody has looked at, and reads as the same trace."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from recorded import all_bytes, as_captured, execute, rows, shared

from profkit import readers
from profkit.commands.scrub import scrub
from profkit.errors import ProfkitError

SECRET = "zebra_x"


def poisoned(path: Path) -> None:
    """Put the secret into every column of texts, and a column of texts into every table."""
    database = sqlite3.connect(path)
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        database.execute(f'ALTER TABLE "{table}" ADD COLUMN jsonText2 TEXT')
        database.execute(f"UPDATE \"{table}\" SET jsonText2 = '{SECRET}'")
    unread = {
        "TARGET_INFO_GPU": ("busLocation", "uuid", "luid", "ctxswDevPath", "ctrlDevPath", "smCount"),
        "NVTX_EVENTS": ("jsonText", "color", "uint64Value"),
        "CUPTI_ACTIVITY_KIND_RUNTIME": ("returnValue", "callchainId"),
    }
    for table, columns in unread.items():
        # The shipped runs are scrubbed already: what an export of nsys has and they lack is put back.
        have = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
        for column in columns:
            if column not in have:
                database.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
            database.execute(f"UPDATE {table} SET {column} = '{SECRET}'")
    database.execute(f"CREATE TABLE {SECRET}_table AS SELECT '{SECRET}' AS environment")
    database.execute(f"CREATE TABLE ENUM_{SECRET} (id INTEGER, name TEXT, label TEXT, value TEXT)")
    database.execute(f"INSERT INTO ENUM_{SECRET} VALUES (1, '{SECRET}', '{SECRET}', '{SECRET}')")
    database.execute(f"INSERT INTO StringIds VALUES (99999999, 'HF_TOKEN={SECRET}', NULL)")
    for name in ("EXPORT_HOST", "EXPORT_PRODUCT_USER", "EXPORT_SCHEMA_PATH", "EXPORT_PARAM_INPUT_PATH_ABS"):
        database.execute(f"INSERT INTO META_DATA_EXPORT VALUES ('{name}', '{SECRET}', NULL)")
    for name in ("PROCESS_0:ENVIRONMENT_VARIABLE_7", "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE"):
        database.execute(f"INSERT INTO META_DATA_CAPTURE VALUES ('{name}', 'A={SECRET}', NULL)")
    database.execute(
        "INSERT INTO DIAGNOSTIC_EVENT (timestamp, timestampType, source, severity, text) "
        f"VALUES (0, 0, 0, 3, 'the host {SECRET} is slow')"
    )
    for style, text in ((34, SECRET), (39, SECRET), (33, SECRET), (59, f"open /home/{SECRET}/model KEY={SECRET}")):
        database.execute(
            "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) SELECT min(start), min(start) + 1, "
            f"{style}, '{text}', globalTid FROM NVTX_EVENTS"
        )
    database.commit()
    database.close()
    as_captured(path)


def test_no_secret_survives_in_any_table_or_column(nsys_run: Path, tmp_path: Path) -> None:
    poisoned(nsys_run / "trace.sqlite")
    assert SECRET.encode() in all_bytes(nsys_run)
    scrub(nsys_run, tmp_path / "clean", force=False)
    assert SECRET.encode() not in all_bytes(tmp_path / "clean")
    assert rows(tmp_path / "clean" / "trace.sqlite", "SELECT text FROM NVTX_EVENTS WHERE text LIKE '%KEY=%'")


def test_text_in_a_column_of_numbers_becomes_null(nsys_run: Path, tmp_path: Path) -> None:
    poisoned(nsys_run / "trace.sqlite")
    scrub(nsys_run, tmp_path / "clean", force=False)
    found = rows(tmp_path / "clean" / "trace.sqlite", "SELECT DISTINCT returnValue FROM CUPTI_ACTIVITY_KIND_RUNTIME")
    assert found == [(None,)]


def test_constraints_stay_where_the_values_allow(nsys_run: Path, tmp_path: Path) -> None:
    execute(nsys_run / "trace.sqlite", f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = '{SECRET}' WHERE rowid = 5")
    with pytest.raises(ProfkitError, match="row 5: gridX is"):
        scrub(nsys_run, tmp_path / "clean", force=False)
    execute(nsys_run / "trace.sqlite", "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = 1 WHERE rowid = 5")
    execute(nsys_run / "trace.sqlite", f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridId = '{SECRET}' WHERE rowid = 5")
    scrub(nsys_run, tmp_path / "clean", force=False)
    info = rows(tmp_path / "clean" / "trace.sqlite", "PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")
    required = {row[1]: row[3] for row in info}
    assert (required["start"], required["gridX"], required["gridId"], required["graphNodeId"]) == (1, 1, 0, 0)
    assert rows(tmp_path / "clean" / "trace.sqlite", "SELECT pk FROM pragma_table_info('StringIds')") == [(1,), (0,)]


def test_strings_come_along_only_where_a_kept_row_refers_to_them(nsys_run: Path, tmp_path: Path) -> None:
    execute(nsys_run / "trace.sqlite", "INSERT INTO StringIds VALUES (99999999, 'aten::unused')")
    scrub(nsys_run, tmp_path / "clean", force=False)
    assert b"aten::unused" not in all_bytes(tmp_path / "clean")
    kept = rows(tmp_path / "clean" / "trace.sqlite", "SELECT id, value FROM StringIds ORDER BY id")
    assert kept == rows(nsys_run / "trace.sqlite", "SELECT id, value FROM StringIds WHERE id < 99999999 ORDER BY id")


def test_registered_and_plain_texts_are_filtered(nsys_run: Path, tmp_path: Path) -> None:
    source = nsys_run / "trace.sqlite"
    execute(
        source,
        f"UPDATE StringIds SET value = 'layers.3.mla KEY={SECRET}' WHERE value = 'layers.3.mla'",
        f"UPDATE NVTX_EVENTS SET textId = NULL, text = 'layers.5.mla KEY={SECRET}' "
        "WHERE textId = (SELECT id FROM StringIds WHERE value = 'layers.5.mla')",
    )
    scrub(source, tmp_path / "clean.sqlite", force=False)
    assert SECRET.encode() not in all_bytes(tmp_path / "clean.sqlite")
    texts = set(readers.read(tmp_path / "clean.sqlite").ranges["text"])
    assert {"layers.3.mla KEY=…", "layers.4.mla", "layers.5.mla KEY=…"} <= texts


def test_the_profilers_own_warnings_stay(nsys_run: Path, tmp_path: Path) -> None:
    scrub(nsys_run, tmp_path / "clean", force=False)
    before, after = (readers.read(run / "trace.sqlite").info for run in (nsys_run, tmp_path / "clean"))
    assert before.diagnostics == after.diagnostics
    assert len(after.diagnostics) == 2


@pytest.mark.parametrize("name", ["h100_2gpu_1s.sqlite", "mock.sqlite"])
def test_foreign_exports_lose_host_user_and_environment(name: str, tmp_path: Path) -> None:
    source = shared("corpus", "GindaChen+nsys-ai", "tests", "fixtures", name)
    scrub(source, tmp_path / "clean.sqlite", force=False)
    content = all_bytes(tmp_path / "clean.sqlite")
    known = [b"rich-wsl", b"DESKTOP-KBEMEQS", b"/home/", b"PATH=", b"pytest -vs"]
    assert [word for word in known if word in content] == []
    assert any(word in source.read_bytes() for word in known)
