"""Grows a recorded nsys export to a given number of kernels: more replays of the same graph, with jittered times.

    python benchmarks/grow.py traces/dcp-combine/eager/trace.sqlite grown.sqlite --kernels 1000000

Each copy of the recording is shifted past the one before it, gets correlation ids of its own, and each kernel's
duration varies by up to 5 %. Node events and ranges stay as they are: the graph is captured once.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
from pathlib import Path

KERNEL, MEMCPY, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_RUNTIME"
#: Weyl sequence: cheap, deterministic and even, so that jitter needs no random numbers inside SQLite.
WEYL = 2654435761


def grow(source: Path, target: Path, kernels: int) -> int:
    """Write `target` with at least `kernels` kernels; returns how many there are."""
    shutil.copyfile(source, target)
    target.chmod(0o644)
    with sqlite3.connect(target) as db:
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        replayed = (
            f"SELECT r.correlationId FROM {RUNTIME} r JOIN StringIds s ON s.id = r.nameId "
            "WHERE s.value LIKE 'cudaGraphLaunch%'"
        )
        (first, last, low, high) = db.execute(
            f'SELECT min("start"), max("end"), min(correlationId), max(correlationId) FROM {RUNTIME} '
            f"WHERE correlationId IN ({replayed})"
        ).fetchone()
        (end_ns,) = db.execute(f'SELECT max("end") FROM {KERNEL}').fetchone()
        (have,) = db.execute(f"SELECT count(*) FROM {KERNEL}").fetchone()
        (grows,) = db.execute(f"SELECT count(*) FROM {KERNEL} WHERE correlationId IN ({replayed})").fetchone()
        shift_ns = max(last, end_ns) - first + 1_000_000
        shift_id = high - low + 1
        copies = -(-(kernels - have) // grows)
        for table, condition in ((KERNEL, replayed), (MEMCPY, replayed), (RUNTIME, replayed)):
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            jitter = (
                "0"
                if table == RUNTIME
                else f'((t.rowid * {WEYL} + k.i * 40503) % 1001 - 500) * ("end" - "start") / 10000'
            )
            values = {
                "start": f'"start" + k.i * {shift_ns}',
                "end": f'"end" + k.i * {shift_ns} + {jitter}',
                "correlationId": f"correlationId + k.i * {shift_id}",
            }
            selected = ", ".join(values.get(c, f'"{c}"') for c in columns)
            db.execute(
                f"WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < {copies}) "
                f"INSERT INTO {table} SELECT {selected} FROM k CROSS JOIN (SELECT rowid, * FROM {table} "
                f"WHERE correlationId IN ({condition})) t"
            )
        db.commit()
        (count,) = db.execute(f"SELECT count(*) FROM {KERNEL}").fetchone()
        return int(count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    options = parser.parse_args()
    count = grow(options.source, options.target, options.kernels)
    print(f"{options.target}: {count:,} kernels, {options.target.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
