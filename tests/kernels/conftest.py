"""Whether the kernels run on a GPU or in Triton's interpreter, decided once before triton is first imported.

With a CUDA device the kernels compile for it and every case runs there. Without one the interpreter runs their bodies
on the CPU: triton reads TRITON_INTERPRET when a kernel is decorated, so the variable is set here, at import, before any
test module of this folder imports a kernel. Where torch or triton is absent the modules skip themselves.

Tests elsewhere compile kernels in earnest, and one process cannot do both: this folder runs in a session of its own.
"""

from __future__ import annotations

import importlib.util
import os
import sys

import pytest

if importlib.util.find_spec("torch") is not None:
    import torch

    HAS_CUDA = torch.cuda.is_available()
else:
    HAS_CUDA = False

if not HAS_CUDA:
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise pytest.UsageError("Run tests/kernels in a session of its own: python -m pytest tests/kernels")
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if HAS_CUDA:
        return
    skip = pytest.mark.skip(reason="needs a CUDA device; a stated subset of these cases runs in Triton's interpreter")
    for item in items:
        if "kernels" in item.path.parts and "gpu" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def device() -> str:
    """Where the kernels run: the GPU, or the CPU under the interpreter."""
    return "cuda" if HAS_CUDA else "cpu"
