"""Reports of Nsight Systems (.nsys-rep) → Trace, by way of the SQLite export that an installed nsys makes of them.

The format of a report is nsys's own. The export stays beside the report and is read again as long as it is newer.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.model.trace import Diagnostic, Trace
from profkit.readers import SQLITE_MAGIC, nsys
from profkit.readers.files import Input, begins
from profkit.readers.installed import NSYS, Installed, export_command, release

#: What a report begins with; 2023.4 writes its version behind it, as 2023@4@4@54-….
_MAGIC = b"NVIDIA Tegra Profiler Report"
_HEADER = re.compile(rb"NVIDIA Tegra Profiler Report (\d{4}(?:@\d+)+)")
#: What nsys says of a report that is newer than itself.
_TOO_NEW = re.compile(r"created in Nsight Systems version \((\d{4}(?:\.\d+)+)")


def sniff(head: bytes, path: Path) -> bool:
    """See `profkit.readers.Reader`."""
    return head.startswith(_MAGIC)


def read(path: Path, *, detail: bool = False) -> Trace:
    """Read the report at `path`; see `profkit.readers.nsys.read`.

    Its export `path` with the suffix ``.sqlite`` is used where it is not older than the report, and made where it is
    missing or older; in a temporary directory where it cannot be written beside the report. `Info.diagnostics` says
    which.

    Raises:
        ProfkitError: no nsys that can open the report, an export that fails, or an unusable export.
    """
    with Input(path) as file:
        if file.compressed:
            raise ProfkitError(
                f"{path} is a report of Nsight Systems, packed. Unpack it: gunzip {shlex.quote(path.name)}"
            )
    with _exported(path) as (export, note):
        trace = nsys.read(export, detail=detail)
    diagnostics = (*trace.info.diagnostics, note)
    return replace(trace, info=replace(trace.info, source=str(path), format="nsys report", diagnostics=diagnostics))


@contextmanager
def _exported(report: Path) -> Iterator[tuple[Path, Diagnostic]]:
    beside = report.with_name(report.stem + ".sqlite")
    ours = _is_export(beside)
    if ours and beside.stat().st_mtime_ns >= report.stat().st_mtime_ns:
        yield beside, Diagnostic("export-reused", f"{beside.name} beside the report is newer than it and was read.")
        return
    found = _nsys_for(report)
    with tempfile.TemporaryDirectory(prefix="profkit.") as elsewhere:
        # Any other file of that name is not ours to replace.
        made = _export_beside(found, report, beside) if ours or not beside.exists() else None
        if made is not None:
            yield made, Diagnostic("exported", f"nsys {found.version} exported the report to {made.name} beside it.")
            return
        made = Path(elsewhere) / beside.name
        _export(found, report, made)
        message = (
            f"No {beside.name} can be written beside the report, so nsys {found.version} exported it to a temporary "
            "file; opening it again will export it again."
        )
        yield made, Diagnostic("export-not-kept", message)


def _is_export(path: Path) -> bool:
    if not path.is_file():
        return False
    head = begins(path, len(SQLITE_MAGIC))
    return head == SQLITE_MAGIC and nsys.sniff(head, path)


def _nsys_for(report: Path) -> Installed:
    """An installed nsys that is not older than the one that wrote `report`.

    Raises:
        ProfkitError: there is none; says which version is needed and how to export elsewhere.
    """
    version = report_version(report)
    needed = release(version) if version else NSYS.minimum
    try:
        return NSYS.find(at_least=needed)
    except ProfkitError as error:
        written_by = f"a report of nsys {version}" if version else "a report of Nsight Systems"
        raise ProfkitError(
            f"{report} is {written_by}, which only nsys itself can open. {error} Or export it where nsys is: "
            f"{_shown_command(report)}, and open the .sqlite."
        ) from None


def report_version(report: Path) -> str | None:
    """The version that wrote `report`, e.g. ``2025.3.1.90``; None where the report does not say."""
    found = _HEADER.match(begins(report, 80))
    return found[1].decode().replace("@", ".") if found else None


def _export_beside(found: Installed, report: Path, target: Path) -> Path | None:
    """Export to `target`, whole or not at all; None where its directory cannot be written."""
    try:
        directory = tempfile.TemporaryDirectory(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    except OSError:
        return None
    with directory as name:
        part = Path(name) / target.name
        _export(found, report, part)
        part.replace(target)
    return target


def _export(found: Installed, report: Path, target: Path) -> None:
    command = export_command(found, report, target)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 0 and target.is_file():
        return
    said = done.stdout + done.stderr
    newer = _TOO_NEW.search(said)
    if newer is not None:
        raise ProfkitError(
            f"{report} was written by nsys {newer[1]}, which the nsys {found.version} here is too old to open. Install "
            f"nsys {newer[1]} or later, set {NSYS.variable} to one, or export it where it was "
            f"recorded: {_shown_command(report)}"
        )
    last = [line.strip() for line in re.split(r"[\r\n]+", said) if line.strip()][-1:]
    raise ProfkitError(
        f"{report}: nsys {found.version} cannot export it ({' '.join(last) or f'exit status {done.returncode}'}). "
        "Copy the report again, or record it again."
    )


def _shown_command(report: Path) -> str:
    return f"nsys export -t sqlite {shlex.quote(report.name)}"
