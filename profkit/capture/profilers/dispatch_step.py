"""How the dispatch profiler counts: one step runs on the CPU, its operators and Triton launches caught on the way.

Which torch operators would launch GPU work is judged from the operator, its arguments and its result. The judgement is
about the operator, not about the kernels behind it: one operator may launch several kernels on a GPU (a sort, a split-K
product) and is still one dispatch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from profkit.capture.device import describe_versions
from profkit.capture.options import Job
from profkit.capture.record import of_step
from profkit.model.run import RunRecord
from profkit.model.workload import Step
from profkit.readers import DISPATCH_FILE
from profkit.readers.dispatch import Recording

#: Where a custom operator's implementation is registered, in the order of preference on a CPU.
_IMPLEMENTATION_KEYS = (DispatchKey.CPU, DispatchKey.CompositeExplicitAutograd)
#: Allocations, metadata and bookkeeping: no view by their schema, and still no GPU work.
_NO_LAUNCH = frozenset(
    {
        "aten::empty",
        "aten::empty_like",
        "aten::empty_permuted",
        "aten::empty_strided",
        "aten::new_empty",
        "aten::new_empty_strided",
        "aten::resize_",
        "aten::resize_as_",
        "aten::set_",
        "aten::_unsafe_view",
        "aten::_reshape_alias",
        "aten::lift",
        "aten::lift_fresh",
        "aten::detach",
        "aten::detach_",
        "aten::record_stream",
        "aten::_assert_async",
        "aten::_pin_memory",
        "_c10d_functional::wait_tensor",
        "_c10d_functional::_wrap_tensor_autograd",
    }
)
#: Operators of torch.distributed that move no data of the program.
_NO_COLLECTIVE = frozenset({"c10d::barrier", "c10d::monitored_barrier_"})
#: Operators that return no tensor and yet read one back from the GPU.
_READ_BACK = {"aten::_local_scalar_dense": "memcpy", "aten::equal": "kernel"}
#: Operators that copy their first tensor argument (for copy_: the second into the first) and may change its layout.
_COPIES = frozenset({"aten::copy_", "aten::clone", "aten::_to_copy"})
#: Products whose values nobody needs when kernel bodies are skipped; at model sizes they take a CPU minutes.
_MATMULS = frozenset({"aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::_scaled_mm"})
#: Operators of these namespaces are launches themselves; those of any other are a user's and made of others.
_BUILT_IN_NAMESPACES = frozenset({"aten", "prims", "c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem"})


def record_step(step: Step, *, run_bodies: bool) -> Recording:
    """Run the step, built for the CPU and refreshed, once and record what it dispatches."""
    recording = Recording()
    recorder = DispatchRecorder(recording, run_bodies=run_bodies)

    def launch(name: str, grid: tuple[int, int, int]) -> None:
        recording.launch(name, "kernel", "triton", grid)

    with torch.no_grad(), intercepted(launch, recorder.paused, run_bodies=run_bodies), recorder:
        step.run(recording.scope)
    return recording


def record(job: Job, step: Step) -> RunRecord:
    """Record the step and write the job's trace file.

    Outputs are real, and so digested, only where bodies run.
    """
    job.at("running the step")
    run_bodies = job.options.run_bodies
    step.refresh("digest" if run_bodies else "timing")
    recording = record_step(step, run_bodies=run_bodies)
    versions, file = describe_versions(), job.directory / DISPATCH_FILE
    recording.write(file, run_bodies=run_bodies, torch=versions.torch, triton=versions.triton)
    return of_step(job, step, "profkit", has_outputs=run_bodies)


class DispatchRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records each torch operator that would launch GPU work, and runs it on the CPU.

    Matrix products are only shaped, unless bodies run.
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
        if func.namespace not in _BUILT_IN_NAMESPACES:
            return self._custom(func, args, kwargs)
        skipped = not self._run_bodies and func._schema.name in _MATMULS
        result = self._shape_only(func, args, kwargs) if skipped else func(*args, **kwargs)
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

    def _shape_only(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if "out" in kwargs:
            return kwargs["out"]
        meta_args, meta_kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), (args, kwargs))
        shaped = func(*meta_args, **meta_kwargs)
        return torch.empty_strided(shaped.shape, shaped.stride(), dtype=shaped.dtype)


def launch_kind(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: object) -> str | None:
    """``kernel`` or ``memcpy`` where `func` would launch GPU work, None where it would not."""
    name = func._schema.name
    if func.is_view or name in _NO_LAUNCH or torch.Tag.inplace_view in func.tags:
        return None
    # The schema of a c10d collective does not say that it writes to its outputs.
    given = [*args, *kwargs.values()] if func.namespace == "c10d" and name not in _NO_COLLECTIVE else []
    produced = [*_tensors(result), *_mutated(func, args, kwargs), *_tensors(given)]
    if not produced:
        return _READ_BACK.get(name)
    if all(tensor.numel() == 0 for tensor in produced):
        return None
    if name in _COPIES:
        source = args[1] if name == "aten::copy_" else args[0]
        return "memcpy" if _is_plain_copy(source, produced[0]) else "kernel"
    return "kernel"


def _tensors(value: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _mutated(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterable[torch.Tensor]:
    """The tensors that `func` writes to, by its schema."""
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[index] if index < len(args) else kwargs.get(argument.name)
            yield from _tensors(given)


def _is_plain_copy(source: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether CUDA copies with one memcpy: same dtype, shape and layout, no gaps in either."""
    return (
        source.dtype == target.dtype
        and source.shape == target.shape
        and _strides(source) == _strides(target)
        # A new tensor like one keeps its strides where its elements fill one block of memory, in any order.
        and all(torch.empty_like(one, device="meta").stride() == one.stride() for one in (source, target))
        and not (source.is_conj() or target.is_conj() or source.is_neg() or target.is_neg())
    )


