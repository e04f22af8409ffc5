"""Arguments of Kineto events that come along: keys whose values are numbers, and the few whose values are texts."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from profkit.scrub.kept_fields import Field, either, matching, number, text

#: Numbers, truth values and lists of them. Addresses, inputs' values and call stacks are not among them.
NUMBERS = frozenset(
    {
        *("correlation", "External id", "external id", "device", "context", "stream", "queued", "cid", "cbid"),
        *("grid", "block", "registers per thread", "shared memory", "blocks per SM", "warps per SM", "finished"),
        *("est. achieved occupancy %", "graph id", "graph node id", "bytes", "memory bandwidth (GB/s)", "kind"),
        *("Record function id", "Sequence number", "Fwd thread id", "Ev Idx", "Profiler Event Index", "Op count"),
        *("Trace iteration", "Python id", "Python parent id", "Python module id", "Input Dims", "Input Strides"),
        *("Device Id", "Device Type", "Bytes", "Total Allocated", "Total Reserved", "num_warps", "num_stages"),
    }
)
_COUNT = matching(r"\d{1,20}")
#: A HIP call's ``stream`` is a pointer, its ``bytes`` and ``kind`` are numbers in quotes.
TEXTS: Mapping[str, Field] = {
    "kernel": text,
    "kernel_name": text,
    "kernel_backend": matching("triton|aten|cutlass|ck|cpp"),
    "kind": either(number, matching(r"\d{1,3}|[HDP]to[HDP]|Dispatch (?:Kernel|Task)|CopyDevice\w{0,20}")),
    "stream": either(number, matching(r"0x[0-9a-f]{1,16}|\d{1,20}")),
    "bytes": either(number, _COUNT),
    "size": either(number, _COUNT),
    "correlation": either(number, _COUNT),
    "device": either(number, _COUNT),
}

_NUMERIC = re.compile(rb"[\[\]\d\s,.eE+-]+|true|false|null|\[(?:\s*(?:true|false|null)\s*,?)*\]")


def as_written(raw: msgspec.Raw) -> bool:
    """Whether the JSON text `raw` is a number, a truth value, or lists of such."""
    return _NUMERIC.fullmatch(bytes(raw)) is not None


def plain_text(raw: msgspec.Raw | None) -> str:
    """The text that the JSON text `raw` is; "" where it is none."""
    value = msgspec.json.decode(raw) if raw is not None else None
    return value if isinstance(value, str) else ""
