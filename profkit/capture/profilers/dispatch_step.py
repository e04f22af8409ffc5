"""The dispatch profiler: counts the launches of one step on the CPU, without a GPU and without times."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from profkit.capture.device import describe_device, describe_versions
from profkit.capture.dispatch_rules import is_skippable_matmul, is_users_own, launch_kind
from profkit.capture.options import Job
from profkit.capture.outputs import against_references, digest_outputs
from profkit.capture.triton_intercept import intercepted
from profkit.model.workload import Step
from profkit.readers.dispatch_file import SCHEMA, Recording

#: Where a custom operator's implementation is registered, in the order of preference on a CPU.
_IMPLEMENTATION_KEYS = (DispatchKey.CPU, DispatchKey.CompositeExplicitAutograd)


class DispatchRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records each torch operator that would launch GPU work, and runs it on the CPU.

    Args:
        recording: takes the launches.
        run_bodies: compute matrix products too; they are only shaped otherwise.
    """

    def __init__(self, recording: Recording, *, run_bodies: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recording = recording
        self._run_bodies = run_bodies
        self._paused = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch's own switch; its guard against torch.compile would import the whole compiler, which takes 1.6 s."""
        return False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A block whose operators are not recorded: the interpreter's own copies around a Triton body."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._paused:
            return func(*args, **kwargs)
        if func._can_decompose():
            # Operators made of others arrive whole under inference mode; count what they are made of.
            with self:
                return func.decompose(*args, **kwargs)
        if is_users_own(func):
            return self._custom(func, args, kwargs)
        result = self._shape_only(func, args, kwargs) if self._skips(func) else func(*args, **kwargs)
        self._count(func, args, kwargs, result)
        return result

    def _count(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        kind = launch_kind(func, args, kwargs, result)
        if kind is not None:
            self._recording.launch(str(func), kind, "aten")

    def _custom(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run a custom operator; it counts itself only where its implementation dispatches nothing that counts."""
        before = len(self._recording.ops)
        key = next((key for key in _IMPLEMENTATION_KEYS if func.has_kernel_for_dispatch_key(key)), None)
        if key is None:
            result = func(*args, **kwargs)
        else:
            with self:
                result = func._op_dk(key, *args, **kwargs)
        if len(self._recording.ops) == before:
            self._count(func, args, kwargs, result)
        return result

    def _skips(self, func: OpOverload) -> bool:
        return not self._run_bodies and is_skippable_matmul(func)

    def _shape_only(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if "out" in kwargs:
            return kwargs["out"]
        meta_args, meta_kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), (args, kwargs))
        shaped = func(*meta_args, **meta_kwargs)
        return torch.empty_strided(shaped.shape, shaped.stride(), dtype=shaped.dtype)


def record_step(step: Step, *, run_bodies: bool) -> Recording:
    """Run the step once on the CPU and record what it dispatches.

    Args:
        step: built for the CPU, its inputs refreshed.
        run_bodies: execute Triton bodies and matrix products.
    """
    recording = Recording()
    recorder = DispatchRecorder(recording, run_bodies=run_bodies)

    @contextmanager
    def scope(name: str) -> Iterator[None]:
        recording.push(name)
        try:
            yield
        finally:
            recording.pop()

    def launch(name: str, grid: tuple[int, int, int]) -> None:
        recording.launch(name, "kernel", "triton", grid)

    with torch.no_grad(), intercepted(launch, recorder.paused, run_bodies=run_bodies), recorder:
        step.run(scope)
    return recording


def record(job: Job, step: Step) -> dict[str, Any]:
    """Record the step, write the job's trace file, and return the worker's result.

    Outputs are real, and so digested, only where bodies run.
    """
    job.at("running the step")
    step.refresh("digest" if job.options.run_bodies else "timing")
    recording = record_step(step, run_bodies=job.options.run_bodies)
    versions = describe_versions()
    content = {
        "schema": SCHEMA,
        "run_bodies": job.options.run_bodies,
        "torch": versions["torch"],
        "triton": versions["triton"],
        "ranges": recording.ranges,
        "ops": recording.ops,
    }
    Path(job.trace).write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
    return {
        "backend": "gloo" if job.world_size else None,
        "layers": len(step.layers),
        "notes": dict(step.notes),
        "ranges": "profkit",
        "compiles": {"before": 0, "inside": []},
        "compiles_watched": True,
        "digests": digest_outputs(step.outputs()) if job.options.run_bodies else None,
        "references": against_references(step.outputs(), step.references) if job.options.run_bodies else None,
        "device": describe_device(),
        "versions": versions,
    }
