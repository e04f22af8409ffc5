"""What a launch in a layer is there for: computing, moving data between ranks, or standing in for that on one GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd

Role = Literal["compute", "collective", "stand-in"]
ROLES: Sequence[Role] = ("compute", "collective", "stand-in")

#: Kernels of NCCL and RCCL, of the custom all-reduces of serving engines, of NVSHMEM and DeepEP, and torch's operators.
#: More names than those of `readers.peers.needs_peers`, on purpose: here a name says what a launch in a layer is there
#: for, also where one process drives both devices or the kernel computes beside its exchange.
_COLLECTIVE = re.compile(
    r"nccl|rccl|nvshmem|deep_ep|mscclpp|\bc10d|_c10d_functional|cross_device_reduce|multimem|"
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|all2all|send_?recv|memcpy (?:PtoP|Peer)",
    re.IGNORECASE,
)
#: Ranges that mark an exchange between ranks: in anybody's run, and in one of a workload with a shape ``exchange``.
_EXCHANGE = re.compile(r"(?:^|/)exchange(?:/|$)")
_OWN_EXCHANGE = re.compile(r"(?:^|/)(?:exchange|gather|scatter)(?:/|$)")


def is_collective(name: str) -> bool:
    """Whether a launch of this recorded name moves data between ranks."""
    return _COLLECTIVE.search(name) is not None


def of_slots(slots: pd.DataFrame, record: Mapping[str, Any] | None) -> list[Role]:
    """The role of each launch slot.

    A name tells a collective. Other launches in a range of an exchange stand in for one, unless run.json says that the
    exchange was between processes: then they belong to it (a collective that the GPU's copy engines carry out).

    Args:
        slots: a census's, with the columns inside and name.
        record: run.json, None for a bare trace.
    """
    shapes = ((record or {}).get("workload") or {}).get("shapes") or {}
    range_of_exchange = _OWN_EXCHANGE if "exchange" in shapes else _EXCHANGE
    exchanged: Role = "collective" if shapes.get("exchange") == "distributed" else "stand-in"
    by_name = {name: is_collective(name) for name in pd.unique(slots["name"])}
    by_range = {inside: range_of_exchange.search(inside) is not None for inside in pd.unique(slots["inside"])}
    return [
        "collective" if by_name[name] else exchanged if by_range[inside] else "compute"
        for name, inside in zip(slots["name"], slots["inside"], strict=True)
    ]
