"""Nsight Systems: its command lines, the export of what it recorded, and why it recorded nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from profkit.capture.options import Recording
from profkit.capture.process import describe_status, started, tail
from profkit.capture.profilers.profiler import COMMAND, FLOOR, GraphTrace, Profiler, State
from profkit.errors import ProfkitError
from profkit.readers.installed import NSYS, Installed, export_command

if TYPE_CHECKING:
    from profkit.capture.device import TorchProbe
    from profkit.capture.options import Options
    from profkit.model.run import StepTimesRecord, VersionsRecord
    from profkit.model.workload import Scope

REPORT_FILE = "trace.nsys-rep"
TRACE_FILE = "trace.sqlite"
#: The oldest seen to record the ranges of the `nvtx` package (0.2.17); 2023.4 does not. torch's are recorded by both.
NVTX_PACKAGE_MINIMUM = (2025, 3)

#: A workload's process opens the window itself and goes on after it, to digest its outputs.
_WINDOW_FLAGS = ("--capture-range=cudaProfilerApi", "--capture-range-end=stop")
_SERVER_FLAGS = ("--trace-fork-before-exec=true",)
#: Flags of `nsys profile` that decide where its files go; profkit sets them.
_RESERVED = ("-o", "--output", "--export")
#: A range that ends by shutting the program down (nsys's default) would kill a server; this leaves it running.
_KEEP_RUNNING = "--capture-range-end=stop"
GRAPH_METHOD = "nsys --cuda-graph-trace=graph, in a process of its own: the row of each graph launch"
_GRAPH_ROWS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_IMPORTER_FAILURES = ("unable to retrieve the importer version", "importer error status")


@dataclass(frozen=True)
class Nsys(Profiler):
    """An nsys that can record."""

    tool: Installed
    #: The user's flags, after ours, so that they win where nsys takes the last.
    extra: tuple[str, ...] = ()

    name = "nsys"
    vendors = frozenset({"nvidia"})
    trace_file, report_file = TRACE_FILE, REPORT_FILE
    takes = frozenset({"--nproc", "--graph-level", "--nsys-args", COMMAND, FLOOR})
    reason = "it is here and names the layer of every launch exactly"

    @classmethod
    def find(cls, options: Options | None = None) -> Self:
        extra = () if options is None else tuple(more_flags(options.profiler_args))
        return cls(NSYS.find(), extra)

    def state(self, torch: TorchProbe) -> State:
        """Records and exports a program that does nothing."""
        import tempfile

        found = self.tool.version
        try:
            with tempfile.TemporaryDirectory(prefix="profkit.") as name:
                work, log = Path(name), Path(name) / "log"
                with started(self.command(["true"], work, window=False), log) as child:
                    child.wait()
                self.export([Recording(work, log)])
        except ProfkitError as error:
            return State(False, found, str(error))
        if not torch.cuda:
            says = f"nsys itself works, for `profkit capture -- CMD`; workloads cannot run here: {torch.without_gpu}"
            return State(False, found, says)
        return State(True, found, f"exact layers for every launch; ranges by {self.ranges_api}")

    @classmethod
    def scope(cls, api: str) -> tuple[Scope, str]:
        """The ranges of the `nvtx` package where `api` names it and it is installed and on, else torch's."""
        from importlib import metadata

        if api == "nvtx":
            try:
                import nvtx
            except ImportError:
                return super().scope(api)
            if nvtx.enabled():
                return _package_range, f"nvtx {metadata.version('nvtx')}"
        return super().scope(api)

    @property
    def ranges_api(self) -> str:
        """The API whose ranges this version records: the `nvtx` package's, else torch's."""
        return "nvtx" if self.tool.release >= NVTX_PACKAGE_MINIMUM else "torch.cuda.nvtx"

    def command(
        self, program: Sequence[str], work: Path, *, window: bool, graph_trace: GraphTrace = "node"
    ) -> list[str]:
        flags = [*_trace_flags(graph_trace), *(_WINDOW_FLAGS if window else _SERVER_FLAGS), *self.extra]
        output = ["--force-overwrite=true", f"--output={work / 'trace'}"]
        return [str(self.tool.path), "profile", *flags, *output, *program]

    def export(self, recordings: Sequence[Recording]) -> None:
        """Export the reports to SQLite beside them; see `Profiler`."""
        for recording in recordings:
            if not (recording.work / REPORT_FILE).exists():
                raise ProfkitError(_missing_report(recording))
        with ExitStack() as stack:
            exports = [
                stack.enter_context(
                    started(export_command(self.tool, own.work / REPORT_FILE, own.work / TRACE_FILE), own.log)
                )
                for own in recordings
            ]
            for own, child in zip(recordings, exports, strict=True):
                status = child.wait()
                if status != 0 or not (own.work / TRACE_FILE).exists():
                    raise ProfkitError(
                        f"nsys export of the report failed ({describe_status(status)}): "
                        f"{tail(own.log) or 'it printed nothing'}. `profkit doctor` checks the installation."
                    )

    def graph_times(self, recording: Recording, replays: int) -> StepTimesRecord:
        from profkit.capture.record import step_times
        from profkit.readers.arrow import Database

        with Database(recording.work / TRACE_FILE) as database:
            if not {"start", "end"} <= database.columns(_GRAPH_ROWS):
                raise ProfkitError("its export has no rows of whole graphs; nsys 2024 and later write them.")
            # A row that was cut off has no end.
            rows = database.rows(f'SELECT "end" - start FROM {_GRAPH_ROWS} WHERE "end" > start ORDER BY start')
        if len(rows) != replays:
            raise ProfkitError(f"nsys recorded {len(rows)} whole graphs of {replays} replays.")
        return step_times([int(ns) / 1e3 for (ns,) in rows], GRAPH_METHOD)

    @property
    def arguments(self) -> list[str]:
        """Our tracing flags, and the names (not the values) of the user's."""
        return [*_trace_flags("node"), *(text.partition("=")[0] for text in self.extra if text.startswith("-"))]

    def version(self, versions: VersionsRecord) -> str:
        return self.tool.version


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


def _trace_flags(level: GraphTrace) -> tuple[str, ...]:
    """Ranges and graphs, node by node or whole, and nothing else; sampling would only slow the step."""
    return ("--trace=cuda,nvtx", f"--cuda-graph-trace={level}", "--sample=none", "--cpuctxsw=none")


@contextmanager
def _package_range(name: str) -> Iterator[None]:
    import nvtx

    nvtx.push_range(name)
    try:
        yield
    finally:
        nvtx.pop_range()


def _missing_report(recording: Recording) -> str:
    text = recording.log.read_text(encoding="utf-8", errors="replace").lower()
    raw_only = any(recording.work.glob("*.qdstrm"))
    if raw_only or any(failure in text for failure in _IMPORTER_FAILURES):
        return (
            "nsys recorded, but its importer did not start and so wrote no report. As a rule libdw.so.1 or "
            "libelf.so.1 is missing: install the packages libdw1 and libelf1 (Debian, Ubuntu; elfutils-libs "
            "elsewhere), or put the libraries on LD_LIBRARY_PATH."
        )
    said = tail(recording.log) or "see the messages above"
    return f"nsys left no trace, and ended with {recording.ended}: {said}. `profkit doctor` checks the installation."
