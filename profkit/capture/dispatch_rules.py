"""Which torch operators would launch GPU work, judged from the operator, its arguments and its result.

The judgement is about the operator, not about the kernels behind it: one operator may launch several kernels on a GPU
(a sort, a split-K product) and is still one dispatch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

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


def is_skippable_matmul(func: OpOverload) -> bool:
    """Whether `func` is a matrix product, whose values only matter when kernel bodies run."""
    return func._schema.name in _MATMULS


def is_users_own(func: OpOverload) -> bool:
    """Whether `func` is a custom operator, to be counted by what its implementation dispatches."""
    return func.namespace not in _BUILT_IN_NAMESPACES


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
        and _is_dense(source)
        and not (source.is_conj() or target.is_conj() or source.is_neg() or target.is_neg())
    )


def _strides(tensor: torch.Tensor) -> list[int]:
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1]


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill one block of memory, in any order of dimensions."""
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
