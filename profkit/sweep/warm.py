"""Compiling beforehand: worker processes that run configurations, so that Triton's disk cache holds their kernels.

``python -m profkit.sweep.warm JOB`` is a worker. It reads a region's name from each line of its standard input, takes
configurations of that region that no other worker has taken until none is left, runs each once, and leaves a file when
it is done. Between regions it does nothing, so that it can wait while the parent times.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path

from profkit.capture import process
from profkit.errors import ProfkitError
from profkit.sweep.plan import Options, Plan, make_plan
from profkit.sweep.workload import code


class Warmers:
    """The workers of one sweep.

    Args:
        options: of the sweep.
        jobs: how many workers; 1 starts none, since the process that times would wait for it.
        stack: ends them.

    Attributes:
        children: those that run, with the directory of each.
        lost: a sentence for each that ended early. What it had not compiled is compiled by the parent.
    """

    def __init__(self, options: Options, jobs: int, stack: ExitStack) -> None:
        self.lost: list[str] = []
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="profkit.")))
        self.children = {}
        for number in range(jobs if jobs > 1 else 0):
            directory = work / str(number)
            directory.mkdir()
            job = directory / "job.json"
            job.write_text(json.dumps({"options": asdict(options), "parent_pid": os.getpid()}), encoding="utf-8")
            command = [sys.executable, "-m", "profkit.sweep.warm", str(job)]
            child = process.started(command, directory / "log", held=True)
            self.children[directory] = stack.enter_context(child)

    def begin(self, number: int) -> None:
        """Let them run the configurations of the region at place `number` of the plan."""
        for child in self.children.values():
            process.tell(child, str(number))

    def wait(self, number: int) -> None:
        """Wait until each is done with the region, or has ended: nobody else may use the device afterwards."""
        for directory, child in list(self.children.items()):
            while not (directory / f"{number}.done").exists():
                status = child.poll()
                if status is not None:
                    said = f"{process.describe_status(status)}: {process.tail(directory / 'log', 1)}"
                    self.lost.append(f"A process that compiled beforehand ended early ({said}).")
                    del self.children[directory]
                    break
                time.sleep(process.POLL_S)


def unclaimed(configurations: Sequence[dict[str, int]], claims: Path, number: int) -> Iterator[dict[str, int]]:
    """Configurations of region `number` that no other worker has taken, each when it is its turn.

    Args:
        claims: a directory that all workers share.
    """
    for index, configuration in enumerate(configurations):
        with suppress(FileExistsError):
            (claims / f"{number}.{index}").touch(exist_ok=False)
            yield configuration


def _run_region(plan: Plan, number: int, claims: Path) -> None:
    """Run what is unclaimed; a configuration that fails is the parent's to report."""
    import torch

    from profkit.sweep.region import build

    name = list(plan.regions)[number]
    problem = build(plan, name)
    synchronize = torch.cuda.synchronize if plan.options.device == "cuda" else torch.cpu.synchronize
    for configuration in unclaimed(plan.configurations(name, problem.known), claims, number):
        if problem.rejects(configuration) is None:
            with suppress(ProfkitError), code("running a configuration"):
                problem.run(configuration)
                synchronize()


def main(path: Path) -> None:
    """Do what the job in the file `path` says until standard input ends."""
    job = json.loads(path.read_text(encoding="utf-8"))
    process.end_with(job["parent_pid"])
    import torch

    from profkit import kernels

    options = Options(**job["options"])
    plan = make_plan(options, kernels.load(options.workload))
    for line in sys.stdin:
        with torch.no_grad():
            _run_region(plan, int(line), path.parents[1])
        if options.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        (path.parent / f"{int(line)}.done").touch()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except ProfkitError as error:
        sys.exit(str(error))
