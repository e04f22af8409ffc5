"""Compiling beforehand: worker processes that run configurations, so that Triton's disk cache holds their kernels.

``python -m profkit.sweep.warm JOB`` is a worker. It reads a region's number from each line of its standard input, takes
configurations of that region that no other worker has taken until none is left, runs each once, and leaves a file when
it is done. Between regions it does nothing, so that it can wait while the parent times.

A worker needs seconds to start. Unless the user says how many there are to be, none is started before the parent has
seen that compiling would take longer than that, and one that runs is left alone where the kernels are there already.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from profkit.capture import process
from profkit.errors import ProfkitError
from profkit.sweep.plan import Options, Plan, Region, make_plan

#: To import torch and to open a device took seven seconds in four processes at once (host of an H200, 2026-11-29).
#: Workers are started for no less than this, by the quickest of what was tried: the slow ones may be slow by chance.
_START_FOR_S = 12.0
_START_TRIED = 2
#: Workers that run only build the problem.
_BEGIN_FOR_S = 3.0
#: What takes longer than this to run for the first time was compiled; a kernel from the disk cache takes 50 ms.
_COMPILED_S = 0.3


@dataclass(frozen=True)
class _Worker:
    child: subprocess.Popen[bytes]
    directory: Path
    log: Path


class Warmers:
    """The workers of one sweep; without any every method does nothing.

    Args:
        options: of the sweep.
        jobs: how many workers; 1 never starts any.
        at_once: start them now and use them for every region.
        stack: ends them.

    Attributes:
        workers: those that run.
        lost: a sentence for each worker that ended early. What it had not compiled is compiled by the parent.
    """

    def __init__(self, options: Options, jobs: int, at_once: bool, stack: ExitStack) -> None:
        self.workers: list[_Worker] = []
        self.lost: list[str] = []
        self._options = options
        self._jobs = jobs
        self._at_once = at_once
        self._may_start = jobs > 1
        self._stack = stack
        self._number = 0
        self._begun = False
        self._spent_s: list[float] = []
        if at_once and jobs > 1:
            self._start()

    def region(self, number: int) -> None:
        """Region `number` comes next."""
        self._number, self._begun, self._spent_s = number, False, []
        if self._at_once:
            self._begin()

    def tried(self, spent_s: float, left: int) -> None:
        """Let the workers do the rest of the region where that would end sooner.

        Args:
            spent_s: what the parent needed for the first run of one more configuration.
            left: configurations that it has not run yet.
        """
        self._spent_s.append(spent_s)
        if self._begun or min(self._spent_s) < _COMPILED_S:
            return
        ahead_s = min(self._spent_s) * left
        if self.workers:
            if ahead_s >= _BEGIN_FOR_S:
                self._begin()
        elif self._may_start and len(self._spent_s) >= _START_TRIED and ahead_s >= _START_FOR_S:
            self._start()
            self._begin()

    def wait(self) -> None:
        """Wait until every worker is done with the region, or has ended: nobody else may use the device afterwards."""
        if not self._begun:
            return
        for worker in list(self.workers):
            while not (worker.directory / str(self._number)).exists():
                status = worker.child.poll()
                if status is not None:
                    said = process.tail(worker.log, 1)
                    self.lost.append(
                        f"A process that compiled beforehand ended early ({process.describe_status(status)}: {said})."
                    )
                    self.workers.remove(worker)
                    break
                time.sleep(process.POLL_S)

    def _begin(self) -> None:
        self._begun = True
        for worker in self.workers:
            process.tell(worker.child, str(self._number))

    def _start(self) -> None:
        # Workers that ended early are not replaced: the next ones would end as they did.
        self._may_start = False
        work = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="profkit.")))
        claims = work / "claims"
        claims.mkdir()
        for worker in range(self._jobs):
            directory = work / str(worker)
            directory.mkdir()
            job, log = directory / "job.json", directory / "log"
            content = {
                "options": asdict(self._options),
                "claims": str(claims),
                "directory": str(directory),
                "parent_pid": os.getpid(),
            }
            job.write_text(json.dumps(content), encoding="utf-8")
            command = [sys.executable, "-m", "profkit.sweep.warm", str(job)]
            child = self._stack.enter_context(process.started(command, log, held=True))
            self.workers.append(_Worker(child, directory, log))


@contextmanager
def started(options: Options, jobs: int, *, at_once: bool) -> Iterator[Warmers]:
    """`Warmers` whose workers end with the block."""
    with ExitStack() as stack:
        yield Warmers(options, jobs, at_once, stack)


def unclaimed(configurations: Sequence[dict[str, int]], claims: Path, number: int) -> Iterator[dict[str, int]]:
    """Configurations of region `number` that no other worker has taken, each when it is its turn.

    Args:
        claims: a directory that all workers share.
    """
    for index, configuration in enumerate(configurations):
        try:
            (claims / f"{number}.{index}").touch(exist_ok=False)
        except FileExistsError:
            continue
        yield configuration


def _run_region(plan: Plan, region: Region, claims: Path, number: int) -> None:
    """Run what is unclaimed; a configuration that fails is the parent's to report."""
    from profkit.sweep.attempts import CONFIGURATION_ERRORS, run_once
    from profkit.sweep.region import build

    problem = build(plan, region)
    synchronize = _synchronizer(plan.options.device)
    for configuration in unclaimed(plan.configurations(region, problem.known), claims, number):
        if problem.rejects(configuration) is not None:
            continue
        with suppress(*CONFIGURATION_ERRORS):
            run_once(problem.run, configuration)
            synchronize()


def _synchronizer(device: str) -> Any:
    import torch

    return torch.cuda.synchronize if device == "cuda" else torch.cpu.synchronize


def main(path: str) -> None:
    """Do what the job in file `path` says until standard input ends."""
    job = json.loads(Path(path).read_text(encoding="utf-8"))
    process.end_with(job["parent_pid"])
    import torch

    from profkit import kernels

    options = Options(**job["options"])
    plan = make_plan(options, kernels.load(options.workload))
    for line in sys.stdin:
        number = int(line)
        with torch.no_grad():
            _run_region(plan, plan.regions[number], Path(job["claims"]), number)
        if options.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        (Path(job["directory"]) / str(number)).touch()


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except ProfkitError as error:
        sys.exit(str(error))
