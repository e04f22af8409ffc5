"""`profkit capture WORKLOAD --pairs N`: fresh processes for each repetition, arms interleaved, resumable.

capture.json beside the arms says what is planned. Once all repetitions are there, those that stalled are set aside:
decided from each arm alone, by one rule.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from profkit.capture import floor, process, sittings
from profkit.capture.options import Options
from profkit.capture.record import compiled_inside
from profkit.capture.session import begin, record_into
from profkit.capture.sittings import check_same, locked, shown, source_digest
from profkit.capture.workers import Workers
from profkit.errors import ProfkitError
from profkit.model.run import MessageRecord, RepetitionRecord, RunRecord
from profkit.runs import planned as planned_file
from profkit.runs import run_dir
from profkit.runs.planned import PLAN_FILE, SCHEMA, CapturePlan, PlannedArm
from profkit.runs.whole_files import write_json

#: Of a repetition that failed, beside where it would be.
_LOG = re.compile(r"\d+\.log")


@dataclass(frozen=True)
class Repetition:
    """One capture of one arm: `sequence` is its place in the order of recording, from 0, and so is `pair`.

    Args:
        place: the directory of its run directories.
        nproc: ranks; None for one process without a group.
    """

    sequence: int
    pair: int
    arm: PlannedArm
    place: Path
    nproc: int | None = None

    @property
    def directory(self) -> Path:
        """What is renamed into place once it is complete: its run directory, or that of all of its ranks'."""
        return self.place / "0" if self.nproc is None else self.place

    @property
    def runs(self) -> list[Path]:
        """Its run directories, one a rank."""
        return [self.place / str(rank) for rank in range(self.nproc or 1)]

    @property
    def is_complete(self) -> bool:
        """Whether it has been recorded."""
        return all(run_dir.is_run(run) for run in self.runs)


def make_arms(variant: str | None, against: str | None) -> tuple[PlannedArm, ...]:
    """The arms of a repeated capture: one, or two that may be of one variant (an A/A control).

    Raises:
        ProfkitError: no variant, as a user's file may leave it, or one that cannot name a directory.
    """
    if variant is None:
        raise ProfkitError("Give --variant: the arms of a repeated capture are named after their variants.")
    for name in (variant, against or variant):
        if Path(name).name != name or name.startswith("."):
            raise ProfkitError(f"The variant {name!r} cannot name an arm's directory. Rename it in the workload.")
    if against is None:
        return (PlannedArm(variant, variant),)
    return PlannedArm(variant, variant), PlannedArm(against if against != variant else f"{against}-2", against)


def interleaved(arms: Sequence[PlannedArm], options: Options, output: Path) -> list[Repetition]:
    """Every repetition in the order of recording: A B, B A, A B, … so that drift meets both arms alike."""
    pairs = range(options.pairs or 1)
    ordered = [(pair, arm) for pair in pairs for arm in (arms if pair % 2 == 0 else arms[::-1])]
    return [
        Repetition(sequence, pair, arm, output / arm.name / str(pair), options.nproc)
        for sequence, (pair, arm) in enumerate(ordered)
    ]


def describe(options: Options, arms: Sequence[PlannedArm]) -> CapturePlan:
    """The `plan` field of capture.json.

    A workload file is named without its directory; its content is digested, so that a change between sittings is seen.

    Raises:
        ProfkitError: there is no such file.
    """
    given = dataclasses.asdict(options) | {
        "workload": options.name,
        "workload_sha256": source_digest(options.workload),
        "arms": list(arms),
        "shapes": dict(sorted(text.partition("=")[::2] for text in options.shapes)),
    }
    return CapturePlan(**{name: given[name] for name in CapturePlan.__struct_fields__})


@dataclass(frozen=True)
class Finished:
    """A repeated capture as it stands: complete, or stopped by its time limit.

    Args:
        arms: first the one named by ``--variant``.
        records: each repetition that is there, in the order of recording, with the run.json of each of its ranks.
        total: repetitions planned.
        durations_s: of the repetitions recorded now.
        why: why its profiler was used.
    """

    path: Path
    arms: Sequence[PlannedArm]
    records: Sequence[tuple[Repetition, Sequence[RunRecord]]]
    total: int
    durations_s: Sequence[float]
    why: str


