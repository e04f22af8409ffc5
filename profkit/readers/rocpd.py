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
from profkit.readers.arrow import Database, quoted
from profkit.readers.rocm import RocmRows, copy_name, kernel_name, mapped
from profkit.readers.rows import Texts, call_name, launch_api

#: What the devices of a machine are apart from those of another with which they were merged.
_NODE_DEVICES = 1000
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
    nodes = Texts()
    versions: set[str] = set()
    with Database(path) as database:
        suffixes = _suffixes(database)
        for suffix in suffixes:
            database.refuse_computed(re.compile(rf"rocpd_\w+{suffix}" if suffix else r"rocpd_[a-z_]+"))
        if not suffixes:
            raise ProfkitError(f"{path} is an SQLite database but no rocpd: it has no table {_DISPATCHES}_….")
        for suffix in suffixes:
            run = _Run(database, suffix, rows, nodes)
            run.read()
            agents |= run.agents
            versions.add(run.schema_version)
    profiler = f"rocprofv3 (rocpd schema {', '.join(sorted(versions))})"
    return rows.rocm_trace(path, "rocpd", profiler, agents, "rocpd")


def _suffixes(database: Database) -> list[str]:
    """What the table names of each run end in; "" where they are plain. Views over them have plain names."""
    found = [m[1] for name in sorted(database.tables | database.computed) if (m := _GUID_TABLE.match(name))]
    return [s for s in found if s] or found


