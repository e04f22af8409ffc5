"""rocpd, the SQLite database of rocprofv3 (schema 3.x) → Trace.

Each table's name ends in the guid of the run that wrote it, so a merged database holds one set of tables a run. The
tables are read, not the views over them, which a merge may lack. Two columns are named against expectation: an
event's `stack_id` is the correlation id, its `correlation_id` the user's external one. Of rocpd_info_process only the
pid is read: its other columns hold the command line and the environment of the recorded process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.errors import ProfkitError
from profkit.model.trace import LAUNCH_APIS, NONE, Trace
from profkit.readers import SQLITE_MAGIC
from profkit.readers.rocm import RocmRows, copy_name, kernel_name, mapped
from profkit.readers.rows import Texts, call_name, launch_api
from profkit.readers.sqlite_columns import Database, quoted

_DISPATCHES = "rocpd_kernel_dispatch"
_GUID_TABLE = re.compile(rf"^{_DISPATCHES}(|_[0-9a-f_]{{36}})$")


def sniff(head: bytes, path: Path) -> bool:
    """Whether the file that begins with `head` is a rocpd database."""
    if not head.startswith(SQLITE_MAGIC):
        return False
    with Database(path) as database:
        return bool(_suffixes(database))


def read(path: Path, *, detail: bool = False) -> Trace:
    """Read the database at `path`, which may be several merged into one file.

    Args:
        path: a database of rocprofv3; only read, never written, and nothing is left beside it.
        detail: also read `OP_DETAIL` (grid in workgroups, block in work-items, VGPRs, bytes of LDS).

    Raises:
        ProfkitError: no rocpd, damaged, or a table lacks a column that is needed.
    """
    rows = RocmRows(detail=detail)
    agents: dict[int, str] = {}
    versions: set[str] = set()
    with Database(path) as database:
        suffixes = _suffixes(database)
        if not suffixes:
            raise ProfkitError(f"{path} is an SQLite database but no rocpd: it has no table {_DISPATCHES}_….")
        for suffix in suffixes:
            run = _Run(database, suffix, rows)
            run.read()
            agents |= run.agents
            versions.add(run.schema_version)
    profiler = f"rocprofv3 (rocpd schema {', '.join(sorted(versions))})"
    return rows.rocm_trace(path, "rocpd", profiler, agents, "rocpd")


def _suffixes(database: Database) -> list[str]:
    """What the table names of each run end in; "" where they are plain. Views have plain names too."""
    found = [m[1] for name in sorted(database.tables) if (m := _GUID_TABLE.match(name))]
    return [s for s in found if s] or found


class _Run:
    """The tables of one guid."""

    def __init__(self, database: Database, suffix: str, rows: RocmRows) -> None:
        self._db, self._suffix, self._rows = database, suffix, rows
        self._processes = self._owners()
        self._gpus = self._agent_indices()
        self._threads = self._integers_by_id("rocpd_info_thread", "tid")
        self.agents = self._agent_names()
        self.schema_version = self._schema_version()

    def read(self) -> None:
        """Add the run's rows."""
        self._dispatches()
        self._copies()
        self._launches()
        self._markers()

    # -- ops ----------------------------------------------------------------------------------------------------------

    def _dispatches(self) -> None:
        name = self._table(_DISPATCHES)
        self._require(name, ["start", "end", "kernel_id", "pid", "agent_id"])
        select = {
            "start": 'COALESCE(K."start", 0)',
            "end": 'COALESCE(K."end", 0)',
            "name": "K.kernel_id",
            "owner": "K.pid",
            "agent": "K.agent_id",
            "stream": self._optional(name, "K", "stream_id"),
            **self._identity(name, "K"),
        }
        if self._rows.detail:
            for axis in "xyz":
                select[f"grid_{axis}"] = self._optional(name, "K", f"grid_size_{axis}")
                select[f"block_{axis}"] = self._optional(name, "K", f"workgroup_size_{axis}")
            select["shared_memory"] = self._optional(name, "K", "group_segment_size")
        columns = self._columns(select, f"{quoted(name)} K {self._event_join(name, 'K')}")
        kernels = columns.pop("name")
        if self._rows.detail:
            columns["registers"] = mapped(kernels, self._integers_by_id("rocpd_info_kernel_symbol", "arch_vgpr_count"))
        columns["name"] = self._coded(kernels, self._kernel_names(), self._rows.op_names)
        columns["device"] = mapped(columns.pop("agent"), self._gpus)
        self._rows.add_ops("kernel", mapped(columns.pop("owner"), self._processes), columns)

    def _copies(self) -> None:
        name = self._table("rocpd_memory_copy")
        if name not in self._db.tables:
            return
        self._require(name, ["start", "end", "name_id", "pid"])
        select = {
            "start": 'COALESCE(K."start", 0)',
            "end": 'COALESCE(K."end", 0)',
            "name": "K.name_id",
            "owner": "K.pid",
            "source": self._optional(name, "K", "src_agent_id"),
            "target": self._optional(name, "K", "dst_agent_id"),
            "stream": self._optional(name, "K", "stream_id"),
            **self._identity(name, "K"),
        }
        columns = self._columns(select, f"{quoted(name)} K {self._event_join(name, 'K')}")
        names = columns.pop("name")
        labels = {i: copy_name(s) for i, s in self._strings(names).items()}
        columns["name"] = self._coded(names, labels, self._rows.op_names)
        # The agent of a copy is the GPU that takes part; the target where both are.
        source = mapped(columns.pop("source"), self._gpus)
        target = mapped(columns.pop("target"), self._gpus)
        columns["device"] = np.where(target == NONE, source, target)
        self._rows.add_ops("memcpy", mapped(columns.pop("owner"), self._processes), columns)

    def _identity(self, name: str, alias: str) -> dict[str, str]:
        """Correlation and, from schema 3.0.2 on, the graph; 0 stands for no graph there."""
        select = {"correlation": self._correlation(name)}
        for column, source in (("graph", "graph_exec_id"), ("node", "graph_node_id")):
            if source in self._db.columns(name):
                select[column] = f"COALESCE(NULLIF({alias}.{source}, 0), {NONE})"
        return select

    # -- launches and markers -----------------------------------------------------------------------------------------

    def _launches(self) -> None:
        name = self._table("rocpd_region")
        if name not in self._db.tables:
            return
        self._require(name, ["start", "end", "name_id", "pid", "tid"])
        used = [int(i) for (i,) in self._db.rows(f"SELECT DISTINCT name_id FROM {quoted(name)}")]
        calls = {i: s for i, s in self._strings(np.array(used, np.int64)).items() if launch_api(s) is not None}
        if not calls:
            return
        select = {**self._region_select(), "name": "R.name_id", "correlation": self._correlation(name)}
        source = f"{quoted(name)} R {self._event_join(name, 'R')} WHERE R.name_id IN ({', '.join(map(str, calls))})"
        columns = self._columns(select, source)
        apis = {i: LAUNCH_APIS.index(str(launch_api(s))) for i, s in calls.items()}
        columns["api"] = mapped(columns["name"], apis)
        labels = {i: call_name(s) for i, s in calls.items()}
        columns["name"] = self._coded(columns["name"], labels, self._rows.call_names)
        columns["thread"] = mapped(columns["thread"], self._threads)
        self._rows.add_launches(mapped(columns.pop("owner"), self._processes), columns)

    def _markers(self) -> None:
        region, event, string = (self._table(t) for t in ("rocpd_region", "rocpd_event", "rocpd_string"))
        if not {region, event, string} <= self._db.tables:
            return
        self._require(event, ["category_id", "extdata"])
        categories = self._db.rows(f"SELECT id FROM {quoted(string)} WHERE string LIKE 'MARKER\\_CORE%' ESCAPE '\\'")
        if not categories:
            return
        # The region is named after the roctx call; the message stands in the event. Older files name it directly.
        extracted = "CASE WHEN json_valid(E.extdata) THEN json_extract(E.extdata, '$.message') END"
        message = f"COALESCE({extracted}, S.string)"
        select = {**self._region_select(), "crosses": "S.string LIKE 'roctxRangeSt%'"}
        source = (
            f"{quoted(region)} R JOIN {quoted(event)} E ON E.id = R.event_id "
            f"JOIN {quoted(string)} S ON S.id = R.name_id "
            f"WHERE E.category_id IN ({', '.join(str(i) for (i,) in categories)}) "
            """AND R."start" != R."end" AND S.string NOT LIKE 'roctxProfiler%'"""
        )
        sql = f"SELECT {', '.join(select.values())}, {message} FROM {source}"
        parts: dict[str, list[npt.NDArray[Any]]] = {n: [] for n in select}
        texts = []
        for batch in self._db.batches(sql):
            for index, column in enumerate(select):
                parts[column].append(self._db.integer_column(batch, index, column, "int64", sql))
            texts.append(batch.column(len(select)))
        if not texts:
            return
        columns = {n: np.concatenate(p) for n, p in parts.items()}
        codes, labels = self._db.dictionary(texts)
        columns["text"] = self._rows.texts.codes(labels)[codes]
        columns["thread"] = mapped(columns["thread"], self._threads)
        self._rows.add_ranges(mapped(columns.pop("owner"), self._processes), columns)

    @staticmethod
    def _region_select() -> dict[str, str]:
        return {"start": 'COALESCE(R."start", 0)', "end": 'COALESCE(R."end", 0)', "owner": "R.pid", "thread": "R.tid"}

    # -- identity -----------------------------------------------------------------------------------------------------

    def _owners(self) -> dict[int, int]:
        """Row of rocpd_info_process to the owner of rows: a pid is unique in one run only, so runs are told apart."""
        pids = self._integers_by_id("rocpd_info_process", "pid")
        return {ident: self._rows.new_owner(pid) for ident, pid in pids.items()}

    def _agent_indices(self) -> dict[int, int]:
        """GPU agents to their index among all agents of the machine."""
        name = self._table("rocpd_info_agent")
        self._require(name, ["type", "absolute_index"])
        rows = self._db.rows(f"SELECT id, absolute_index FROM {quoted(name)} WHERE type = 'GPU'")
        return {int(i): int(index) for i, index in rows if index is not None}

    def _agent_names(self) -> dict[int, str]:
        name = self._table("rocpd_info_agent")
        if "product_name" not in self._db.columns(name):
            return {}
        rows = self._db.rows(f"SELECT id, product_name FROM {quoted(name)} WHERE type = 'GPU'")
        return {self._gpus[int(i)]: str(product) for i, product in rows if product and int(i) in self._gpus}

    def _schema_version(self) -> str:
        name = self._table("rocpd_metadata")
        if name not in self._db.tables:
            return "unknown"
        rows = self._db.rows(f"SELECT value FROM {quoted(name)} WHERE tag = 'schema_version'")
        return str(rows[0][0]) if rows else "unknown"

    def _kernel_names(self) -> dict[int, str]:
        """Demangled names, the symbol's where there is none."""
        name = self._table("rocpd_info_kernel_symbol")
        self._require(name, ["kernel_name"])
        shown = "COALESCE(display_name, kernel_name)" if "display_name" in self._db.columns(name) else "kernel_name"
        return {int(i): kernel_name(str(text)) for i, text in self._db.rows(f"SELECT id, {shown} FROM {quoted(name)}")}

    def _strings(self, ids: npt.NDArray[np.int64]) -> dict[int, str]:
        """Texts of the string ids in `ids` alone: the table holds other texts of the recorded process too."""
        name = self._table("rocpd_string")
        wanted = ", ".join(str(i) for i in np.unique(ids).tolist())
        if not wanted:
            return {}
        rows = self._db.rows(f"SELECT id, string FROM {quoted(name)} WHERE id IN ({wanted})")
        return {int(i): str(text) for i, text in rows}

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _table(self, name: str) -> str:
        return name + self._suffix

    def _require(self, name: str, columns: Sequence[str]) -> None:
        missing = [c for c in columns if c not in self._db.columns(name)]
        if missing:
            what = f"column {', '.join(missing)}" if name in self._db.tables else "rows, since it is missing"
            raise ProfkitError(
                f"{self._db.path}: table {name} has no {what}. profkit reads rocpd schema 3; convert the database "
                "with the rocpd tool of the ROCm that wrote it, or record again with CSV output."
            )

    def _optional(self, name: str, alias: str, column: str) -> str:
        return f"COALESCE({alias}.{column}, {NONE})" if column in self._db.columns(name) else str(NONE)

    def _correlation(self, name: str) -> str:
        known = self._joins_events(name) and "stack_id" in self._db.columns(self._table("rocpd_event"))
        return f"COALESCE(NULLIF(E.stack_id, 0), {NONE})" if known else str(NONE)

    def _joins_events(self, name: str) -> bool:
        return "event_id" in self._db.columns(name) and self._table("rocpd_event") in self._db.tables

    def _event_join(self, name: str, alias: str) -> str:
        event = quoted(self._table("rocpd_event"))
        return f"LEFT JOIN {event} E ON E.id = {alias}.event_id" if self._joins_events(name) else ""

    def _columns(self, select: Mapping[str, str], source: str) -> dict[str, npt.NDArray[Any]]:
        sql = f"SELECT {', '.join(select.values())} FROM {source}"
        return self._db.integers(sql, dict.fromkeys(select, "int64"))

    def _integers_by_id(self, table: str, column: str) -> dict[int, int]:
        name = self._table(table)
        if column not in self._db.columns(name):
            return {}
        rows = self._db.rows(f"SELECT id, {column} FROM {quoted(name)} WHERE {column} IS NOT NULL")
        return {int(i): int(value) for i, value in rows}

    @staticmethod
    def _coded(ids: npt.NDArray[Any], labels: Mapping[int, str], texts: Texts) -> npt.NDArray[np.int32]:
        codes, unique = pd.factorize(ids)
        return texts.codes([labels.get(i, f"unknown name {i}") for i in unique.tolist()])[codes]
