"""Whether a recording shows one process of several: collectives ran, and only one process is there.

Each profiler writes such files where it follows one process only, or where the others' output went to another file or
was overwritten (vllm#5132, rocm-systems#7472).
"""

from __future__ import annotations

import re

from profkit.model.trace import Diagnostic, Trace

#: Kernels of NCCL and RCCL, and the all-reduce kernels of vLLM, SGLang and TensorRT-LLM. Fewer names than those of
#: `roles.is_collective`, on purpose: here a name alone must prove that another process took part. A copy between two
#: devices, an operator of torch or a kernel that is called after a collective runs in one process too.
_NEEDS_PEERS = re.compile(
    r"\b(?:nccl|rccl)(?:Dev)?Kernel|cross_device_reduce|(?:one|two)shotAllReduceKernel", re.IGNORECASE
)
_ADVICE = {
    "nvidia": "nsys: record the launcher with --trace-fork-before-exec=true, or each worker with -o NAME_%p",
    "amd": "rocprofv3: record one file per process, -o NAME_%pid%",
}


def needs_peers(name: str) -> bool:
    """Whether an op of this recorded name cannot have run without another process."""
    return _NEEDS_PEERS.search(name) is not None


def missing_peers(trace: Trace) -> Diagnostic | None:
    """What to say of a trace whose ops have peers that it does not show; None where nothing hints at any."""
    ops = trace.ops
    names: list[str] = ops["name"].unique().tolist()
    if not any(needs_peers(name) for name in names):
        return None
    if ops[["process", "device"]].drop_duplicates().shape[0] > 1:
        return None
    advice = _ADVICE.get(trace.info.vendor, "record every rank")
    return Diagnostic(
        "one-of-several-processes",
        "Collectives ran, so other processes took part, and this file holds one of them. Give their files too, as "
        f"several runs; if there are none, they were not recorded or overwrote one another ({advice}).",
    )
