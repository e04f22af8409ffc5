"""An nsys export without environment, host, paths and process list: a new database of what accounting needs.

Tables, columns and metadata rows are admitted by name; whatever is not named here stays behind, so a table that a later
nsys adds cannot leak. Strings come along only where a kept row refers to them.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.readers.nsys import COPIES, GRAPHS, KERNELS, META_TABLES, NODE_TABLES, NVTX, RUNTIME, SETS
from profkit.readers.sqlite_columns import quoted, read_only_uri

#: Activity tables: numbers and references to strings.
_ACTIVITIES = (KERNELS, COPIES, SETS, RUNTIME, GRAPHS, *NODE_TABLES, NVTX)
#: Columns that name the machine, or whose content nobody has looked at.
_BLANKED = {
    "TARGET_INFO_GPU": {"busLocation", "uuid", "luid", "ctxswDevPath", "ctrlDevPath"},
    NVTX: {"jsonText", "jsonTextId", "binaryData"},
}
#: Columns that refer to StringIds.
_REFERENCES = {
    KERNELS: ("demangledName", "shortName", "mangledName"),
    RUNTIME: ("nameId",),
    NVTX: ("textId",),
    **dict.fromkeys(NODE_TABLES, ("nameId",)),
}
_META_ROWS = "name LIKE 'EXPORT\\_PRODUCT\\_%' ESCAPE '\\' OR name LIKE 'EXPORT\\_SCHEMA\\_%' ESCAPE '\\'"
#: A message with a path or an assignment in it may name the recorded machine.
_PLAIN_TEXT = "instr(text, '/') = 0 AND instr(text, '=') = 0 AND instr(text, '\\') = 0"


def scrub(source: Path, target: Path) -> None:
    """Write what may leave the machine of the export `source` to the new file `target`.

    Raises:
        ProfkitError: the source is damaged.
    """
    connection = sqlite3.connect(target, uri=True)
    try:
        connection.execute("ATTACH DATABASE ? AS src", (read_only_uri(source),))
        schemas = dict(
            connection.execute(
                "SELECT name, sql FROM src.sqlite_master WHERE type = 'table' AND sql NOT NULL"
            ).fetchall()
        )
        for table, schema in schemas.items():
            condition = _admitted(table)
            if condition is not None:
                _copy(connection, table, schema, condition)
        _copy_strings(connection, schemas)
        connection.commit()
        connection.execute("DETACH DATABASE src")
        connection.execute("VACUUM")
    except sqlite3.Error as error:
        raise ProfkitError(f"{source} cannot be scrubbed: {error}. Export the report again.") from None
    finally:
        connection.close()


def _admitted(table: str) -> str | None:
    """The condition under which rows of `table` come along; None for none of them."""
    if table in _ACTIVITIES or table.startswith("ENUM_") or table == "TARGET_INFO_GPU":
        return "1"
    if table in META_TABLES:
        return _META_ROWS
    if table == "META_DATA_CAPTURE":
        return "name LIKE '%CUDA_GRAPH_TRACE_OPTIONS%'"
    if table == "DIAGNOSTIC_EVENT":
        return _PLAIN_TEXT
    return None


def _copy(connection: sqlite3.Connection, table: str, schema: str, condition: str) -> None:
    connection.execute(schema)
    columns = [str(row[1]) for row in connection.execute(f"PRAGMA src.table_info({quoted(table)})")]
    blanked = _BLANKED.get(table, set())
    values = ", ".join("NULL" if c in blanked else quoted(c) for c in columns)
    connection.execute(f"INSERT INTO main.{quoted(table)} SELECT {values} FROM src.{quoted(table)} WHERE {condition}")


def _copy_strings(connection: sqlite3.Connection, schemas: dict[str, str]) -> None:
    if "StringIds" not in schemas:
        return
    connection.execute(schemas["StringIds"])
    used = []
    for table, references in _REFERENCES.items():
        if table in schemas:
            have = {str(row[1]) for row in connection.execute(f"PRAGMA src.table_info({quoted(table)})")}
            used += [f"SELECT {c} FROM src.{quoted(table)}" for c in references if c in have]
    if used:
        wanted = " UNION ".join(used)
        connection.execute(f"INSERT INTO main.StringIds SELECT id, value FROM src.StringIds WHERE id IN ({wanted})")
