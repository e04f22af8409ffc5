"""How far block sums and norms of equal work lie apart when its arithmetic is ordered and rounded otherwise.

Runs layers of a transformer on the CPU as eager code does (each operator's result rounded to the dtype, products
accumulated in float32) and in five other ways, and prints the largest difference of a row's sum and of its norm over
many rows, seeds and layers, in units of epsilon times the row's norm: what `profkit.comparison.outputs` calls k.

    python benchmarks/output_tolerance.py
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from torch import Tensor

from profkit.comparison.outputs import TOLERANCES

#: split: products of a quarter of K each, added last. reversed: K from its end. online: attention in tiles of keys.
#: wide: intermediates stay float32, as in a fused kernel. halves: two partial products, each rounded to the dtype.
VARIANTS = ("split", "reversed", "online", "wide", "halves")
HEADS = 8


def outputs(dtype: torch.dtype, variant: str, seed: int, layers: int, tokens: int, hidden: int) -> Iterator[Tensor]:
    """Attention's, the MLP's inner and the layer's own output of the last of `layers`, which feed one another.

    Of fp8 dtypes the same in bfloat16, quantised with a scale for each row.
    """
    work = torch.bfloat16 if dtype.itemsize == 1 else dtype
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(*shape, generator=generator) * scale).to(work)

    def rounded(x: Tensor) -> Tensor:
        return x if variant == "wide" else x.to(work).float()

    def product(a: Tensor, weight: Tensor) -> Tensor:
        b = weight.float()
        if variant == "split":
            return rounded(sum((a[..., i::4] @ b[i::4] for i in range(4)), torch.zeros(())))
        if variant == "reversed":
            return rounded(a.flip(-1) @ b.flip(0))
        if variant == "halves":
            half = hidden // 2
            return rounded(rounded(a[..., :half] @ b[:half]) + rounded(a[..., half:] @ b[half:]))
        return rounded(a @ b)

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5
        if variant != "online":
            return rounded(torch.softmax(scores, -1)) @ v
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        tiles = range(0, tokens, 16)
        summed = sum((rounded(weights[..., t : t + 16]) @ v[:, t : t + 16] for t in tiles), torch.zeros(()))
        return summed / sum((weights[..., t : t + 16].sum(-1, keepdim=True) for t in tiles), torch.zeros(()))

    def kept(x: Tensor) -> Tensor:
        whole = x.to(work)
        if work == dtype:
            return whole.double()
        scale = whole.float().abs().amax(-1, keepdim=True) / torch.finfo(dtype).max
        return (whole.float() / scale).to(dtype).float().double()

    x = random(tokens, hidden).float()
    for _ in range(layers):
        weights = [random(hidden, hidden, scale=hidden**-0.5) for _ in range(6)]
        gain = 1.0 + random(hidden, scale=0.1).float()
        normed = rounded(rounded(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)) * gain)
        q, k, v = (product(normed, w).reshape(tokens, HEADS, -1).transpose(0, 1) for w in weights[:3])
        attended = rounded(attention(q, k, v).transpose(0, 1).reshape(tokens, hidden))
        x = (x + product(attended, weights[3])).to(work).float()
        inner = rounded(torch.nn.functional.silu(product(x, weights[4])))
        x = (x + product(inner, weights[5])).to(work).float()
    yield from map(kept, (attended, inner, x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=512)
    known = [name for name in TOLERANCES if name != "float64"]
    parser.add_argument("--dtypes", nargs="+", choices=known, default=known)
    arguments = parser.parse_args()
    size = arguments.tokens, arguments.hidden
    print(f"torch {torch.__version__}; {size[0]} rows of {size[1]}, {arguments.seeds} seeds")
    print(f"{'dtype':>14} {'layers':>6}  k of the sum, k of the norm: {', '.join(VARIANTS)}")
    for name in arguments.dtypes:
        for layers in (1, 4, 16):
            worst = dict.fromkeys(VARIANTS, (0.0, 0.0))
            for seed in range(arguments.seeds):
                eager = list(outputs(getattr(torch, name), "eager", seed, layers, *size))
                for variant in VARIANTS:
                    for before, after in zip(
                        eager, outputs(getattr(torch, name), variant, seed, layers, *size), strict=True
                    ):
                        unit = TOLERANCES[name].epsilon * before.norm(dim=-1)
                        apart = (
                            ((before.sum(-1) - after.sum(-1)).abs() / unit).max(),
                            ((before.norm(dim=-1) - after.norm(dim=-1)).abs() / unit).max(),
                        )
                        worst[variant] = (
                            max(worst[variant][0], float(apart[0])),
                            max(worst[variant][1], float(apart[1])),
                        )
            cells = "  ".join(f"{sums:6.1f} {norms:5.1f}" for sums, norms in worst.values())
            print(f"{name:>14} {layers:>6}  {cells}", flush=True)


if __name__ == "__main__":
    main()
