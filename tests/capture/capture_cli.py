"""Runs the command line as a user does: a process of its own, with an environment that the test chooses."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).parent
TOY = f"{HERE / 'toy_workload.py'}:TOY"
STUB_NSYS = HERE / "stub_nsys.py"


def environment(**more: str) -> dict[str, str]:
    """The tests' environment without what other tests or a user may have set, and with `more`."""
    dropped = {"TRITON_INTERPRET", "PROFKIT_NSYS", "STUB_NSYS_FAULT", "STUB_NSYS_VERSION", "STUB_NSYS_EXPORT"}
    return {**{name: value for name, value in os.environ.items() if name not in dropped}, **more}


def command(*arguments: str | Path) -> list[str]:
    """The command line of profkit with `arguments`."""
    return [sys.executable, "-m", "profkit.cli", *map(str, arguments)]


def profkit(
    *arguments: str | Path, cwd: Path, stdin: str = "", **environment_more: str
) -> subprocess.CompletedProcess[str]:
    """Run profkit in `cwd` to its end."""
    return subprocess.run(
        command(*arguments),
        cwd=cwd,
        env=environment(**environment_more),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def start(*arguments: str | Path, cwd: Path, **environment_more: str) -> subprocess.Popen[str]:
    """Start profkit in `cwd`."""
    return subprocess.Popen(
        command(*arguments),
        cwd=cwd,
        env=environment(**environment_more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait until `condition` holds.

    Raises:
        TimeoutError: it does not within `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat[stat.rindex(")") + 2] != "Z"


def names(directory: Path) -> Sequence[str]:
    """What lies in `directory`, hidden files too."""
    return sorted(path.name for path in directory.iterdir())
