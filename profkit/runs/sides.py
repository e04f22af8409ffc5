"""What a RUN on the command line is: files, directories, ranks, repetitions; and the two sides of a diff, counted."""

from __future__ import annotations

import glob
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec

from profkit import readers
from profkit.attribution import capture_traces, lender
from profkit.attribution.method import CaptureTrace, Lender
from profkit.counting import ranks
from profkit.counting.count import take_census
from profkit.counting.ranks import divided
from profkit.errors import NothingSelectedError, ProfkitError
from profkit.model.census import Census
from profkit.model.names import shortened
from profkit.model.outputs import OutputNumbers
from profkit.model.run import MessageRecord, RankRecord, RunRecord
from profkit.model.selection import Phase, Selection
from profkit.model.trace import Diagnostic, Trace
from profkit.model.wording import are, counted, listed, were
from profkit.runs import planned, run_dir


@dataclass(frozen=True)
class RunFile:
    """One trace on disk.

    Args:
        label: how reports call it.
        trace: the trace file.
        record: run.json, None for a bare trace file.
        directory: the run directory; None for a bare trace file.
        rank: which rank of a job it is, where a directory of traces tells.
        notes: what is to be said of how it was found.
    """

    label: str
    trace: Path
    record: RunRecord | None
    directory: run_dir.Run | None = None
    rank: RankRecord | None = None
    notes: Sequence[Diagnostic] = ()


@dataclass(frozen=True)
class Loaded:
    """A trace that a caller has read, or a census, which keeps its own selection."""

    label: str
    content: Trace | Census
    record: None = None


@dataclass(frozen=True)
class Side:
    """The runs of one side: ranks of a job, or repeated captures of one arm."""

    label: str
    runs: Sequence[RunFile | Loaded]


@dataclass(frozen=True)
class Counted:
    """A run with its census.

    Args:
        rank: which rank of its file it is; None where the file holds one.
        numbers: what its run directory keeps of its outputs beside their digests.
        identity: names the trace's content, so that one input given twice is noticed.
    """

    label: str
    census: Census
    record: RunRecord | None
    identity: str
    rank: RankRecord | None = None
    numbers: Mapping[str, OutputNumbers] = field(default_factory=dict)


# -- runs --------------------------------------------------------------------------------------------------------------


def find(spec: str) -> list[RunFile]:
    """The runs that `spec` names: a run directory (nested ones included), a directory of traces, a trace file, or a
    glob of any of these.

    Raises:
        ProfkitError: it names nothing.
    """
    path = Path(spec)
    if path.exists():
        paths = [path]
    else:
        paths = [Path(p) for p in sorted(glob.glob(spec))]  # noqa: PTH207 - Path.glob takes no absolute pattern
        if not paths:
            hint = "matches nothing" if glob.has_magic(spec) else "no such file or directory"
            raise ProfkitError(f"{spec}: {hint}. Give a run directory, a trace file, or a glob of per-rank files.")
    found: list[RunFile] = []
    for entry in readers.without_companions(paths):
        recorded = readers.parts_in(entry) if entry.is_dir() and not run_dir.is_run(entry) else []
        if recorded:
            found += [RunFile(f"{entry.name}/{path.name}", path, None) for path in readers.without_companions(recorded)]
        elif entry.is_dir() and not readers.is_whole_directory(entry):
            found += [_of_run(run, entry) for run in run_dir.find(entry)] or traces_in(entry)
        else:
            found.append(RunFile(entry.name, entry, None))
    return found


#: How engines and profilers write a rank into a file's name: ``…rank3.…``, ``dp0_pp1_tp0_…``, ``…-TP-2-PP-0…``.
_RANK_IN_NAME = re.compile(r"(?:^|[^a-z0-9])(rank|dp|pp|tp|ep|dcp|pcp|cp)[-_]?(\d+)(?=[^a-z0-9]|$)", re.IGNORECASE)


