"""Annotation: what PyTorch wrote into the profiler's events of graph kernels when their graph was captured. Exact.

PyTorch 2.12 and later record names in capture (``torch.cuda.graph(enable_annotations=True)``, ``mark_kernels``), by
graph node, and put them into the arguments of the exported events; readers leave them in the column `ANNOTATION`.
"""

from __future__ import annotations

import numpy as np

from profkit.attribution.method import Context, Placement
from profkit.model.trace import ANNOTATION


def attribute(context: Context) -> Placement:
    """Place every op of a graph that has an annotation."""
    ops = context.trace.ops
    if ANNOTATION not in ops:
        return Placement.nothing(context)
    texts = ops[ANNOTATION].cat.categories.tolist()
    scopes = [context.scopes.intern(tuple(text.split("/"))) if text else 0 for text in texts]
    scope = np.array(scopes, dtype=np.int32)[ops[ANNOTATION].cat.codes.to_numpy()]
    placed = (scope != 0) & context.joined.by_graph
    return Placement(placed, np.where(placed, scope, 0).astype(np.int32))