def _strides(tensor: torch.Tensor) -> list[int]:
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1]


@contextmanager
def intercepted(
    launch: Callable[[str, tuple[int, int, int]], None],
    around_body: Callable[[], AbstractContextManager[None]],
    *,
    run_bodies: bool,
) -> Iterator[None]:
    """Report every Triton launch in the block to `launch`, by name and grid before the body runs.

    An autotuned kernel is launched once, with its first configuration: nothing can be timed here. Bodies run in the
    context that `around_body` makes; they must have been compiled under TRITON_INTERPRET=1.
    """
    try:
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.interpreter import InterpretedFunction
        from triton.runtime.jit import JITFunction
    except ImportError:
        yield
        return

    run_interpreted = InterpretedFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        if warmup:
            return
        sizes = grid_sizes(self.fn, grid, args, kwargs)
        if 0 in sizes:
            return
        launch(self.fn.__name__, sizes)
        if run_bodies:
            with around_body():
                run_interpreted(self, *args, grid=grid, warmup=warmup, **kwargs)

    def run_first_configuration(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.fn.run(*args, **{**kwargs, **self.configs[0].all_kwargs()})

    saved = [(cls, cls.run) for cls in (JITFunction, InterpretedFunction, Autotuner)]
    JITFunction.run = run
    InterpretedFunction.run = run
    Autotuner.run = run_first_configuration
    try:
        yield
    finally:
        for cls, original in saved:
            cls.run = original


def grid_sizes(
    function: Callable[..., Any], grid: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[int, int, int]:
    """A launch's grid as three sizes; a callable grid is given the arguments of the kernel `function` by name.

    Launch options (num_warps and its like) are left out.
    """
    if callable(grid):
        signature = inspect.signature(function)
        own = {name: value for name, value in kwargs.items() if name in signature.parameters}
        bound = signature.bind(*args, **own)
        bound.apply_defaults()
        grid = grid({**kwargs, **bound.arguments})
    sizes = [int(size) for size in grid]
    padded = [*sizes, 1, 1]
    return padded[0], padded[1], padded[2]
