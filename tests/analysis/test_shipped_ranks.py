"""The recorded runs of two ranks in `traces/`: seven jobs of the DCP combine a side, one of its AG+RS form, and one of
`mla-step`.
"""

from __future__ import annotations

import json
import sqlite3
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bench import is_excerpt, profkit

TRACES = Path(__file__).parents[2] / "traces"
RANKS, LAYERS, REPLAYS = 2, 24, 10
ALL_TO_ALL, AG_RS, MLA = "dcp-combine-2gpu", "dcp-ag-rs-2gpu", "mla-step-2gpu"
PAIRS = {ALL_TO_ALL: 7, AG_RS: 1, MLA: 1}
#: The pages of docs/results that quote what the command prints.
PAGES = {ALL_TO_ALL: "dcp-two-gpus-h200.md", AG_RS: "dcp-two-gpus-h200.md", MLA: "mla-step-h200.md"}
#: Launches a layer that fusion removes, net.
EXPECTED = {ALL_TO_ALL: 8, AG_RS: 7, MLA: 8}
#: Outputs that a rank hashes: of the combine two a layer, of `mla-step` one a layer and the last hidden states.
DIGESTS = {ALL_TO_ALL: 48, AG_RS: 48, MLA: 25}
#: Launches of a layer as the workloads make them, of which collectives; those of the mask are what fusion removes.
LAUNCHES = {
    (ALL_TO_ALL, "eager"): (12, 1),
    (ALL_TO_ALL, "fused"): (4, 1),
    (AG_RS, "eager"): (12, 2),
    (AG_RS, "fused"): (5, 2),
    (MLA, "eager"): (22, 2),
    (MLA, "fused"): (14, 2),
}
#: Compute and collectives, µs a layer, means over the ranks; and the untraced step: what `profkit diff` said of these
#: runs when they were recorded, which the pages quote.
US = {
    (ALL_TO_ALL, "eager"): (23.36, 22.43, 1211.1),
    (ALL_TO_ALL, "fused"): (12.79, 22.51, 917.8),
    (AG_RS, "eager"): (20.26, 30.53, 1366.5),
    (AG_RS, "fused"): (11.12, 30.43, 1108.2),
    (MLA, "eager"): (390.26, 55.41, 10954.0),
    (MLA, "fused"): (377.90, 55.28, 10606.9),
}
WHEN = {"eager": "before", "fused": "after"}
workloads = pytest.mark.parametrize("workload", [ALL_TO_ALL, AG_RS, MLA])
arms = pytest.mark.parametrize("arm", ["eager", "fused"])


@cache
def diff(workload: str) -> dict[str, Any]:
    """JSON of the diff of both arms, which confirms that eight launches are gone."""
    result = profkit("diff", TRACES / workload, "--expect-removed", str(EXPECTED[workload]), "--format", "json")
    assert result.returncode == 0
    return dict(json.loads(result.stdout))


def rank_directories(workload: str, arm: str, rank: int) -> list[Path]:
    """The runs of a rank in all jobs of an arm."""
    found = sorted((TRACES / workload / arm).glob(f"{rank}" if PAIRS[workload] == 1 else f"*/{rank}"))
    assert len(found) == PAIRS[workload]
    return found


@cache
def replayed(trace: Path) -> tuple[int, int, int, int]:
    """Launches and nanoseconds of what the graph ran, NCCL's apart, by plain SQL: others, NCCL's, and their times."""
    kernels = "CUPTI_ACTIVITY_KIND_KERNEL AS k JOIN StringIds AS s ON s.id = k.demangledName"
    database = sqlite3.connect(f"file:{trace}?mode=ro", uri=True)
    rows = database.execute(
        f"SELECT s.value LIKE 'nccl%', count(*), sum(k.end - k.start) FROM {kernels} "
        "WHERE k.graphNodeId IS NOT NULL GROUP BY 1 ORDER BY 1"
    ).fetchall()
    database.close()
    (no, others, others_ns), (yes, collectives, collectives_ns) = rows
    assert (no, yes) == (0, 1)
    return others, collectives, others_ns, collectives_ns


@workloads
def test_the_fusion_is_confirmed_on_both_ranks(workload: str) -> None:
    data = diff(workload)
    assert (data["verdict"], data["work"]) == ("confirmed", "preserved")
    assert data["layers"] == {"before": LAYERS, "after": LAYERS}
    assert data["steps"] == dict.fromkeys(("before", "after"), PAIRS[workload] * RANKS * REPLAYS)
    assert [f["scope"] for f in data["removed"]] == ["combine/mask"] * 8
    assert {(f["launches_before"], f["launches_after"]) for f in data["removed"]} == {(1.0, 0.0)}
    totals = [LAUNCHES[workload, arm][0] for arm in ("eager", "fused")]
    assert [r["rank"] for r in data["ranks"]] == [0, 1]
    for rank in data["ranks"]:
        assert [rank[when]["launches"] for when in ("before", "after")] == totals
    assert data["net"]["launches_per_layer"] == totals[1] - totals[0]
    (equal,) = [reason["message"] for reason in data["reasons"] if reason["code"] == "digests-equal"]
    assert equal.startswith(f"All {RANKS * DIGESTS[workload]} output digests are equal")


