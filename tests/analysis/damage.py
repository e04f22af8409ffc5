"""Ways to damage a recorded run, by SQL in its trace and by edits of its run.json; each takes the run's directory."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from profkit.runs import run_dir

Damage = Callable[[Path], None]

_KERNEL, _COPY, _CALL = (f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "MEMCPY", "RUNTIME"))
ACTIVITIES = (_KERNEL, _COPY)
#: Correlation ids of the graph launches, in order.
_LAUNCHES = (
    f"SELECT r.correlationId FROM {_CALL} r JOIN StringIds s ON s.id = r.nameId "
    "WHERE s.value LIKE 'cudaGraphLaunch%' ORDER BY r.start"
)


def sql(*statements: str) -> Damage:
    """Run statements; ``{ops}`` stands for each table of kernels and copies, ``{launches}`` for the graph launches."""

    def apply(run: Path) -> None:
        with sqlite3.connect(run / "trace.sqlite") as database:
            for statement in statements:
                for table in ACTIVITIES if "{ops}" in statement else ("",):
                    database.execute(statement.format(ops=table, launches=_LAUNCHES))
        database.close()
        _as_captured(run)

    return apply


def _as_captured(run: Path) -> None:
    """Make run.json's digest that of the trace: the damage is the recording's, and no later change of the file."""
    content = json.loads((run / "run.json").read_text(encoding="utf-8"))
    content["trace_sha256"] = run_dir.trace_digests(run, content["trace"], [content["trace"]])
    (run / "run.json").write_text(json.dumps(content), encoding="utf-8")


def record(edit: Callable[[dict[str, Any]], object]) -> Damage:
    """Edit run.json."""

    def apply(run: Path) -> None:
        content = json.loads((run / "run.json").read_text(encoding="utf-8"))
        edit(content)
        (run / "run.json").write_text(json.dumps(content), encoding="utf-8")

    return apply


def both(*damages: Damage) -> Damage:
    """One after the other."""

    def apply(run: Path) -> None:
        for damage in damages:
            damage(run)

    return apply


def within(place: str, damage: Damage) -> Damage:
    """Damage the run at `place` in a directory of several."""
    return lambda directory: damage(directory / place)


def cut(share: float) -> Damage:
    """Keep so much of the trace file."""

    def apply(run: Path) -> None:
        content = (run / "trace.sqlite").read_bytes()
        (run / "trace.sqlite").write_bytes(content[: int(len(content) * share)])
        _as_captured(run)

    return apply


def another_trace(run: Path) -> None:
    """Add a row that nothing reads to the trace, after its capture."""
    with sqlite3.connect(run / "trace.sqlite") as database:
        database.execute("CREATE TABLE another (value INTEGER)")
    database.close()


def bare(run: Path) -> None:
    """Nothing beside the trace's name: as of a recording that another tool made."""
    (run / "run.json").write_text(json.dumps({"schema": "profkit.run/1", "trace": "trace.sqlite"}), encoding="utf-8")


def of_replays(count: int) -> str:
    """SQL for the ops of the last `count` replays."""
    return f"correlationId IN (SELECT correlationId FROM ({{launches}} DESC LIMIT {count}))"


def of_layer(number: int) -> str:
    """SQL for the graph nodes, captured and cloned, of one layer."""
    captured = (
        "SELECT n.graphNodeId FROM CUDA_GRAPH_NODE_EVENTS n JOIN NVTX_EVENTS r ON n.start BETWEEN r.start AND r.end "
        f"AND n.globalTid = r.globalTid LEFT JOIN StringIds s ON s.id = r.textId "
        f"WHERE COALESCE(r.text, s.value) = 'layers.{number}.mla'"
    )
    return (
        f"(graphNodeId IN ({captured}) OR graphNodeId IN (SELECT graphNodeId FROM CUDA_GRAPH_NODE_EVENTS "
        f"WHERE originalGraphNodeId IN ({captured})))"
    )


def kernels_named(text: str) -> str:
    """SQL for the rows of kernels with a name."""
    return f"demangledName IN (SELECT id FROM StringIds WHERE value LIKE '{text}%')"


ONE_NODE = f"graphNodeId = (SELECT max(graphNodeId) FROM {_KERNEL} WHERE graphNodeId IS NOT NULL)"
GRAPH_OPS = "graphNodeId IS NOT NULL"
#: The time at which so many per cent of the GPU's work have ended.
PER_CENT = f"""(SELECT min(start) + (max("end") - min(start)) * {{}} / 100 FROM {_KERNEL} WHERE {GRAPH_OPS})"""


def after_per_cent(share: int) -> str:
    """SQL for what comes after so many per cent of the replays' time."""
    return f"start > {PER_CENT.format(share)}"


#: What to add to nsys's globalPid for the next process id.
NEXT_PROCESS = 1 << 24
