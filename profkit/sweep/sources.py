"""What a workload is made of, as digests: the files that a change between two sittings of a sweep can be seen in."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

from profkit.errors import ProfkitError

_SHIPPED = "profkit.kernels"
#: Folders of installed packages: a virtual environment may lie in the workload's own folder.
_INSTALLED = ("site-packages", "dist-packages")


def source_digests(spec: str) -> dict[str, str]:
    """SHA-256 of every file that a workload which is loaded is known to be made of.

    For ``path/file.py:name`` that file and those of all modules under its folder that are imported by now; for a
    shipped workload, and one that has imported one, all of profkit/kernels. A module that is imported later, a file
    that is read and a package that is installed are not among them.

    Returns:
        Path, relative to the workload's folder or to profkit's, to digest; sorted.

    Raises:
        ProfkitError: a file cannot be read.
    """
    files = dict(_own(spec))
    if ":" not in spec or any(name.startswith(f"{_SHIPPED}.") for name in sys.modules):
        files |= dict(_shipped())
    return {name: _digest(files[name]) for name in sorted(files)}


def _own(spec: str) -> Iterator[tuple[str, Path]]:
    path_text, separator, _ = spec.rpartition(":")
    if not separator:
        return
    path = Path(path_text).resolve()
    yield path.name, path
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None)
        # The command's own start is none of the workload's.
        if name == "__main__" or name.split(".")[0] == "profkit" or not isinstance(origin, str):
            continue
        file = Path(origin).resolve()
        if file.is_relative_to(path.parent) and file.is_file():
            relative = file.relative_to(path.parent)
            if not any(part in _INSTALLED for part in relative.parts):
                yield relative.as_posix(), file


def _shipped() -> Iterator[tuple[str, Path]]:
    from profkit import kernels

    folder = Path(kernels.__file__).parent
    for file in folder.rglob("*.py"):
        yield f"profkit/kernels/{file.relative_to(folder).as_posix()}", file


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise ProfkitError(f"{file} cannot be read: {error.strerror}. It is a part of the workload.") from None
