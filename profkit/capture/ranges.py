"""Scopes: how a workload's named ranges reach a profiler, where it has no way of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any


def no_ranges(_name: str) -> nullcontext[None]:
    """A scope that marks nothing; for warm-up and for untraced runs."""
    return nullcontext()


@contextmanager
def torch_nvtx_range(name: str) -> Iterator[None]:
    """A range of torch's: nvtx, and roctx in ROCm builds."""
    import torch

    nvtx: Any = torch.cuda.nvtx  # not annotated
    nvtx.range_push(name)
    try:
        yield
    finally:
        nvtx.range_pop()
