#!/usr/bin/env python3
"""Stands in for rocprofv3 where there is no AMD GPU: checks its command line strictly and writes recorded files.

As rocprofv3 does, it replaces itself with the program, which keeps its process id; the files are therefore written
before. STUB_ROCPROFV3_VERSION replaces the version, STUB_ROCPROFV3_RECORDING is the recording that every process
"writes" (a database, or a folder of CSV files with the prefix 717), STUB_ROCPROFV3_PROCESSES how many processes do;
without a recording nothing is written.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

VERSION = os.environ.get("STUB_ROCPROFV3_VERSION", "1.1.0")
FLAGS = ["--kernel-trace", "--memory-copy-trace", "--hip-trace", "--marker-trace", "--output-format"]


def refuse(message: str) -> None:
    sys.exit(f"stub rocprofv3: {message}")


def write(directory: Path, pid: int) -> None:
    recording = Path(os.environ["STUB_ROCPROFV3_RECORDING"])
    if recording.is_file():
        shutil.copyfile(recording, directory / f"{pid}_results.db")
        return
    for file in recording.iterdir():
        shutil.copyfile(file, directory / f"{pid}_{file.name.partition('_')[2]}")


def main(arguments: list[str]) -> None:
    if arguments == ["--version"]:
        # One line of several, as rocprofv3 prints its build.
        sys.stdout.write(f"             version: {VERSION}\n        git_revision: 0\n        rocm_version: 7.1.0\n")
        return
    if "--" not in arguments:
        refuse("the program must follow --")
    at = arguments.index("--")
    own, program = arguments[:at], arguments[at + 1 :]
    expected = "rocpd" if int(VERSION.split(".")[0]) >= 1 else "csv"
    if len(own) != 10 or [*own[:6], own[6], *own[8:]] != [*FLAGS, expected, "-d", "-o", "%pid%"] or not program:
        refuse(f"bad command line {arguments}")
    directory = Path(own[7])
    directory.mkdir(parents=True, exist_ok=True)
    if "STUB_ROCPROFV3_RECORDING" in os.environ:
        for number in range(int(os.environ.get("STUB_ROCPROFV3_PROCESSES", "1"))):
            write(directory, os.getpid() + number)
    os.execvp(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1:])
