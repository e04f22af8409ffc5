"""Compilations inside the window are seen: Triton's, for a GPU that need not be there, and torch.compile's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from capture_cli import environment

#: Many processes that import torch: `make test-all` runs them, `make test` does not.
pytestmark = pytest.mark.slow

pytest.importorskip("torch", reason="torch.compile is watched")
pytest.importorskip("triton", reason="Triton's compiler is watched")

# A file of its own, since Triton reads a kernel's source; a process of its own, so that no other test's settings count.
SCRIPT = """
import msgspec
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from profkit.capture.graph import CompileWatch

@triton.jit
def first_kernel(p, n):
    tl.store(p, n)

@triton.jit
def second_kernel(p, n):
    tl.store(p, n + 1)

def build(kernel):
    triton.compile(ASTSource(kernel, {"p": "*i32", "n": "i32"}), target=GPUTarget("cuda", 90, 32))

def dynamo(function):
    torch.compile(function, backend="eager")(torch.ones(2))

watch = CompileWatch()
build(first_kernel)
dynamo(lambda x: x + 1)
watch.open_window()
build(second_kernel)
build(first_kernel)
dynamo(lambda x: x + 2)
watch.close_window()
build(second_kernel)
print(msgspec.json.encode(watch.compiles).decode())
"""


def test_what_is_compiled_inside_the_window_is_named_and_timed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script],
        env=environment(TRITON_CACHE_DIR=str(tmp_path / "cache")),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    inside = {entry["name"]: entry["seconds"] for entry in seen["inside"]}
    assert [entry["name"] for entry in seen["inside"]] == ["second_kernel", "first_kernel", "torch.compile frame"]
    # The first kernel comes from the disk cache the second time.
    assert inside["second_kernel"] > inside["first_kernel"] >= 0
    assert inside["torch.compile frame"] > 0
    # After the window closes, what is compiled is no longer inside; it counts among the others.
    assert seen["before"] == 3
