"""Ranks of one job: one sample together, side by side in the reports, their exchanges apart from their computing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bench import Bench, codes, profkit, run_record
from nsys_builder import Rows
from recording import step_recording

from profkit.comparison.compare import compare
from profkit.comparison.model import Comparison, Input
from profkit.counting import ranks
from profkit.model.census import KindCensus

NCCL = "combine/exchange/ncclDevKernel_SendRecv"
BEFORE, AFTER = (
    f"gemm:3000 combine/mask/fill:900 combine/pack:1300 {NCCL}:5000",
    f"gemm:3000 combine/pack:1300 {NCCL}:5000",
)


def record(rank: int, job: str = "a", *, world_size: int = 2, **more: Any) -> dict[str, Any]:
    """What run.json says of one rank."""
    shapes = {"exchange": "distributed", "ranks": world_size}
    return {
        "ranks": {"rank": rank, "world_size": world_size, "job": job, "backend": "nccl 2.28.9"},
        "workload": {"name": "w", "shapes": shapes},
        **more,
    }


def rows(layer: str, seed: int, **options: Any) -> Rows:
    """One rank's recording of 3 layers, 6 replays."""
    return step_recording([layer] * 3, replays=6, jitter_ns=6, seed=seed, **options).rows


def side(bench: Bench, label: str, *runs: tuple[Rows, Mapping[str, Any] | None]) -> Input:
    """Recordings with their run.json as one side."""
    first, *more = [bench.side(r, f"{label}/{i}", told) for i, (r, told) in enumerate(runs)]
    return replace(first, label=label, more=tuple(more))


def pool(bench: Bench, label: str, layer: str, jobs_of_it: int, *, ranks: int = 2) -> Input:
    """So many jobs of several ranks."""
    return side(
        bench,
        label,
        *(
            (rows(layer, 100 * job + rank), record(rank, f"{label}{job}", world_size=ranks))
            for job in range(jobs_of_it)
            for rank in range(ranks)
        ),
    )


def test_ranks_of_one_job_are_no_independent_runs(bench: Bench) -> None:
    comparison = compare(pool(bench, "before", BEFORE, 1), pool(bench, "after", AFTER, 1))
    assert comparison.samples == "replays"
    (said,) = [r.message for r in comparison.reasons if r.code == "replays-not-runs"]
    assert "one job a side, averaged over its ranks" in said
    assert compare(pool(bench, "before", BEFORE, 3), pool(bench, "after", AFTER, 3)).samples == "runs"


@pytest.mark.parametrize("jobs_a_side", [1, 3])
def test_copies_of_a_rank_add_no_certainty(bench: Bench, jobs_a_side: int) -> None:
    def compared(ranks: int) -> Comparison:
        sides = [
            side(
                bench,
                label,
                *(
                    (rows(layer, job), record(rank, f"{label}{job}", world_size=ranks))
                    for job in range(jobs_a_side)
                    for rank in range(ranks)
                ),
            )
            for label, layer in (("before", BEFORE), ("after", AFTER))
        ]
        return compare(sides[0], sides[1])

    one, four = compared(1), compared(4)
    for alone, together in zip(one.findings, four.findings, strict=True):
        numbers = [(f.delta, f.low, f.high, f.p) for f in (alone, together)]
        # Times are weighted and rounded to a nanosecond where runs are merged.
        assert np.allclose(numbers[0], numbers[1], atol=1.0, equal_nan=True)


def test_a_rank_counts_once_in_its_jobs_mean_whatever_its_number_of_replays(bench: Bench) -> None:
    def jobs_of(label: str, layer: str, slow_replays: int) -> Input:
        slow, fast = layer.replace("gemm:3000", "gemm:5000"), layer
        parts = []
        for job in range(2):
            for rank, (text, replays) in enumerate(((slow, slow_replays), (fast, 10 - slow_replays))):
                recorded = step_recording([text] * 3, replays=replays, seed=job).rows
                parts.append((recorded, record(rank, f"{label}{job}")))
        return side(bench, label, *parts)

    comparison = compare(jobs_of("before", BEFORE, 2), jobs_of("after", AFTER, 8))
    gemm = next(f for f in comparison.findings if f.row.name == "gemm")
    assert comparison.samples == "runs"
    assert gemm.row.ns_before / 3 / comparison.steps[0] == pytest.approx(4000, abs=2)
    assert gemm.delta == pytest.approx(0, abs=1)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)", True),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", True),
        ("c10d.alltoall_base_.default", True),
        ("_c10d_functional.all_reduce.default", True),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(…)", True),
        ("memcpy PtoP", True),
        ("memcpy DtoD", False),
        ("void at::native::reduce_kernel<512, 1, …>", False),
        ("nvjet_sm90_tst_64x32_64x16_4x2_h_bz_NNT", False),
        ("pack_kernel", False),
        ("gather_rows", False),
    ],
)
def test_collectives_are_told_by_name(name: str, is_one: bool) -> None:
    assert ranks.is_collective(name) is is_one


