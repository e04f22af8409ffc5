"""Compiling beforehand: worker processes that run configurations, so that Triton's disk cache holds their kernels.

``python -m profkit.sweep.warm FOLDER NUMBER`` is a worker. It reads a region's place in the plan from each line of its
standard input, takes configurations of that region that no other worker has taken until none is left, runs each once,
and leaves a file when it is done. Between regions it does nothing, so that it can wait while the parent times.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
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
        children: those that run, by number.
        lost: a sentence for each that ended early. What it had not compiled is compiled by the parent.
    """

    def __init__(self, options: Options, jobs: int, stack: ExitStack) -> None:
        self.lost: list[str] = []
        self._folder = folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="profkit.")))
        job = {"options": asdict(options), "parent_pid": os.getpid()}
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        self.children = {}
        for number in range(jobs if jobs > 1 else 0):
            command = [sys.executable, "-m", "profkit.sweep.warm", str(folder), str(number)]
            child = process.started(command, folder / f"{number}.log", held=True)
            self.children[number] = stack.enter_context(child)

    def begin(self, region: int) -> None:
        """Let them run the configurations of the region at that place of the plan."""
        for child in self.children.values():
            process.tell(child, str(region))

    def wait(self, region: int) -> None:
        """Wait until each is done with the region, or has ended: nobody else may use the device afterwards."""
        for number, child in list(self.children.items()):
            while not (self._folder / f"{region}.{number}.done").exists():
                status = child.poll()
                if status is not None:
                    said = f"{process.describe_status(status)}: {process.tail(self._folder / f'{number}.log', 1)}"
                    self.lost.append(f"A process that compiled beforehand ended early ({said}).")
                    del self.children[number]
                    break
                time.sleep(process.POLL_S)


def unclaimed(configurations: Sequence[dict[str, int]], folder: Path, region: int) -> Iterator[dict[str, int]]:
    """Configurations of the region at that place that no other worker has taken, each when it is its turn."""
    for index, configuration in enumerate(configurations):
        with suppress(FileExistsError):
            (folder / f"{region}.{index}.taken").touch(exist_ok=False)
            yield configuration


def main(folder: Path, number: str) -> None:
    """Compile what the job in `folder` says until standard input ends."""
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    process.end_with(job["parent_pid"])
    import torch

    from profkit import kernels

    options = Options(**job["options"])
    plan = make_plan(options, kernels.load(options.workload))
    device = torch.cuda if options.device == "cuda" else torch.cpu
    for line in sys.stdin:
        with torch.no_grad():
            _run_region(plan, int(line), folder, device.synchronize)
        if options.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        (folder / f"{int(line)}.{number}.done").touch()


def _run_region(plan: Plan, region: int, folder: Path, synchronize: Callable[[], None]) -> None:
    """Run what is unclaimed; a configuration that fails is the parent's to report."""
    from profkit.sweep.region import build

    name = list(plan.regions)[region]
    problem = build(plan, name)
    for configuration in unclaimed(plan.configurations(name, problem.known), folder, region):
        if problem.rejects(configuration) is None:
            with suppress(ProfkitError), code("running a configuration"):
                problem.run(configuration)
                synchronize()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2])
    except ProfkitError as error:
        sys.exit(str(error))
