"""`profkit capture WORKLOAD --pairs N`: fresh processes for each repetition, arms interleaved, resumable."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from profkit.capture import pairs_plan, process, progress, set_aside
from profkit.capture.floor import Floor
from profkit.capture.pairs_plan import Arm, Repetition
from profkit.capture.plan import Options, resolve_variant
from profkit.capture.plan_file import check_same, locked
from profkit.capture.workload_run import Session, plan, record_into
from profkit.errors import ProfkitError
from profkit.model.run import RunRecord
from profkit.number_ranges import check_number
from profkit.runs import planned as planned_file
from profkit.runs import run_dir


@dataclass(frozen=True)
class PairsOptions:
    """What a repeated capture adds to `Options`, whose variant is the first arm's.

    Args:
        against: the second arm's variant; None repeats one arm.
        pairs: repetitions of each arm.
        keep_report: keep nsys's own report beside each export.
        with_floor: measure the dispatch floor, once a sitting.
        stop_after_s: begin no repetition that would end later than this after the start; None for no limit.
    """

    against: str | None
    pairs: int
    keep_report: bool = False
    with_floor: bool = True
    stop_after_s: float | None = None


@dataclass(frozen=True)
class Finished:
    """A repeated capture as it stands: complete, or stopped by its time limit.

    Args:
        path: its directory.
        arms: its arms, first the one named by ``--variant``.
        records: each repetition that is there, in the order of recording, with the run.json of each of its ranks.
        total: repetitions planned.
        durations_s: of the repetitions recorded now.
        why: why its profiler was used.
    """

    path: Path
    arms: Sequence[Arm]
    records: Sequence[tuple[Repetition, Sequence[RunRecord]]]
    total: int
    durations_s: Sequence[float]
    why: str


def capture(options: Options, wanted: PairsOptions, output: Path, *, force: bool) -> Finished:
    """Record what is missing of a repeated capture at `output`; once nothing is, mark what stalled.

    Args:
        force: start over where `output` holds a repeated capture already.

    Raises:
        ProfkitError: bad options, a capture begun with other options, a repetition that fails (those before it stay).
    """
    check_number("--pairs", wanted.pairs)
    check_number("--stop-after", wanted.stop_after_s)
    begun, existed = _begun(output), output.exists()
    with process.terminable():
        variant, against = _variants(options, wanted.against)
        planned, found = plan(dataclasses.replace(options, variant=variant))
        arms = pairs_plan.make_arms(variant, against)
        described = pairs_plan.describe(planned, arms, wanted.pairs, keep_report=wanted.keep_report)
        session = Session(planned, found, Floor(planned.profiler, found, wanted.with_floor), wanted.keep_report)
        order = pairs_plan.interleaved(arms, wanted.pairs, planned.nproc)
        with locked(output):
            if begun and not force and any(output.glob(f"*/*/0/{run_dir.RUN_FILE}")):
                check_same(output, "a repeated capture", planned_file.read(output), described)
            else:
                _start_over(output)
                pairs_plan.write(output, described)
            _remove_partial(output)
            try:
                durations_s = _record_missing(session, order, output, wanted.stop_after_s)
            except _RefusedError:
                _start_over(output)
                if not existed:
                    output.rmdir()
                raise
            if all(repetition.is_complete(output) for repetition in order):
                _mark_stalled(arms, order, output)
            return Finished(output, arms, _records(order, output), len(order), durations_s, planned.why)


def _begun(output: Path) -> bool:
    """Whether `output` holds a repeated capture.

    Raises:
        ProfkitError: it holds something else.
    """
    if (output / planned_file.PLAN_FILE).is_file():
        return True
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise ProfkitError(
            f"{output} exists and holds no repeated capture (no {planned_file.PLAN_FILE}). Choose another -o."
        )
    return False


def _variants(options: Options, against: str | None) -> tuple[str, str | None]:
    """The variants of both arms; checked here for a shipped workload, by the worker for a user's file."""
    if ":" in options.workload:
        if options.variant is None:
            raise ProfkitError("Give --variant: the arms of a repeated capture are named after their variants.")
        return options.variant, against
    from profkit import kernels

    workload = kernels.load(options.workload)
    return resolve_variant(workload, options.variant), None if against is None else resolve_variant(workload, against)