def chosen(bench: Bench, layer: str) -> KindCensus:
    return bench.count(step_recording([layer] * 2, replays=3).rows).chosen


def test_a_copy_in_the_exchange_stands_in_unless_the_exchange_was_real(bench: Bench) -> None:
    census = chosen(bench, "gemm:3000 combine/exchange/+DtoD:2000")
    assert ranks.shares(census, None).ns == {"compute": 18_000, "collective": 0, "stand-in": 12_000}
    assert ranks.shares(census, run_record(record(0))).ns == {"compute": 18_000, "collective": 12_000, "stand-in": 0}
    copied = run_record({"workload": {"name": "w", "shapes": {"exchange": "copy"}}})
    assert ranks.shares(census, copied).launches == {"compute": 6, "collective": 0, "stand-in": 6}


def test_waiting_is_what_a_collective_lasts_beyond_the_shortest_of_its_exchange(bench: Bench) -> None:
    # GIVEN two layers: in the first exchange rank 0 waits for 2 µs, in the second rank 1 for 3
    layers = [[f"gemm:3000 {NCCL}:{ns}" for ns in both] for both in ((7000, 4000), (5000, 7000))]
    censuses = [bench.count(step_recording(own, replays=3).rows).chosen for own in layers]
    assert ranks.waiting_ns(censuses, [run_record(record(rank)) for rank in (0, 1)]) == [3 * 2000, 3 * 3000]


def test_waiting_cannot_be_told_from_other_exchanges(bench: Bench) -> None:
    one, more = chosen(bench, f"gemm {NCCL}:10"), chosen(bench, f"gemm {NCCL}:10 {NCCL}:10")
    none = chosen(bench, "gemm")
    assert ranks.waiting_ns([one, more], [None, None]) is None
    assert ranks.waiting_ns([none, none], [None, None]) is None


def test_jobs_of_other_sizes_or_with_a_rank_missing_are_not_compared(bench: Bench) -> None:
    before = pool(bench, "before", BEFORE, 2)
    other = compare(before, pool(bench, "after", AFTER, 2, ranks=3))
    assert (other.verdict, "other-ranks" in codes(other)) == ("inconclusive", True)
    after = pool(bench, "after", AFTER, 2)
    lost = compare(before, replace(after, more=after.more[:-1]))
    assert (lost.verdict, "other-ranks" in codes(lost)) == ("inconclusive", True)
    first, second = (replace(s, more=s.more[1:2]) for s in (before, after))
    assert compare(first, second).verdict != "inconclusive" or "other-ranks" not in codes(compare(first, second))


def with_silent_nodes(layer: str, *, silent: int, scope: str = "exchange") -> Rows:
    """A recording in which each layer's exchange captured so many more nodes, which no replay runs."""
    extra = " ".join([f"combine/{scope}/event"] * silent)
    recording = step_recording([f"{layer} {extra}"] * 3, replays=6)
    recording.rows.kernels[:] = [k for k in recording.rows.kernels if k.name != "event"]
    return recording.rows


def test_nodes_that_nccl_captures_beside_its_kernels_forbid_nothing_where_both_sides_have_them(bench: Bench) -> None:
    equal = bench.diff(with_silent_nodes(BEFORE, silent=2), with_silent_nodes(AFTER, silent=2))
    assert "nodes-without-ops" not in codes(equal)
    assert equal.net is not None
    assert equal.net.launches_per_layer == -1
    # A launch that only one side lost would look removed, and so would one outside the exchanges.
    for before, after in (
        (with_silent_nodes(BEFORE, silent=2), with_silent_nodes(AFTER, silent=3)),
        (with_silent_nodes(BEFORE, silent=1, scope="pack"), with_silent_nodes(AFTER, silent=1, scope="pack")),
    ):
        lost = bench.diff(before, after)
        assert (lost.verdict, codes(lost)[0]) == ("inconclusive", "nodes-without-ops")


