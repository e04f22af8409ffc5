"""Which host API calls launch GPU work, by name, on CUDA and HIP."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: What CUPTI appends to a call's name: the API version, and the per-thread default stream's variants, in either order.
_ABI_SUFFIX = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")

#: Host functions run on the CPU, so they are no launch of GPU work.
_APIS: Mapping[str, re.Pattern[str]] = {
    "graph": re.compile(r"(?:cuda|cu|hip)GraphLaunch$"),
    "kernel": re.compile(r"(?:cuda|cu|hip|hipExt|hipDrv|hipModule|hipExtModule|hipHccModule)Launch(?!HostFunc)"),
    "memcpy": re.compile(r"(?:cuda|cu|hip|hipDrv)Memcpy"),
    "memset": re.compile(r"(?:cuda|cu|hip|hipDrv)Memset"),
}


def call_name(recorded: str) -> str:
    """`recorded` without its ABI suffix: ``cudaGraphLaunch_v10000`` is ``cudaGraphLaunch``."""
    return _ABI_SUFFIX.sub("", recorded)


def launch_api(recorded: str) -> str | None:
    """One of `profkit.model.trace.LAUNCH_APIS`, or None for a call that launches nothing."""
    name = call_name(recorded)
    return next((api for api, pattern in _APIS.items() if pattern.match(name)), None)
