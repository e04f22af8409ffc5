"""Programs that vendors install: where one lies, which version it is; and Nsight Systems' own, which exports reports.

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


@dataclass(frozen=True)
class Installed:
    """A usable program.

    Args:
        path: where it is.
        version: e.g. ``2025.3.1.90``, as it says itself, without the build's suffix.
    """

    path: Path
    version: str

    @property
    def release(self) -> tuple[int, int]:
        """The first two numbers of the version."""
        return release(self.version)


def release(version: str) -> tuple[int, int]:
    """The first two numbers of a version: (2025, 3) for ``2025.3.1.90``."""
    first, second = version.split(".")[:2]
    return int(first), int(second)


@dataclass(frozen=True)
class Program:
    """A program to look for.

    Args:
        name: its file's.
        variable: of the environment; names it where it is in none of the usual places.
        places: where installers put it, below the file system's root; of each, the newest version is tried first.
        says: finds the version in what ``--version`` prints.
        minimum: the oldest release that will do.
        title, oldest: what an older one is called, and what the oldest is that will do, for an error.
        absent: where it was looked for beside PATH, and what to do, with a place for the oldest ``{release}``.
    """

    name: str
    variable: str
    places: tuple[str, ...]
    says: re.Pattern[str]
    minimum: tuple[int, int]
    title: str
    oldest: str
    absent: str

    def candidates(self, root: Path = Path("/")) -> Iterator[Path]:
        """Where one is, best first: only what the variable names if it is set, else PATH, then installers' places."""
        named = os.environ.get(self.variable)
        if named:
            yield Path(named)
            return
        on_path = shutil.which(self.name)
        if on_path:
            yield Path(on_path)
        for pattern in self.places:
            yield from sorted(root.glob(pattern), key=_version_key, reverse=True)

    def find(self, root: Path = Path("/"), at_least: tuple[int, int] = (0, 0)) -> Installed:
        """The first one that runs and is new enough; installers' places are looked for below `root`.

        Args:
            at_least: the oldest release that will do, where that is newer than `minimum`.

        Raises:
            ProfkitError: none is there, or each one found cannot be used (says why for the first).
        """
        problems: list[str] = []
        for path in self.candidates(root):
            try:
                return self.check(path, at_least)
            except ProfkitError as error:
                problems.append(str(error))
        if problems:
            raise ProfkitError(problems[0])
        absent = self.absent.format(release="{}.{}".format(*max(at_least, self.minimum)))
        raise ProfkitError(f"{self.name} is not installed: it is not on PATH and {absent}")

    def check(self, path: Path, at_least: tuple[int, int] = (0, 0)) -> Installed:
        """Run ``--version`` of the one at `path`.

        Raises:
            ProfkitError: it does not start, fails, says no version, or is older than `at_least` or `minimum`.
        """
        try:
            done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            reason = error.strerror if isinstance(error, OSError) else "no answer within a minute"
            raise ProfkitError(
                f"{path.name} --version does not run: {reason}. Check {self.variable} or PATH."
            ) from None
        said = self.says.search(done.stdout)
        if done.returncode != 0 or said is None:
            raise ProfkitError(
                f"{path.name} --version failed or named no version. Set {self.variable} to a working {self.name}."
            )
        found = Installed(path, said[1])
        if found.release < self.minimum:
            raise ProfkitError(
                f"{self.title} {found.version} is too old: {self.oldest}. Install a newer one, or set {self.variable}."
            )
        if found.release < at_least:
            raise ProfkitError(
                f"{self.name} {found.version} opens no report of a newer one: {at_least[0]}.{at_least[1]} or later is "
                f"needed. Install it, or set {self.variable}."
            )
        return found


def _version_key(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path.parent))]


NSYS = Program(
    name="nsys",
    variable="PROFKIT_NSYS",
    places=(
        "opt/nvidia/nsight-systems/*/bin/nsys",
        "opt/nvidia/nsight-systems-cli/*/bin/nsys",
        "opt/nvidia/nsight-systems-cli/*/target-linux-x64/nsys",
        "opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
        "usr/local/cuda*/bin/nsys",
    ),
    says=re.compile(r"version (\d{4}\.\d+(?:\.\d+)*)"),
    # The oldest whose exports have been seen to hold node events with their origin, which lineage needs.
    minimum=(2023, 4),
    title="nsys",
    oldest="2023.4 is the oldest that records where a graph's nodes were captured",
    absent="not where installers of Nsight Systems, Nsight Compute or CUDA put it. Install Nsight Systems {release} or "
    "later, or set PROFKIT_NSYS to the binary.",
)


def export_command(nsys: Installed, report: Path, target: Path) -> list[str]:
    """The command line by which `nsys` exports `report` to the SQLite file `target`."""
    flags = ["--type=sqlite", "--force-overwrite=true", f"--output={target}"]
    return [str(nsys.path), "export", *flags, str(report)]
