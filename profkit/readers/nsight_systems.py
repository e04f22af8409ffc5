"""An installed Nsight Systems: where its command line lies, which version it is, how it exports a report.

Captures run it, and the reader of reports exports with it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from profkit.errors import ProfkitError

#: Names the binary where it is in none of the usual places.
BINARY_VARIABLE = "PROFKIT_NSYS"
#: The oldest whose exports have been seen to hold node events with their origin, which lineage needs.
MINIMUM = (2023, 4)

#: Where installers put it, below the file system's root; the newest version is tried first.
_PLACES = (
    "opt/nvidia/nsight-systems/*/bin/nsys",
    "opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "opt/nvidia/nsight-systems-cli/*/target-linux-x64/nsys",
    "opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
    "usr/local/cuda*/bin/nsys",
)


@dataclass(frozen=True)
class Nsys:
    """A usable nsys.

    Args:
        path: the binary.
        version: e.g. ``2025.3.1.90``, as it says itself, without the build's suffix.
    """

    path: Path
    version: str

    @property
    def release(self) -> tuple[int, int]:
        """(year, number) of the version."""
        return release(self.version)


def release(version: str) -> tuple[int, int]:
    """(year, number) of a version: (2025, 3) for ``2025.3.1.90``."""
    year, number = version.split(".")[:2]
    return int(year), int(number)


def candidates(root: Path = Path("/")) -> Iterator[Path]:
    """Where an nsys is, best first: only $PROFKIT_NSYS if that is set, else PATH, then installers' places."""
    named = os.environ.get(BINARY_VARIABLE)
    if named:
        yield Path(named)
        return
    on_path = shutil.which("nsys")
    if on_path:
        yield Path(on_path)
    for pattern in _PLACES:
        yield from sorted(root.glob(pattern), key=_version_key, reverse=True)


def _version_key(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]


def find(root: Path = Path("/"), at_least: tuple[int, int] = MINIMUM) -> Nsys:
    """The first nsys that runs and is new enough; installers' places are looked for below `root`.

    Args:
        at_least: the oldest release that will do.

    Raises:
        ProfkitError: none is there, or each one found cannot be used (says why for the first).
    """
    problems: list[str] = []
    for path in candidates(root):
        try:
            return check(path, at_least)
        except ProfkitError as error:
            problems.append(str(error))
    if problems:
        raise ProfkitError(problems[0])
    oldest = max(at_least, MINIMUM)
    raise ProfkitError(
        "nsys is not installed: it is not on PATH and not where installers of Nsight Systems, Nsight Compute or CUDA "
        f"put it. Install Nsight Systems {oldest[0]}.{oldest[1]} or later, or set {BINARY_VARIABLE} to the binary."
    )


def check(path: Path, at_least: tuple[int, int] = MINIMUM) -> Nsys:
    """Run ``nsys --version`` at `path`.

    Raises:
        ProfkitError: it does not start, fails, says no version, or is older than `at_least` or `MINIMUM`.
    """
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = error.strerror if isinstance(error, OSError) else "no answer within a minute"
        raise ProfkitError(f"{path.name} --version does not run: {reason}. Check {BINARY_VARIABLE} or PATH.") from None
    found = re.search(r"version (\d{4}\.\d+(?:\.\d+)*)", done.stdout)
    if done.returncode != 0 or found is None:
        raise ProfkitError(
            f"{path.name} --version failed or named no version. Set {BINARY_VARIABLE} to a working nsys."
        )
    nsys = Nsys(path, found.group(1))
    if nsys.release < MINIMUM:
        raise ProfkitError(
            f"nsys {nsys.version} is too old: {MINIMUM[0]}.{MINIMUM[1]} is the oldest that records where a graph's "
            f"nodes were captured. Install a newer one, or set {BINARY_VARIABLE}."
        )
    if nsys.release < at_least:
        raise ProfkitError(
            f"nsys {nsys.version} opens no report of a newer one: {at_least[0]}.{at_least[1]} or later is needed. "
            f"Install it, or set {BINARY_VARIABLE}."
        )
    return nsys


def export_command(nsys: Nsys, report: Path, target: Path) -> list[str]:
    """The command line that exports `report` to the SQLite file `target`."""
    flags = ["--type=sqlite", "--force-overwrite=true", f"--output={target}"]
    return [str(nsys.path), "export", *flags, str(report)]
