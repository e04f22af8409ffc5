"""A workload's own code: whether what it gives fits `profkit.model.workload`, how it fails, its files."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import TracebackException
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from profkit.capture.process import without_directories
from profkit.errors import ProfkitError, Terminated
from profkit.model.workload import Problem, Tunable

#: Without halves of pairs of surrogates, which no encoding can write.
_Text = Annotated[str, Meta(pattern=r"^[^\ud800-\udfff]*\Z")]
_Name = Annotated[str, Meta(min_length=1, pattern=r"^[^\ud800-\udfff]*\Z")]
_Integer = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Finite = Annotated[float, Meta(ge=0, le=1e300)]
_Given = TypeVar("_Given", Tunable, Problem)


class _Parameter(Struct):
    values: Annotated[list[_Integer], Meta(min_length=1)]
    help: _Text


class _Tunable(Struct):
    parameters: Annotated[dict[_Name, _Parameter], Meta(min_length=1)]
    regions: dict[_Name, dict[_Name, _Integer | _Text]]


class _Problem(Struct):
    known: dict[_Name, dict[_Name, _Integer]]
    least_bytes: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] | None
    tolerance: tuple[_Finite, _Finite]


def fault(workload: str, what: str) -> ProfkitError:
    """The error that a workload gave something else than its interface asks for."""
    return ProfkitError(f"{workload}: {what}. Mend the workload; profkit/model/workload.py says what each field is.")


def checked(workload: str, what: str, given: Any, kind: type[_Given]) -> _Given:
    """`given` as it is, where it is of `kind` and its data can be used, stored and shown.

    Args:
        what: it is, e.g. ``region r4``.

    Raises:
        ProfkitError: names the field that is not so.
    """
    if not isinstance(given, kind):
        raise fault(workload, f"{what} is of type {type(given).__name__}, not a profkit.model.workload.{kind.__name__}")
    try:
        msgspec.convert(given, _Tunable if kind is Tunable else _Problem, from_attributes=True)
    except msgspec.ValidationError as error:
        raise fault(workload, f"{what}: {error}") from None
    return given


class WorkloadError(ProfkitError):
    """The workload's code raised something, or called ``sys.exit``.

    Args:
        what: the workload was doing, e.g. ``building region r4``.
        reason: see `reason_of`.
    """

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"The workload failed {what}: {reason.rstrip('.')}. Mend it, or leave that out.")
        self.reason = reason


@contextmanager
def code(what: str) -> Iterator[None]:
    """Around code of the workload, which may raise anything; what it tells as a ProfkitError stays as it is.

    Raises:
        WorkloadError: it did.
    """
    try:
        yield
    except (ProfkitError, Terminated, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise WorkloadError(what, reason_of(error)) from error


def reason_of(error: BaseException) -> str:
    """The kind of `error` and the first line of what it says, without this machine's directories.

    Triton's compiler begins with a place in the source and ends with what is wrong there.
    """
    if isinstance(error, WorkloadError):
        return error.reason
    # The class may be the workload's, and its own __str__ may raise: this one does not.
    text = printable(str(TracebackException(type(error), error, None)))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    said = f"{lines[0]} {lines[-1]}" if len(lines) > 1 and lines[0].startswith("at ") else lines[0]
    if "active drivers" in said:
        # Triton's own words for it name no cause.
        said = "Triton finds no GPU that it can use here"
    return without_directories(f"{type(error).__name__}: {said}")


def printable(text: str) -> str:
    """`text` with halves of pairs of surrogates replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")


def source_digests(spec: str) -> dict[str, str]:
    """SHA-256 of every file that a workload which is loaded is known to be made of.

    For ``path/file.py:name`` that file and all modules under its folder that are imported by now; for a shipped
    workload, and one that has imported one, all of profkit/kernels. A module that is imported later, a file that is
    read and a package that is installed are not among them.

    Returns:
        Path, relative to the workload's folder or profkit's, to digest; sorted.

    Raises:
        ProfkitError: a file cannot be read.
    """
    from profkit import kernels

    path_text, separator, _ = spec.rpartition(":")
    files: dict[str, Path] = {}
    if separator:
        path = Path(path_text).resolve()
        files[path.name] = path
        for name, module in list(sys.modules.items()):
            origin = getattr(module, "__file__", None)
            # Neither the command's own start nor profkit is the workload's.
            if name.split(".")[0] in ("__main__", "profkit") or not isinstance(origin, str):
                continue
            file = Path(origin).resolve()
            inside = file.relative_to(path.parent) if file.is_relative_to(path.parent) and file.is_file() else None
            # A virtual environment may lie in the workload's own folder.
            if inside is not None and not {"site-packages", "dist-packages"} & set(inside.parts):
                files[inside.as_posix()] = file
    if not separator or any(name.startswith(f"{kernels.__name__}.") for name in sys.modules):
        folder = Path(kernels.__file__).parent
        files |= {f"profkit/kernels/{file.relative_to(folder).as_posix()}": file for file in folder.rglob("*.py")}
    return {name: _digest(files[name]) for name in sorted(files)}


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise ProfkitError(f"{file} cannot be read: {error.strerror}. It is a part of the workload.") from None