def traces_in(directory: Path) -> list[RunFile]:
    """The traces that lie in `directory`, as a profiler leaves them there: the ranks of a job where names tell.

    Raises:
        ProfkitError: there is none.
    """
    traces: list[Path] = []
    others: list[Path] = []
    for path in readers.without_companions(sorted(directory.iterdir())):
        if path.is_file() and not path.name.startswith("."):
            if readers.recognised(path):
                traces.append(path)
            else:
                others.append(path)
    if not traces:
        held = f"; its files are of no format that profkit reads: {listed([p.name for p in others])}" if others else ""
        raise ProfkitError(
            f"{directory} holds no run.json (looked three levels deep) and no trace{held}. Give a run directory, a "
            "trace file, or a directory of traces."
        )
    # Beside those of its ranks a server leaves that of its front, which ran nothing on a GPU.
    ranked = [path for path in traces if _RANK_IN_NAME.search(path.name)] or traces
    left = {"no trace": others, "of no rank, as others are,": [path for path in traces if path not in ranked]}
    notes = [
        Diagnostic(
            "files-not-read",
            f"{counted(len(files), 'file')} in {directory.name} {are(len(files))} {why} and not read: "
            f"{listed([path.name for path in files])}.",
        )
        for why, files in left.items()
        if files
    ]
    traces = ranked
    ranks_of = _ranks_by_name(directory, traces)
    return [
        RunFile(f"{directory.name}/{path.name}", path, None, rank=rank, notes=notes if index == 0 else ())
        for index, (path, rank) in enumerate(zip(traces, ranks_of, strict=True))
    ]


def _ranks_by_name(directory: Path, traces: Sequence[Path]) -> list[RankRecord | None]:
    """The rank of each trace by its name; None for all where names do not tell, or some rank is there more often.

    A rank's second file is of a second window: the nth of every rank are one job.
    """
    keys = []
    for path in traces:
        told = {name.lower(): int(number) for name, number in _RANK_IN_NAME.findall(path.name)}
        keys.append((told["rank"],) if "rank" in told else tuple(sorted(told.items())))
    numbers = {key: number for number, key in enumerate(sorted({*keys}, key=str))}
    if all(len(key) == 1 and isinstance(key[0], int) for key in keys):
        numbers = {key: key[0] for key in keys}  # type: ignore[misc]
    windows = Counter(keys)
    if () in windows or len(windows) < 2 or len({*windows.values()}) > 1:
        return [None] * len(traces)
    seen: Counter[object] = Counter()
    found: list[RankRecord | None] = []
    for key in keys:
        job = f"{directory.resolve()} {seen[key]}"
        found.append(RankRecord(job=job, rank=numbers[key], world_size=max(numbers.values()) + 1))
        seen[key] += 1
    return found


def _of_run(run: run_dir.Run, base: Path) -> RunFile:
    workload = run.record.workload
    label = run.path.relative_to(base).as_posix()
    if label == ".":
        label = (workload.variant if workload else None) or run.path.resolve().name
    return RunFile(label, run.trace_path, run.record, run)


def one(spec: str, option: str) -> RunFile:
    """The single run that `spec` names.

    Raises:
        ProfkitError: it names none or several.
    """
    found = find(spec)
    if len(found) != 1:
        shown = listed([f.label for f in found])
        raise ProfkitError(f"{option}: {spec} names {len(found)} runs ({shown}). Name one.")
    return found[0]


def count_runs(run: RunFile, selection: Selection) -> list[Counted]:
    """Read and count one run: every rank of its trace by itself."""
    return [
        Counted(_rank_label(run, rank), noted(count(part, selection), run), run.record, "", rank or run.rank)
        for rank, part in divided(readers.read(run.trace), str(run.trace.resolve()))
    ]


def _rank_label(run: RunFile | Loaded, rank: RankRecord | None) -> str:
    return run.label if rank is None else f"{run.label} rank {rank.rank}"


def noted(census: Census, run: RunFile | Loaded) -> Census:
    """`census` of the trace of `run`, with a diagnostic where that is not the trace that run.json was written for."""
    if isinstance(run, RunFile) and run.notes:
        census = replace(census, diagnostics=(*census.diagnostics, *run.notes))
    record = run.record
    replaced = None if isinstance(run, Loaded) or record is None else run_dir.replaced_trace(run.trace.parent, record)
    if replaced is None:
        return census
    said = Diagnostic(run_dir.REPLACED, replaced)
    return replace(census, diagnostics=(*census.diagnostics, said))


