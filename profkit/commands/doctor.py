"""`profkit doctor`: which profilers can be used here, and what is wrong with the others."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from profkit.capture import profilers
from profkit.capture.device import driver_version, package_version, probe_torch
from profkit.capture.profilers import State
from profkit.errors import Exit


@dataclass(frozen=True)
class Diagnosis:
    """The profilers, best first, and the versions of what they stand on."""

    profilers: Sequence[State]
    versions: dict[str, str | None]
    devices: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        """Schema ``profkit.doctor/1``."""
        return {
            "schema": "profkit.doctor/1",
            "profilers": [asdict(state) for state in self.profilers],
            "versions": self.versions,
            "devices": list(self.devices),
        }


def diagnose() -> Diagnosis:
    """Look at this machine; tries each profiler as far as it can be without a GPU, and torch in a child process."""
    torch = probe_torch()
    return Diagnosis(
        profilers=[profilers.diagnose(profiler, torch) for profiler in profilers.PROFILERS],
        versions={
            "driver": driver_version(),
            "cuda": torch.cuda_version,
            "torch": torch.torch,
            "triton": torch.triton,
            "nvtx": package_version("nvtx"),
            "python": platform.python_version(),
        },
        devices=torch.devices,
    )


def doctor(output_format: str) -> tuple[str, Exit]:
    """Returns what to print and the exit status: an error only where no profiler is usable."""
    found = diagnose()
    usable = any(state.usable for state in found.profilers)
    text = json.dumps(found.to_dict(), indent=1, ensure_ascii=False) if output_format == "json" else as_text(found)
    return text, Exit.OK if usable else Exit.ERROR


def as_text(found: Diagnosis) -> str:
    """One line a profiler, then versions and devices."""
    lines = []
    for state in found.profilers:
        verdict = "usable" if state.usable else "not usable"
        lines.append(f"{state.name:<9} {verdict:<11} {state.version or '-':<16} {state.says}")
    versions = (f"{name} {version or 'none'}" for name, version in found.versions.items())
    lines.append(f"versions  {', '.join(versions)}")
    lines.append(f"devices   {', '.join(found.devices) if found.devices else 'none'}")
    return "\n".join(lines)
