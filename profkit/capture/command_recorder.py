"""How each profiler records ``profkit capture -- CMD``: its command line, and what it leaves in the run directory."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from profkit.capture import nsys, rocprofv3
from profkit.errors import ProfkitError
from profkit.model.wording import did_you_mean

#: The others record a step that profkit builds itself.
PROFILERS = ("auto", "nsys", "rocprofv3")
#: Flags of `nsys profile` that decide where its files go; profkit sets them.
_RESERVED = ("-o", "--output", "--export")
#: A range that ends by shutting the program down (nsys's default) would kill a server; this leaves it running.
_KEEP_RUNNING = "--capture-range-end=stop"


@dataclass(frozen=True)
class Kept:
    """What a recording left in the run directory.

    Args:
        trace: the file that the readers open.
        warnings: for run.json.
    """

    trace: str
    warnings: Sequence[dict[str, str]]


class Recorder(Protocol):
    """A profiler around a command."""

    def command(self, work: Path, program: Sequence[str]) -> list[str]:
        """The command line that records `program` into the directory `work`."""
        ...

    def keep(self, work: Path, directory: Path, ended: str) -> Kept:
        """Move the recording to `directory`; `ended` says how the program ended, for an error.

        Raises:
            ProfkitError: there is no trace.
        """
        ...

    def description(self) -> dict[str, Any]:
        """The `profiler` field of run.json."""
        ...


@dataclass(frozen=True)
class NsysRecorder:
    """nsys, with more flags of the user's."""

    nsys: nsys.Nsys
    extra: Sequence[str]

    def command(self, work: Path, program: Sequence[str]) -> list[str]:
        """See `Recorder`."""
        return nsys.profile_command(self.nsys, work / "trace", program, window=False, extra=self.extra)

    def keep(self, work: Path, directory: Path, ended: str) -> Kept:
        """See `Recorder`."""
        log = work / "export.log"
        log.touch()
        if not any(work.glob("trace*")):
            raise ProfkitError(f"{ended} and nsys left no trace. See the messages above; `profkit doctor` checks nsys.")
        nsys.export(self.nsys, [(work, log)])
        for file in (nsys.REPORT_FILE, nsys.TRACE_FILE):
            (work / file).rename(directory / file)
        return Kept(nsys.TRACE_FILE, ())

    def description(self) -> dict[str, Any]:
        """See `Recorder`."""
        return _description("nsys", self.nsys.version, nsys.recorded_arguments(self.extra))


@dataclass(frozen=True)
class Rocprofv3Recorder:
    """rocprofv3."""

    rocprof: rocprofv3.Rocprofv3

    def command(self, work: Path, program: Sequence[str]) -> list[str]:
        """See `Recorder`."""
        return rocprofv3.profile_command(self.rocprof, work / rocprofv3.DIRECTORY, program)

    def keep(self, work: Path, directory: Path, ended: str) -> Kept:
        """See `Recorder`."""
        try:
            recorded = rocprofv3.gather(work / rocprofv3.DIRECTORY, directory)
        except ProfkitError as error:
            raise ProfkitError(f"{ended}. {error}") from None
        return Kept(recorded.trace, recorded.warnings)

    def description(self) -> dict[str, Any]:
        """See `Recorder`."""
        return _description("rocprofv3", self.rocprof.version, rocprofv3.recorded_arguments(self.rocprof))


def choose(profiler: str, nsys_args: str) -> Recorder:
    """The recorder for ``--profiler``; ``auto`` is nsys.

    Raises:
        ProfkitError: a profiler that records no command or is not here, or flags that nsys must not get.
    """
    if profiler not in PROFILERS:
        known = did_you_mean(profiler, PROFILERS)
        raise ProfkitError(f"--profiler {profiler} records workloads; a command needs nsys or rocprofv3.{known}")
    extra = more_flags(nsys_args)
    if profiler == "rocprofv3":
        if extra:
            raise ProfkitError("--nsys-args are flags of nsys; --profiler rocprofv3 takes none.")
        return Rocprofv3Recorder(rocprofv3.find())
    return NsysRecorder(nsys.find(), extra)


def more_flags(text: str) -> list[str]:
    """The user's flags for ``nsys profile``, and what they imply.

    Raises:
        ProfkitError: unbalanced quotes, or a flag that profkit sets itself.
    """
    try:
        flags = shlex.split(text)
    except ValueError as error:
        raise ProfkitError(f"--nsys-args {text!r} cannot be split into words: {error}.") from None
    for flag in flags:
        if flag.partition("=")[0] in _RESERVED:
            raise ProfkitError(f"--nsys-args may not hold {flag}: profkit writes and exports the report itself.")
    names = {flag.partition("=")[0] for flag in flags}
    if names & {"-c", "--capture-range"} and "--capture-range-end" not in names:
        flags.append(_KEEP_RUNNING)
    return flags


def _description(name: str, version: str, arguments: Sequence[str]) -> dict[str, Any]:
    return {"name": name, "version": version, "graph_trace": "node", "ranges": None, "arguments": list(arguments)}
