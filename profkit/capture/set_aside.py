"""Which repetitions of a repeated capture stalled: decided once all are there, from each arm alone, by one rule."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from profkit.model.run import MessageRecord, RunRecord
from profkit.model.wording import counted


@dataclass(frozen=True)
class OutlierRule:
    """When an untraced median lies too far from those of the same arm's other repetitions.

    A repetition is an outlier where it lies further from the median of its arm than both bounds, in either direction:
    setting aside slow ones alone would make every arm look faster.

    Args:
        deviations: robust standard deviations (1.4826 × the median absolute deviation). Five, since the deviation of
            some seven values is itself uncertain; a normal sample passes five once in a million times.
        share: of the arm's median. Repetitions on a quiet GPU agree within a percent, and a clock that was throttled
            or a GPU that was shared shows as more than five; without this bound one of seven near-equal values
            would often be five tiny deviations away.
        minimum: fewer repetitions than this are not judged: three cannot tell which of them is the odd one.
    """

    deviations: float = 5.0
    share: float = 0.05
    minimum: int = 4


RULE = OutlierRule()
#: The median absolute deviation of a normal distribution times this is its standard deviation.
_NORMAL = 1.4826


def outliers(medians_us: Sequence[float], rule: OutlierRule = RULE) -> list[bool]:
    """For each untraced median of one arm whether it is an outlier.

    Args:
        medians_us: one for each repetition of the arm, in µs.
    """
    if len(medians_us) < rule.minimum:
        return [False] * len(medians_us)
    center = statistics.median(medians_us)
    deviation = _NORMAL * statistics.median(abs(value - center) for value in medians_us)
    bound = max(rule.deviations * deviation, rule.share * center)
    return [abs(value - center) > bound for value in medians_us]


def judge(jobs: Sequence[Sequence[RunRecord]], rule: OutlierRule = RULE) -> list[MessageRecord | None]:
    """The `set_aside` field for each repetition of one arm, None for those that are kept.

    A compilation inside the window sets a repetition aside first, and it is left out where the others are judged.

    Args:
        jobs: for every repetition of the arm the run.json of each of its ranks, which are set aside together.
    """
    verdicts = [_compiled(job) for job in jobs]
    timed = [
        (index, median_us)
        for index, (job, verdict) in enumerate(zip(jobs, verdicts, strict=True))
        if verdict is None and (median_us := untraced_us(job)) is not None
    ]
    medians_us = [median_us for _, median_us in timed]
    for (index, median_us), is_outlier in zip(timed, outliers(medians_us, rule), strict=True):
        if is_outlier:
            center_us = statistics.median(medians_us)
            verdicts[index] = MessageRecord(
                code="step-time-outlier",
                message=f"Its untraced step took {median_us:.1f} us where the median of the arm's {len(timed)} "
                f"repetitions is {center_us:.1f} us: further off than {rule.deviations:g} robust standard deviations "
                f"and {rule.share:.0%}.",
            )
    return verdicts


def untraced_us(job: Sequence[RunRecord]) -> float | None:
    """The untraced step time of one repetition, µs: the mean of its ranks' medians; None where one has none."""
    medians = [record.untraced.median for record in job if record.untraced and record.untraced.median is not None]
    return statistics.fmean(medians) if len(medians) == len(job) else None


def _compiled(job: Sequence[RunRecord]) -> MessageRecord | None:
    inside = [entry for record in job if record.compiles for entry in record.compiles.inside]
    if not inside:
        return None
    names = ", ".join(sorted({str(entry.name) for entry in inside}))
    return MessageRecord(
        code="compiled-inside-window",
        message=f"{counted(len(inside), 'compilation')} ran inside the recorded window ({names}).",
    )
