"""A tunable workload for the CPU: a scaling in `chunks` parts, each doing its work `repeats` times over.

More repeats take longer, by a factor that is known. Some configurations are rejected, fail, or write wrong results.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

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

# What two cores share is no matter here, and torch's own threads make times scatter.
torch.set_num_threads(1)

#: Values of `chunks` that are no good, and what is wrong with them.
REJECTED, FAILING, LAZY, WRONG = 16, 32, 64, 128


def build_problem(context: BuildContext) -> Problem:
    """A vector of `size` elements on the CPU."""
    size = context.int_shape("size")
    generator = torch.Generator().manual_seed(context.seed)
    x = torch.randn(size, generator=generator)
    out = torch.zeros(size)

    def run(configuration: Configuration) -> None:
        chunks, repeats = configuration["chunks"], configuration["repeats"]
        if chunks == FAILING:
            raise RuntimeError("out of resource: shared memory in /home/somebody/kernel.py")
        if chunks == LAZY:
            return
        for _ in range(repeats):
            for source, target in zip(x.chunk(chunks), out.chunk(chunks), strict=True):
                torch.mul(source, 2.0, out=target)
        if chunks == WRONG:
            out[3] += 1.0

    def reference() -> Mapping[str, torch.Tensor]:
        return {"out": (x.double() * 2.0).float()}

    def rejects(configuration: Configuration) -> str | None:
        return "no room for 16 chunks" if configuration["chunks"] == REJECTED else None

    return Problem(
        run=run,
        outputs=lambda: {"out": out},
        reference=reference,
        poison=lambda: out.fill_(float("nan")),
        rejects=rejects,
        known={"slow": {"chunks": 1, "repeats": 60}, "fast": {"chunks": 1, "repeats": 40}},
        least_bytes=2 * 4 * size,
    )


def build_step(context: BuildContext) -> Step:
    """A step is not swept; it is here because a workload has one."""
    out = torch.zeros(context.int_shape("size"))

    def run(_: Scope) -> None:
        out.add_(1.0)

    def refresh(_: InputSet) -> None:
        out.zero_()

    return Step([Layer(0, "scale", run)], refresh, lambda: {"layers.0.scale/out": out})


SHAPES = {"size": Shape(20_000, "elements"), "other": Shape(1, "nothing")}
PARAMETERS = {
    "chunks": Parameter((1, 2), "parts of the vector"),
    "repeats": Parameter((40, 400), "times that the work is done"),
}

SCALE = Workload(
    name="scale",
    summary="a scaling",
    variants={"plain": "the only one"},
    shapes=SHAPES,
    build=build_step,
    tunable=Tunable(
        parameters=PARAMETERS,
        regions={"small": {"size": 20_000}, "large": {"size": 40_000}, "large-2": {"size": 50_000}},
        build=build_problem,
    ),
)
#: Offers nothing to sweep.
PLAIN = Workload("plain", "", {"plain": ""}, SHAPES, build_step)