def digests(**outputs: str) -> dict[str, Any]:
    named = {f"layers.{i}/{name}": value for i in range(8) for name, value in outputs.items()}
    return {"digests": {"outputs": named, "notes": {}}}


def test_outputs_are_compared_rank_by_rank(bench: Bench) -> None:
    def ranks(label: str, layer: str, first: str, second: str) -> Input:
        told = [record(rank, label, **digests(out=value)) for rank, value in enumerate((first, second))]
        return side(bench, label, *((rows(layer, rank), told[rank]) for rank in range(2)))

    before = ranks("before", BEFORE, "x", "y")
    assert compare(before, ranks("after", AFTER, "x", "y")).work == "preserved"
    swapped = compare(before, ranks("after", AFTER, "y", "x"))
    assert swapped.work == "unknown"
    assert any("rank 0: layers.0/out" in reason.message for reason in swapped.reasons)


def test_repetitions_of_a_rank_that_disagree_tell_nothing(bench: Bench) -> None:
    told = [record(rank, job, **digests(out=f"{rank}{job}")) for job in "ab" for rank in range(2)]
    before = side(bench, "before", *((rows(BEFORE, i), own) for i, own in enumerate(told)))
    after = side(bench, "after", *((rows(AFTER, i), own) for i, own in enumerate(told)))
    assert "digests-not-reproducible" in codes(compare(before, after))


def test_the_untraced_step_of_a_job_is_the_mean_over_its_ranks(bench: Bench) -> None:
    def timed(label: str, layer: str, *medians: float) -> Input:
        told = [record(rank, label, untraced={"median": median}) for rank, median in enumerate(medians)]
        return side(bench, label, *((rows(layer, rank), told[rank]) for rank in range(2)))

    untraced = compare(timed("before", BEFORE, 90.0, 110.0), timed("after", AFTER, 70.0, 80.0)).untraced
    assert untraced is not None
    assert (untraced.runs_before, untraced.runs_after, untraced.delta_us) == ((100.0,), (75.0,), -25.0)


def test_both_reports_show_the_ranks_side_by_side(bench: Bench) -> None:
    for arm, layer in (("eager", BEFORE), ("fused", AFTER)):
        for rank, slower in enumerate((0, 2000)):
            text = layer.replace("gemm:3000", f"gemm:{3000 + slower}").replace("5000", f"{7000 - slower}")
            (bench.directory / arm).mkdir(exist_ok=True)
            bench.run_directory(step_recording([text] * 3, replays=4).rows, f"{arm}/{rank}", **record(rank, arm))
    told = json.loads(profkit("layers", bench.directory / "eager", "--format", "json").stdout)
    assert [(run["run"], run["rank"]) for run in told["runs"]] == [("0", 0), ("1", 1)]
    (job,) = told["jobs"]
    assert (job["world_size"], job["exchange"]) == (2, "distributed")
    names = ("launches", "compute_us", "collective_us", "waiting_us")
    assert [tuple(rank[name] for name in names) for rank in job["ranks"]] == [(4, 5.2, 7.0, 2.0), (4, 7.2, 5.0, 0.0)]
    assert [job["average"][name] for name in names] == [4, 6.2, 6.0, 1.0]
    assert [job["skew"][name] for name in ("kernel_us", *names[1:])] == [0.0, 2.0, 2.0, 2.0]
    assert job["start_skew"]["us"] is None
    assert told["runs"][0]["selected"]["by_role"]["collective"] == {"launches": 1, "us": 7.0}

    arms = [bench.directory / arm for arm in ("eager", "fused")]
    diff = json.loads(profkit("diff", *arms, "--format", "json").stdout)
    assert [(r["rank"], r["before"]["compute_us"], r["after"]["compute_us"]) for r in diff["ranks"]] == [
        (0, 5.2, 4.3),
        (1, 7.2, 6.3),
    ]
    assert diff["roles"]["collective"] == {
        "launches_before": 1,
        "launches_after": 1,
        "us_before": 6.0,
        "us_after": 6.0,
    }
    for text_format in ("text", "md"):
        layers = profkit("layers", bench.directory / "eager", "--format", text_format).stdout
        assert "2 ranks of one job, exchange: distributed" in layers
        assert "cannot be told" in layers
        printed = " ".join(profkit("diff", *arms, "--format", text_format).stdout.split())
        assert "Rank 1: 4 → 3 launches a layer; compute 7.20 → 6.30 µs; collectives 5.00 → 5.00 µs" in printed
        assert "2 ranks" in printed
