"""The NVTX ranges of an nsys export."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.model.trace import RANGES, Diagnostic, categorical, table
from profkit.model.wording import are, counted, were
from profkit.readers.nsys_export import THREAD_BITS, Export
from profkit.readers.nsys_tables import NVTX, Column, OneOf
from profkit.readers.rows import broken_rows, module_path, sorted_ranges

#: NVTX_EVENTS.eventType: push/pop range, start/end range, domain creation.
PUSH_POP, START_END, DOMAIN = 59, 60, 75
#: `end` of a range that was never closed.
_OPEN = int(np.iinfo(np.int64).min)


def read_ranges(export: Export, last_ns: int) -> tuple[pd.DataFrame, int, list[Diagnostic]]:
    """`Trace.ranges`, how many more had no valid times, and what to say of those that were never closed.

    Args:
        last_ns: when the last op or launch ends.
    """
    have = export.tables.columns(NVTX)
    if not have:
        return table(RANGES), 0, []
    export.require(NVTX, ["start", "end", "eventType", "globalTid"])
    wanted = {
        "start": Column(("start",)),
        "end": Column(("end",), _OPEN),
        "style": Column(("eventType",)),
        "process": Column(("globalTid",), 0),
        "domain": Column(("domainId",) if "domainId" in have else (), 0),
    }
    columns, codes, texts = export.tables.messages(NVTX, wanted, OneOf("eventType", (PUSH_POP, START_END)))
    columns["thread"] = columns["process"] & THREAD_BITS
    columns = export.with_process(columns)
    clipped = columns["end"] == _OPEN
    broken = ~clipped & broken_rows(columns["start"], columns["end"])
    unclosed: list[Diagnostic] = []
    if clipped.any():
        end = max(last_ns, *(int(columns[name][~broken].max()) for name in ("start", "end")))
        columns["end"] = np.where(clipped, end, columns["end"])
        count = int(clipped.sum())
        message = (
            f"{counted(count, 'range')} {were(count)} never closed and {are(count)} taken to last until the "
            "recording's end."
        )
        unclosed.append(Diagnostic("unclosed-range", message))
    nested = columns.pop("style") == PUSH_POP
    domains = _domains(export, columns.pop("domain"), columns["process"])
    whole = {
        **columns,
        "text": categorical(codes, [module_path(t) for t in texts]),
        "domain": domains,
        "nested": nested,
    }
    ranges = table(RANGES, {**whole, "clipped": clipped})
    return sorted_ranges(ranges[~broken]), int(broken.sum()), unclosed


def _domains(export: Export, ids: npt.NDArray[np.int64], process: npt.NDArray[Any]) -> pd.Categorical[str]:
    """Domain names, from the creation event of the same process; the default domain is the empty name."""
    names: dict[tuple[int, int], str] = {}
    if "domainId" in export.tables.columns(NVTX):
        wanted = {"process": Column(("globalTid",), 0), "domain": Column(("domainId",), 0)}
        created, codes, texts = export.tables.messages(NVTX, wanted, OneOf("eventType", (DOMAIN,)))
        for tid, domain, code in zip(created["process"], created["domain"], codes, strict=True):
            names[export.process_index(int(tid)), int(domain)] = texts[code]
    pairs, inverse = np.unique(np.stack([process.astype(np.int64), ids], axis=1), axis=0, return_inverse=True)
    labels = [names.get((int(p), int(d)), "" if d == 0 else f"domain {d}") for p, d in pairs]
    return categorical(inverse.reshape(-1), labels)
