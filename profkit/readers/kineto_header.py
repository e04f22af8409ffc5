"""What stands beside the events of a Kineto trace: base time, devices, rank, versions. Paths and users are not read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from profkit.errors import ProfkitError
from profkit.model.trace import Diagnostic

_AMD_KEYS = ("roctracer_version", "rocprofiler_version", "hip_runtime_version", "hip_driver_version")
_NVIDIA_KEYS = ("cupti_version", "cuda_runtime_version", "cuda_driver_version")
_TRACERS = {"cupti_version": "CUPTI", "roctracer_version": "roctracer", "rocprofiler_version": "rocprofiler"}


@dataclass(frozen=True)
class Header:
    """Identity facts of one file.

    Args:
        base_ns: nanoseconds to add to every event's time; 0 where the events are absolute.
        rank: of the process; None where nothing says it.
        vendor: ``nvidia`` or ``amd``; None where the header does not tell.
        profiler: name and the tracing library's version.
        devices: id and name of the devices that the process saw; names may be empty.
        notes: what was unreadable.
    """

    base_ns: int
    rank: int | None
    vendor: str | None
    profiler: str
    devices: Mapping[int, str]
    notes: tuple[Diagnostic, ...]

    def device_names(self, used: set[int]) -> dict[int, str]:
        """Names of the devices in `used`, or of all where that is empty.

        ROCm numbers devices otherwise in events than in the header; one name for all settles it.
        """
        names = {i: n for i, n in self.devices.items() if n and (i in used or not used)}
        kinds = set(self.devices.values()) - {""}
        if len(kinds) == 1:
            name = kinds.pop()
            names |= {i: name for i in used if i >= 0}
        return dict(sorted(names.items()))


def read_header(path: Path, raw: Mapping[str, msgspec.Raw]) -> Header:
    """The facts in the top-level values `raw`.

    Raises:
        ProfkitError: `baseTimeNanoseconds` is no integer.
    """
    values = {key: _value(text) for key, text in raw.items()}
    nested = values.get("metadata")
    for key, value in nested.items() if isinstance(nested, dict) else ():
        values.setdefault(key, value)
    base = values.get("baseTimeNanoseconds", 0)
    base = int(base) if isinstance(base, str) and base.lstrip("-").isdigit() else base
    if not isinstance(base, int) or abs(base) >= 1 << 62:
        raise ProfkitError(f"{path}: baseTimeNanoseconds is {base!r}, expected nanoseconds as an integer.")
    rank, notes = _rank(values.get("distributedInfo"))
    tracer = next((f"{name} {values[key]}" for key, name in _TRACERS.items() if key in values), None)
    devices = _devices(values.get("deviceProperties"))
    return Header(
        base_ns=base,
        rank=rank,
        vendor=_vendor(values),
        profiler=f"torch.profiler ({tracer})" if tracer else "torch.profiler",
        devices=devices,
        notes=notes,
    )


def _value(raw: msgspec.Raw) -> Any:
    return msgspec.json.decode(raw)


def _rank(info: Any) -> tuple[int | None, tuple[Diagnostic, ...]]:
    rank = info.get("rank") if isinstance(info, dict) else None
    if rank is None:
        return None, ()
    if isinstance(rank, str) and rank.isdigit():
        rank = int(rank)
    if isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0:
        return rank, ()
    return None, (
        Diagnostic("rank-unreadable", f"distributedInfo gives the rank as {rank!r}; it is taken as unknown."),
    )


def _vendor(values: Mapping[str, Any]) -> str | None:
    if any(key in values for key in _AMD_KEYS):
        return "amd"
    return "nvidia" if any(key in values for key in _NVIDIA_KEYS) else None


def _devices(properties: Any) -> dict[int, str]:
    if not isinstance(properties, list):
        return {}
    rows = [p for p in properties if isinstance(p, dict) and isinstance(p.get("id"), int)]
    return {p["id"]: p["name"] if isinstance(p.get("name"), str) else "" for p in rows}