def count(trace: Trace, selection: Selection) -> Census:
    """Count `trace`, with the capture traces and the lender of layers that `selection` names.

    Raises:
        ProfkitError: the selection matches nothing, or names no capture trace or run.
    """
    captures: list[CaptureTrace] = []
    notes: list[Diagnostic] = []
    if selection.capture_trace is not None:
        captures, notes = capture_traces.read(_trace_of(selection.capture_trace), trace)
    lenders: list[Lender] = []
    if selection.layers_from is not None:
        lending = one(selection.layers_from, "--layers-from")
        lenders = [lender(lending.label, part) for _, part in divided(readers.read(lending.trace))]
    census = take_census(trace, selection, captures, lenders)
    return replace(census, diagnostics=(*census.diagnostics, *notes))


def _trace_of(spec: str) -> str:
    """The trace in a run directory; anything else is itself."""
    return str(run_dir.load(Path(spec)).trace_path) if run_dir.is_run(Path(spec)) else spec


# -- sides -------------------------------------------------------------------------------------------------------------


def two_sides(specs: Sequence[str]) -> tuple[Side, Side]:
    """The runs before and the runs after.

    Raises:
        ProfkitError: there are not two sides.
    """
    if len(specs) == 1:
        return _arms(specs[0])
    if len(specs) != 2:
        raise ProfkitError(f"A diff takes two sides, before and after; {len(specs)} were given.")
    found = [find(spec) for spec in specs]
    labels = [f[0].label if len(f) == 1 else spec for f, spec in zip(found, specs, strict=True)]
    if labels[0] == labels[1]:
        labels = list(specs)  # one name for both sides would make the report unreadable
    found = _told_apart(found)
    return Side(labels[0], found[0]), Side(labels[1], found[1])


def _told_apart(sides: Sequence[Sequence[RunFile]]) -> list[list[RunFile]]:
    """The runs of both sides, those that share a name called by their paths."""
    named = Counter(run.label for side in sides for run in side)

    def path(run: RunFile) -> str:
        return (run.trace if run.record is None else run.trace.parent).as_posix()

    return [[replace(run, label=path(run)) if named[run.label] > 1 else run for run in side] for side in sides]


def _arms(spec: str) -> tuple[Side, Side]:
    """The two arms of a directory, the one that its capture named first before the other."""
    arms: dict[str, list[RunFile]] = {}
    for run in find(spec):
        arms.setdefault(run.label.split("/")[0], []).append(run)
    if len(arms) != 2 or all(arm.isdigit() for arm in arms):
        raise ProfkitError(
            f"{spec} does not hold two arms ({', '.join(arms)}). Name both sides: profkit diff BEFORE AFTER."
        )
    order = _baseline_first(spec, arms)
    return Side(order[0], arms[order[0]]), Side(order[1], arms[order[1]])


def _baseline_first(spec: str, arms: Mapping[str, Sequence[RunFile]]) -> list[str]:
    """The names of two arms in the order in which their capture was asked for them, whichever repetitions are there.

    Arms lie there by name. capture.json has their order; without it the place of any repetition tells, because pairs
    are recorded as A B, B A, A B, … Runs that no repeated capture made are taken by name.

    Raises:
        ProfkitError: the repetitions do not tell.
    """
    planned_order = planned.arms(spec)
    if set(planned_order) == set(arms):
        return list(planned_order)
    places = {name: {_place(run) for run in members} for name, members in arms.items()}
    by_place = sorted(arms, key=lambda name: min(places[name]))
    if [places[name] for name in by_place] in ([{0}, {1}], [{_NO_PLACE}, {_NO_PLACE}]):
        return by_place
    raise ProfkitError(
        f"Which arm of {spec} is the baseline cannot be told: it holds no {planned.PLAN_FILE} with these arms, and its "
        "repetitions do not tell. Name both sides: profkit diff BEFORE AFTER."
    )


_NO_PLACE = -1


def _place(run: RunFile) -> int:
    """Which arm of its capture a repetition says that it is of, from 0; `_NO_PLACE` where it says nothing."""
    repetition = run.record.repetition if run.record else None
    if repetition is None or repetition.sequence is None or repetition.pair is None:
        return _NO_PLACE
    return (repetition.sequence + repetition.pair) % 2


