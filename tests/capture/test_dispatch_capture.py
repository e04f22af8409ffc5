"""`profkit capture --profiler dispatch` from the command line to the tables that attribution reads."""

from __future__ import annotations

import functools
import getpass
import hashlib
import json
import shutil
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from capture_cli import TOY, names, profkit

pytest.importorskip("torch", reason="the dispatch profiler runs torch operators")
pytest.importorskip("triton", reason="the workloads have Triton kernels")

from profkit.model.run import WorkloadRecord
from profkit.model.trace import Trace
from profkit.readers import dispatch
from profkit.runs import run_dir

Capture = Callable[..., run_dir.Run]


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """Captures by (workload, variant, options), each made once: every one starts two processes that import torch."""

    @functools.cache
    def make(workload: str, variant: str, *options: str) -> run_dir.Run:
        out = tmp_path_factory.mktemp("run") / variant
        arguments = ("capture", workload, "--variant", variant, "--profiler", "dispatch", *options, "-o", out)
        done = profkit(*arguments, cwd=out.parent)
        assert done.returncode == 0, done.stderr
        assert "not timed" in done.stdout
        return run_dir.load(out)

    return make


def per_scope(trace: Trace) -> Counter[str]:
    """Launches by the ranges that were open when their nodes were created, found here without profkit's attribution."""
    counts: Counter[str] = Counter()
    created = dict(zip(trace.nodes["node"], trace.nodes["created"], strict=True))
    ranges = trace.ranges.sort_values("start")
    for op in trace.ops.itertuples():
        at = created[op.node]
        around = ranges[(ranges["start"] < at) & (at < ranges["end"])]
        counts["/".join(map(str, around["text"]))] += 1
    return counts


def test_two_variants_differ_by_what_was_fused(capture: Capture) -> None:
    unfused = per_scope(dispatch.read(capture(TOY, "unfused").trace_path))
    fused = per_scope(dispatch.read(capture(TOY, "fused").trace_path))
    for layer in range(3):
        assert unfused[f"layers.{layer}.toy/gemm"] == fused[f"layers.{layer}.toy/gemm"] == 1
        assert unfused[f"layers.{layer}.toy/scale"] == 3
        assert fused[f"layers.{layer}.toy/scale"] == 1
    assert unfused.total() == 12
    assert fused.total() == 6


def test_the_shipped_workload_at_its_full_default_shapes(capture: Capture) -> None:
    eager = per_scope(dispatch.read(capture("dcp-combine", "eager").trace_path))
    fused = per_scope(dispatch.read(capture("dcp-combine", "fused").trace_path))
    for layer in range(24):
        inside = [sum(n for scope, n in c.items() if scope.startswith(f"layers.{layer}.mla")) for c in (eager, fused)]
        assert inside == [12, 4]
        assert eager[f"layers.{layer}.mla/combine/mask"] == 8
        assert fused[f"layers.{layer}.mla/combine/mask"] == 0
    assert eager.total() == 24 * 12
    assert fused.total() == 24 * 4


TINY_MLA_STEP = (
    *("rows=4", "requests=3", "heads=4", "ranks=2", "layers=2", "hidden=64", "context=16", "dtype=fp16"),
    *("q_lora=32", "kv_lora=16", "qk_nope=16", "qk_rope=16", "v_head=16"),
)


def test_a_whole_step_loses_eight_launches_a_layer_and_no_work_unless_the_mask_is_dropped(capture: Capture) -> None:
    options = ("--run-bodies", *(word for shape in TINY_MLA_STEP for word in ("--shape", shape)))
    eager, fused, dropped = (capture("mla-step", variant, *options) for variant in ("eager", "fused", "dropped"))
    before, after = (per_scope(dispatch.read(run.trace_path)) for run in (eager, fused))
    assert before - after == Counter({f"layers.{layer}.mla/combine/mask": 8 for layer in range(2)})
    parts = {"qkv": 4, "absorb": 2, "gather": 1, "attention": 1, "v_up": 1, "o_proj": 1}
    for layer in range(2):
        assert {part: after[f"layers.{layer}.mla/{part}"] for part in parts} == parts
    expected = eager.record.digests.outputs
    assert sorted(expected) == ["layers.0.mla/combined", "layers.1.mla/combined", "layers.1.mla/hidden"]
    assert fused.record.digests.outputs == expected
    assert all(dropped.record.digests.outputs[name] != digest for name, digest in expected.items())


