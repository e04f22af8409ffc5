"""Runs a program as several processes of one process group."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from profkit.capture.workers import free_port, rank_environment


def run_ranks(program: Path, ranks: int, *arguments: str) -> list[tuple[int, str]]:
    """Exit status and output of each of so many processes that run `program` together."""
    port = free_port()
    processes = []
    for rank in range(ranks):
        processes.append(
            subprocess.Popen(
                [sys.executable, program, *arguments],
                env={**rank_environment(rank, ranks, port, os.environ), "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        outputs = [process.communicate(timeout=150)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]
