"""Fields of run.json: what every capture writes, how times are summed up, and what is said of a workload's run."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from profkit._version import __version__
from profkit.capture.options import Result
from profkit.model.run import MessageRecord, QuartilesRecord, RunRecord, StepTimesRecord
from profkit.model.wording import counted
from profkit.runs import run_dir


def begin(directory: Path, trace: str) -> RunRecord:
    """run.json as far as it says who captured, and which files.

    Args:
        directory: holds the run's files and nothing else.
        trace: the name of the one that the readers open.
    """
    files = sorted(path.name for path in directory.iterdir())
    return RunRecord(
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        profkit=__version__,
        commit=source_commit(),
        trace=trace,
        files=files,
        trace_sha256=run_dir.trace_digests(directory, trace, files),
    )


def quartiles(values_us: Sequence[float]) -> QuartilesRecord:
    """Median, quartiles and number of `values_us`, in µs to the nanosecond."""
    cuts = [values_us[0]] * 3 if len(values_us) == 1 else statistics.quantiles(values_us, n=4, method="inclusive")
    p25, median, p75 = (round(value, 3) for value in cuts)
    return QuartilesRecord(median=median, p25=p25, p75=p75, count=len(values_us))


def step_times(samples_us: Sequence[float], method: str) -> StepTimesRecord:
    """The `untraced` or `graph_level` field, from each replay's time in µs and how that was measured."""
    summary = quartiles(samples_us)
    return StepTimesRecord(
        unit="us",
        method=method,
        replays=len(samples_us),
        median=summary.median,
        p25=summary.p25,
        p75=summary.p75,
        min=min(samples_us),
        max=max(samples_us),
        samples=list(samples_us),
    )


def warnings(traced: Result, digests_equal: bool | None) -> Iterator[MessageRecord]:
    """What is to be said of a workload's run.

    Args:
        digests_equal: whether the untraced process computed the same bits; None where nothing tells.
    """
    if inside := traced.compiles.inside:
        names = ", ".join(sorted({str(entry.name) for entry in inside}))
        yield MessageRecord(
            code="compiled-inside-window",
            message=f"{counted(len(inside), 'compilation')} ran inside the recorded window ({names}); its host "
            "times are not those of a warm step. Raise --warmup.",
        )
    if not traced.compiles_watched:
        yield MessageRecord(
            code="compiles-not-watched",
            message="This triton has no compilation listener (3.4 and later do): compilations inside the "
            "window would not be seen.",
        )
    references = traced.references
    if references is not None and (off := [name for name, own in references.outputs.items() if not own.within]):
        yield MessageRecord(
            code="outputs-off-reference",
            message=f"{len(off)} of {len(references.outputs)} outputs are further from their reference than "
            f"rtol {references.rtol:g}, atol {references.atol:g} allow, e.g. {off[0]}: this variant computes "
            "something else.",
        )
    if digests_equal is False:
        yield MessageRecord(
            code="digests-not-repeatable",
            message="The untraced process computed other output bits than the traced one; digests of this "
            "workload say nothing about whether work was kept.",
        )


def source_commit() -> str | None:
    """The commit of the repository that profkit runs from, ``-dirty`` where it has changes; None outside one."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        head = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        status = subprocess.run(
            ["git", "-C", root, "--no-optional-locks", "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    if head.returncode != 0 or status.returncode != 0:
        return None
    return head.stdout.strip() + ("-dirty" if status.stdout.strip() else "")
