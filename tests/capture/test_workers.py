"""A held worker: ready, but it touches nothing before it is released, and it never outlives the block."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from capture_cli import TOY, alive, wait_until

from profkit.capture import process
from profkit.capture.options import Job, Options
from profkit.capture.profilers.dispatch import Dispatch
from profkit.capture.workers import Workers
from profkit.errors import ProfkitError

#: Many processes that import torch: `make test-all` runs them, `make test` does not.
pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="workers import torch")


WORKERS = Workers(Options(TOY, profiler="dispatch", replays=1, warmup=1), Dispatch())


def held_job(work: Path) -> Job:
    """A job that waits for the GPU; where there is none, it says so once it goes on."""
    (job,) = WORKERS.jobs(work, "untraced")
    return job


def imported_torch(pid: int) -> bool:
    """Whether a process has torch's library in memory."""
    return "libtorch_python" in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")


def test_it_imports_torch_waits_and_goes_on_when_released(tmp_path: Path) -> None:
    job = held_job(tmp_path)
    with WORKERS.started(job) as worker:
        wait_until(lambda: process.read_pid(job.file("pid")) is not None)
        wait_until(lambda: imported_torch(worker.child.pid))
        # Unheld, the whole job takes about as long as the import that has just begun.
        time.sleep(4.0)
        assert worker.child.poll() is None
        assert job.result() is None
        process.tell(worker.child, "go")
        worker.child.wait()
        assert job.result() is not None


def test_it_is_ended_with_the_block_that_never_released_it(tmp_path: Path) -> None:
    job = held_job(tmp_path)
    with WORKERS.started(job) as worker:
        wait_until(lambda: process.read_pid(job.file("pid")) is not None)
    assert not alive(worker.child.pid)
    assert job.result() is None


def test_a_release_that_comes_too_late_is_no_error_of_its_own(tmp_path: Path) -> None:
    job = held_job(tmp_path)
    with WORKERS.started(job) as worker:
        worker.child.kill()
        worker.child.wait()
        process.tell(worker.child, "go")
        with pytest.raises(ProfkitError, match=r"The untraced process ended \(SIGKILL\) without a result"):
            worker.result()


@pytest.mark.skipif(torch.cuda.is_available(), reason="the untraced worker's refusal shows when it went on")
def test_the_untraced_worker_goes_on_once_the_profiled_one_has_its_result(tmp_path: Path) -> None:
    with pytest.raises(ProfkitError, match="finds no CUDA device"):
        WORKERS.record(tmp_path, "untraced")
    results = [job.file("result.json") for job in (*WORKERS.jobs(tmp_path), *WORKERS.jobs(tmp_path, "untraced"))]
    assert results[0].stat().st_mtime_ns < results[1].stat().st_mtime_ns
