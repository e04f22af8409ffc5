"""What `profkit doctor` finds: each profiler, whether it can be used here, and how to mend it where it cannot."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profkit.capture import nsys, process, rocprofv3
from profkit.capture.device import package_version
from profkit.capture.probe import TorchProbe, probe_torch
from profkit.capture.record import driver_version
from profkit.errors import ProfkitError


@dataclass(frozen=True)
class ProfilerState:
    """One profiler.

    Args:
        name: as for ``--profiler``.
        usable: whether `profkit capture` can use it here.
        version: its version, None where it is not there.
        says: what it gives, or what is wrong and how to mend it.
    """

    name: str
    usable: bool
    version: str | None
    says: str


@dataclass(frozen=True)
class Diagnosis:
    """The profilers, best first, and the versions of what they stand on."""

    profilers: Sequence[ProfilerState]
    versions: dict[str, str | None]
    devices: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        """Schema ``profkit.doctor/1``."""
        return {
            "schema": "profkit.doctor/1",
            "profilers": [
                {"name": state.name, "usable": state.usable, "version": state.version, "says": state.says}
                for state in self.profilers
            ],
            "versions": self.versions,
            "devices": list(self.devices),
        }


def diagnose() -> Diagnosis:
    """Look at this machine; starts nsys once on a trivial program, and torch in a child process."""
    torch = probe_torch()
    return Diagnosis(
        profilers=(_nsys(torch), _rocprofv3(torch), _torch(torch), _dispatch(torch)),
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


def _no_device(torch: TorchProbe) -> str:
    if torch.problem is not None:
        return torch.problem
    if torch.cuda_version is None:
        return f"torch {torch.torch} is built without CUDA. Install a CUDA build of torch to capture workloads."
    return "torch finds no CUDA device. Check the driver with nvidia-smi, and CUDA_VISIBLE_DEVICES."


def _nsys(torch: TorchProbe) -> ProfilerState:
    try:
        found = nsys.find()
    except ProfkitError as error:
        return ProfilerState("nsys", False, None, str(error))
    try:
        _try_nsys(found)
    except ProfkitError as error:
        return ProfilerState("nsys", False, found.version, str(error))
    if not torch.cuda:
        says = f"nsys itself works, for `profkit capture -- CMD`; workloads cannot run here: {_no_device(torch)}"
        return ProfilerState("nsys", False, found.version, says)
    return ProfilerState("nsys", True, found.version, f"exact layers for every launch; ranges by {found.nvtx_api}")


def _try_nsys(found: nsys.Nsys) -> None:
    """Record and export a program that does nothing.

    Raises:
        ProfkitError: as `profkit.capture.nsys.export` does.
    """
    with tempfile.TemporaryDirectory(prefix="profkit.") as name:
        work, log = Path(name), Path(name) / "log"
        process.run(nsys.profile_command(found, work / "trace", ["true"], window=False), log)
        nsys.export(found, [(work, log)])


def _rocprofv3(torch: TorchProbe) -> ProfilerState:
    try:
        found = rocprofv3.find()
    except ProfkitError as error:
        return ProfilerState("rocprofv3", False, None, str(error))
    if not torch.cuda or torch.cuda_version is not None:
        says = "rocprofv3 is here, for `profkit capture --profiler rocprofv3 -- CMD`; workloads cannot run under it: "
        says += torch.problem or f"torch {torch.torch} finds no AMD GPU. Install a ROCm build of torch."
        return ProfilerState("rocprofv3", False, found.version, says)
    says = f"ranges by roctx, {found.output_format} files; not tried by the project on AMD hardware"
    return ProfilerState("rocprofv3", True, found.version, says)


def _torch(torch: TorchProbe) -> ProfilerState:
    if not torch.cuda:
        return ProfilerState("torch", False, torch.torch, _no_device(torch))
    return ProfilerState("torch", True, torch.torch, "layers by the order of the captured launches")


def _dispatch(torch: TorchProbe) -> ProfilerState:
    if torch.problem is not None:
        return ProfilerState("dispatch", False, None, torch.problem)
    says = "counts launches on the CPU, without times"
    if torch.triton is None:
        says += "; triton is not installed, so workloads with Triton kernels cannot be built"
    return ProfilerState("dispatch", True, torch.torch, says)
