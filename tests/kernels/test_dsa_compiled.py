"""The kernels as compiled for an H200, without one: that they compile, and how wide their stores and loads are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the kernels need torch")
pytest.importorskip("triton", reason="the kernels need triton")

ROOT = Path(__file__).parents[2]

#: Launches become compilations for compute capability 9.0; prints, for each, the kernel and its PTX memory accesses.
COMPILE = """
import json, re, torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature
from profkit.kernels.dsa.apply import apply_candidate_mask
from profkit.kernels.dsa.scores import block_scores
from profkit.kernels.dsa.select import select_candidate_blocks

TARGET = GPUTarget("cuda", 90, 32)
BACKEND = make_backend(TARGET)
found = []

def run(kernel, *args, grid, warmup, **options):
    bind = create_function_from_signature(kernel.signature, kernel.params, BACKEND)
    bound, specialization, options = bind(*args, **options)
    signature, constants, attributes = {}, {}, {}
    for index, (parameter, (kind, key)) in enumerate(zip(kernel.params, specialization)):
        signature[parameter.name] = kind
        if kind == "constexpr":
            constants[(index,)] = bound[parameter.name]
        elif isinstance(key, str):
            attributes[(index,)] = BACKEND.parse_attr(key)
    source = ASTSource(kernel, signature, constants, attributes)
    chosen = {name: value for name, value in options.items() if name == "num_warps"}
    compiled = triton.compile(source, target=TARGET, options=BACKEND.parse_options(chosen).__dict__)
    accesses = re.findall(r"(?:ld|st)\\.global[\\w.]*", compiled.asm["ptx"])
    found.append([kernel.fn.__name__, sorted(set(accesses))])

JITFunction.run = run
# So wide that rows may have to be cut down before their top-k.
logits = torch.zeros(4, 1 << 17)
candidates = torch.zeros(4, 2048, dtype=torch.int32)
for starts in (None, torch.zeros(4, dtype=torch.int64)):
    ends = torch.zeros(4, dtype=torch.int32)
    for form in ("full-width", "bounded"):
        select_candidate_blocks(logits, starts, ends, candidates, 8, form=form)
        apply_candidate_mask(logits, starts, ends, candidates, 8, form=form)
    apply_candidate_mask(logits, starts, ends, candidates, 8, form="live")
    apply_candidate_mask(logits, starts, ends, candidates, 8, form="one-kernel")
block_scores(torch.zeros(4, 8192), None, ends, torch.zeros(4, 1024), 8)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, list[str]]]:
    """Kernel and accesses of every launch, first without starts, then with, and last of scores of few columns.

    They are compiled in a process of their own.
    """
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    child = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    return [(name, accesses) for name, accesses in json.loads(child.stdout)]


def test_every_kernel_compiles_with_and_without_starts(compiled: list[tuple[str, list[str]]]) -> None:
    *names, last = [name for name, _ in compiled]
    assert last == "scores_live_kernel"
    half = len(names) // 2
    assert names[:half] == names[half:]
    assert set(names) == {
        *("scores_full_width_kernel", "scores_live_kernel", "store_candidates_kernel"),
        *("topk_cut_kernel", "topk_live_kernel"),
        *("flags_full_width_kernel", "flags_live_kernel"),
        *("mask_full_width_kernel", "mask_live_kernel", "flag_and_mask_kernel"),
    }


def test_masks_store_sixteen_bytes_where_blocks_are_aligned(compiled: list[tuple[str, list[str]]]) -> None:
    aligned = dict(compiled[: len(compiled) // 2])
    # Of mask_live_kernel the first is the bounded form's, the last the pull request's: one column a store.
    first = next(accesses for name, accesses in compiled if name == "mask_live_kernel")
    assert "st.global.v4.b32" in first
    assert "st.global.v4.b32" not in aligned["mask_live_kernel"]
    assert "st.global.v4.b32" in aligned["flag_and_mask_kernel"]


def test_flags_are_cleared_and_wholly_live_tiles_scored_sixteen_bytes_at_a_time(
    compiled: list[tuple[str, list[str]]],
) -> None:
    aligned = dict(compiled[: len(compiled) // 2])
    assert "st.global.v4.b32" in aligned["flags_live_kernel"]
    assert "ld.global.v4.b32" in aligned["scores_live_kernel"]
