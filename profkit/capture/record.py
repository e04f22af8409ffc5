"""Fields of run.json: what every capture writes, how times are summed up, and what is said of a workload's run.

Of a step's outputs they hold digests, which are equal where the bits are, in every process and on every device; and
how far the outputs are from their references, as a share of what the stated tolerance allows.
"""

from __future__ import annotations

import math
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from profkit._version import __version__
from profkit.capture.device import describe_device, describe_versions
from profkit.capture.options import Job
from profkit.capture.outputs import numbers, of_tensor
from profkit.errors import ProfkitError
from profkit.model.outputs import OUTPUTS_FILE, OutputNumbers, write
from profkit.model.run import (
    CompilesRecord,
    DigestsRecord,
    MessageRecord,
    ProfilerRecord,
    QuartilesRecord,
    ReferenceRecord,
    ReferencesRecord,
    RunRecord,
    StepTimesRecord,
    WorkloadRecord,
)
from profkit.model.wording import counted
from profkit.runs import run_dir

if TYPE_CHECKING:
    import torch

    from profkit.model.workload import References, Step

#: Elements that are compared at a time, in double precision.
CHUNK = 1 << 24


def finish(record: RunRecord, directory: Path, trace: str) -> RunRecord:
    """Write run.json, the last file of a capture: `record` with who captured it, and which files; returns it.

    `directory` holds the run's files and nothing else; the readers open `trace`.
    """
    files = sorted(path.name for path in directory.iterdir())
    record = msgspec.structs.replace(
        record,
        created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        profkit=__version__,
        commit=source_commit(),
        trace=trace,
        files=files,
        trace_sha256=run_dir.trace_digests(directory, trace, files),
    )
    run_dir.write_record(directory, record)
    return record


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


def of_step(
    job: Job,
    step: Step,
    ranges: str,
    *,
    again: Callable[[], None] | None = None,
    has_outputs: bool = True,
    compiles: CompilesRecord | None = None,
    unwatched: bool = False,
) -> RunRecord:
    """run.json as far as a worker that has run `step` on its digest inputs knows it; leaves the outputs' numbers.

    Args:
        ranges: what pushed them.
        again: runs the step on its digest inputs once more, to see which outputs have the same bits.
        has_outputs: false where they were not computed.
        unwatched: compilations inside the window would not have been seen.

    Raises:
        ProfkitError: a layer has no output.
    """
    options, digests = job.options, None
    tensors = step.outputs()
    if bare := [
        one.scope for one in step.layers if not any(f"{name}/".startswith(f"{one.scope}/") for name in tensors)
    ]:
        raise ProfkitError(
            f"{counted(len(bare), 'layer')} of the workload {'has' if len(bare) == 1 else 'have'} no output: "
            f"{', '.join(bare[:3])}{', …' if len(bare) > 3 else ''}. Work that is lost there would not be seen. Let "
            f"Step.outputs name a tensor of each, e.g. {bare[0]}/out."
        )
    if has_outputs:
        found = numbers(tensors, of_tensor)
        references = against_references(tensors, step.references)
        unsteady: list[str] | None = None
        if again is not None:
            again()
            second = digest_outputs(step.outputs())
            unsteady = [name for name, own in found.items() if second.get(name) != own.digest]
        digests = keep_outputs(
            job.directory,
            found,
            inputs="digest",
            notes=dict(step.notes),
            references=references,
            nondeterministic=unsteady,
        )
    record = RunRecord(
        trace="",
        workload=WorkloadRecord(
            name=options.name, layers=len(step.layers), source="file" if options.is_file else "shipped"
        ),
        profiler=ProfilerRecord(ranges=ranges),
        device=describe_device(),
        versions=describe_versions(),
        seed=options.seed,
        warmup=options.warmup,
        replays=options.replays,
        compiles=compiles or CompilesRecord(before=0),
        digests=digests,
    )
    return msgspec.structs.replace(record, warnings=list(_warnings(record, unwatched)))


def keep_outputs(directory: Path, outputs: Mapping[str, OutputNumbers], **more: Any) -> DigestsRecord:
    """Write the numbers of `outputs` into `directory`; returns the `digests` field of run.json, with `more` of it."""
    write(directory / OUTPUTS_FILE, outputs)
    return DigestsRecord(
        algorithm="sha256",
        outputs={name: own.digest for name, own in outputs.items()},
        numbers=OUTPUTS_FILE,
        **more,
    )