def recorded_well(side: Side) -> Side:
    """`side` without the runs that their capture set aside.

    Raises:
        ProfkitError: all of them were.
    """
    kept = [run for run in side.runs if not _set_aside(run)]
    if not kept:
        why = _set_aside(side.runs[0])
        raise ProfkitError(
            f"Every run of {side.label} was set aside when it was captured ({why.message if why else None})."
        )
    return Side(side.label, kept)


def _set_aside(run: RunFile | Loaded) -> MessageRecord | None:
    return run.record.set_aside if run.record else None


def not_recorded(spec: str) -> Iterator[Diagnostic]:
    """Repetitions that the capture planned and that are not there."""
    found = []
    for arm in planned.missing(spec):
        numbers = listed([str(pair) for pair in arm.pairs])
        pairs = f"pair{'' if len(arm.pairs) == 1 else 's'} {numbers}"
        found.append(f"{len(arm.pairs)} of {arm.planned} planned repetitions of {arm.arm} ({pairs})")
    if found:
        message = (
            f"Not there: {' and '.join(found)}. The capture was stopped, or is still running, and has not judged yet "
            "which repetitions stalled."
        )
        yield Diagnostic("repetitions-missing", message)


def stalled(side: Side) -> Iterator[Diagnostic]:
    """Repetitions that were set aside, and those in whose window something compiled although they were not."""
    reasons = [_set_aside(run) for run in side.runs]
    found = Counter(str(r.code) for r in reasons if r)
    if found:
        causes = ", ".join(f"{code} {count}" for code, count in found.items())
        message = (
            f"{found.total()} of {len(side.runs)} runs of {side.label} {were(found.total())} set aside by the capture "
            f"and {are(found.total())} left out ({causes})."
        )
        yield Diagnostic("set-aside", message)
    kept = [run for run, reason in zip(side.runs, reasons, strict=True) if not reason]
    compiled = [run.label for run in kept if run.record and run.record.compiles and run.record.compiles.inside]
    if compiled:
        message = (
            f"Something compiled inside the recorded window of {len(compiled)} of {len(kept)} runs of {side.label}, "
            f"e.g. {compiled[0]}: its first replays may be slower. Capture again."
        )
        yield Diagnostic("compiled-inside-window", message)


def count_sides(before: Side, after: Side, selection: Selection) -> tuple[list[Counted], list[Counted]]:
    """Read and count the runs of both sides, in order; a recording that is on both sides is read once.

    Raises:
        ProfkitError: bad input, a selection that matches nothing on one side, or a recording given twice on one.
    """
    every = [*before.runs, *after.runs]
    selections = selection.of_side("before"), selection.of_side("after")
    censuses: dict[tuple[str, Selection], list[tuple[RankRecord | None, Census]]] = {}
    sides: tuple[list[Counted], list[Counted]] = ([], [])
    for index, (run, identity) in enumerate(zip(every, _identities(every), strict=True)):
        in_after = index >= len(before.runs)
        asked = identity, selections[in_after]
        if asked not in censuses:
            try:
                # Where layers by cut begin is a convention; the first run sets it for all.
                censuses[asked] = _censuses(run, asked[1], [run.census for run in sides[0]])
            except NothingSelectedError as error:
                raise ProfkitError(_one_sided(error, run.label, after=in_after)) from None
        for rank, census in censuses[asked]:
            # Counts without times are the same in every run by nature: only one file given twice is the same recording.
            own = identity if census.info.timed or isinstance(run, Loaded) else str(run.trace.resolve())
            own += "" if rank is None else f" rank {rank.rank}"
            job = msgspec.structs.replace(rank, job=identity) if rank is not None else _rank_of_file(run)
            numbers = run.directory.outputs() if isinstance(run, RunFile) and run.directory else {}
            part = Counted(_rank_label(run, rank), noted(census, run), run.record, own, job, numbers)
            sides[in_after].append(part)
    return _distinct(sides[0]), _distinct(sides[1])


def _rank_of_file(run: RunFile | Loaded) -> RankRecord | None:
    return run.rank if isinstance(run, RunFile) else None


