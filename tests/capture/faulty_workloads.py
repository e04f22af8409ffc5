"""Workloads that go wrong, each in one way."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.model.workload import BuildContext, Layer, Shape, Step, Workload


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


def _segfault(_: BuildContext) -> Step:
    ctypes.string_at(0)
    raise AssertionError


def _twins(_: BuildContext) -> Step:
    layer = Layer(0, "twin", lambda scope: None)
    return Step(layers=[layer, layer], refresh=lambda inputs: None, outputs=dict)


def _bare(_: BuildContext) -> Step:
    import torch

    x = torch.zeros(1)
    layers = [Layer(number, "bare", lambda scope: x.add_(1)) for number in (0, 1, 10)]
    return Step(
        layers=layers,
        refresh=lambda inputs: None,
        outputs=lambda: {"layers.0.bare/out": x, "layers.10.bare": x, "layers.1.bare2/out": x},
    )


def _hangs(_: BuildContext) -> Step:
    child = subprocess.Popen(["sleep", "600"])
    partial = Path("started.part")
    partial.write_text(f"{os.getpid()} {child.pid}", encoding="utf-8")
    partial.rename("started")
    time.sleep(600)
    raise AssertionError


def _raises_on_rank_1(context: BuildContext) -> Step:
    if context.rank == 1:
        raise RuntimeError("no such shard: /home/somebody/shard1.bin")
    return _waits_for_the_others(context)


def _killed_on_rank_1(context: BuildContext) -> Step:
    return _killed(context) if context.rank == 1 else _waits_for_the_others(context)


def _leaves_on_rank_1(context: BuildContext) -> Step:
    if context.rank == 1:
        sys.exit(0)
    return _waits_for_the_others(context)


def _vanishes_on_rank_1(context: BuildContext) -> Step:
    if context.rank == 1:
        os._exit(0)
    return _waits_for_the_others(context)


def _hangs_on_rank_1(context: BuildContext) -> Step:
    partial = Path(f"started.{context.rank}.part")
    partial.write_text(str(os.getpid()), encoding="utf-8")
    partial.rename(f"started.{context.rank}")
    if context.rank == 1:
        time.sleep(600)
    return _waits_for_the_others(context)


def _waits_for_the_others(context: BuildContext) -> Step:
    """A step whose layer meets the other ranks, so that it never ends without them."""
    import torch
    import torch.distributed as dist

    token = torch.zeros(1, device=context.device)
    layer = Layer(0, "meeting", lambda scope: dist.all_reduce(token))
    return Step(layers=[layer], refresh=lambda inputs: None, outputs=lambda: {f"{layer.scope}/token": token})


RAISES = _workload("raises", _raises)
REFUSES = _workload("refuses", _refuses)
KILLED = _workload("killed", _killed)
SEGFAULT = _workload("segfault", _segfault)
TWINS = _workload("twins", _twins)
BARE = _workload("bare", _bare)
HANGS = _workload("hangs", _hangs)
RAISES_ON_RANK_1 = _workload("raises-on-rank-1", _raises_on_rank_1)
KILLED_ON_RANK_1 = _workload("killed-on-rank-1", _killed_on_rank_1)
LEAVES_ON_RANK_1 = _workload("leaves-on-rank-1", _leaves_on_rank_1)
VANISHES_ON_RANK_1 = _workload("vanishes-on-rank-1", _vanishes_on_rank_1)
HANGS_ON_RANK_1 = _workload("hangs-on-rank-1", _hangs_on_rank_1)
MEETS = _workload("meets", _waits_for_the_others)