@workloads
@arms
def test_collectives_are_named_and_apart_from_computing(workload: str, arm: str) -> None:
    data, when = diff(workload), WHEN[arm]
    launches, collectives = LAUNCHES[workload, arm]
    compute_us, collective_us, step_us = US[workload, arm]
    roles = {
        role: tuple(share[f"{what}_{when}"] for what in ("launches", "us")) for role, share in data["roles"].items()
    }
    assert roles["compute"] == (launches - collectives, pytest.approx(compute_us, abs=0.006))
    assert roles["collective"] == (collectives, pytest.approx(collective_us, abs=0.006))
    assert roles["stand-in"] == (0, 0)
    assert data["untraced"][f"{when}_us"] == pytest.approx(step_us, abs=0.06)
    exchanged = [f["short"] for s in ("changed", "unchanged") for f in data[s] if "nccl" in f["name"]]
    assert (
        exchanged
        == {
            ALL_TO_ALL: ["ncclDevKernel_SendRecv"],
            AG_RS: ["ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"],
            MLA: ["ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_SendRecv"],
        }[workload]
    )


@workloads
@arms
@pytest.mark.parametrize("rank", range(RANKS))
def test_a_ranks_sums_are_those_of_its_traces(workload: str, arm: str, rank: int) -> None:
    launches, collectives = LAUNCHES[workload, arm]
    per = LAYERS * REPLAYS
    traces = [replayed(directory / "trace.sqlite") for directory in rank_directories(workload, arm, rank)]
    assert {t[:2] for t in traces} == {((launches - collectives) * per, collectives * per)}
    others_us, collectives_us = (sum(t[i] for t in traces) / len(traces) / per / 1e3 for i in (2, 3))
    told = diff(workload)["ranks"][rank][WHEN[arm]]
    assert told["compute_us"] == pytest.approx(others_us, abs=1e-5)
    assert told["collective_us"] == pytest.approx(collectives_us, abs=1e-5)
    assert told["kernel_us"] == pytest.approx(others_us + collectives_us, abs=2e-5)
    assert 0 <= told["waiting_us"] < told["collective_us"]


def test_unpack_and_pack_are_what_else_changed_between_the_arms_of_the_all_to_all() -> None:
    data = diff(ALL_TO_ALL)
    assert data["samples"] == "runs"
    assert {f["short"]: round(f["us_delta"], 2) for f in data["changed"]} == {
        "pack_kernel": 0.14,
        "unpack_kernel": -0.15,
    }
    assert [f["absorbed_by"] for f in data["fusions"]] == ["pack_kernel"]
    assert "others-changed" in [reason["code"] for reason in data["reasons"]]
    assert round(data["net"]["us_per_layer"], 2) == -10.49


@pytest.mark.parametrize(("workload", "added"), [(AG_RS, ["mask_copy_kernel"]), (MLA, [])])
def test_one_job_a_side_compares_replays_and_says_so(workload: str, added: list[str]) -> None:
    data = diff(workload)
    assert (data["samples"], [f["short"] for f in data["added"]]) == ("replays", added)
    assert "replays-not-runs" in [reason["code"] for reason in data["reasons"]]


@workloads
@arms
def test_both_ranks_of_a_job_stand_side_by_side_and_are_complete(workload: str, arm: str) -> None:
    job_directory = TRACES / workload / arm / ("" if PAIRS[workload] == 1 else "0")
    data = json.loads(profkit("layers", job_directory, "--format", "json").stdout)
    (job,) = data["jobs"]
    assert (job["world_size"], job["exchange"], [r["rank"] for r in job["ranks"]]) == (RANKS, "distributed", [0, 1])
    assert {r["launches"] for r in job["ranks"]} == {LAUNCHES[workload, arm][0]}
    for run in data["runs"]:
        assert run["ledger"]["unattributed"] == run["ledger"]["set_aside"] == 0
        assert "one-of-several-processes" not in {w["code"] for w in run["warnings"]}
    one = json.loads(profkit("layers", job_directory / "1", "--format", "json").stdout)["runs"][0]
    assert "one-of-several-processes" in {w["code"] for w in one["warnings"]}


@workloads
def test_the_page_shows_what_the_command_prints(workload: str) -> None:
    page = (TRACES.parent / "docs" / "results" / PAGES[workload]).read_text(encoding="utf-8")
    shown = page.split(f"`profkit diff traces/{workload} --expect-removed {EXPECTED[workload]}`:\n\n```\n")[1].split(
        "```\n"
    )[0]
    printed = profkit("diff", TRACES / workload, "--expect-removed", str(EXPECTED[workload])).stdout
    assert is_excerpt(shown, printed)
