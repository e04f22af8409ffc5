"""The device and the software here, as a worker says them and as a parent finds them without importing torch.

No host name, user or path. ``python -m profkit.capture.device FILE`` is the child that is asked about torch.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import msgspec

from profkit.capture.process import describe_status, tail
from profkit.model.run import DeviceRecord, VersionsRecord

#: Importing torch on a cold file system can take a minute.
TIMEOUT_S = 180
#: Where no GPU is used.
CPU = DeviceRecord(name="cpu", vendor="none", count=0)


def describe_device() -> DeviceRecord:
    """The device of this process; a CPU where torch sees no GPU."""
    import torch

    if not torch.cuda.is_available():
        return CPU
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return DeviceRecord(
        name=properties.name,
        vendor="amd" if torch.version.hip else "nvidia",
        count=torch.cuda.device_count(),
        compute_capability=f"{properties.major}.{properties.minor}",
        multiprocessors=properties.multi_processor_count,
        memory_bytes=properties.total_memory,
    )


def describe_versions() -> VersionsRecord:
    """What this process runs on but for the driver, which the parent asks for."""
    import torch

    return VersionsRecord(
        cuda=torch.version.cuda,
        torch=str(torch.__version__),  # a TorchVersion, which is no plain text
        triton=package_version("triton"),
        python=platform.python_version(),
    )


def package_version(name: str) -> str | None:
    """The installed version of a package, None where it is absent."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@cache
def driver_version() -> str | None:
    """The NVIDIA driver's version, None where there is no driver or nothing tells; asked once a process."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.split()
    return lines[0] if done.returncode == 0 and lines else None


class TorchProbe(msgspec.Struct, frozen=True):
    """What a child process found: versions, None where absent, and the names of the devices.

    Args:
        cuda: whether torch sees a CUDA (or HIP) device.
        problem: why torch cannot be used, a sentence with what to do; None where it can.
    """

    torch: str | None = None
    triton: str | None = None
    cuda_version: str | None = None
    cuda: bool = False
    devices: Sequence[str] = ()
    problem: str | None = None

    @property
    def vendor(self) -> str:
        """Of the device, as `describe_device` has it."""
        if not self.cuda:
            return "none"
        return "amd" if self.cuda_version is None else "nvidia"

    @property
    def without_gpu(self) -> str:
        """Why torch has no device here, with what to do."""
        if self.problem is not None:
            return self.problem
        if self.cuda_version is None:
            return f"torch {self.torch} is built without CUDA. Install a CUDA build of torch to capture workloads."
        return "torch finds no CUDA device. Check the driver with nvidia-smi, and CUDA_VISIBLE_DEVICES."


def probe_torch() -> TorchProbe:
    """Import torch in a child process and report."""
    if find_spec("torch") is None:
        return TorchProbe(problem="torch is not installed. Install profkit[gpu], or torch with a CUDA build.")
    with tempfile.TemporaryDirectory(prefix="profkit.") as directory:
        answer, log = Path(directory) / "answer.json", Path(directory) / "log"
        with log.open("wb") as output:
            command = [sys.executable, "-m", "profkit.capture.device", str(answer)]
            try:
                status = subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=TIMEOUT_S, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                return TorchProbe(problem=f"torch does not import within {TIMEOUT_S} s. Reinstall it.")
        if status != 0:
            why = f"{describe_status(status)}: {tail(log, 1)}"
            return TorchProbe(problem=f"torch does not import ({why}). Reinstall it.")
        return msgspec.json.decode(answer.read_bytes(), type=TorchProbe)


def main(path: str) -> None:
    """Import torch here and write what it says to the file `path`."""
    import torch

    versions, cuda = describe_versions(), torch.cuda.is_available()
    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())] if cuda else []
    found = TorchProbe(versions.torch, versions.triton, versions.cuda, cuda, devices)
    Path(path).write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    main(sys.argv[1])
