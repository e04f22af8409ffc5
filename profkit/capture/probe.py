"""Asks a child process what torch and triton are here, so that the parent never imports them.

``python -m profkit.capture.probe FILE`` is the child.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from profkit.capture.process import describe_status, tail

#: Importing torch on a cold file system can take a minute.
TIMEOUT_S = 180


@dataclass(frozen=True)
class TorchProbe:
    """What a child process found.

    Args:
        torch, triton, cuda_version: versions, None where absent.
        cuda: whether torch sees a CUDA (or HIP) device.
        devices: their names.
        problem: why torch cannot be used, a sentence with what to do; None where it can.
    """

    torch: str | None = None
    triton: str | None = None
    cuda_version: str | None = None
    cuda: bool = False
    devices: Sequence[str] = ()
    problem: str | None = None


def probe_torch() -> TorchProbe:
    """Import torch in a child process and report."""
    if find_spec("torch") is None:
        return TorchProbe(problem="torch is not installed. Install profkit[gpu], or torch with a CUDA build.")
    with tempfile.TemporaryDirectory(prefix="profkit.") as directory:
        answer, log = Path(directory) / "answer.json", Path(directory) / "log"
        with log.open("wb") as output:
            try:
                status = subprocess.run(
                    [sys.executable, "-m", "profkit.capture.probe", str(answer)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=TIMEOUT_S,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                return TorchProbe(problem=f"torch does not import within {TIMEOUT_S} s. Reinstall it.")
        if status != 0:
            return TorchProbe(
                problem=f"torch does not import ({describe_status(status)}: {tail(log, 1)}). Reinstall it."
            )
        return TorchProbe(**json.loads(answer.read_text(encoding="utf-8")))


def main(path: str) -> None:
    """Import torch here and write what it says to the file `path`."""
    import torch

    from profkit.capture.device import package_version

    cuda = torch.cuda.is_available()
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())] if cuda else []
    probe = TorchProbe(
        torch=torch.__version__,
        triton=package_version("triton"),
        cuda_version=torch.version.cuda,
        cuda=cuda,
        devices=names,
    )
    Path(path).write_text(json.dumps(asdict(probe)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