def _start_over(output: Path) -> None:
    """Remove what a repeated capture has left in `output`, if any: its plan and its arms, and nothing else."""
    if not (output / planned_file.PLAN_FILE).exists():
        return
    for arm in planned_file.read(output)["arms"]:
        (name,) = {arm.name for arm in pairs_plan.make_arms(str(arm["name"]), None)}
        if (output / name).exists():
            shutil.rmtree(output / name)
    (output / planned_file.PLAN_FILE).unlink()


def _remove_partial(output: Path) -> None:
    """Remove what a killed capture left under temporary names; nobody else can be writing here now."""
    for pattern in ("*/*/.0.*.part", "*/.*.part"):
        for partial in output.glob(pattern):
            shutil.rmtree(partial)


def _record_missing(
    session: Session, order: Sequence[Repetition], output: Path, stop_after_s: float | None
) -> list[float]:
    """Record each repetition of `order` that is not there; returns how long each took, in seconds."""
    missing = [repetition for repetition in order if not repetition.is_complete(output)]
    durations_s: list[float] = []
    begun = time.monotonic()
    if not missing:
        return durations_s
    with progress.shown(len(order) - len(missing), len(order)) as display:
        if session.floor.is_due:
            display.note("measuring the dispatch floor")
            # Now, so that the first repetition takes no longer than the others and what is left is estimated well.
            _ = session.floor.measured
        for repetition in missing:
            started = time.monotonic()
            if durations_s and stop_after_s is not None and started - begun + max(durations_s) > stop_after_s:
                break
            display.begins(f"{repetition.arm.name}, pair {repetition.pair}")
            try:
                _record(session, repetition, output)
            except ProfkitError as error:
                if not display.done and not _crash_log(repetition, output).exists():
                    raise _RefusedError(str(error), error.exit_code) from error
                raise ProfkitError(
                    f"{error} This was {repetition.arm.name}, pair {repetition.pair}; {display.done} of {len(order)} "
                    f"repetitions are kept in {output}, and the same command resumes.",
                    error.exit_code,
                ) from error
            durations_s.append(time.monotonic() - started)
            display.ended(durations_s[-1])
    return durations_s


class _RefusedError(ProfkitError):
    """The first repetition was refused before anything ran, so that the same command would be refused again."""


def _crash_log(repetition: Repetition, output: Path) -> Path:
    directory = repetition.directory(output)
    return directory.with_name(f"{directory.name}.log")


def _record(session: Session, repetition: Repetition, output: Path) -> None:
    directory = repetition.directory(output)
    crash_log = _crash_log(repetition, output)
    crash_log.unlink(missing_ok=True)
    own = dataclasses.replace(session, plan=dataclasses.replace(session.plan, variant=repetition.arm.variant))
    with run_dir.new(directory) as temporary:
        record_into(own, temporary, crash_log=crash_log, repetition=repetition.record())


def _records(order: Sequence[Repetition], output: Path) -> list[tuple[Repetition, Sequence[RunRecord]]]:
    return [
        (repetition, [run_dir.load(path).record for path in repetition.runs(output)])
        for repetition in order
        if repetition.is_complete(output)
    ]


def _mark_stalled(arms: Sequence[Arm], order: Sequence[Repetition], output: Path) -> None:
    """Write the `set_aside` field of every repetition, decided from all of its arm."""
    for arm in arms:
        jobs = [[run_dir.load(path) for path in own.runs(output)] for own in order if own.arm == arm]
        verdicts = set_aside.judge([[run.record for run in job] for job in jobs])
        for job, verdict in zip(jobs, verdicts, strict=True):
            for run in job:
                if run.record.set_aside != verdict:
                    _rewrite(run, msgspec.structs.replace(run.record, set_aside=verdict))


def _rewrite(run: run_dir.Run, record: RunRecord) -> None:
    """Replace a run's run.json; a reader sees the old one or the new one."""
    with tempfile.TemporaryDirectory(prefix="work.", dir=run.path) as name:
        run_dir.write_record(Path(name), record)
        (Path(name) / run_dir.RUN_FILE).replace(run.path / run_dir.RUN_FILE)
