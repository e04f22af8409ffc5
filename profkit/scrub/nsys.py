"""An nsys export without environment, host, paths and process list: a new database of what accounting needs.

Tables, columns and metadata rows are admitted by name; whatever is not named here stays behind, so what a later nsys
adds cannot leak. A column holds numbers, and what is none in it becomes NULL; the few columns of texts are
filtered (`profkit.scrub.fields`). Strings come along only where a kept row refers to them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.readers.arrow import Database, quoted
from profkit.readers.nsys import (
    COPIES,
    DOMAIN,
    GRAPHS,
    KERNELS,
    META_TABLES,
    NVTX,
    PUSH_POP,
    RUNTIME,
    SETS,
    START_END,
    STRINGS,
)
from profkit.scrub.fields import kept_text


@dataclass(frozen=True)
class _Admitted:
    """What comes along of one table.

    Args:
        numbers, texts, references: columns of numbers, of texts, and of ids in StringIds; names between blanks.
        where: the condition on its rows.
        needs: the columns that `where` reads; without them no row comes along.
    """

    numbers: str
    texts: str = ""
    references: str = ""
    where: str = "1"
    needs: str = ""


_ACTIVITY = "start end deviceId contextId greenContextId streamId correlationId globalPid graphNodeId graphId"
_CALL = "start end eventClass globalTid"
_ENUM = _Admitted("id", texts="name label")
_META = _Admitted(
    "",
    texts="name value",
    where="name IN ('EXPORT_PRODUCT_NAME', 'EXPORT_PRODUCT_VERSION', 'EXPORT_PRODUCT_DATE', 'EXPORT_SCHEMA_VERSION', "
    "'EXPORT_SCHEMA_VERSION_MAJOR', 'EXPORT_SCHEMA_VERSION_MINOR', 'EXPORT_SCHEMA_VERSION_MICRO', "
    "'EXPORT_SCHEMA_VERSION_CKSUM')",
    needs="name",
)

#: Columns as nsys 2022 to 2026 writes them. Left out beside texts: addresses, callchains, and the payloads of ranges,
#: which are the program's own data.
_TABLES: Mapping[str, _Admitted] = {
    KERNELS: _Admitted(
        f"{_ACTIVITY} launchType cacheConfig registersPerThread gridX gridY gridZ blockX blockY blockZ "
        "staticSharedMemory dynamicSharedMemory localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted "
        "sharedMemoryLimitConfig qmdBulkReleaseDone qmdPreexitDone qmdLastCtaDone clusterX clusterY clusterZ "
        "clusterSchedulingPolicy maxPotentialClusterSize maxActiveClusters sharedMemoryRequestedPercentage",
        references="demangledName shortName mangledName",
    ),
    COPIES: _Admitted(
        f"{_ACTIVITY} bytes copyKind deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId dstContextId "
        "migrationCause copyCount"
    ),
    SETS: _Admitted(f"{_ACTIVITY} value bytes memKind"),
    GRAPHS: _Admitted(f"{_ACTIVITY} graphExecId"),
    RUNTIME: _Admitted(f"{_CALL} correlationId returnValue", references="nameId"),
    "CUDA_GRAPH_NODE_EVENTS": _Admitted(f"{_CALL} graphNodeId originalGraphNodeId", references="nameId"),
    "CUDA_GRAPH_EVENTS": _Admitted(
        f"{_CALL} graphNodeId originalGraphNodeId graphId originalGraphId graphExecId", references="nameId"
    ),
    NVTX: _Admitted(
        f"{_CALL} eventType rangeId category color endGlobalTid domainId",
        texts="text",
        references="textId",
        where=f"CAST(eventType AS INTEGER) IN ({PUSH_POP}, {START_END}, {DOMAIN})",
        needs="eventType",
    ),
    "TARGET_INFO_GPU": _Admitted(
        "id cuDevice isDiscrete l2CacheSize totalMemory memoryBandwidth clockRate smCount computeMajor computeMinor "
        "smMajor smMinor constantMemory maxIPC maxRegistersPerBlock maxShmemPerBlock maxShmemPerBlockOptin "
        "maxShmemPerSm maxRegistersPerSm threadsPerWarp asyncEngines maxWarpsPerSm maxBlocksPerSm maxThreadsPerBlock "
        "maxBlockDimX maxBlockDimY maxBlockDimZ maxGridDimX maxGridDimY maxGridDimZ",
        texts="name chipName",
    ),
    "ENUM_CUDA_MEMCPY_OPER": _ENUM,
    "ENUM_CUDA_MEM_KIND": _ENUM,
    "ENUM_CUDA_KERNEL_LAUNCH_TYPE": _ENUM,
    "ENUM_NSYS_EVENT_TYPE": _ENUM,
    "ENUM_NSYS_EVENT_CLASS": _ENUM,
    **dict.fromkeys(META_TABLES, _META),
    "META_DATA_CAPTURE": _Admitted(
        "",
        texts="name value",
        where="(name = 'CUDA_GRAPH_TRACE_OPTIONS:MODE' OR name GLOB 'PROCESS_[0-9]:CUDA_GRAPH_TRACE_OPTIONS:MODE') "
        "AND value IN ('Graph', 'Node')",
        needs="name value",
    ),
    # Messages are free texts; these two are the profiler's own and say whether the recording is whole.
    "DIAGNOSTIC_EVENT": _Admitted(
        "timestamp timestampType source severity globalPid",
        texts="text",
        where="text IN ('Not all CUDA events might have been collected.', "
        "'Not all NVTX events might have been collected.')",
        needs="text",
    ),
}


def scrub(source: Path, target: Path) -> None:
    """Write what may leave the machine of the export `source` to the new file `target`.

    Raises:
        ProfkitError: the source is damaged.
    """
    with Database(source) as database:
        _scrub(database, target)


def _scrub(source: Database, target: Path) -> None:
    connection = sqlite3.connect(target, uri=True)
    try:
        # As bytes, since texts from C may be cut in the middle of a character.
        connection.create_function("kept_text", 1, _kept_text, deterministic=True)
        connection.execute("ATTACH DATABASE ? AS src", (source.uri,))
        _Copy(connection, source.tables).run()
        connection.commit()
        connection.execute("DETACH DATABASE src")
        connection.execute("VACUUM")
    except sqlite3.Error as error:
        raise ProfkitError(f"{source.path} cannot be scrubbed: {error}. Export the report again.") from None
    finally:
        connection.close()


class _Copy:
    def __init__(self, connection: sqlite3.Connection, have: Set[str]) -> None:
        self._db, self._have = connection, have

    def run(self) -> None:
        references = []
        for name, admitted in _TABLES.items():
            if name in self._have:
                references += self._table(name, admitted)
        self._strings(references)

    def _table(self, name: str, admitted: _Admitted) -> list[str]:
        """Copy one table; returns the selections of the string ids that its rows refer to."""
        info = {str(row[1]): row for row in self._db.execute(f"PRAGMA src.table_info({quoted(name)})")}
        numbers = {*admitted.numbers.split(), *admitted.references.split()}
        wanted = numbers | set(admitted.texts.split())
        columns = [c for c in info if c in wanted]
        if not columns or not set(admitted.needs.split()) <= set(columns):
            return []
        where = admitted.where
        values = [_number(c) if c in numbers else _text(c) for c in columns]
        selection = f"SELECT {', '.join(values)} FROM src.{quoted(name)} WHERE {where}"
        empty = ", ".join(f"COALESCE(max({value} IS NULL), 0)" for value in values)
        has_null = self._db.execute(f"SELECT {empty} FROM src.{quoted(name)} WHERE {where}").fetchone()
        kinds = ["INTEGER" if c in numbers else self._text_type(name, c) for c in columns]
        declared = [
            f"{quoted(c)} {kind}{' NOT NULL' if info[c][3] and not null else ''}"
            for c, kind, null in zip(columns, kinds, has_null, strict=True)
        ]
        self._db.execute(f"CREATE TABLE main.{quoted(name)} ({', '.join(declared)})")
        self._db.execute(f"INSERT INTO main.{quoted(name)} {selection}")
        return [f"SELECT {quoted(c)} FROM main.{quoted(name)}" for c in columns if c in admitted.references.split()]

    def _text_type(self, name: str, column: str) -> str:
        """The declared type of a column of texts: none where floats stand among them, whose texts vary by SQLite."""
        sql = f"SELECT max(typeof({quoted(column)}) = 'real') FROM src.{quoted(name)}"
        return "" if self._db.execute(sql).fetchone()[0] else "TEXT"

    def _strings(self, references: list[str]) -> None:
        if STRINGS not in self._have:
            return
        kind = self._text_type(STRINGS, "value")
        self._db.execute(f"CREATE TABLE main.{STRINGS} (id INTEGER NOT NULL PRIMARY KEY, value {kind})")
        if references:
            self._db.execute(
                f"INSERT OR IGNORE INTO main.{STRINGS} SELECT {_number('id')}, {_text('value')} FROM src.{STRINGS} "
                f"WHERE id IN ({' UNION '.join(references)})"
            )


def _number(column: str) -> str:
    name = quoted(column)
    # A text that is an integer is read as one.
    whole = f"{name} = CAST(CAST({name} AS INTEGER) AS TEXT)"
    return f"CASE WHEN typeof({name}) IN ('integer', 'real') OR {whole} THEN {name} END"


def _text(column: str) -> str:
    name = quoted(column)
    return f"CASE WHEN typeof({name}) IN ('text', 'blob') THEN kept_text(CAST({name} AS BLOB)) ELSE {name} END"


def _kept_text(raw: bytes) -> str:
    return kept_text(raw.decode("utf-8", "replace"))