def test_the_record_says_that_nothing_was_timed_or_computed(capture: Capture) -> None:
    run = capture(TOY, "fused", "--seed", "5", "--shape", "layers=2")
    assert run.record.timed is False
    assert run.record.untraced is None
    assert run.record.digests is None
    assert run.record.device.name == "cpu"
    assert run.record.seed == 5
    assert run.record.workload == WorkloadRecord(
        name="toy_workload.py:TOY",
        variant="fused",
        shapes={"rows": 4, "width": 32, "layers": 2, "dtype": "fp32"},
        layers=2,
        source="file",
    )
    assert run.record.files == ["dispatch.json"]
    assert run.record.trace_sha256 == {"dispatch.json": hashlib.sha256(run.trace_path.read_bytes()).hexdigest()}
    assert names(run.path) == ["dispatch.json", "run.json"]


def test_with_bodies_equal_work_gives_equal_digests_and_lost_work_does_not(capture: Capture) -> None:
    digests = {
        variant: capture(TOY, variant, "--run-bodies").record.digests.outputs
        for variant in ("unfused", "fused", "lossy")
    }
    assert sorted(digests["fused"]) == [f"layers.{layer}.toy/out" for layer in range(3)]
    assert digests["unfused"] == digests["fused"]
    assert all(digests["lossy"][name] != digest for name, digest in digests["fused"].items())


def test_running_bodies_does_not_change_the_counts(capture: Capture) -> None:
    skipped = json.loads(capture(TOY, "fused").trace_path.read_text())
    executed = json.loads(capture(TOY, "fused", "--run-bodies").trace_path.read_text())
    assert executed["ops"] == skipped["ops"]
    assert executed["ranges"] == skipped["ranges"]


def test_the_directory_and_the_output_name_neither_machine_nor_user(tmp_path: Path) -> None:
    done = profkit("capture", TOY, "--profiler", "dispatch", "-o", "run", cwd=tmp_path, SECRET_TOKEN="s3cr3t-t0ken")
    assert done.returncode == 0, done.stderr
    written = "".join(path.read_text() for path in (tmp_path / "run").iterdir()) + done.stdout + done.stderr
    for secret in ("s3cr3t-t0ken", str(tmp_path), str(Path(TOY).parent), str(Path.home()) + "/"):
        assert secret not in written
    for name in (socket.gethostname(), getpass.getuser()):
        assert f'"{name}"' not in written


def test_an_existing_directory_is_kept_without_force_and_replaced_with_it(tmp_path: Path, capture: Capture) -> None:
    arguments = ("capture", TOY, "--profiler", "dispatch", "-o", "run")
    shutil.copytree(capture(TOY, "fused").path, tmp_path / "run")
    before = (tmp_path / "run" / "run.json").read_text()
    refused = profkit(*arguments, "--variant", "lossy", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    assert (tmp_path / "run" / "run.json").read_text() == before
    replaced = profkit(*arguments, "--variant", "lossy", "--force", cwd=tmp_path)
    assert replaced.returncode == 0, replaced.stderr
    assert run_dir.load(tmp_path / "run").record.workload.variant == "lossy"
    assert names(tmp_path) == ["run"]


def test_variants_of_other_bits_are_judged_by_their_references(capture: Capture, tmp_path: Path) -> None:
    sizes = {"rows": 4, "rows_per_request": 2, "q_heads": 3, "head_dim": 16, "width": 131, "page": 16, "context": 160}
    shapes = [f"--shape={name}={value}" for name, value in {**sizes, "layers": 2, "dtype": "fp16"}.items()]
    default, sm_90, dropped = (
        capture("qsa-attention", variant, "--run-bodies", *shapes) for variant in ("default", "sm_90", "dropped")
    )
    assert default.record.digests.outputs != sm_90.record.digests.outputs
    assert [w.code for w in dropped.record.warnings] == ["outputs-off-reference"]

    kept = profkit("diff", default.path, sm_90.path, "--format", "json", cwd=tmp_path)
    lost = profkit("diff", default.path, dropped.path, "--format", "json", cwd=tmp_path)

    assert (kept.returncode, json.loads(kept.stdout)["work"]) == (0, "preserved")
    assert (lost.returncode, json.loads(lost.stdout)["work"]) == (1, "lost")
