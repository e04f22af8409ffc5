"""A whole sweep: regions in order, each kept as soon as it is finished."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from profkit._version import __version__
from profkit.capture import process, sittings
from profkit.errors import ProfkitError
from profkit.sweep import results, store, warm
from profkit.sweep.clock import Clock
from profkit.sweep.containment import contained
from profkit.sweep.phases import Phases
from profkit.sweep.plan import Options, Plan, Region, make_plan
from profkit.sweep.record import protocol, region_record
from profkit.sweep.warm import Warmers


@dataclass(frozen=True)
class Finished:
    """A sweep as it stands: complete, or stopped by its time limit.

    Args:
        data: schema ``profkit.sweep/1``.
        now: how many regions were measured now.
        not_taken: how many regions the workload has beside the one that was taken because none was asked for.
        lost: a sentence for each process that compiled beforehand and ended early.
    """

    data: dict[str, Any]
    now: int
    not_taken: int
    lost: list[str]


def sweep(options: Options, output: Path | None, *, force: bool, stop_after_s: float | None) -> Finished:
    """Measure what is missing.

    Args:
        output: the sweep's directory; None keeps nothing.
        force: start over where `output` holds another sweep.
        stop_after_s: begin no region that would end later than this after the start; None for no limit.

    Raises:
        ProfkitError: bad options, no such device, another sweep in `output`, or a workload that fails.
    """
    from profkit import kernels

    with process.terminable(), contained(), ExitStack() as stack:
        phases = Phases()
        with phases.of("load the workload"):
            workload = kernels.load(options.workload)
        plan = make_plan(options, workload)
        # Before torch is imported here, so that the imports of workers that are started at once run beside it.
        warmers = stack.enter_context(warm.started(options, plan.jobs, at_once=options.jobs is not None))
        clock = _clock(options.device, phases)
        # What is there by now is no region's: collections after each need not look at it.
        gc.freeze()
        stack.callback(gc.unfreeze)
        facts = _facts(plan, clock) | {"start_s": phases.seconds()}
        if output is not None:
            stack.enter_context(sittings.locked(output))
            described = plan.describe(facts["device"]["name"], facts["versions"])
            store.begin(output, described, facts, force=force)
            _, facts = store.read_facts(output)
        found = {number: _stored(output, number, region, facts) for number, region in enumerate(plan.regions)}
        missing = [number for number, record in found.items() if record is None]
        now = 0
        if missing:
            with sittings.shown(len(found) - len(missing), len(found), "region", kept=output is not None) as display:
                for number in _within(missing, stop_after_s):
                    record = _measure(plan, number, clock, warmers, display)
                    found[number] = record
                    if output is not None:
                        store.write_region(output, number, record)
                    display.ended(record["duration_s"])
                    now += 1
        regions = [record for record in found.values() if record is not None]
        return Finished(results.document(facts, len(found), regions), now, plan.not_taken, warmers.lost)


def _within(missing: list[int], stop_after_s: float | None) -> Iterator[int]:
    """The numbers that may begin: the first always, another one while the longest so far would still fit."""
    begun = time.monotonic()
    longest_s = 0.0
    for place, number in enumerate(missing):
        started = time.monotonic()
        if place and stop_after_s is not None and started - begun + longest_s > stop_after_s:
            return
        yield number
        longest_s = max(longest_s, time.monotonic() - started)


def _stored(output: Path | None, number: int, region: Region, facts: dict[str, Any]) -> dict[str, Any] | None:
    return None if output is None else store.read_region(output, number, region.name, region.shapes, facts)


def _measure(plan: Plan, number: int, clock: Clock, warmers: Warmers, display: sittings.Progress) -> dict[str, Any]:
    import torch

    from profkit.sweep.region import build, measure

    region = plan.regions[number]
    begun = time.monotonic()
    display.begins(region.name)
    phases = Phases()
    warmers.region(number)
    with torch.no_grad(), clock.region():
        with phases.of("build"):
            problem = build(plan, region)
            clock.synchronize()
        measured = measure(plan, region, problem, clock, display, warmers, phases)
        del problem
    duration_s = time.monotonic() - begun
    return region_record(region, measured, phases, duration_s, datetime.now(UTC).isoformat(timespec="seconds"))


def _clock(device: str, phases: Phases) -> Clock:
    """The clock of `device`; adds to `phases` what that takes.

    Raises:
        ProfkitError: torch or triton is not installed, or torch sees no such device.
    """
    try:
        with phases.of("import torch"):
            import torch

        if device == "cpu":
            from profkit.sweep.cpu_clock import CpuClock

            return CpuClock()
        if not torch.cuda.is_available():
            raise ProfkitError(
                f"torch {torch.__version__} finds no CUDA device here. `profkit doctor` says what is missing; "
                "--device cpu times workloads of torch's CPU operators."
            )
        with phases.of("open the device"):
            from profkit.sweep.gpu_clock import GpuClock

            return GpuClock()
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "triton"):
            raise
        raise ProfkitError(
            f"profkit sweep needs {error.name}, which is not installed here. Install it with: "
            "pip install 'profkit[gpu]'"
        ) from None


def _facts(plan: Plan, clock: Clock) -> dict[str, Any]:
    """What all regions have in common."""
    from profkit.capture.device import CPU, describe_device, describe_versions

    options = plan.options
    on_gpu = options.device == "cuda"
    return {
        "workload": {
            "name": Path(options.workload).name,
            "variant": plan.variant,
            "source": "file" if ":" in options.workload else "shipped",
            "sha256": sittings.source_digest(options.workload),
        },
        "device": describe_device() if on_gpu else CPU,
        "versions": {"profkit": __version__, **describe_versions()},
        "seed": options.seed,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "parameters": {
            name: {"help": plan.tunable.parameters[name].help, "values": list(values)}
            for name, values in plan.values.items()
        },
        "only_known": options.only_known,
        "protocol": protocol(
            options.orders, options.replays, options.screen, {state: clock.methods[state] for state in plan.states}
        ),
    }
