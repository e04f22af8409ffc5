"""Compiling beforehand: every configuration is run by one worker, and no worker outlives the sweep."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="workers import torch")

from profkit.sweep import warm  # noqa: E402
from profkit.sweep.plan import Options  # noqa: E402

HERE = Path(__file__).parent
#: Notes what is run in a file of its process.
NOTING = f"""
import dataclasses, os, sys
from pathlib import Path
sys.path.insert(0, {str(HERE)!r})
import cpu_tunable

def build(context):
    problem = cpu_tunable.build_problem(context)
    def run(configuration):
        with (Path(__file__).parent / f"{{os.getpid()}}.ran").open("a") as file:
            file.write(f"{{context.shapes['size']}} {{configuration['chunks']}} {{configuration['repeats']}}\\n")
        if configuration["chunks"] == 2:
            raise RuntimeError("out of luck")
    return dataclasses.replace(problem, run=run)

tunable = dataclasses.replace(cpu_tunable.SCALE.tunable, build=build)
NOTING = dataclasses.replace(cpu_tunable.SCALE, tunable=tunable)
"""
BROKEN = "import os\nprint('I cannot go on')\nos._exit(7)\n"


def test_every_configuration_is_taken_once_whoever_asks_in_whatever_order(tmp_path: Path) -> None:
    configurations = [{"warps": number} for number in range(5)]
    workers = [warm.unclaimed(configurations, tmp_path, 3) for _ in range(2)]
    taken = [next(workers[0]), next(workers[1]), next(workers[1]), *workers[0], *workers[1]]
    assert [c["warps"] for c in taken] == [0, 1, 2, 3, 4]
    assert list(warm.unclaimed(configurations, tmp_path, 4)) == configurations, "another region is another matter"


def test_one_job_starts_no_worker() -> None:
    with ExitStack() as stack:
        warmers = warm.Warmers(Options("no/such/file.py:X"), 1, stack)
        warmers.begin(0)
        warmers.wait(0)
        assert (warmers.children, warmers.lost) == ({}, [])


@pytest.mark.slow
def test_workers_share_the_regions_asked_for_and_end_with_the_block(tmp_path: Path) -> None:
    (tmp_path / "noting.py").write_text(NOTING)
    options = Options(f"{tmp_path / 'noting.py'}:NOTING", regions=("all",), values=("chunks=1,2,16",), device="cpu")
    with ExitStack() as stack:
        warmers = warm.Warmers(options, 2, stack)
        children = list(warmers.children.values())
        for number in (0, 2):
            warmers.begin(number)
            warmers.wait(number)
        assert warmers.lost == []
        assert [child.poll() for child in children] == [None, None]
    assert all(child.poll() is not None for child in children)
    by_worker = [sorted(file.read_text().splitlines()) for file in tmp_path.glob("*.ran")]
    grid = {f"{size} {c} {r}" for size in (20_000, 50_000) for c, r in ((1, 40), (1, 400), (2, 40), (2, 400), (1, 60))}
    assert len(by_worker) <= 2
    # A configuration that fails is no reason to stop, and one that is rejected is not run.
    assert sorted(line for lines in by_worker for line in lines) == sorted(grid)


@pytest.mark.slow
def test_a_worker_that_ends_early_is_told_of_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    with ExitStack() as stack:
        warmers = warm.Warmers(Options(f"{tmp_path / 'broken.py'}:X", device="cpu"), 2, stack)
        warmers.begin(0)
        warmers.wait(0)
        assert warmers.children == {}
        assert warmers.lost == ["A process that compiled beforehand ended early (exit status 7: I cannot go on)."] * 2
        warmers.begin(1)
        warmers.wait(1)


def test_the_reason_of_a_failure_is_what_is_wrong_and_where_without_directories() -> None:
    from profkit.sweep.workload import reason_of

    compiler = "at 3:14:\ndef kernel(x):\n    tl.arange(0, 4194304)\n    ^\nnumel exceeds the maximum"
    assert reason_of(ValueError(compiler)) == "ValueError: at 3:14: numel exceeds the maximum"
    assert (
        reason_of(RuntimeError("CUDA error: misaligned\nCompile with more checks."))
        == "RuntimeError: CUDA error: misaligned"
    )
    assert reason_of(OSError("/home/me/x.so: cannot open")) == "OSError: x.so: cannot open"
    assert reason_of(AssertionError()) == "AssertionError"
