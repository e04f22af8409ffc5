"""The highest rates at which this device reads, writes and copies: the best of several ways each, and which it was."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

#: Far larger than any L2 cache.
_BYTES = 1 << 30
#: Elements a program; 16 bytes a thread in each access, four of them.
_TILE = 4096
_WARPS = 8


@triton.jit  # type: ignore[untyped-decorator]
def _fill_kernel(target_ptr: tl.tensor, TILE: tl.constexpr) -> None:  # noqa: N803
    position = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    tl.store(target_ptr + position, tl.full([TILE], float("-inf"), tl.float32))


@triton.jit  # type: ignore[untyped-decorator]
def _read_kernel(source_ptr: tl.tensor, sums_ptr: tl.tensor, TILE: tl.constexpr) -> None:  # noqa: N803
    position = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    tl.store(sums_ptr + tl.program_id(0), tl.sum(tl.load(source_ptr + position), axis=0))


@triton.jit  # type: ignore[untyped-decorator]
def _copy_kernel(source_ptr: tl.tensor, target_ptr: tl.tensor, TILE: tl.constexpr) -> None:  # noqa: N803
    position = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    tl.store(target_ptr + position, tl.load(source_ptr + position))


def best_rates(median_us: Callable[[Callable[[], object]], float]) -> dict[str, tuple[float, str]]:
    """Bytes a second and the way that reached them: "fill" (written), "read", and "copy" (read plus written).

    Args:
        median_us: times a call on the current stream.
    """
    source = torch.zeros(_BYTES // 4, dtype=torch.float32, device="cuda")
    target = torch.empty_like(source)
    programs = source.numel() // _TILE
    sums = torch.empty(programs, dtype=torch.float32, device="cuda")
    as_bytes = target.view(torch.uint8)
    launch = {"TILE": _TILE, "num_warps": _WARPS}
    ways: dict[str, tuple[int, dict[str, Callable[[], object]]]] = {
        "fill": (
            _BYTES,
            {
                "torch zero_ of bytes": as_bytes.zero_,
                "torch fill_ of fp32": lambda: target.fill_(float("-inf")),
                "16-byte stores": lambda: _fill_kernel[(programs,)](target, **launch),
            },
        ),
        "read": (
            _BYTES,
            {
                "torch sum of fp32": source.sum,
                "16-byte loads": lambda: _read_kernel[(programs,)](source, sums, **launch),
            },
        ),
        "copy": (
            2 * _BYTES,
            {
                "torch copy_": lambda: target.copy_(source),
                "16-byte loads and stores": lambda: _copy_kernel[(programs,)](source, target, **launch),
            },
        ),
    }
    best: dict[str, tuple[float, str]] = {}
    for task, (moved_bytes, calls) in ways.items():
        best[task] = max((moved_bytes / (median_us(call) * 1e-6), way) for way, call in calls.items())
    return best