def capture(options: Options, output: Path, *, force: bool) -> Finished:
    """Record what is missing of a repeated capture at `output`, or with `force` all of it; once nothing is, mark what
    stalled.

    Raises:
        ProfkitError: bad options, a capture begun with other options, a repetition that fails (those before it stay).
    """
    begun, existed = _begun(output), output.exists()
    with process.terminable():
        workers = begin(options)
        arms = make_arms(workers.options.variant, workers.options.against)
        described = msgspec.to_builtins(describe(workers.options, arms))
        order = interleaved(arms, workers.options, output)
        with locked(output):
            if begun and not force and any(output.glob(f"*/*/0/{run_dir.RUN_FILE}")):
                check_same(output, "a repeated capture", msgspec.to_builtins(planned_file.read(output)), described)
            else:
                _start_over(output)
                write_json(output / PLAN_FILE, {"schema": SCHEMA, "plan": described})
            try:
                durations_s = _record_missing(workers, order, output)
            except _RefusedError:
                _start_over(output)
                if not existed:
                    output.rmdir()
                raise
            if all(repetition.is_complete for repetition in order):
                _mark_stalled(arms, order)
            records = [
                (repetition, [run_dir.load(path).record for path in repetition.runs])
                for repetition in order
                if repetition.is_complete
            ]
            return Finished(output, arms, records, len(order), durations_s, workers.why)


def _begun(output: Path) -> bool:
    """Whether `output` holds a repeated capture.

    Raises:
        ProfkitError: it holds something else, or is a link.
    """
    run_dir.refuse_link(output)
    if (output / PLAN_FILE).is_file():
        return True
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise ProfkitError(f"{output} exists and holds no repeated capture (no {PLAN_FILE}). Choose another -o.")
    return False


def _start_over(output: Path) -> None:
    """Remove what a repeated capture has left in `output`, if any: its plan and its arms.

    Raises:
        ProfkitError: something else lies in an arm; nothing is removed.
    """
    if not (output / PLAN_FILE).exists():
        return
    arms = [output / own.name for arm in planned_file.read(output).arms for own in make_arms(arm.name, None)]
    for path in (path for arm in arms for path in arm.rglob("*") if path.is_symlink() or not path.is_dir()):
        around = path.parents[: len(path.relative_to(output).parts) - 1]
        ours = _LOG.fullmatch(path.name) or any(run_dir.is_replaceable(one) or run_dir.is_part(one) for one in around)
        if not ours:
            raise ProfkitError(
                f"{path.parent} holds more than runs, so {output} is not started over. Choose another -o."
            )
    for arm in arms:
        if arm.exists():
            shutil.rmtree(arm)
    (output / PLAN_FILE).unlink()


def _record_missing(workers: Workers, order: Sequence[Repetition], output: Path) -> list[float]:
    """Record each repetition of `order` that is not there; returns how long each took, in seconds."""
    missing = [repetition for repetition in order if not repetition.is_complete]
    durations_s: list[float] = []
    options = workers.options
    if not missing:
        return durations_s
    with shown(len(order) - len(missing), len(order)) as display:
        if options.with_floor and workers.profiler.timed:
            display.note("measuring the dispatch floor")
            # Now, so that the first repetition takes no longer than the others and what is left is estimated well.
            floor.beside(workers)
        for repetition in sittings.within(missing, options.stop_after_s):
            arm, pair, directory = repetition.arm, repetition.pair, repetition.directory
            display.begins(f"{arm.name}, pair {pair}")
            crash_log = directory.with_name(f"{directory.name}.log")
            crash_log.unlink(missing_ok=True)
            own = dataclasses.replace(
                workers, options=dataclasses.replace(options, variant=arm.variant), crash_log=crash_log
            )
            place = RepetitionRecord(arm=arm.name, pair=pair, sequence=repetition.sequence)
            started = time.monotonic()
            try:
                with run_dir.new(directory) as temporary:
                    record_into(own, temporary, place)
            except ProfkitError as error:
                if not display.done and not crash_log.exists():
                    raise _RefusedError(str(error), error.exit_code) from error
                raise ProfkitError(
                    f"{error} This was {arm.name}, pair {pair}; {display.done} of {len(order)} "
                    f"repetitions are kept in {output}, and the same command resumes.",
                    error.exit_code,
                ) from error
            durations_s.append(time.monotonic() - started)
            display.ended(durations_s[-1])
    return durations_s


