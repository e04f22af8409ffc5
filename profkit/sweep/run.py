"""A whole sweep: regions in order, each kept as soon as it is finished."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from profkit._version import __version__
from profkit.capture import process, sittings
from profkit.errors import ProfkitError
from profkit.runs.whole_files import write_json
from profkit.sweep import records, warm
from profkit.sweep.plan import Options, Plan, make_plan
from profkit.sweep.records import REGIONS, SWEEP_FILE, Parameter, Sweep, SweptWorkload
from profkit.sweep.workload import source_digests

if TYPE_CHECKING:
    from profkit.sweep.clock import Clock

#: What a process that was ended leaves of a file that it was writing.
_PARTIAL = ".*.json.*.part"


def sweep(options: Options, output: Path | None, *, force: bool, stop_after_s: float | None) -> tuple[Sweep, list[str]]:
    """Measure what is missing.

    Args:
        output: the sweep's directory; None keeps nothing.
        force: start over where `output` holds another sweep.
        stop_after_s: begin no region that would end later than this after the start; None for no limit.

    Returns:
        The sweep as it stands, complete or stopped by its time limit, and sentences for the user beside it.

    Raises:
        ProfkitError: bad options, no such device, another sweep in `output`, or a workload that fails.
    """
    from profkit import kernels

    with process.terminable(), _stdout_for_the_report(), ExitStack() as stack:
        begun = time.monotonic()
        workload = kernels.load(options.workload)
        plan = make_plan(options, workload)
        # Before torch is imported here, so that the imports of workers run beside it.
        warmers = warm.Warmers(options, plan.jobs, stack)
        clock = _clock(options.device)
        # What is there by now is no region's: collections after each need not look at it.
        gc.freeze()
        stack.callback(gc.unfreeze)
        found = _head(plan, clock, time.monotonic() - begun)
        regions: list[records.Region | None] = [None] * len(found.planned)
        if output is not None:
            stack.enter_context(sittings.locked(output))
            found = begin(output, found, force=force)
            regions = records.read_regions(output, found)
        missing = [number for number, region in enumerate(regions) if region is None]
        if missing:
            done, total = len(regions) - len(missing), len(regions)
            with sittings.shown(done, total, "region", kept=output is not None) as display:
                for number in sittings.within(missing, stop_after_s):
                    regions[number] = region = _measure(plan, number, clock, warmers, display)
                    if output is not None:
                        write_json(records.region_file(output, number, region.name), msgspec.to_builtins(region))
                    display.ended(region.duration_s)
        found.regions = [region for region in regions if region is not None]
        notes = list(warmers.lost)
        if plan.not_taken:
            notes.append(f"One region of {plan.not_taken + 1} was swept; --region all takes every one.")
        return found, notes


@contextmanager
def _stdout_for_the_report() -> Iterator[None]:
    """What the workload prints, as text or by the descriptor, goes to standard error."""
    stdout = sys.stdout
    stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        # The workload may have put something else there.
        sys.stdout = stdout
        stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def begin(output: Path, head: Sweep, *, force: bool) -> Sweep:
    """Make `output`, which this process has locked, ready for the regions of the sweep `head`.

    Args:
        force: start over where another sweep is there.

    Returns:
        `head`, or that of the first sitting.

    Raises:
        ProfkitError: another sweep is there, or something else.
    """
    file, regions = output / SWEEP_FILE, output / REGIONS
    if file.is_file() and force:
        for old in [*regions.glob("*.json"), file]:
            old.unlink()
    elif file.is_file():
        before = records.read_head(output)
        sittings.check_same(output, "a sweep", _identity(before), _identity(head))
        head = before
    elif not all(fnmatch(path.name, _PARTIAL) for path in output.iterdir()):
        raise ProfkitError(f"{output} exists and holds no sweep (no {SWEEP_FILE}). Choose another -o.")
    for partial in [*output.glob(_PARTIAL), *regions.glob(_PARTIAL)]:
        partial.unlink()
    if not file.exists():
        write_json(file, msgspec.to_builtins(head))
    # After the file: who is interrupted before it leaves a directory that is as good as empty.
    regions.mkdir(exist_ok=True)
    return head


def _identity(head: Sweep) -> dict[str, Any]:
    """All that a resumed sweep must have in common with the one before, and what may not be mixed in one table."""
    return {
        **msgspec.to_builtins(head.workload),
        "regions": head.planned,
        "values": {name: parameter.values for name, parameter in head.parameters.items()},
        "only_known": head.only_known,
        **{name: getattr(head.protocol, name) for name in ("states", "orders", "replays", "screen")},
        "seed": head.seed,
        "device": head.device.name,
        "versions": head.versions,
    }


def _measure(
    plan: Plan, number: int, clock: Clock, warmers: warm.Warmers, display: sittings.Progress
) -> records.Region:
    import torch

    from profkit.sweep.region import measure

    begun = time.monotonic()
    name = list(plan.regions)[number]
    display.begins(name)
    warmers.begin(number)
    with torch.no_grad(), clock.region():
        region = measure(plan, name, clock, display, lambda: warmers.wait(number))
    region.duration_s = round(time.monotonic() - begun, 3)
    region.date = _now()
    return region


def _clock(device: str) -> Clock:
    """The clock of `device`.

    Raises:
        ProfkitError: torch or triton is not installed, or torch sees no such device.
    """
    try:
        import torch

        from profkit.sweep.clock import Clock, GpuClock

        if device == "cpu":
            return Clock()
        if not torch.cuda.is_available():
            raise ProfkitError(
                f"torch {torch.__version__} finds no CUDA device here. `profkit doctor` says what is missing; "
                "--device cpu times workloads of torch's CPU operators."
            )
        return GpuClock()
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "triton"):
            raise
        raise ProfkitError(
            f"profkit sweep needs {error.name}, which is not installed here. Install it with: "
            "pip install 'profkit[gpu]'"
        ) from None


def _head(plan: Plan, clock: Clock, start_s: float) -> Sweep:
    """What all regions have in common."""
    from profkit.capture.device import CPU, describe_device, describe_versions
    from profkit.sweep.region import protocol

    options = plan.options
    described = {name: text for name, text in msgspec.structs.asdict(describe_versions()).items() if name != "driver"}
    return Sweep(
        workload=SweptWorkload(
            name=Path(options.workload).name,
            variant=plan.variant,
            source="file" if ":" in options.workload else "shipped",
            sources=source_digests(options.workload),
        ),
        device=describe_device() if options.device == "cuda" else CPU,
        versions={"profkit": __version__, **described},
        seed=options.seed,
        date=_now(),
        parameters={
            name: Parameter(help=plan.tunable.parameters[name].help, values=list(values))
            for name, values in plan.values.items()
        },
        only_known=options.only_known,
        protocol=protocol(plan, clock.methods),
        start_s=round(start_s, 3),
        planned={name: dict(shapes) for name, shapes in plan.regions.items()},
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
