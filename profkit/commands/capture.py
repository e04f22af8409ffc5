"""`profkit capture`: a workload, or any command, recorded under a profiler into a run directory."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.model.run import RunRecord, StepTimesRecord
from profkit.model.wording import counted

if TYPE_CHECKING:
    from profkit.capture import pairs, session
    from profkit.capture.options import Options


def capture_workload(options: Options, output: Path, *, force: bool) -> str:
    """Capture a workload, once or in repetitions of one or two arms; returns the summary to print."""
    from profkit.capture import pairs, session

    if options.pairs is not None:
        return summarise_pairs(pairs.capture(options, output, force=force))
    return summarise(session.capture(options, output, force=force))


def capture_command(command: Sequence[str], options: Options, output: Path, *, force: bool) -> tuple[str, int]:
    """Capture any command; returns the summary to print and the command's exit status."""
    from profkit.capture import session

    finished = session.capture_command(command, options, output, force=force)
    return summarise(finished), finished.exit_code


def summarise(finished: session.Finished) -> str:
    """A few lines about a finished capture: profiler, directory, times, warnings, and what to do next."""
    records, times = finished.records, list[str]()
    for own in records:
        whose = f"rank {own.ranks.rank} " if own.ranks and len(records) > 1 else ""
        recorded = {"untraced": own.untraced, "traced at graph level": own.graph_level}
        times += [f"{how}: {whose}{_step_times(step)}" for how, step in recorded.items() if step is not None]
    workload = records[0].workload
    what = f"{workload.name} {workload.variant}" if workload else None
    idle = any(warning.code == "no-gpu-work" for warning in records[0].warnings or ())
    then = (
        "record a command that uses the GPU; there are no layers to count"
        if idle
        else f"profkit layers {finished.path}"
    )
    why = f" ({finished.why})" if finished.why else ""
    return "\n".join(
        [*_lines(records, why, what, times), f"run directory: {finished.path}", f"next: {then}"],
    )


def summarise_pairs(finished: pairs.Finished) -> str:
    """A few lines about a repeated capture: what was recorded, each arm's step time, what was set aside, what next."""
    from profkit.capture.pairs import untraced_us

    here, total, durations_s = len(finished.records), finished.total, finished.durations_s
    now = "none of them now"
    if durations_s:
        each_s = statistics.median(durations_s)
        now = f"{len(durations_s)} of them now in {sum(durations_s):.0f} s ({each_s:.1f} s each)"
    times = [f"recorded: {here} of {total} repetitions, {now}"]
    for arm in finished.arms:
        own = [untraced_us(ranks) for repetition, ranks in finished.records if repetition.arm == arm]
        if medians := [median_us for median_us in own if median_us is not None]:
            spread = f"{min(medians):.1f} to {max(medians):.1f}"
            step = f"{statistics.median(medians):.1f} us a step (median of {len(medians)}, {spread})"
            times.append(f"untraced: {arm.name} {step}")
    aside, then = ["set aside: decided when all repetitions are there"], "the same command records the rest"
    if here == total:
        found = [(repetition, why) for repetition, ranks in finished.records if (why := ranks[0].set_aside)]
        aside = [f"set aside: {len(found)} of {total} repetitions"]
        aside += [f"  {own.arm.name}, pair {own.pair}: {why.code}: {why.message}" for own, why in found]
        then = f"profkit {'diff' if len(finished.arms) > 1 else 'layers'} {finished.path}"
    records = [record for _, ranks in finished.records for record in ranks]
    workload = records[-1].workload
    what = f"{workload.name if workload else None} {' against '.join(arm.name for arm in finished.arms)}"
    lines = _lines(records, f" ({finished.why})", what, times)
    return "\n".join([*lines, *aside, f"directory: {finished.path}", f"next: {then}"])


def _lines(records: Sequence[RunRecord], why: str, what: str | None, times: Sequence[str]) -> list[str]:
    """What is said of every capture, the newest record speaking for all.

    Args:
        what: workload and variants; None for a command.
    """
    record = records[-1]
    profiler, workload, ranks = record.profiler, record.workload, record.ranks
    lines = [f"profiler: {profiler.name} {profiler.version}{why}" if profiler else f"profiler: unknown{why}"]
    if workload is not None:
        amount = f"{counted(workload.layers or 0, 'layer')}, {counted(record.replays or 0, 'replay')}"
        lines.append(f"workload: {what}, {amount} on {record.device.name if record.device else None}")
    if ranks is not None:
        exchange = workload.shapes.get("exchange") if workload else None
        how = "" if exchange is None else f"; exchange: {exchange}"
        lines.append(f"ranks: {ranks.world_size}, a process each, joined over {ranks.backend}{how}")
    lines += times
    if record.floor is not None:
        empty, loaded = record.floor.empty, record.floor.load_store
        lines.append(
            f"dispatch floor: {empty.untraced_per_node.median:.2f} us a node untraced, "
            f"{empty.traced_duration.median:.2f} us a kernel traced; with one load and store "
            f"{loaded.untraced_per_node.median:.2f} and {loaded.traced_duration.median:.2f}"
        )
    if record.digests and record.digests.outputs:
        kept = len(record.digests.outputs)
        lines.append(f"outputs: {kept} kept, as digests and numbers that `profkit diff` compares")
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
