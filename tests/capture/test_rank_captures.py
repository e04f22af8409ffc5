"""Captures by several processes, counted on the CPU over gloo: every rank's run is there, or none is."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
from capture_cli import HERE, STUB_NSYS, TOY, alive, names, profkit, start, wait_until

from profkit.capture.workers import rank_environment
from profkit.errors import ProfkitError
from profkit.model.run import RankRecord
from profkit.model.workload import BuildContext, Shape, Step, Workload, resolve_shapes
from profkit.runs import run_dir

#: Many processes that import torch: `make test-all` runs them, `make test` does not.
slow = pytest.mark.slow

torch = pytest.importorskip("torch", reason="workers import torch")

FAULTY = HERE / "faulty_workloads.py"
SMALL = ("rows=4", "heads=4", "head_dim=16", "layers=2", "gemm_in=8", "gemm_out=8")
SHAPES = [word for shape in SMALL for word in ("--shape", shape)]
DISPATCH = ("--profiler", "dispatch", "--nproc", "2")
TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}


def rank_records(path: Path) -> list[RankRecord]:
    """The `ranks` field of every run at `path`."""
    return [run.record.ranks for run in run_dir.find(path)]


def test_two_ranks_of_the_combine_from_capture_to_diff(tmp_path: Path) -> None:
    for variant in ("eager", "fused"):
        arguments = ("--variant", variant, *DISPATCH, "--run-bodies", *SHAPES, "-o", variant)
        done = profkit("capture", "dcp-combine", *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "ranks: 2, a process each, joined over gloo; exchange: distributed" in done.stdout
    assert names(tmp_path) == ["eager", "fused"]
    assert names(tmp_path / "eager") == ["0", "1"]
    described = rank_records(tmp_path / "eager")
    assert [(r.rank, r.world_size, r.backend) for r in described] == [(0, 2, "gloo"), (1, 2, "gloo")]
    jobs = {r.job for r in described}
    assert len(jobs) == 1
    assert jobs.isdisjoint(r.job for r in rank_records(tmp_path / "fused"))
    runs = run_dir.find(tmp_path / "eager")
    assert all(run.record.workload.shapes["ranks"] == 2 for run in runs)
    digests = [run.record.digests.outputs for run in runs]
    assert all(digests[0][name] != digests[1][name] for name in digests[0]), "each rank has other inputs"

    diff = profkit("diff", "eager", "fused", "--format", "json", cwd=tmp_path)
    assert diff.returncode == 0, diff.stderr
    told = json.loads(diff.stdout)
    assert (told["verdict"], told["work"], told["net"]["launches_per_layer"]) == ("confirmed", "preserved", -8)
    assert [(r["rank"], r["before"]["launches"], r["after"]["launches"]) for r in told["ranks"]] == [
        (0, 12, 4),
        (1, 12, 4),
    ]
    assert told["roles"]["collective"] == {
        "launches_before": 1,
        "launches_after": 1,
        "us_before": None,
        "us_after": None,
    }
    assert any("All 8 output digests are equal" in reason["message"] for reason in told["reasons"])

    # One rank of each is a comparison too; a rank that only one side has is none.
    assert profkit("diff", "eager/1", "fused/1", cwd=tmp_path).returncode == 0
    lonely = profkit("diff", "eager", "fused/1", cwd=tmp_path)
    assert lonely.returncode == 3
    assert "Not every job has the same ranks here: 0, 1 and 1." in " ".join(lonely.stdout.split())


@pytest.mark.parametrize(
    ("name", "message", "left"),
    [
        ("LEAVES_ON_RANK_1", "Rank 1 of 2: The workload failed: SystemExit: 0. Full log: ", ["run.log"]),
        (
            "VANISHES_ON_RANK_1",
            "Rank 1 of 2: The dispatch process ended (exit status 0) without a result, and printed nothing.\n",
            [],
        ),
    ],
)
def test_a_rank_that_leaves_without_an_error_is_named(tmp_path: Path, name: str, message: str, left: list[str]) -> None:
    done = profkit("capture", f"{FAULTY}:{name}", *DISPATCH, "-o", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert names(tmp_path) == left


def test_no_rank_outlives_a_killed_profkit(tmp_path: Path) -> None:
    running = start("capture", f"{FAULTY}:HANGS_ON_RANK_1", *DISPATCH, "-o", "run", cwd=tmp_path)
    started = [tmp_path / f"started.{rank}" for rank in range(2)]
    wait_until(lambda: all(path.exists() for path in started))
    pids = [int(path.read_text()) for path in started]
    running.kill()
    running.communicate(timeout=30)
    wait_until(lambda: not any(map(alive, pids)), timeout_s=5)


@slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "RAISES_ON_RANK_1",
            "Rank 1 of 2: The workload failed: RuntimeError: no such shard: shard1.bin. Full log: ",
        ),
        ("KILLED_ON_RANK_1", "Rank 1 of 2: The dispatch process ended (SIGKILL) without a result: about to be killed"),
    ],
)
def test_a_rank_that_fails_ends_the_others_and_is_named(tmp_path: Path, name: str, message: str) -> None:
    done = profkit("capture", f"{FAULTY}:{name}", *DISPATCH, "-o", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert names(tmp_path) == ["run.log"]


@slow
def test_a_rank_that_hangs_is_given_up_and_named(tmp_path: Path) -> None:
    limit = ("--rank-timeout", "12")
    done = profkit("capture", f"{FAULTY}:HANGS_ON_RANK_1", *DISPATCH, *limit, "-o", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert "2 of 2 ranks did not end within 12 s: " in done.stderr
    assert "rank 0 is running the step" in done.stderr
    assert "rank 1 is building the workload" in done.stderr
    assert names(tmp_path) == ["started.0", "started.1"]
    pids = [int((tmp_path / f"started.{rank}").read_text()) for rank in range(2)]
    assert not any(map(alive, pids))


@slow
def test_an_interrupt_leaves_no_rank_and_no_directory(tmp_path: Path) -> None:
    running = start("capture", f"{FAULTY}:HANGS_ON_RANK_1", *DISPATCH, "-o", "run", cwd=tmp_path)
    started = [tmp_path / f"started.{rank}" for rank in range(2)]
    wait_until(lambda: all(path.exists() for path in started))
    pids = [int(path.read_text()) for path in started]
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "Traceback" not in errors
    assert names(tmp_path) == ["started.0", "started.1"]
    wait_until(lambda: not any(map(alive, pids)), timeout_s=5)


@slow
def test_repetitions_hold_all_ranks_and_resume(tmp_path: Path) -> None:
    arms = ("--variant", "unfused", "--against", "fused", "--pairs", "2")
    repeated = ("capture", TOY, *arms, *DISPATCH, "-o", "session")
    done = profkit(*repeated, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "recorded: 4 of 4 repetitions, 4 of them now" in done.stdout
    runs = run_dir.find(tmp_path / "session")
    assert [run.path.relative_to(tmp_path / "session").as_posix() for run in runs] == [
        f"{arm}/{pair}/{rank}" for arm in ("fused", "unfused") for pair in (0, 1) for rank in (0, 1)
    ]
    assert len({run.record.ranks.job for run in runs}) == 4
    assert {run.record.repetition.pair for run in runs} == {0, 1}
    # WHEN a repetition is missing, all of its ranks are recorded again, and no other.
    kept, lost = (tmp_path / "session" / arm / "0" for arm in ("unfused", "fused"))
    before = run_dir.load(kept / "1").record.ranks.job
    shutil.rmtree(lost)
    again = profkit(*repeated, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "recorded: 4 of 4 repetitions, 1 of them now" in again.stdout
    assert run_dir.load(kept / "1").record.ranks.job == before
    assert len({record.job for record in rank_records(lost)}) == 1
    other = profkit("capture", TOY, *arms, "--profiler", "dispatch", "-o", "session", cwd=tmp_path)
    assert other.returncode == 2
    assert "nproc was 2, now null" in other.stderr


@slow
def test_force_replaces_the_ranks_of_a_capture_and_nothing_else(tmp_path: Path) -> None:
    arguments = ("capture", TOY, *DISPATCH, "-o", "run")
    assert profkit(*arguments, cwd=tmp_path).returncode == 0
    first = rank_records(tmp_path / "run")
    assert profkit(*arguments, cwd=tmp_path).returncode == 2
    assert profkit(*arguments, "--force", cwd=tmp_path).returncode == 0
    assert rank_records(tmp_path / "run") != first
    (tmp_path / "run" / "notes.txt").write_text("mine")
    refused = profkit(*arguments, "--force", cwd=tmp_path)
    assert "is not a run directory, so --force will not replace it" in refused.stderr


@slow
def test_under_torchrun_one_process_captures_for_all(tmp_path: Path) -> None:
    arguments = ("capture", f"{FAULTY}:MEETS", "--profiler", "dispatch", "-o", "run")
    idle = profkit(*arguments, cwd=tmp_path, RANK="1", **TORCHRUN)
    assert (idle.returncode, idle.stdout) == (0, "rank 0's profkit captures all ranks\n")
    assert names(tmp_path) == []
    done = profkit(*arguments, cwd=tmp_path, RANK="0", MASTER_PORT="1", **TORCHRUN)
    assert done.returncode == 0, done.stderr
    assert [record.rank for record in rank_records(tmp_path / "run")] == [0, 1]


def test_another_number_of_processes_than_torchrun_started_is_refused(tmp_path: Path) -> None:
    arguments = ("capture", TOY, "--nproc", "3", "--profiler", "dispatch", "-o", "run")
    done = profkit(*arguments, cwd=tmp_path, RANK="0", **TORCHRUN)
    assert done.returncode == 2
    assert "--nproc 3, but torchrun started 2 processes" in done.stderr
    done = profkit(*arguments[:2], *arguments[4:], cwd=tmp_path, RANK="0", **{**TORCHRUN, "WORLD_SIZE": "4"})
    assert done.returncode == 2
    assert "torchrun started 4 ranks, 2 of them here" in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="shows what ranks under a profiler say without a CUDA device")
def test_every_rank_has_a_profiler_of_its_own_and_one_error_is_shown(tmp_path: Path) -> None:
    arguments = ("capture", TOY, "--profiler", "nsys", "--nproc", "2", "--no-floor", "-o", "run")
    done = profkit(*arguments, cwd=tmp_path, PROFKIT_NSYS=str(STUB_NSYS))
    assert done.returncode == 2
    assert "of 2: torch" in done.stderr
    assert "finds no CUDA device here" in done.stderr
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--nproc", "0"], "--nproc 0: give a whole number of at least 1"),
        (["--nproc", "2", "--rank-timeout", "0"], "--rank-timeout 0: give a number of seconds"),
        (["--rank-timeout", "30"], "--rank-timeout belongs to several ranks: give --nproc too."),
        (["--nproc", "2", "--profiler", "rocprofv3"], "--profiler rocprofv3 does not go with --nproc"),
    ],
)
def test_options_that_cannot_be_are_refused(tmp_path: Path, options: list[str], message: str) -> None:
    done = profkit("capture", TOY, *options, "-o", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert names(tmp_path) == []


def test_a_ranks_environment_is_torchruns_without_what_a_torchrun_around_it_left() -> None:
    outer = {"RANK": "0", "MASTER_PORT": "1", "TORCHELASTIC_USE_AGENT_STORE": "True", "NCCL_NVLS_ENABLE": "0"}
    assert rank_environment(3, 8, 29500, outer) == {
        "RANK": "3",
        "LOCAL_RANK": "3",
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "8",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_NVLS_ENABLE": "0",
    }


def _never_built(_: BuildContext) -> Step:
    raise AssertionError


def test_shapes_may_have_other_defaults_among_several_processes() -> None:
    shapes = {"parts": Shape(8, ""), "rows": Shape(4, "")}
    workload = Workload("w", "", {"a": ""}, shapes, _never_built, job_shapes=lambda given, n: {"parts": n, **given})
    assert resolve_shapes(workload, ["rows=5"], 3) == {"parts": 3, "rows": 5}
    assert resolve_shapes(workload, ["parts=6"], 3) == {"parts": 6, "rows": 4}
    with pytest.raises(ProfkitError, match="no shape 'ranks'"):
        resolve_shapes(workload, ["ranks=6"], 3)
