"""A user's own workload, as small as one can be: per layer a product, then a scaling that two variants do differently.

``unfused`` scales with three torch operators, ``fused`` with one Triton kernel, ``lossy`` does not scale at all.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from profkit.model.workload import BuildContext, InputSet, Layer, Scope, Shape, Step, Workload


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, x * 2.0 + 1.0, mask=mask)


def build(context: BuildContext) -> Step:
    """Layers that share one weight; inputs on the context's device."""
    rows, width, count = (context.int_shape(name) for name in ("rows", "width", "layers"))
    generator = torch.Generator().manual_seed(context.seed)
    weight = torch.randn(width, width, generator=generator).to(context.device)
    contents = {name: torch.randn(rows, width, generator=generator).to(context.device) for name in ("timing", "digest")}
    x = torch.empty(rows, width, device=context.device)
    products = [torch.empty(rows, width, device=context.device) for _ in range(count)]
    outputs = [torch.zeros(rows, width, device=context.device) for _ in range(count)]

    def refresh(inputs: InputSet) -> None:
        x.copy_(contents[inputs])

    def layer(number: int) -> Layer:
        def run(scope: Scope) -> None:
            product, out = products[number], outputs[number]
            with scope("gemm"):
                torch.mm(x, weight, out=product)
            with scope("scale"):
                if context.variant == "unfused":
                    out.copy_((product * 2.0).add_(1.0))
                elif context.variant == "fused":
                    n = product.numel()
                    scale_kernel[(triton.cdiv(n, 128),)](product, out, n, BLOCK=128)
                else:
                    out.copy_(product)

        return Layer(number, "toy", run)

    layers = [layer(number) for number in range(count)]

    def read_outputs() -> Mapping[str, torch.Tensor]:
        return {f"{layer.scope}/out": outputs[layer.number] for layer in layers}

    return Step(layers=layers, refresh=refresh, outputs=read_outputs, notes={"rows": rows})


TOY = Workload(
    name="toy",
    summary="a product and a scaling",
    variants={"unfused": "three operators", "fused": "one Triton kernel", "lossy": "no scaling"},
    shapes={
        "rows": Shape(4, "rows"),
        "width": Shape(32, "columns"),
        "layers": Shape(3, "layers"),
        "dtype": Shape("fp32", "only one", choices=("fp32",)),
    },
    build=build,
)
