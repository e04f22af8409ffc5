"""`profkit doctor`: which profilers can be used here, and what is wrong with the others."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict

from profkit.capture import profilers
from profkit.capture.device import TorchProbe, driver_version, package_version, probe_torch
from profkit.errors import Exit, ProfkitError


def doctor(output_format: str) -> tuple[str, Exit]:
    """Try each profiler as far as that goes, and torch in a child process.

    Returns:
        What to print, as JSON of schema ``profkit.doctor/1`` or a line a profiler, best first, and what they stand on;
        and the exit status, an error only where no profiler is usable.
    """
    torch = probe_torch()
    states = {profiler.name: _state(profiler, torch) for profiler in profilers.PROFILERS}
    versions = {
        "driver": driver_version(),
        "cuda": torch.cuda_version,
        "torch": torch.torch,
        "triton": torch.triton,
        "nvtx": package_version("nvtx"),
        "python": platform.python_version(),
    }
    status = Exit.OK if any(state.usable for state in states.values()) else Exit.ERROR
    if output_format == "json":
        found = [{"name": name, **asdict(state)} for name, state in states.items()]
        content = {"schema": "profkit.doctor/1", "profilers": found, "versions": versions}
        return json.dumps({**content, "devices": list(torch.devices)}, indent=1, ensure_ascii=False), status
    lines = [
        f"{name:<9} {'usable' if state.usable else 'not usable':<11} {state.version or '-':<16} {state.says}"
        for name, state in states.items()
    ]
    said = ", ".join(f"{name} {version or 'none'}" for name, version in versions.items())
    devices = ", ".join(torch.devices) or "none"
    return "\n".join([*lines, f"versions  {said}", f"devices   {devices}"]), status


def _state(profiler: type[profilers.Profiler], torch: TorchProbe) -> profilers.State:
    try:
        return profiler.find().state(torch)
    except ProfkitError as error:
        return profilers.State(False, None, str(error))
