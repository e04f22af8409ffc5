"""Writes SYNTHETIC rocprofv3 recordings that have the numbers of a public report; nothing in them was measured.

vllm-project/vllm#54889 gives, for Kimi-K3 on eight MI355X (24 MLA layers, decode), means over 5 ranks before and 6
after: 8 mask kernels of 35.00 µs together in every MLA layer are gone, pack takes 8.04 instead of 6.81 µs, and a step
takes 35.7 ms. Its traces are not public. This script writes traces with those means in rocprofv3's CSV format, one
process a rank; every other kernel, its name and its time are made up so that they fill the step. They show what profkit
makes of such numbers, and are no evidence about any hardware.

    python benchmarks/mi355x_reconstruction.py OUT
    profkit diff 'OUT/before/*' 'OUT/after/*' --layers '\\.mla$'
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: From the report.
STEP_NS = 35_700_000
MASK_NS = 4_375
PACK_NS = {"before": 6_810, "after": 8_040}
RANKS = {"before": 5, "after": 6}
MLA_LAYERS = 24

#: Made up: three layers of linear attention before each MLA layer, as hybrid models have them, and all other kernels.
LAYERS = 4 * MLA_LAYERS
MASK = ("arange", "searchsorted", "clamp", "less", "index", "equal", "or", "masked_fill")
REPLAYS = 4
GAP_NS = 500
EXPERTS_NS = 224_000
#: What a kernel lasts longer in one rank or replay than in the mean; each list adds up to 0, so that means are exact.
RANK_NS: Mapping[int, Sequence[int]] = {5: (-20, -10, 0, 10, 20), 6: (-25, -15, -5, 5, 15, 25)}
REPLAY_NS = (-6, -2, 2, 6)

DEVICE = "SYNTHETIC, after AMD Instinct MI355X"
NOTICE = """SYNTHETIC recordings, written by benchmarks/mi355x_reconstruction.py of profkit. Nothing here was measured.

Their means are those of vllm-project/vllm#54889 (Kimi-K3, eight MI355X, traces not public): 8 mask kernels of 35.00 µs
together in each of 24 MLA layers before and none after, pack 6.81 and 8.04 µs, a step of 35.7 ms; 5 ranks before, 6
after. All other kernels, names and times are made up.
"""

_KERNEL_COLUMNS = [
    "Kind",
    "Agent_Id",
    "Queue_Id",
    "Stream_Id",
    "Thread_Id",
    "Dispatch_Id",
    "Kernel_Id",
    "Kernel_Name",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
    "LDS_Block_Size",
    "Scratch_Size",
    "VGPR_Count",
    "Accum_VGPR_Count",
    "SGPR_Count",
    "Workgroup_Size_X",
    "Workgroup_Size_Y",
    "Workgroup_Size_Z",
    "Grid_Size_X",
    "Grid_Size_Y",
    "Grid_Size_Z",
]
_CALL_COLUMNS = ["Domain", "Function", "Process_Id", "Thread_Id", "Correlation_Id", "Start_Timestamp", "End_Timestamp"]
_AGENT_COLUMNS = ["Node_Id", "Logical_Node_Id", "Agent_Type", "Name", "Product_Name"]


@dataclass(frozen=True)
class Launch:
    """One kernel of the step: the ranges in which it was captured, outermost first, its name, and its mean duration."""

    scope: tuple[str, ...]
    name: str
    ns: int


def step(side: str) -> list[Launch]:
    """The step's kernels in order. The head outside the layers lasts what is missing to `STEP_NS` before."""
    layers = [launch for number in range(LAYERS) for launch in _layer(number, side)]
    before = [launch for number in range(LAYERS) for launch in _layer(number, "before")]
    # As many gaps as launches in layers: the head is one more launch.
    head_ns = STEP_NS - sum(launch.ns for launch in before) - GAP_NS * len(before)
    return [*layers, Launch(("head",), "gemm_head", head_ns)]


def _layer(number: int, side: str) -> Iterator[Launch]:
    if number % 4 < 3:
        layer = f"layers.{number}.linear"
        kernels = [("", "gemm_in", 40_000), ("attention", "linear_attention", 61_000), ("", "gemm_out", 17_300)]
    else:
        layer = f"layers.{number}.mla"
        mask = [("combine/mask", f"mask_{name}", MASK_NS) for name in MASK] if side == "before" else []
        kernels = [
            ("", "gemm_q_kv", 38_000),
            ("attention", "mla_decode", 96_000),
            *mask,
            ("combine/pack", "pack_kernel", PACK_NS[side]),
            ("combine/exchange", "all_to_all_kernel", 21_400),
            ("combine/unpack", "unpack_kernel", 5_200),
            ("", "gemm_out", 17_300),
        ]
    for inside, name, ns in [*kernels, ("experts", "fused_experts", EXPERTS_NS)]:
        yield Launch((layer, *filter(None, inside.split("/"))), name, ns)


