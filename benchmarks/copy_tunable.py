"""A copy kernel to sweep, for checks of `profkit sweep` itself: the bytes that it moves say how long it takes.

profkit sweep benchmarks/copy_tunable.py:COPY --region all
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from profkit.model.workload import (
    BuildContext,
    Configuration,
    InputSet,
    Layer,
    Parameter,
    Problem,
    Scope,
    Shape,
    Step,
    Tunable,
    Workload,
)

#: What a workload without a sweep would launch.
DEFAULT = {"block": 1024, "warps": 4, "twin": 0}


@triton.jit
def copy_kernel(source_ptr, target_ptr, n, BLOCK: tl.constexpr):  # noqa: N803
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(target_ptr + offsets, tl.load(source_ptr + offsets, mask=inside), mask=inside)


def launch(source: torch.Tensor, target: torch.Tensor, configuration: Configuration) -> None:
    """Copy `source` to `target`, both of one dimension."""
    n, block = source.numel(), configuration["block"]
    copy_kernel[(triton.cdiv(n, block),)](source, target, n, BLOCK=block, num_warps=configuration["warps"])


def vectors(context: BuildContext) -> tuple[torch.Tensor, torch.Tensor]:
    """A random vector of ``size`` fp32 elements and one to copy it to."""
    generator = torch.Generator(context.device).manual_seed(context.seed)
    source = torch.randn(context.int_shape("size"), generator=generator, device=context.device)
    return source, torch.zeros_like(source)


def build_problem(context: BuildContext) -> Problem:
    """One copy."""
    source, target = vectors(context)
    return Problem(
        run=lambda configuration: launch(source, target, configuration),
        outputs=lambda: {"target": target},
        reference=lambda: {"target": source.clone()},
        poison=lambda: target.fill_(float("nan")),
        rejects=lambda configuration: (
            "fewer elements than threads" if configuration["block"] < 32 * configuration["warps"] else None
        ),
        known={"default": DEFAULT},
        least_bytes=2 * source.numel() * source.element_size(),
    )


def build_step(context: BuildContext) -> Step:
    """One layer with one copy."""
    source, target = vectors(context)

    def run(_: Scope) -> None:
        launch(source, target, DEFAULT)

    def refresh(_: InputSet) -> None:
        target.zero_()

    def outputs() -> Mapping[str, torch.Tensor]:
        return {"layers.0.copy/target": target}

    return Step([Layer(0, "copy", run)], refresh, outputs)


COPY = Workload(
    name="copy",
    summary="a copy of a vector",
    variants={"triton": "one Triton kernel"},
    shapes={"size": Shape(2 << 20, "fp32 elements")},
    build=build_step,
    tunable=Tunable(
        parameters={
            "block": Parameter((128, 256, 512, 1024, 2048, 4096, 8192), "elements a program copies"),
            "warps": Parameter((1, 2, 4, 8), "warps a program has"),
            "twin": Parameter((0,), "changes nothing: configurations that differ in it alone are equal"),
        },
        regions={"fits-l2": {"size": 2 << 20}, "beyond-l2": {"size": 62 << 20}},
        build=build_problem,
    ),
)
