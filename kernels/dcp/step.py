"""Building a step of `dcp-combine`: its inputs, its buffers, and what each variant launches."""

from __future__ import annotations

from functools import partial

from profkit.kernels.dcp.combine import Collective, Combine, CombineBuffers, local_copy
from profkit.kernels.dcp.inputs import Inputs
from profkit.kernels.dcp.layout import buffer_shape, heads_per_rank
from profkit.model.workload import BuildContext, Step


def build_step(context: BuildContext, collective: Collective = local_copy) -> Step:
    """One step of `dcp-combine`; see `Inputs` for what it works on.

    Args:
        context: shapes, variant, device and seed.
        collective: the exchange; a real all-to-all on several GPUs.

    Raises:
        ProfkitError: an unknown variant, or shapes that do not fit together.
    """
    inputs = Inputs("dcp-combine", context)
    sizes = inputs.sizes
    combine = Combine("dcp-combine", context.variant, sizes.rows, inputs.metadata, collective)
    shape = buffer_shape(sizes.ranks, sizes.rows, sizes.heads, sizes.head_dim, sizes.dtype, combine.layout)
    buffers = [
        CombineBuffers(
            out=layer.out,
            lse=layer.lse,
            send=inputs.zeros(*shape),
            recv=inputs.zeros(*shape),
            result=inputs.zeros(sizes.rows, heads_per_rank(sizes.heads, sizes.ranks), sizes.head_dim),
        )
        for layer in inputs.layers
    ]
    runs = [partial(combine.run, buffers=layer) for layer in buffers]
    return inputs.step(runs, [layer.result for layer in buffers], combine.once)