class _Run:
    """The tables of one guid."""

    def __init__(self, database: Database, suffix: str, rows: RocmRows, nodes: Texts) -> None:
        self._db, self._suffix, self._rows = database, suffix, rows
        #: A pid is unique in one run only, so the processes of two are told apart.
        pids = self._integers_by_id("rocpd_info_process", "pid")
        self._processes = {ident: rows.new_owner(pid) for ident, pid in pids.items()}
        self._gpus = self._agent_indices()
        node = int(nodes.codes([self._node()])[0])
        self._gpus = {agent: index + _NODE_DEVICES * node for agent, index in self._gpus.items()}
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
        select = self._times("K") | self._identity(name) | {"kernel_id": "K.kernel_id", "agent_id": "K.agent_id"}
        if self._rows.detail:
            for axis in "xyz":
                select[f"grid_{axis}"] = self._optional(name, f"grid_size_{axis}")
                select[f"block_{axis}"] = self._optional(name, f"workgroup_size_{axis}")
            select["shared_memory"] = self._optional(name, "group_segment_size")
        columns, _ = self._db.select(name, select, rest=f"K {self._event_join(name)}")
        kernels = columns["kernel_id"]
        if self._rows.detail:
            columns["registers"] = mapped(kernels, self._integers_by_id("rocpd_info_kernel_symbol", "arch_vgpr_count"))
        columns["name"] = _coded(kernels, self._kernel_names(), self._rows.op_names)
        columns["device"] = mapped(columns["agent_id"], self._gpus)
        self._rows.add_ops("kernel", mapped(columns["pid"], self._processes), columns)

    def _copies(self) -> None:
        name = self._table("rocpd_memory_copy")
        if name not in self._db.tables:
            return
        self._require(name, ["start", "end", "name_id", "pid"])
        select = self._times("K") | self._identity(name) | {"name_id": "K.name_id"}
        agents = {column: self._optional(name, column) for column in ("src_agent_id", "dst_agent_id")}
        columns, _ = self._db.select(name, select | agents, rest=f"K {self._event_join(name)}")
        labels = {i: copy_name(s) for i, s in self._names_in(name).items()}
        columns["name"] = _coded(columns["name_id"], labels, self._rows.op_names)
        # The agent of a copy is the GPU that takes part; the target where both are.
        source, target = (mapped(columns[column], self._gpus) for column in agents)
        columns["device"] = np.where(target == NONE, source, target)
        self._rows.add_ops("memcpy", mapped(columns["pid"], self._processes), columns)

    def _identity(self, name: str) -> dict[str, str]:
        """Stream, correlation and, from schema 3.0.2 on, the graph; 0 stands for no graph there."""
        select = {"stream": self._optional(name, "stream_id"), "correlation": self._correlation(name)}
        for column, source in (("graph", "graph_exec_id"), ("node", "graph_node_id")):
            if source in self._db.columns(name):
                select[column] = f"COALESCE(NULLIF(K.{source}, 0), {NONE})"
        return select

    # -- launches and markers -----------------------------------------------------------------------------------------

    def _launches(self) -> None:
        name = self._table("rocpd_region")
        if name not in self._db.tables:
            return
        self._require(name, ["start", "end", "name_id", "pid", "tid"])
        calls = {i: s for i, s in self._names_in(name).items() if launch_api(s) is not None}
        if not calls:
            return
        select = self._times("R") | {"tid": "R.tid", "name_id": "R.name_id", "correlation": self._correlation(name)}
        chosen = f"R.name_id IN ({', '.join(map(str, calls))})"
        columns, _ = self._db.select(name, select, rest=f"R {self._event_join(name, 'R')} WHERE {chosen}")
        columns["api"] = mapped(
            columns["name_id"], {i: LAUNCH_APIS.index(str(launch_api(s))) for i, s in calls.items()}
        )
        labels = {i: call_name(s) for i, s in calls.items()}
        columns["name"] = _coded(columns["name_id"], labels, self._rows.call_names)
        columns["thread"] = mapped(columns["tid"], self._threads)
        self._rows.add_launches(mapped(columns["pid"], self._processes), columns)

    def _markers(self) -> None:
        region, event, string = (self._table(t) for t in ("rocpd_region", "rocpd_event", "rocpd_string"))
        if not {region, event, string} <= self._db.tables:
            return
        self._require(event, ["category_id", "extdata"])
        categories = self._texts_by_id("rocpd_string", "string", "WHERE string LIKE 'MARKER\\_CORE%' ESCAPE '\\'")
        if not categories:
            return
        # The region is named after the roctx call; the message stands in the event. Older files name it directly.
        message = "CASE WHEN json_valid(E.extdata) THEN json_extract(E.extdata, '$.message') END"
        columns, texts = self._db.select(
            region,
            self._times("R") | {"tid": "R.tid", "crosses": "S.string LIKE 'roctxRangeSt%'"},
            {"text": f"COALESCE({message}, S.string)"},
            rest=f"R JOIN {quoted(event)} E ON E.id = R.event_id JOIN {quoted(string)} S ON S.id = R.name_id "
            f"WHERE E.category_id IN ({', '.join(map(str, categories))}) "
            """AND R."start" != R."end" AND S.string NOT LIKE 'roctxProfiler%'""",
        )
        columns["text"] = self._rows.texts.codes(texts["text"].labels)[texts["text"].codes]
        columns["thread"] = mapped(columns["tid"], self._threads)
        self._rows.add_ranges(mapped(columns["pid"], self._processes), columns)

    @staticmethod
    def _times(alias: str) -> dict[str, str]:
        """Start, end and process."""
        times = {name: f'COALESCE({alias}."{name}", 0)' for name in ("start", "end")}
        return times | {"pid": f"{alias}.pid"}

    # -- identity -----------------------------------------------------------------------------------------------------

    def _agent_indices(self) -> dict[int, int]:
        """GPU agents to their index among all agents of the machine."""
        self._require(self._table("rocpd_info_agent"), ["type", "absolute_index"])
        return self._integers_by_id("rocpd_info_agent", "absolute_index", "AND type = 'GPU'")

    def _node(self) -> str:
        """What tells the run's machine from those of the runs that are merged with it. It goes nowhere else."""
        name = self._table("rocpd_info_node")
        wanted = [column for column in ("machine_id", "hostname") if column in self._db.columns(name)]
        told = self._db.rows(f"SELECT {', '.join(wanted)} FROM {quoted(name)}") if wanted else []
        return repr((sorted(map(repr, told)), sorted(self._gpus.values()), sorted(self._texts_of_gpus().items())))

    def _agent_names(self) -> dict[int, str]:
        return {self._gpus[i]: name for i, name in self._texts_of_gpus().items() if name and i in self._gpus}

    def _texts_of_gpus(self) -> dict[int, str]:
        if "product_name" not in self._db.columns(self._table("rocpd_info_agent")):
            return {}
        return self._texts_by_id("rocpd_info_agent", "product_name", "WHERE type = 'GPU'")

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
        return {i: kernel_name(text) for i, text in self._texts_by_id("rocpd_info_kernel_symbol", shown).items()}

    def _names_in(self, name: str) -> dict[int, str]:
        """Texts of the string ids in `name_id` of a table alone: there are others of the recorded process too."""
        columns, _ = self._db.select(name, {"name_id": "name_id"})
        wanted = ", ".join(map(str, np.unique(columns["name_id"]).tolist()))
        return self._texts_by_id("rocpd_string", "string", f"WHERE id IN ({wanted})")

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

    def _optional(self, name: str, column: str) -> str:
        return f"COALESCE(K.{column}, {NONE})" if column in self._db.columns(name) else str(NONE)

    def _correlation(self, name: str) -> str:
        known = self._joins_events(name) and "stack_id" in self._db.columns(self._table("rocpd_event"))
        return f"COALESCE(NULLIF(E.stack_id, 0), {NONE})" if known else str(NONE)

    def _joins_events(self, name: str) -> bool:
        return "event_id" in self._db.columns(name) and self._table("rocpd_event") in self._db.tables

    def _event_join(self, name: str, alias: str = "K") -> str:
        event = quoted(self._table("rocpd_event"))
        return f"LEFT JOIN {event} E ON E.id = {alias}.event_id" if self._joins_events(name) else ""

    def _integers_by_id(self, table: str, column: str, condition: str = "") -> dict[int, int]:
        name = self._table(table)
        if column not in self._db.columns(name):
            return {}
        rest = f"WHERE {column} IS NOT NULL {condition}"
        columns, _ = self._db.select(name, {"id": "id", column: column}, rest=rest)
        return dict(zip(columns["id"].tolist(), columns[column].tolist(), strict=True))

    def _texts_by_id(self, table: str, text: str, rest: str = "") -> dict[int, str]:
        columns, texts = self._db.select(self._table(table), {"id": "id"}, {"text": text}, rest=rest)
        pairs = zip(columns["id"].tolist(), texts["text"].tolist(), strict=True)
        return {ident: text for ident, text in pairs if text is not None}


def _coded(ids: npt.NDArray[Any], labels: Mapping[int, str], texts: Texts) -> npt.NDArray[np.int32]:
    """Codes in `texts` of what `ids` stand for."""
    codes, unique = pd.factorize(ids)
    return texts.codes([labels.get(i, f"unknown name {i}") for i in unique.tolist()])[codes]
