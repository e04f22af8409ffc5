"""What a worker says of the device and the software that it ran on; no host name, user or path."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any


def describe_device() -> dict[str, Any]:
    """The `device` field of run.json; a CPU where torch sees no GPU."""
    import torch

    if not torch.cuda.is_available():
        return {
            "name": "cpu",
            "vendor": "none",
            "count": 0,
            "compute_capability": None,
            "multiprocessors": None,
            "memory_bytes": None,
        }
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "name": properties.name,
        "vendor": "amd" if torch.version.hip else "nvidia",
        "count": torch.cuda.device_count(),
        "compute_capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
    }


def describe_versions() -> dict[str, str | None]:
    """The `versions` field of run.json but for the driver, which the parent asks for."""
    import torch

    return {
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "triton": package_version("triton"),
        "python": platform.python_version(),
    }


def package_version(name: str) -> str | None:
    """The installed version of a package, None where it is absent."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
