"""Recordings of one process of several: what is said where its peers' recordings are missing, given, or not told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bench import Bench, codes, profkit
from nsys_builder import Kernel, Rows
from recording import step_recording

import profkit as python_api
from profkit.comparison.compare import compare
from profkit.comparison.model import Comparison, Input
from profkit.counting import ranks
from profkit.counting.count import take_census
from profkit.counting.ranks import divided
from profkit.errors import ProfkitError
from profkit.readers.rows import needs_peers

ALONE = "one-of-several-processes"
NCCL = "combine/exchange/ncclDevKernel_SendRecv"
BEFORE, AFTER = (f"gemm:3000 combine/mask:900 {NCCL}:5000", f"gemm:3000 {NCCL}:5000")


def rows(layer: str = BEFORE, *, pid: int = 100, seed: int = 0) -> Rows:
    """One process's recording of 2 layers, 4 replays."""
    return step_recording([layer] * 2, replays=4, jitter_ns=6, seed=seed, pid=pid).rows


def record(rank: int, world_size: int = 2, job: str = "a") -> dict[str, Any]:
    """What run.json says of one rank."""
    return {
        "ranks": {"rank": rank, "world_size": world_size, "job": job, "backend": "nccl 2.28.9"},
        "workload": {"name": "w", "shapes": {"exchange": "distributed"}},
    }


def said_of(*paths: Path) -> list[bool]:
    """For each run of the layers report whether it is said to be alone."""
    runs = json.loads(profkit("layers", *paths, "--format", "json").stdout)["runs"]
    return [ALONE in {warning["code"] for warning in run["warnings"]} for run in runs]


def test_a_job_whose_ranks_are_all_given_is_complete(bench: Bench) -> None:
    (bench.directory / "job").mkdir()
    for rank in range(3):
        bench.run_directory(rows(pid=100 + rank), f"job/{rank}", **record(rank, 3))
    job = [bench.directory / "job" / str(rank) for rank in range(3)]
    assert said_of(bench.directory / "job") == [False] * 3
    assert said_of(*job[:2]) == [True] * 2
    assert said_of(job[1]) == [True]
    text = [profkit("layers", *paths).stdout for paths in (job, job[:2])]
    assert [f"[{ALONE}]" in printed for printed in text] == [False, True]


def test_a_rank_of_another_job_is_no_peer(bench: Bench) -> None:
    paths = [bench.run_directory(rows(pid=100 + i), f"{i}", **record(i, 2, f"job {i}")) for i in range(2)]
    assert said_of(*paths) == [True, True]


def test_a_rank_that_exchanges_with_itself_has_no_peers(bench: Bench) -> None:
    assert said_of(bench.run_directory(rows(), "itself", **record(0, 1))) == [False]


def test_bare_files_of_other_processes_are_peers(bench: Bench) -> None:
    one, other = (bench.path(rows(pid=pid)) for pid in (100, 101))
    assert said_of(one) == [True]
    assert said_of(one, other) == [False, False]
    # The same process twice: a second recording of it, or the same file under another name.
    assert said_of(one, bench.path(rows(pid=100, seed=1))) == [True, True]


def test_repeated_captures_of_one_process_are_no_peers(bench: Bench) -> None:
    told = {"workload": {"name": "w", "shapes": {}}}
    paths = [bench.run_directory(rows(pid=100 + i), f"{i}", **told) for i in range(2)]
    bare = [bench.path(rows(pid=pid)) for pid in (102, 103)]
    assert said_of(*paths, bare[0]) == [True] * 3
    assert said_of(*paths, *bare) == [True, True, False, False]


@pytest.mark.parametrize(
    ("name", "proves_peers"),
    [
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)", True),
        ("ncclKernel_AllReduce_RING_LL_Sum_half(ncclDevComm*, unsigned long, ncclWork*)", True),
        ("rcclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", True),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(…)", True),
        ("void tensorrt_llm::kernels::oneShotAllReduceKernel<__nv_bfloat16, 2, true>(…)", True),
        ("c10d.alltoall_base_.default", False),
        ("memcpy PtoP", False),
        ("fused_gemm_all_reduce", False),
    ],
)
def test_what_proves_peers_is_a_collective_and_not_every_collective_does(name: str, proves_peers: bool) -> None:
    assert needs_peers(name) is proves_peers
    assert ranks.is_collective(name)


def side(bench: Bench, label: str, *runs: tuple[Rows, Mapping[str, Any] | None]) -> Input:
    """Recordings with their run.json as one side."""
    first, *more = [bench.side(r, f"{label}/{i}", told) for i, (r, told) in enumerate(runs)]
    return replace(first, label=label, more=tuple(more))


