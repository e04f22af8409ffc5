"""The ops of a trace as columns, and what is known of each before they are counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from profkit.attribution.ledger import Attribution
from profkit.census_model import Ints
from profkit.layers import Place
from profkit.steps import Steps
from profkit.trace import Trace


class PlacedOps:
    """The ops of `trace`, in its order.

    Args:
        places: for each scope of `attribution` what it says of layers.
        in_layer: for each op whether it is in a layer.
        canonical: recorded to canonical name.
    """

    def __init__(
        self,
        trace: Trace,
        attribution: Attribution,
        steps: Steps,
        places: Sequence[Place],
        in_layer: npt.NDArray[np.bool_],
        canonical: Mapping[str, str],
    ) -> None:
        self.trace, self.attribution, self.steps, self.places = trace, attribution, steps, places
        self.in_layer, self.canonical = in_layer, canonical
        self.start, self.end = trace.ops["start"].to_numpy(), trace.ops["end"].to_numpy()
        self.name = trace.ops["name"].cat.codes.to_numpy().astype(np.int64)
        self.names: list[str] = trace.ops["name"].cat.categories.tolist()
        self.op_kind = trace.ops["kind"].cat.codes.to_numpy()
        self.op_kinds: list[str] = trace.ops["kind"].cat.categories.tolist()

    def named(self, rows: Ints) -> pd.DataFrame:
        """Name, canonical name and kind of the ops at `rows`."""
        names = [self.names[c] for c in self.name[rows]]
        return pd.DataFrame(
            {
                "name": pd.Series(names, dtype=object),
                "canonical": pd.Series([self.canonical[n] for n in names], dtype=object),
                "op_kind": pd.Series([self.op_kinds[k] for k in self.op_kind[rows]], dtype=object),
            }
        )


def first_of(codes: npt.NDArray[np.int64], count: int) -> Ints:
    """The position at which each code occurs first."""
    first = np.empty(count, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first
