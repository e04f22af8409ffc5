"""run.json by the fields that docs/run-directory.md lists; unknown ones stay behind."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from profkit.model.run import RunRecord
from profkit.scrub.kept_fields import (
    Field,
    each,
    either,
    flag,
    mapping,
    matching,
    number,
    record,
    scalar,
    text,
    version,
)

_QUARTILES = record(dict.fromkeys(("median", "p25", "p75", "count"), number))
_PER_KERNEL = record(dict.fromkeys(("untraced_per_node", "traced_duration", "traced_gap"), _QUARTILES))
_MESSAGE = record({"code": matching(r"[a-z][a-z0-9-]{0,60}"), "message": text})
_PROFILER_NAME = matching(r"nsys|rocprofv3|torch|dispatch|torch\.profiler|Nsight Systems")
_SHA256 = matching(r"[0-9a-f]{64}")
#: The flags that profkit itself gives a profiler. Others are the user's, and may hold anything.
_ARGUMENT = matching(
    r"--(?:trace|cuda-graph-trace|sample|cpuctxsw|cuda-event-trace)=[a-z,:-]{1,40}"
    r"|--(?:kernel|marker|hip|memory-copy|runtime|scratch-memory|rccl)-trace|--hip-runtime-trace|--run-bodies"
    r"|--output-format|csv|json|rocpd"
)

_STEP_TIMES = record(
    {
        "unit": matching("us"),
        "method": text,
        **dict.fromkeys(("replays", "median", "p25", "p75", "min", "max"), number),
        "samples": each(number),
    }
)

_FIELDS: Mapping[str, Field] = {
    "created": matching(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    "profkit": version,
    "commit": matching(r"[0-9a-f]{7,64}(?:-dirty)?"),
    "trace": text,
    "files": each(text),
    "trace_sha256": mapping(_SHA256),
    "workload": record(
        {
            "name": text,
            "variant": text,
            "shapes": mapping(either(number, text)),
            "layers": number,
            "source": matching("shipped|file"),
        }
    ),
    "command": record({"program": text, "arguments": number}),
    "exit_code": number,
    "profiler": record(
        {
            "name": _PROFILER_NAME,
            "version": version,
            "graph_trace": matching("node|graph"),
            "ranges": matching(r"(?:nvtx|roctx|torch)[\w.]{0,40}(?: \d[\w.+]{0,20})?"),
            "arguments": each(_ARGUMENT),
        }
    ),
    "timed": flag,
    "device": record(
        {
            "name": text,
            "vendor": matching("nvidia|amd|none|cpu"),
            "count": number,
            "compute_capability": matching(r"\d{1,3}\.\d{1,3}|gfx[0-9a-f]{3,6}"),
            "multiprocessors": number,
            "memory_bytes": number,
        }
    ),
    "versions": record(dict.fromkeys(("driver", "cuda", "torch", "triton", "python"), version)),
    "seed": number,
    "warmup": number,
    "replays": number,
    "compiles": record({"before": number, "inside": each(record({"name": text, "seconds": number}))}),
    "digests": record(
        {
            "inputs": matching("digest"),
            "algorithm": matching("sha256"),
            "outputs": mapping(_SHA256),
            "notes": mapping(scalar),
            "references": record(
                {
                    "rtol": number,
                    "atol": number,
                    "outputs": mapping(record({"within": flag, "deviation": number, "reference": _SHA256})),
                }
            ),
        }
    ),
    "untraced": _STEP_TIMES,
    "graph_level": _STEP_TIMES,
    "untraced_digests_equal": flag,
    "floor": record(
        {
            "schema": matching(r"profkit\.floor/1"),
            "unit": matching("us"),
            "method": text,
            "device": text,
            "profiler": record({"name": _PROFILER_NAME, "version": version}),
            "empty": _PER_KERNEL,
            "load_store": _PER_KERNEL,
        }
    ),
    "ranks": record(
        {
            "rank": number,
            "world_size": number,
            "job": matching(r"[0-9a-f]{16}"),
            "backend": matching(r"(?:nccl|gloo)(?: \d[\d.]{0,20})?"),
        }
    ),
    "repetition": record({"arm": text, "pair": number, "sequence": number}),
    "set_aside": _MESSAGE,
    "warnings": each(_MESSAGE),
}


def scrubbed(run: RunRecord, trace_name: str, trace_sha256: Mapping[str, str]) -> RunRecord:
    """The record of a scrubbed run.

    Args:
        run: run.json.
        trace_name: the scrubbed trace, the only file beside it.
        trace_sha256: of that, from `profkit.runs.trace_digests.digests`.

    Returns:
        run.json of the copy. A field that does not hold what it is for is
        null. A profiler's arguments are kept for workloads alone and notes in words for shipped ones alone: others are
        the user's.
    """
    kept = {name: _FIELDS[name](value) for name, value in msgspec.to_builtins(run).items() if name in _FIELDS}
    if (kept.get("workload") or {}).get("source") != "shipped" and kept.get("digests") is not None:
        kept["digests"]["notes"] = mapping(either(number, flag))(kept["digests"].get("notes"))
    if kept.get("workload") is None and kept.get("profiler") is not None:
        kept["profiler"]["arguments"] = []
    kept |= {"trace": trace_name, "files": [trace_name], "trace_sha256": dict(trace_sha256)}
    return msgspec.convert(kept, RunRecord)
