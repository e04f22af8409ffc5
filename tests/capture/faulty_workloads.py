"""Workloads that go wrong, each in one way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.workload import BuildContext, Layer, Shape, Step, Workload


def _workload(name: str, build: object) -> Workload:
    assert callable(build)
    return Workload(name, "goes wrong", {"only": "one variant"}, {"n": Shape(1, "nothing")}, build)


def _raises(_: BuildContext) -> Step:
    raise RuntimeError("no such weights: /home/somebody/model.bin\nand a second line")


def _refuses(_: BuildContext) -> Step:
    raise ProfkitError("rows must be even. Set --shape rows=2.")


def _killed(_: BuildContext) -> Step:
    sys.stderr.write("about to be killed\n")
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _twins(_: BuildContext) -> Step:
    layer = Layer(0, "twin", lambda scope: None)
    return Step(layers=[layer, layer], refresh=lambda inputs: None, outputs=dict)


def _hangs(_: BuildContext) -> Step:
    child = subprocess.Popen(["sleep", "600"])
    partial = Path("started.part")
    partial.write_text(f"{os.getpid()} {child.pid}", encoding="utf-8")
    partial.rename("started")
    time.sleep(600)
    raise AssertionError


RAISES = _workload("raises", _raises)
REFUSES = _workload("refuses", _refuses)
KILLED = _workload("killed", _killed)
TWINS = _workload("twins", _twins)
HANGS = _workload("hangs", _hangs)
