"""How often the pack kernel is compiled over a server's capture sizes: at most once per power of two of requests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

ROOT = Path(__file__).parents[2]
#: Powers of two from 2 to 128 bound the requests of capture sizes 2 to 104.
BOUND = 7
#: Dtype, heads, ranks, head dimension, whether the LSE's strides depend on the rows.
LAYOUTS = [
    ("bfloat16", 96, 8, 512, False),
    ("float16", 96, 8, 512, False),
    ("float32", 96, 8, 512, False),
    ("bfloat16", 96, 8, 512, True),
    ("bfloat16", 40, 8, 128, False),
    ("float16", 6, 2, 64, True),
]

COUNT_KEYS = """
import json, sys, torch
from profkit.kernels.dcp.specialisation import CAPTURE_SIZES, pack_keys
print(json.dumps([
    len(pack_keys(CAPTURE_SIZES, num_heads=heads, ranks=ranks, head_dim=dim,
                  dtype=getattr(torch, dtype), lse_heads_first=heads_first))
    for dtype, heads, ranks, dim, heads_first in json.loads(sys.argv[1])
]))
"""


def test_specialisation_keys_without_a_gpu() -> None:
    """In a process without TRITON_INTERPRET: interpreted kernels have no specialisation to count."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    child = subprocess.run(
        [sys.executable, "-c", COUNT_KEYS, json.dumps(LAYOUTS)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout) == [BOUND] * len(LAYOUTS)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: "-".join(map(str, layout)))
def test_compiled_kernels_on_a_gpu(layout: tuple[str, int, int, int, bool]) -> None:
    from profkit.kernels.dcp.pack import pack, pack_kernel
    from profkit.kernels.dcp.specialisation import CAPTURE_SIZES, pack_tensors

    dtype, num_heads, ranks, head_dim, heads_first = layout
    pack_kernel.device_caches.clear()
    for size in CAPTURE_SIZES:
        pack(*pack_tensors(size, num_heads, ranks, head_dim, getattr(torch, dtype), "cuda", heads_first))
    torch.cuda.synchronize()
    compiled = pack_kernel.device_caches[torch.cuda.current_device()][0]
    assert len(compiled) == BOUND