class _RefusedError(ProfkitError):
    """The first repetition was refused before anything ran, so that the same command would be refused again."""


def _mark_stalled(arms: Sequence[PlannedArm], order: Sequence[Repetition]) -> None:
    """Write the `set_aside` field of every repetition, decided from all of its arm."""
    for arm in arms:
        jobs = [[run_dir.load(path) for path in own.runs] for own in order if own.arm == arm]
        verdicts = judge([[run.record for run in job] for job in jobs])
        for job, verdict in zip(jobs, verdicts, strict=True):
            for run in job:
                if run.record.set_aside != verdict:
                    run_dir.write_record(run.path, msgspec.structs.replace(run.record, set_aside=verdict))


#: A repetition is an outlier where its untraced median lies further from the median of its arm than both bounds, in
#: either direction: setting aside slow ones alone would make every arm look faster.
#: Robust standard deviations (1.4826 × the median absolute deviation, as of a normal distribution). Five, since the
#: deviation of some seven values is itself uncertain; a normal sample passes five once in a million times.
DEVIATIONS = 5.0
#: Of the arm's median. Repetitions on a quiet GPU agree within a percent, and a clock that was throttled or a GPU that
#: was shared shows as more than five; without this bound one of seven near-equal values would often be five tiny
#: deviations away.
SHARE = 0.05
#: Fewer repetitions than this are not judged: three cannot tell which of them is the odd one.
MINIMUM = 4


def outliers(medians_us: Sequence[float]) -> list[bool]:
    """For each untraced median of one arm whether it is an outlier."""
    if len(medians_us) < MINIMUM:
        return [False] * len(medians_us)
    center = statistics.median(medians_us)
    deviation = 1.4826 * statistics.median(abs(value - center) for value in medians_us)
    bound = max(DEVIATIONS * deviation, SHARE * center)
    return [abs(value - center) > bound for value in medians_us]


def judge(jobs: Sequence[Sequence[RunRecord]]) -> list[MessageRecord | None]:
    """The `set_aside` field for each repetition of one arm, None for those that are kept.

    A compilation inside the window sets a repetition aside first, and it is left out where the others are judged. The
    ranks of one, whose run.json `jobs` holds, are set aside together.
    """
    verdicts = [compiled_inside(job) for job in jobs]
    medians_us = {
        index: median_us
        for index, job in enumerate(jobs)
        if verdicts[index] is None and (median_us := untraced_us(job)) is not None
    }
    for (index, median_us), is_outlier in zip(medians_us.items(), outliers([*medians_us.values()]), strict=True):
        if is_outlier:
            center_us = statistics.median(medians_us.values())
            verdicts[index] = MessageRecord(
                code="step-time-outlier",
                message=f"Its untraced step took {median_us:.1f} us where the median of the arm's {len(medians_us)} "
                f"repetitions is {center_us:.1f} us: further off than {DEVIATIONS:g} robust standard deviations "
                f"and {SHARE:.0%}.",
            )
    return verdicts


def untraced_us(job: Sequence[RunRecord]) -> float | None:
    """The untraced step time of one repetition, µs: the mean of its ranks' medians; None where one has none."""
    medians = [record.untraced.median for record in job if record.untraced and record.untraced.median is not None]
    return statistics.fmean(medians) if len(medians) == len(job) else None