def _censuses(
    run: RunFile | Loaded, selection: Selection, like: Sequence[Census]
) -> list[tuple[RankRecord | None, Census]]:
    """The census of every rank of `run`; its layers begin where those of the same rank of `like` do, if it is there."""
    content = readers.read(run.trace, detail=True) if isinstance(run, RunFile) else run.content
    if isinstance(content, Census):
        return [(None, content)]
    found: list[tuple[RankRecord | None, Census]] = []
    for index, (rank, trace) in enumerate(divided(content)):
        census = count(trace, selection)
        if like:
            first = like[min(index, len(like) - 1)]
            census = in_phase(first, census, partial(_recount, trace, selection))
            if first.phase is None and census.phase is not None:
                census = _by_ranges(first, census, trace, selection)
        found.append((rank, census))
    return found


def _recount(trace: Trace, selection: Selection, like: Phase) -> Census:
    return count(trace, replace(selection, like=like))


def _by_ranges(first: Census, census: Census, trace: Trace, selection: Selection) -> Census:
    """`census`, counted anew where ranges name the layers of the first run here too, though they hold less."""
    again = count(trace, replace(selection, ranges=True))
    if not (first.kinds and again.kinds and ranks.same_layers([first.chosen, again.chosen])):
        return census
    message = "Layers are those that ranges name, as in the other run, though they hold less than half of the step."
    return replace(again, diagnostics=(*again.diagnostics, Diagnostic("layers-by-ranges", message)))


def _identities(runs: Sequence[RunFile | Loaded]) -> list[str]:
    """A text for each run, equal for equal traces: of files by path, and by content where the sizes agree."""
    sizes = [
        -1 - index if isinstance(run, Loaded) or run.trace.is_dir() else run.trace.stat().st_size
        for index, run in enumerate(runs)
    ]
    names: list[str] = []
    for run, size in zip(runs, sizes, strict=True):
        if isinstance(run, Loaded):
            names.append(str(id(run.content)))
        elif sizes.count(size) > 1:
            with run.trace.open("rb") as file:
                names.append(hashlib.file_digest(file, "sha256").hexdigest())
        else:
            names.append(str(run.trace.resolve()))
    return names


def _distinct(side: list[Counted]) -> list[Counted]:
    """`side`, refused if one recording is in it twice: copies would pass for independent runs that agree.

    Raises:
        ProfkitError: two of the runs are the same recording.
    """
    labels: dict[str, str] = {}
    for run in side:
        if run.identity in labels:
            raise ProfkitError(
                f"{labels[run.identity]} and {run.label} are the same recording, given twice on one side. Copies are "
                "no repeated runs; leave one out."
            )
        labels[run.identity] = run.label
    return side


def _one_sided(error: NothingSelectedError, label: str, *, after: bool) -> str:
    """`error`, with the side that it is about: the sides are counted in order, so that before has what after lacks."""
    if not after:
        return f"{label}, before: {error}"
    return f"{label}, after: {error} Before has it; select what both sides have, e.g. the part around it."


def in_phase(first: Census, census: Census, recount: Callable[[Phase], Census]) -> Census:
    """`census`, counted anew where it was cut into layers otherwise than the first run, or not at all.

    Args:
        recount: counts it cut as the given phase says, where its kernels allow that.
    """
    wanted, own = first.phase, census.phase
    refused = own is None and any(note.code == "cut-does-not-fit" for note in census.diagnostics)
    if wanted is None or (own is None and not refused) or (own is not None and _agree(wanted, own)):
        return census
    again = recount(wanted)
    if again.phase is not None and _agree(wanted, again.phase) and again.kinds:
        message = (
            f"{_layers(again.phase)}, as in the run that was cut first; by itself this run would have {_layers(own)}."
        )
        return replace(again, diagnostics=(*again.diagnostics, Diagnostic("cut-aligned", message)))
    if own is None:
        return census
    message = (
        f"{_layers(own)} here and {_layers(wanted)} in the run that was cut first, and they cannot be divided alike: "
        "launches at the border of two layers may be paired wrongly. Name a kernel that all run once a layer with "
        "--anchor."
    )
    return replace(census, diagnostics=(*census.diagnostics, Diagnostic("cut-differs", message)))


def _agree(before: Phase, after: Phase) -> bool:
    """Whether both sides have as many layers, which begin with the same kernel."""
    return before.layers == after.layers and before.common_start(after) is None


def _layers(phase: Phase | None) -> str:
    return (
        "no layers" if phase is None else f"{counted(phase.layers, 'layer')} that begin with {shortened(phase.start)}"
    )