def compared(bench: Bench, *ranks: int) -> Comparison:
    """These ranks of a job of two on either side."""
    before, after = (
        side(bench, label, *((rows(layer, pid=100 + rank, seed=rank), record(rank, job=label)) for rank in ranks))
        for label, layer in (("before", BEFORE), ("after", AFTER))
    )
    return compare(before, after)


def test_a_diff_says_so_where_a_rank_is_missing_and_only_there(bench: Bench) -> None:
    assert ALONE not in codes(compared(bench, 0, 1))
    alone = compared(bench, 1)
    assert codes(alone).count(ALONE) == 2  # of either side
    bare = [side(bench, label, (rows(layer), None)) for label, layer in (("before", BEFORE), ("after", AFTER))]
    assert ALONE in codes(compare(bare[0], bare[1]))


def bare(bench: Bench, label: str, layer: str, files: int) -> Input:
    return side(bench, label, *((rows(layer, pid=100 + i, seed=i), None) for i in range(files)))


@pytest.mark.parametrize("files", [1, 2])
def test_bare_files_with_collectives_may_be_ranks_of_one_job(bench: Bench, files: int) -> None:
    comparison = compare(bare(bench, "before", BEFORE, 2), bare(bench, "after", AFTER, files))
    (said,) = [r.message for r in comparison.reasons if r.code == "ranks-as-runs"]
    assert said.split(" hold ")[0] == " and ".join(["2 files of before", "2 files of after"][:files])
    assert "intervals are too narrow" in said


def test_nothing_is_said_of_files_that_hold_no_collective_or_whose_job_is_known(bench: Bench) -> None:
    without = [layer.replace(NCCL, "combine/exchange/copy") for layer in (BEFORE, AFTER)]
    assert "ranks-as-runs" not in codes(compare(bare(bench, "b", without[0], 2), bare(bench, "a", without[1], 2)))
    assert "ranks-as-runs" not in codes(compared(bench, 0, 1))


def test_a_file_that_holds_its_peers_is_a_job_of_its_own(bench: Bench) -> None:
    def jobs_of(label: str, layer: str) -> Input:
        runs = []
        for seed in range(2):
            for rank, trace in divided(bench.trace(rows(layer, seed=seed) + rows(layer, pid=101, seed=seed))):
                assert rank is not None
                own = msgspec.structs.replace(rank, job=f"{label}{seed}")
                runs.append(Input(f"{label}/{seed}/{rank.rank}", take_census(trace), rank=own))
        return replace(runs[0], more=tuple(runs[1:]), own=runs[0].label, label=label)

    comparison = compare(jobs_of("before", BEFORE), jobs_of("after", AFTER))
    assert not {"ranks-as-runs", ALONE} & set(codes(comparison))
    assert (comparison.samples, comparison.ranks) == ("runs", 2)


def test_ranks_of_one_file_are_counted_one_by_one_from_python(bench: Bench) -> None:
    both = bench.trace(rows() + rows(AFTER, pid=101))
    with pytest.raises(ProfkitError, match=r"holds 2 ranks. Count those of profkit.ranks"):
        python_api.census(both)
    per_layer = [len(python_api.census(rank).chosen.slots) // 2 for rank in python_api.ranks(both)]
    assert per_layer == [3, 2]


def test_broken_rows_of_one_rank_are_counted_once(bench: Bench) -> None:
    both = rows() + replace(rows(), kernels=[replace(k, device=1, correlation=None) for k in rows().kernels])
    both.kernels.append(Kernel("broken", 0, 0, device=1))
    assert [len(part.set_aside) for _, part in divided(bench.trace(both))] == [0, 1]


def test_of_ranks_with_unlike_numbers_of_steps_the_first_are_compared_and_that_is_said(bench: Bench) -> None:
    def job(label: str, layer: str, *replays: int) -> Input:
        recorded = [
            (step_recording([layer] * 2, replays=n, jitter_ns=6, pid=100 + rank).rows, record(rank, job=label))
            for rank, n in enumerate(replays)
        ]
        return side(bench, label, *recorded)

    result = compare(job("a", BEFORE, 4, 3), job("b", AFTER, 3, 3))
    said = [reason.message for reason in result.reasons if reason.code == "ranks-unlike-steps"]
    assert said == [
        "Ranks of a recorded 3 and 4 steps; the first 3 of each are compared, as if they were the same steps."
    ]
    assert {layer.removed for layer in result.layers} == {1.0}
