"""One nsys export while it is read: its tables, and its processes numbered in order of first appearance."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from profkit.errors import ProfkitError
from profkit.model.trace import Process
from profkit.readers import nsys_provenance
from profkit.readers.nsys_tables import Arrays, Tables

#: globalPid and globalTid hold vm id, pid and tid; the low 24 bits are the thread.
THREAD_BITS = 0xFFFFFF


class Export:
    """What the readers of its tables share.

    Args:
        tables: of either form.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.version = nsys_provenance.version(tables)
        self._pids: dict[int, int] = {}

    @property
    def processes(self) -> tuple[Process, ...]:
        """Those met so far, in the order of their numbers."""
        return tuple(Process(pid=(p >> 24) & THREAD_BITS) for p in self._pids)

    def require(self, name: str, columns: Iterable[str]) -> None:
        """Refuse a table that lacks one of `columns`.

        Raises:
            ProfkitError: it does.
        """
        missing = [c for c in columns if c not in self.tables.columns(name)]
        if missing:
            raise ProfkitError(
                f"{self.tables.path}: table {name} has no column {', '.join(missing)} (export by nsys {self.version}). "
                "Export the report again with a current nsys: nsys export -t sqlite REPORT.nsys-rep"
            )

    def process_index(self, global_id: int) -> int:
        """The number of the process that a globalPid or globalTid belongs to."""
        return self._pids.setdefault(global_id & ~THREAD_BITS, len(self._pids))

    def with_process(self, columns: Arrays) -> Arrays:
        """`columns` with process numbers in place of the global ids in ``process``."""
        codes, unique = pd.factorize(columns["process"])
        lookup = np.array([self.process_index(int(u)) for u in unique], dtype=np.int32)
        columns["process"] = lookup[codes] if len(codes) else np.empty(0, np.int32)
        return columns
