"""`Scope` implementations: how a workload's named ranges reach each profiler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.model.workload import no_ranges

if TYPE_CHECKING:
    from profkit.model.workload import Scope


@contextmanager
def _torch_nvtx_range(name: str) -> Iterator[None]:
    import torch

    nvtx: Any = torch.cuda.nvtx  # not annotated
    nvtx.range_push(name)
    try:
        yield
    finally:
        nvtx.range_pop()


@contextmanager
def _package_nvtx_range(name: str) -> Iterator[None]:
    import nvtx

    nvtx.push_range(name)
    try:
        yield
    finally:
        nvtx.pop_range()


@contextmanager
def _profiler_range(name: str) -> Iterator[None]:
    from torch.profiler import record_function

    with record_function(name):
        yield


def choose(recorder: str, nvtx_api: str) -> tuple[Scope, str]:
    """The scope for a recorder, and its name and version for run.json.

    Args:
        recorder: see `profkit.capture.options.Job`.
        nvtx_api: ``nvtx`` or ``torch.cuda.nvtx``; only for the ``nsys`` recorder. The package falls to
            torch.cuda.nvtx where it is not installed, and the returned name says so.

    Raises:
        ProfkitError: `recorder` pushes no ranges.
    """
    if recorder == "torch":
        return _profiler_range, "torch.profiler.record_function"
    if recorder == "untraced":
        return no_ranges, "none"
    if recorder == "rocprofv3":
        # ROCm builds of torch push roctx ranges under this name.
        return _torch_nvtx_range, "torch.cuda.nvtx"
    if recorder != "nsys":
        raise ProfkitError(f"The recorder {recorder} does not run on a GPU.")
    if nvtx_api == "nvtx":
        try:
            import nvtx
        except ImportError:
            return _torch_nvtx_range, "torch.cuda.nvtx"
        if nvtx.enabled():
            return _package_nvtx_range, f"nvtx {version('nvtx')}"
    return _torch_nvtx_range, "torch.cuda.nvtx"
