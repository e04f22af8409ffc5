"""Compiling beforehand: worker processes that run configurations, so that Triton's disk cache holds their kernels.

``python -m profkit.sweep.warm JOB`` is a worker. It reads a region's number from each line of its standard input, runs
its share of that region's configurations once, and leaves a file when it is done. Between regions it does nothing, so
that it can wait while the parent times.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from profkit.capture import process
from profkit.errors import ProfkitError
from profkit.sweep.plan import Options, Plan, Region, make_plan

_POLL_S = 0.05


@dataclass(frozen=True)
class _Worker:
    child: subprocess.Popen[bytes]
    directory: Path
    log: Path


@dataclass
class Warmers:
    """The workers of one sweep; with none of them every method does nothing.

    Args:
        lost: a sentence for each worker that ended early. What it had not compiled is compiled by the parent.
    """

    workers: list[_Worker]
    lost: list[str]

    def begin(self, number: int) -> None:
        """Let every worker do its share of region `number`."""
        for worker in self.workers:
            if worker.child.stdin is not None:
                with suppress(BrokenPipeError):
                    worker.child.stdin.write(f"{number}\n".encode())
                    worker.child.stdin.flush()

    def wait(self, number: int) -> None:
        """Wait until every worker is done with region `number`, or has ended."""
        for worker in list(self.workers):
            while not (worker.directory / str(number)).exists():
                status = worker.child.poll()
                if status is not None:
                    said = process.tail(worker.log, 1)
                    self.lost.append(
                        f"A process that compiled beforehand ended early ({process.describe_status(status)}: {said})."
                    )
                    self.workers.remove(worker)
                    break
                time.sleep(_POLL_S)


@contextmanager
def started(options: Options, jobs: int) -> Iterator[Warmers]:
    """`jobs` workers that run beside the block; none where `jobs` is 1."""
    with ExitStack() as stack:
        workers: list[_Worker] = []
        if jobs > 1:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="profkit.")))
            for share in range(jobs):
                directory = work / str(share)
                directory.mkdir()
                job, log = directory / "job.json", directory / "log"
                content = {"options": asdict(options), "share": share, "jobs": jobs, "directory": str(directory)}
                job.write_text(json.dumps(content), encoding="utf-8")
                command = [sys.executable, "-m", "profkit.sweep.warm", str(job)]
                child = stack.enter_context(process.started(command, log, held=True))
                workers.append(_Worker(child, directory, log))
        yield Warmers(workers, [])


def share_of(configurations: Sequence[Mapping[str, int]], share: int, jobs: int) -> list[Mapping[str, int]]:
    """One worker's configurations. The same in every region, so that no kernel is compiled in two workers more often
    than need be."""
    return list(configurations[share::jobs])


def _run_region(plan: Plan, region: Region, share: int, jobs: int) -> None:
    """Run a worker's share; a configuration that fails is the parent's to report."""
    from profkit.sweep.attempts import configuration_errors
    from profkit.sweep.region import build

    problem = build(plan, region)
    synchronize = _synchronizer(plan.options.device)
    for configuration in share_of(plan.configurations(region, problem.known), share, jobs):
        if problem.rejects(configuration) is not None:
            continue
        with suppress(*configuration_errors()):
            problem.run(configuration)
            synchronize()


def _synchronizer(device: str) -> Any:
    import torch

    return torch.cuda.synchronize if device == "cuda" else torch.cpu.synchronize


def main(path: str) -> None:
    """Do what the job in file `path` says until standard input ends."""
    job = json.loads(Path(path).read_text(encoding="utf-8"))
    import torch

    from profkit import kernels

    options = Options(**job["options"])
    plan = make_plan(options, kernels.load(options.workload))
    for line in sys.stdin:
        number = int(line)
        with torch.no_grad():
            _run_region(plan, plan.regions[number], job["share"], job["jobs"])
        if options.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        (Path(job["directory"]) / str(number)).touch()


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except ProfkitError as error:
        sys.exit(str(error))
