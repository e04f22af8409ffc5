"""`profkit doctor`: which profilers can be used here, and what is wrong with the others."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from profkit.capture import profilers
from profkit.capture.device import TorchProbe, driver_version, package_version, probe_torch
from profkit.errors import Exit, ProfkitError


def doctor(output_format: str) -> tuple[str, Exit]:
    """Returns what to print and the exit status: an error only where no profiler is usable."""
    found = diagnose()
    usable = any(state.usable for state in found.profilers.values())
    return found.as_json() if output_format == "json" else found.as_text(), Exit.OK if usable else Exit.ERROR


@dataclass(frozen=True)
class Diagnosis:
    """The profilers by name, best first, the versions of what they stand on, and the names of the devices."""

    profilers: Mapping[str, profilers.State]
    versions: Mapping[str, str | None]
    devices: list[str]

    def as_json(self) -> str:
        """Schema ``profkit.doctor/1``."""
        states = [{"name": name, **asdict(state)} for name, state in self.profilers.items()]
        content = {"schema": "profkit.doctor/1", "profilers": states, "versions": self.versions}
        return json.dumps({**content, "devices": self.devices}, indent=1, ensure_ascii=False)

    def as_text(self) -> str:
        """One line a profiler, then versions and devices."""
        lines = []
        for name, state in self.profilers.items():
            verdict = "usable" if state.usable else "not usable"
            lines.append(f"{name:<9} {verdict:<11} {state.version or '-':<16} {state.says}")
        versions = (f"{name} {version or 'none'}" for name, version in self.versions.items())
        lines.append(f"versions  {', '.join(versions)}")
        lines.append(f"devices   {', '.join(self.devices) or 'none'}")
        return "\n".join(lines)


def diagnose() -> Diagnosis:
    """Look at this machine: try each profiler as far as that goes, and torch in a child process."""
    torch = probe_torch()
    versions = {
        "driver": driver_version(),
        "cuda": torch.cuda_version,
        "torch": torch.torch,
        "triton": torch.triton,
        "nvtx": package_version("nvtx"),
        "python": platform.python_version(),
    }
    states = {profiler.name: _state(profiler, torch) for profiler in profilers.PROFILERS}
    return Diagnosis(states, versions, list(torch.devices))


def _state(profiler: type[profilers.Profiler], torch: TorchProbe) -> profilers.State:
    try:
        return profiler.find().state(torch)
    except ProfkitError as error:
        return profilers.State(False, None, str(error))