def digest_outputs(outputs: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Output name to its digest, in order of name."""
    return {name: of_tensor(outputs[name]).digest for name in sorted(outputs)}


def compiled_inside(records: Sequence[RunRecord]) -> MessageRecord | None:
    """What is to be said where something compiled inside the recorded window of one of `records`."""
    inside = [entry for record in records if record.compiles for entry in record.compiles.inside]
    if not inside:
        return None
    names = ", ".join(sorted({str(entry.name) for entry in inside}))
    return MessageRecord(
        code="compiled-inside-window",
        message=f"{counted(len(inside), 'compilation')} ran inside the recorded window ({names}); its host "
        "times are not those of a warm step. Raise --warmup.",
    )


def _warnings(record: RunRecord, unwatched: bool) -> Iterator[MessageRecord]:
    if compiled := compiled_inside([record]):
        yield compiled
    if unwatched:
        yield MessageRecord(
            code="compiles-not-watched",
            message="This triton has no compilation listener (3.4 and later do): compilations inside the "
            "window would not be seen.",
        )
    references = record.digests.references if record.digests else None
    if references is not None and (off := [name for name, own in references.outputs.items() if not own.within]):
        yield MessageRecord(
            code="outputs-off-reference",
            message=f"{len(off)} of {len(references.outputs)} outputs are further from their reference than "
            f"rtol {references.rtol:g}, atol {references.atol:g} allow, e.g. {off[0]}: this variant computes "
            "something else.",
        )


def source_commit() -> str | None:
    """The commit of the repository that profkit runs from, ``-dirty`` where it has changes; None outside one."""
    root = Path(__file__).resolve().parents[2]
    git = ["git", "--no-optional-locks", "-C", str(root)]
    if not (root / ".git").exists():
        return None
    try:
        head, status = (
            subprocess.run([*git, *arguments], capture_output=True, text=True, check=True).stdout.strip()
            for arguments in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("-dirty" if status else "")


def deviation(output: torch.Tensor, reference: torch.Tensor, rtol: float, atol: float) -> float:
    """The largest ``|output - reference| / (atol + rtol * |reference|)`` of two tensors of one shape, on any device: at
    most 1 is within the tolerance.

    Equal values, NaN and infinities among them, deviate by 0; a NaN or infinity on one side alone by infinity.
    """
    import torch

    largest = 0.0
    outputs, references = output.reshape(-1), reference.reshape(-1)
    for start in range(0, outputs.numel(), CHUNK):
        one, other = outputs[start : start + CHUNK], references[start : start + CHUNK]
        found, right = one.double(), other.to(one.device).double()
        share = (found - right).abs() / (atol + rtol * right.abs())
        share = torch.where((found == right) | (found.isnan() & right.isnan()), 0.0, share)
        # A NaN or an infinity on one side alone, or infinities of two signs.
        share = torch.where(share.isnan(), math.inf, share)
        largest = max(largest, float(share.max()))
    return largest


def against_references(outputs: Mapping[str, torch.Tensor], references: References | None) -> ReferencesRecord | None:
    """The ``digests.references`` of run.json, None where the step has none.

    Each output's ``reference`` is the digest of what it was held against, so that two runs can tell whether that was
    the same; its ``deviation`` is None where it is infinite.

    Raises:
        ProfkitError: a reference for no output, or of another shape.
    """
    if references is None:
        return None
    found: dict[str, ReferenceRecord] = {}
    for name, expected in sorted(references.compute().items()):
        shape = tuple(outputs[name].shape) if name in outputs else None
        if shape != tuple(expected.shape):
            raise ProfkitError(
                f"The workload's reference {name!r} has shape {tuple(expected.shape)}; "
                f"{'the output has ' + str(shape) if shape is not None else 'the step has no such output'}. "
                "Give each reference the name and shape of an output."
            )
        share = deviation(outputs[name], expected, references.rtol, references.atol)
        rounded = round(share, 6) if math.isfinite(share) else None
        found[name] = ReferenceRecord(within=share <= 1.0, deviation=rounded, reference=of_tensor(expected).digest)
    return ReferencesRecord(rtol=references.rtol, atol=references.atol, outputs=found)
