#!/usr/bin/env python3
"""Stands in for nsys where there is no GPU to record: checks its command line strictly and behaves as nsys does.

The program runs in a session of its own, as under nsys; the report is a file that names the database to export. What
goes wrong is chosen by STUB_NSYS_FAULT: ``importer`` (only a .qdstrm is left, with nsys's messages), ``no-report``,
``export`` (the export fails), ``empty`` or ``random`` (it is of no format), ``crash`` (after the program has ended),
``hang`` (then it says so in a file ``hangs`` and heeds no signal). STUB_NSYS_VERSION replaces the version.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

VERSION = os.environ.get("STUB_NSYS_VERSION", "2025.3.1.90-253135822126v0")
FAULT = os.environ.get("STUB_NSYS_FAULT", "")
ALWAYS = {"--trace=cuda,nvtx", "--cuda-graph-trace=node", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true"}
GRAPH_LEVEL = ALWAYS - {"--cuda-graph-trace=node"} | {"--cuda-graph-trace=graph"}
WINDOW = {"--capture-range=cudaProfilerApi", "--capture-range-end=stop"}
SERVER = {"--trace-fork-before-exec=true"}
#: What a test may pass through --nsys-args, each with the flag that profkit must then add.
EXTRA = {"--cuda-flush-interval=100": set(), "--capture-range=nvtx": {"--capture-range-end=stop"}}


def refuse(message: str) -> None:
    sys.exit(f"stub nsys: {message}")


def profile(arguments: list[str]) -> int:
    flags: list[str] = []
    while arguments and arguments[0].startswith("-"):
        flags.append(arguments.pop(0))
    outputs = [flag.partition("=")[2] for flag in flags if flag.startswith("--output=")]
    given = {flag for flag in flags if not flag.startswith("--output=")}
    extra = given & set(EXTRA)
    implied = set().union(*(EXTRA[flag] for flag in extra)) if extra else set()
    if given - extra not in (ALWAYS | WINDOW, GRAPH_LEVEL | WINDOW, ALWAYS | SERVER | implied):
        refuse(f"unexpected flags {sorted(given)}")
    if len(outputs) != 1 or len(flags) != len(given) + 1 or not arguments:
        refuse(f"bad command line {flags} {arguments}")
    program = subprocess.Popen(arguments, start_new_session=True)
    # As nsys does: it stops at once when it is signalled, whatever becomes of the program.
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    status = program.wait()
    if FAULT == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if FAULT == "hang":
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        Path("hangs.part").write_text(str(os.getpid()))
        Path("hangs.part").rename("hangs")
        time.sleep(600)
    output = Path(outputs[0])
    if FAULT == "importer":
        output.with_suffix(".qdstrm").write_bytes(b"raw")
        sys.stdout.write("Unable to retrieve the importer version: skipping importation of the QDSTRM file.\n")
    elif FAULT != "no-report":
        output.with_suffix(".nsys-rep").write_bytes(b"stub report")
    return 128 - status if status < 0 else status


def export(arguments: list[str]) -> int:
    if len(arguments) != 4 or arguments[:2] != ["--type=sqlite", "--force-overwrite=true"]:
        refuse(f"unexpected export {arguments}")
    target, report = arguments[2].removeprefix("--output="), arguments[3]
    if Path(report).read_bytes() != b"stub report" or not target.endswith(".sqlite"):
        refuse(f"cannot export {report} to {target}")
    if FAULT == "export":
        sys.stderr.write("Exportation error\n")
        return 1
    if FAULT in ("empty", "random"):
        Path(target).write_bytes(b"" if FAULT == "empty" else bytes(range(1, 200)))
        return 0
    source = os.environ.get("STUB_NSYS_EXPORT")
    if source:
        shutil.copyfile(source, target)
        return 0
    with sqlite3.connect(target) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        database.execute("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)")
        database.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.20.3')")
    return 0


def main(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        sys.stdout.write(f"NVIDIA Nsight Systems version {VERSION}\n")
        return 0
    if arguments[:1] == ["profile"]:
        return profile(arguments[1:])
    if arguments[:1] == ["export"]:
        return export(arguments[1:])
    refuse(f"unknown command {arguments}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
