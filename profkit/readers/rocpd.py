"""rocpd, the SQLite database of rocprofv3 (schema 3.x) → Trace.

Each table's name ends in the guid of the run that wrote it, so a merged database holds one set of tables a run. The
tables are read, not the views over them, which a merge may lack. Two columns are named against expectation: an
event's `stack_id` is the correlation id, its `correlation_id` the user's external one. Of rocpd_info_process only the
pid is read: its other columns hold the command line and the environment of the recorded process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.errors import ProfkitError
from profkit.model.trace import NONE, Trace
from profkit.readers import SQLITE_MAGIC
from profkit.readers.arrow import ID, Coded, Database, Integers, Like, OneOf, quoted
from profkit.readers.rocm import UNWRITTEN, RocmRows, copy_name, is_marker_range, kernel_name, mapped
from profkit.readers.rows import Texts, api_index, call_name


def _id(source: str, *, optional: bool = False) -> Integers:
    """What refers to a row of another table; of a row that must say so where it is not `optional`."""
    return Integers((source,), NONE if optional else None, optional=optional)


_ROW = {
    "start": Integers(("start",), UNWRITTEN),
    "end": Integers(("end",), 0),
    "pid": _id("pid"),
    "event": _id("event_id", optional=True),
}
#: Graphs are there from schema 3.0.2 on; 0 stands for none.
_OP = _ROW | {
    "stream": _id("stream_id", optional=True),
    "graph": Integers(("graph_exec_id",), NONE, optional=True, zero_is_null=True),
    "node": Integers(("graph_node_id",), NONE, optional=True, zero_is_null=True),
}
_DETAIL = {"shared_memory": _id("group_segment_size", optional=True)}
_DETAIL |= {f"grid_{axis}": _id(f"grid_size_{axis}", optional=True) for axis in "xyz"}
_DETAIL |= {f"block_{axis}": _id(f"workgroup_size_{axis}", optional=True) for axis in "xyz"}

#: What the devices of a machine are apart from those of another with which they were merged.
_NODE_DEVICES = 1000
_DISPATCHES = "rocpd_kernel_dispatch"
_GUID_TABLE = re.compile(rf"^{_DISPATCHES}(|_[0-9a-f_]{{36}})$")


def sniff(head: bytes, path: Path) -> bool:
    """See `profkit.readers.Reader`."""
    if not head.startswith(SQLITE_MAGIC):
        return False
    with Database(path) as database:
        return bool(_suffixes(database))


def read(path: Path, *, detail: bool = False) -> Trace:
    """See `profkit.readers.Reader`; the database may be several merged into one file."""
    rows = RocmRows(detail=detail)
    agents: dict[int, str] = {}
    nodes = Texts()
    versions: set[str] = set()
    with Database(path) as database:
        suffixes = _suffixes(database)
        for suffix in suffixes:
            database.refuse_computed(re.compile(rf"rocpd_\w+{suffix}" if suffix else r"rocpd_[a-z_]+"))
        database.of_columns = (
            ". profkit reads rocpd schema 3; convert the database with the rocpd tool of the ROCm that wrote it, or "
            "record again with CSV output."
        )
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
        pids = self._by_id("rocpd_info_process", "pid")
        self._processes = {ident: rows.new_owner(pid) for ident, pid in pids.items()}
        self._threads = self._by_id("rocpd_info_thread", "tid")
        self._gpus, products = self._read_agents()
        node = int(nodes.codes([self._node(products)])[0])
        self._gpus = {agent: index + _NODE_DEVICES * node for agent, index in self._gpus.items()}
        self.agents = {self._gpus[i]: name for i, name in products.items() if name}
        metadata = self._table("rocpd_metadata")
        told = database.texts(metadata, "value", Like("tag", "schema_version")) if metadata in database.tables else []
        self.schema_version = told[0] if told else "unknown"
        events = self._table("rocpd_event")
        stacks = {"id": ID, "stack": Integers(("stack_id",), NONE, optional=True, zero_is_null=True)}
        self._events = database.integers(events, stacks) if events in database.tables else {}

    def read(self) -> None:
        """Add the run's rows."""
        self._dispatches()
        self._copies()
        self._regions()

    def _dispatches(self) -> None:
        detail = _DETAIL if self._rows.detail else {}
        columns = self._read(_DISPATCHES, _OP | detail | {"kernel": _id("kernel_id"), "agent": _id("agent_id")})
        symbols = self._table("rocpd_info_kernel_symbol")
        names = self._db.texts_by_id(symbols, "kernel_name")
        if "display_name" in self._db.columns(symbols):
            names |= self._db.texts_by_id(symbols, "display_name")
        if self._rows.detail:
            registers = self._by_id("rocpd_info_kernel_symbol", "arch_vgpr_count")
            columns["registers"] = mapped(columns["kernel"], registers)
        labels = {i: kernel_name(name) for i, name in names.items()}
        columns["name"] = _coded(columns["kernel"], labels, self._rows.op_names)
        columns["device"] = mapped(columns["agent"], self._gpus)
        self._rows.add_ops("kernel", columns["owner"], columns)

    def _copies(self) -> None:
        if self._table("rocpd_memory_copy") not in self._db.tables:
            return
        ends = {name: _id(f"{name}_agent_id", optional=True) for name in ("src", "dst")}
        columns = self._read("rocpd_memory_copy", _OP | ends | {"name": _id("name_id")})
        labels = {i: copy_name(name) for i, name in self._strings(columns["name"]).items()}
        columns["name"] = _coded(columns["name"], labels, self._rows.op_names)
        # The agent of a copy is the GPU that takes part; the target where both are.
        source, target = (mapped(columns[name], self._gpus) for name in ends)
        columns["device"] = np.where(target == NONE, source, target)
        self._rows.add_ops("memcpy", columns["owner"], columns)

    def _regions(self) -> None:
        """API calls, and markers, which are regions too, named after the roctx call."""
        if self._table("rocpd_region") not in self._db.tables:
            return
        columns = self._read("rocpd_region", _ROW | {"thread": _id("tid"), "name": _id("name_id")})
        columns["thread"] = mapped(columns["thread"], self._threads)
        names = self._strings(columns["name"])

        api = mapped(columns["name"], {i: api_index(name) for i, name in names.items()})
        calls = {name: values[api != NONE] for name, values in (columns | {"api": api}).items()}
        labels = {i: call_name(name) for i, name in names.items()}
        calls["name"] = _coded(calls["name"], labels, self._rows.call_names)
        self._rows.add_launches(calls["owner"], calls)

        event, messages = self._marker_events()
        ranges = {i: is_marker_range("MARKER_CORE", name) for i, name in names.items()}
        place = joined(columns["event"], event, np.arange(len(event)), self._db.path)
        # A mark has one time; it is a point and no range.
        chosen = (place != NONE) & (mapped(columns["name"], ranges) > 0) & (columns["start"] != columns["end"])
        markers = {name: values[chosen] for name, values in columns.items()}
        # The message stands in the event. Older files name the region after it.
        message, said = messages.mapped(_message, None)[place[chosen]], pd.Series(markers["name"]).map(names)
        markers["text"] = self._rows.texts.codes(np.where(pd.isna(message), said, message).tolist())
        crosses = {i: name.startswith("roctxRangeSt") for i, name in names.items()}
        markers["crosses"] = mapped(markers["name"], crosses)
        self._rows.add_ranges(markers["owner"], markers)

    def _marker_events(self) -> tuple[npt.NDArray[Any], Coded]:
        """Ids of the events that are markers, and what stands beside each."""
        strings, events = self._table("rocpd_string"), self._table("rocpd_event")
        none = np.empty(0, np.int64), Coded(np.empty(0, np.int32), [])
        if not {strings, events} <= self._db.tables:
            return none
        categories = self._db.texts_by_id(strings, "string", Like("string", "MARKER_CORE"))
        if not categories:
            return none
        chosen = OneOf("category_id", list(categories))
        columns, texts = self._db.read(events, {"id": ID}, ["extdata"], chosen)
        return columns["id"], texts["extdata"]

    def _read_agents(self) -> tuple[dict[int, int], dict[int, str]]:
        """GPUs: index among all agents of the machine, and product name."""
        agents = self._table("rocpd_info_agent")
        has_names = "product_name" in self._db.columns(agents)
        index = {"id": ID, "index": Integers(("absolute_index",), NONE)}
        columns, texts = self._db.read(agents, index, ["type", *(["product_name"] if has_names else [])])
        rows = zip(columns["id"].tolist(), columns["index"].tolist(), texts["type"].tolist(), strict=True)
        gpus = {ident: number for ident, number, kind in rows if kind == "GPU"}
        named = zip(columns["id"].tolist(), texts["product_name"].tolist(), strict=True) if has_names else ()
        return gpus, {ident: name for ident, name in named if name is not None and ident in gpus}

    def _node(self, products: Mapping[int, str]) -> str:
        """What tells the run's machine from those of the runs that are merged with it. It goes nowhere else."""
        name = self._table("rocpd_info_node")
        wanted = [column for column in ("machine_id", "hostname") if column in self._db.columns(name)]
        told = self._db.rows(f"SELECT {', '.join(wanted)} FROM {quoted(name)}") if wanted else []
        return repr((sorted(map(repr, told)), sorted(self._gpus.values()), sorted(products.items())))

    def _table(self, name: str) -> str:
        return name + self._suffix

    def _read(self, name: str, wanted: Mapping[str, Integers]) -> dict[str, npt.NDArray[Any]]:
        """Columns of a table, with each row's process as ``owner`` and its correlation id, which its event holds."""
        columns = self._db.integers(self._table(name), wanted)
        columns["owner"] = mapped(columns["pid"], self._processes)
        columns["correlation"] = np.full(len(columns["pid"]), NONE, np.int64)
        if self._events:
            columns["correlation"] = joined(columns["event"], self._events["id"], self._events["stack"], self._db.path)
        return columns

    def _by_id(self, table: str, column: str) -> dict[int, int]:
        name = self._table(table)
        if column not in self._db.columns(name):
            return {}
        columns = self._db.integers(name, {"id": ID, "value": Integers((column,), NONE)})
        return dict(zip(columns["id"].tolist(), columns["value"].tolist(), strict=True))

    def _strings(self, ids: npt.NDArray[Any]) -> dict[int, str]:
        """The texts of these ids alone: there are others of the recorded process too."""
        return self._db.texts_by_id(self._table("rocpd_string"), "string", OneOf("id", np.unique(ids).tolist()))


def joined(
    wanted: npt.NDArray[Any], ids: npt.NDArray[Any], values: npt.NDArray[Any], path: Path
) -> npt.NDArray[np.int64]:
    """For each of `wanted` the value beside that id, `NONE` where there is none.

    Raises:
        ProfkitError: an id stands there twice.
    """
    index = pd.Index(ids)
    if not index.is_unique:
        raise ProfkitError(f"{path}: rows refer to events by ids that are not unique. Copy or export it again.")
    return np.asarray(np.append(values, NONE)[index.get_indexer(wanted)], np.int64)


def _coded(ids: npt.NDArray[Any], labels: Mapping[int, str], texts: Texts) -> npt.NDArray[np.int32]:
    """Codes in `texts` of what `ids` stand for."""
    codes, unique = pd.factorize(ids)
    return texts.codes([labels.get(i, f"unknown name {i}") for i in unique.tolist()])[codes]


class _Extdata(msgspec.Struct):
    message: str | None = None


def _message(extdata: str) -> str | None:
    try:
        return msgspec.json.decode(extdata, type=_Extdata).message
    except msgspec.DecodeError:
        return None
