"""`profkit capture`: a workload, or any command, recorded under a profiler into a run directory."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError
from profkit.model.run import FloorRecord, RunRecord, StepTimesRecord
from profkit.model.wording import counted

if TYPE_CHECKING:
    from profkit.capture.options import Options
    from profkit.capture.pairs import Finished


def capture_workload(options: Options, output: Path, *, force: bool) -> str:
    """Capture a workload, once or in repetitions of one or two arms; returns the summary to print."""
    if options.pairs is not None:
        from profkit.capture import pairs

        return summarise_pairs(pairs.capture(options, output, force=force))
    from profkit.capture import session

    finished = session.capture(options, output, force=force)
    return summarise(finished.path, finished.records, f" ({finished.why})")


def on_ranks(options: Options) -> Options | None:
    """`options` for a process that torchrun may have started; None where another process captures for it.

    The ranks of a capture are complete or absent together, so one profkit starts all of them: rank 0's, as ``--nproc``
    does. Those of the other ranks have nothing to do.

    Raises:
        ProfkitError: torchrun started another number of processes than ``--nproc`` asks for, or on several hosts.
    """
    from profkit.capture.workers import under_torchrun

    launched = under_torchrun()
    if launched is None:
        return options
    rank, size = launched
    if options.nproc not in (None, size):
        raise ProfkitError(f"--nproc {options.nproc}, but torchrun started {size} processes. Leave one of them out.")
    return dataclasses.replace(options, nproc=size) if rank == 0 else None


def capture_command(command: Sequence[str], options: Options, output: Path, *, force: bool) -> tuple[str, int]:
    """Capture any command; returns the summary to print and the command's exit status."""
    from profkit.capture import session

    if not command:
        raise ProfkitError("Nothing to run after `--`. Give a command: profkit capture -o DIR -- python app.py")
    finished = session.capture_command(command, options, output, force=force)
    return summarise(finished.path, finished.records, ""), finished.exit_code


def summarise(path: Path, ranks: Sequence[RunRecord], why: str) -> str:
    """A few lines about a finished capture: profiler, directory, times, warnings, and what to do next.

    Args:
        ranks: run.json of every rank.
    """
    times: list[str] = []
    for own in ranks:
        if (untraced := own.untraced) is not None:
            whose = f"rank {own.ranks.rank} " if own.ranks and len(ranks) > 1 else ""
            times.append(f"untraced: {whose}{_step_times(untraced)}")
        if own.graph_level is not None:
            times.append(f"traced at graph level: {_step_times(own.graph_level)}")
    workload = ranks[0].workload
    what = f"{workload.name} {workload.variant}" if workload else None
    lines = _lines(ranks[0], why, what, times, ranks)
    idle = any(warning.code == "no-gpu-work" for warning in ranks[0].warnings or ())
    then = "record a command that uses the GPU; there are no layers to count" if idle else f"profkit layers {path}"
    return "\n".join([*lines, f"run directory: {path}", f"next: {then}"])


def _lines(
    record: RunRecord, why: str, what: str | None, more: Sequence[str], records: Sequence[RunRecord]
) -> list[str]:
    """What is said of every capture.

    Args:
        record: tells what all `records` have in common.
        what: workload and variants; None for a command.
        more: lines on this kind of capture, among them its times.
    """
    profiler = f"{record.profiler.name} {record.profiler.version}" if record.profiler else "unknown"
    lines = [f"profiler: {profiler}{why}"]
    if what is not None:
        layers = record.workload.layers if record.workload else None
        device = record.device.name if record.device else None
        amount = f"{counted(layers or 0, 'layer')}, {counted(record.replays or 0, 'replay')}"
        lines.append(f"workload: {what}, {amount} on {device}")
    lines += [*_ranks_lines(record), *more, *floor_lines(record.floor)]
    if record.digests and record.digests.outputs:
        lines.append(
            f"outputs: {len(record.digests.outputs)} kept, as digests and numbers that `profkit diff` compares"
        )
    if not record.timed:
        lines.append("not timed: launches were counted on the CPU, one for each operator; there are no times")
    warnings = Counter((w.code, w.message) for own in records for w in own.warnings or ())
    return lines + [
        f"warning: {code}: {message}" + (f" ({n} of {len(records)})" if len(records) > 1 else "")
        for (code, message), n in warnings.items()
    ]


def _step_times(times: StepTimesRecord) -> str:
    spread = f"quartiles {times.p25:.1f} to {times.p75:.1f}"
    return f"{times.median:.1f} us a step (median of {times.replays}, {spread})"


def floor_lines(floor: FloorRecord | None) -> list[str]:
    """A line for the dispatch floor; none where it was not measured."""
    if floor is None:
        return []
    empty, loaded = floor.empty, floor.load_store
    return [
        f"dispatch floor: {empty.untraced_per_node.median:.2f} us a node untraced, "
        f"{empty.traced_duration.median:.2f} us a kernel traced; with one load and store "
        f"{loaded.untraced_per_node.median:.2f} and {loaded.traced_duration.median:.2f}"
    ]


def summarise_pairs(finished: Finished) -> str:
    """A few lines about a repeated capture: what was recorded, each arm's step time, what was set aside, what next."""
    from profkit.capture.pairs import untraced_us

    records = [record for _, ranks in finished.records for record in ranks]
    newest = records[-1]
    name = newest.workload.name if newest.workload else None
    arms = " against ".join(arm.name for arm in finished.arms)
    lines = [f"recorded: {len(finished.records)} of {finished.total} repetitions{_duration(finished.durations_s)}"]
    for arm in finished.arms:
        own = [ranks for repetition, ranks in finished.records if repetition.arm == arm]
        medians = [median_us for ranks in own if (median_us := untraced_us(ranks)) is not None]
        if medians:
            spread = f"{min(medians):.1f} to {max(medians):.1f}"
            lines.append(
                f"untraced: {arm.name} {statistics.median(medians):.1f} us a step (median of {len(medians)}, {spread})"
            )
    lines = _lines(newest, f" ({finished.why})", f"{name} {arms}", lines, records)
    return "\n".join([*lines, *_set_aside_lines(finished), *_next_lines(finished)])


def _ranks_lines(record: RunRecord) -> list[str]:
    """A line on the ranks and how they exchange; none for a process without a group."""
    ranks = record.ranks
    if ranks is None:
        return []
    exchange = record.workload.shapes.get("exchange") if record.workload else None
    how = "" if exchange is None else f"; exchange: {exchange}"
    return [f"ranks: {ranks.world_size}, a process each, joined over {ranks.backend}{how}"]


def _duration(durations_s: Sequence[float]) -> str:
    if not durations_s:
        return ", none of them now"
    return f", {len(durations_s)} of them now in {sum(durations_s):.0f} s ({statistics.median(durations_s):.1f} s each)"


def _set_aside_lines(finished: Finished) -> list[str]:
    if len(finished.records) < finished.total:
        return ["set aside: decided when all repetitions are there"]
    aside = [(repetition, why) for repetition, ranks in finished.records if (why := ranks[0].set_aside)]
    return [
        f"set aside: {len(aside)} of {finished.total} repetitions",
        *(f"  {r.arm.name}, pair {r.pair}: {why.code}: {why.message}" for r, why in aside),
    ]


def _next_lines(finished: Finished) -> list[str]:
    lines = [f"directory: {finished.path}"]
    if len(finished.records) < finished.total:
        return [*lines, "next: the same command records the rest"]
    return [*lines, f"next: profkit {'diff' if len(finished.arms) > 1 else 'layers'} {finished.path}"]