@dataclass
class Rank:
    """One process under rocprofv3; its lists hold the rows of its files."""

    pid: int
    kernels: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    markers: list[dict[str, Any]] = field(default_factory=list)

    def call(self, function: str, start: int, end: int, correlation: int) -> None:
        """A HIP call."""
        self.calls.append(self._row("HIP_RUNTIME_API", function, start, end, correlation))

    def marker(self, text: str, start: int, end: int) -> None:
        """A roctx range."""
        self.markers.append(self._row("MARKER_CORE_API", text, start, end, 0))

    def _row(self, domain: str, function: str, start: int, end: int, correlation: int) -> dict[str, Any]:
        ids = {"Domain": domain, "Function": function, "Process_Id": self.pid, "Thread_Id": self.pid}
        return ids | {"Correlation_Id": correlation, "Start_Timestamp": start, "End_Timestamp": end}

    def kernel(self, name: str, start: int, end: int, correlation: int) -> None:
        """A dispatch on the one GPU of the process."""
        ids = {"Kind": "KERNEL_DISPATCH", "Agent_Id": "Agent 1", "Queue_Id": 1, "Stream_Id": 1, "Thread_Id": self.pid}
        sizes = {"Workgroup_Size_X": 256, "Workgroup_Size_Y": 1, "Workgroup_Size_Z": 1}
        sizes |= {"Grid_Size_X": 65_536, "Grid_Size_Y": 1, "Grid_Size_Z": 1}
        times = {"Start_Timestamp": start, "End_Timestamp": end}
        named = {"Dispatch_Id": len(self.kernels) + 1, "Kernel_Name": name, "Correlation_Id": correlation}
        self.kernels.append(ids | named | times | sizes)

    def write(self, directory: Path) -> None:
        """Write the process's files."""
        agents = [
            {"Node_Id": 0, "Logical_Node_Id": 0, "Agent_Type": "CPU", "Name": "host", "Product_Name": "a host"},
            {"Node_Id": 1, "Logical_Node_Id": 1, "Agent_Type": "GPU", "Name": "gfx950", "Product_Name": DEVICE},
        ]
        for name, columns, rows in (
            ("kernel_trace", _KERNEL_COLUMNS, self.kernels),
            ("hip_api_trace", _CALL_COLUMNS, self.calls),
            ("marker_api_trace", _CALL_COLUMNS, self.markers),
            ("agent_info", _AGENT_COLUMNS, agents),
        ):
            with (directory / f"{self.pid}_{name}.csv").open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, columns, restval=0, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)


def record(launches: Sequence[Launch], rank: int, ranks: int) -> Rank:
    """The capture of `launches` into a HIP graph, each in its ranges, and the graph's replays."""
    process = Rank(pid=70_000 + rank)
    now = 1_000_000_000 * (rank + 1)
    now = _capture(process, launches, now)
    for replay in range(REPLAYS):
        correlation = len(launches) + 1 + replay
        begun = now
        process.call("hipGraphLaunch", now + 1_000, now + 200_000, correlation)
        now += 300_000
        for launch in launches:
            ns = launch.ns + RANK_NS[ranks][rank] + REPLAY_NS[replay]
            process.kernel(launch.name, now, now + ns, correlation)
            now += ns + GAP_NS
        now += 100_000
        process.marker(f"replay.{replay}", begun, now - 50_000)
    return process


def _capture(process: Rank, launches: Sequence[Launch], now: int) -> int:
    """Launches that run nothing; a range opens where a launch's scope leaves that of the one before."""
    open_ranges: list[tuple[str, int]] = []

    def close(keep: int, at: int) -> None:
        while len(open_ranges) > keep:
            text, start = open_ranges.pop()
            process.marker(text, start, at + 10 * (10 - len(open_ranges)))

    for number, launch in enumerate(launches):
        shared = 0
        while shared < min(len(open_ranges), len(launch.scope)) and open_ranges[shared][0] == launch.scope[shared]:
            shared += 1
        close(shared, now)
        now += 1_000
        for depth, text in enumerate(launch.scope[shared:], shared):
            open_ranges.append((text, now + 10 * depth))
        process.call("hipModuleLaunchKernel", now + 200, now + 700, number + 1)
        now += 1_000
    close(0, now)
    return now + 1_000_000


def write(directory: Path) -> None:
    """Write both sides into `directory`, which must be new or empty, and a notice beside them."""
    for side, ranks in RANKS.items():
        (directory / side).mkdir(parents=True)
        for rank in range(ranks):
            record(step(side), rank, ranks).write(directory / side)
    (directory / "SYNTHETIC.txt").write_text(NOTICE, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {Path(sys.argv[0]).name} OUT")
    write(Path(sys.argv[1]))
