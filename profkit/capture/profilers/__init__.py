"""The profilers, best first, and which of them records a capture.

The command line asks here for names, so these modules import what takes long only where it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from profkit.capture.profilers.dispatch import Dispatch
from profkit.capture.profilers.nsys import Nsys
from profkit.capture.profilers.profiler import GraphTrace, Kept, Profiler, Recording, State, split_flags
from profkit.capture.profilers.rocprofv3 import Rocprofv3
from profkit.capture.profilers.torch_profiler import TorchProfiler
from profkit.errors import ProfkitError, did_you_mean
from profkit.model.wording import one_of

if TYPE_CHECKING:
    from profkit.capture.device import TorchProbe
    from profkit.capture.options import Options

__all__ = ["AUTO", "PROFILERS", "GraphTrace", "Kept", "Profiler", "Recording", "State"]

AUTO = "auto"
#: Best first: ``auto`` takes the first that can be used. A new profiler is its file and a line here.
PROFILERS: list[type[Profiler]] = [
    Nsys,
    Rocprofv3,
    TorchProfiler,
    Dispatch,
]


def names(of: Sequence[type[Profiler]] | None = None) -> list[str]:
    """What ``--profiler`` may say: ``auto`` and each of `of`, all of them where None."""
    return [AUTO, *(profiler.name for profiler in (PROFILERS if of is None else of))]


def get(name: str) -> type[Profiler]:
    """The profiler of that name.

    Raises:
        ProfkitError: there is none.
    """
    for profiler in PROFILERS:
        if profiler.name == name:
            return profiler
    raise ProfkitError(f"No profiler {name!r}.{did_you_mean(name, names())}")


def _taking(option: str) -> str:
    """Those that take `option`, in a sentence: ``nsys or torch``."""
    return one_of([profiler.name for profiler in PROFILERS if option in profiler.takes])


def check(options: Options) -> None:
    """Refuse what a profiler is asked for and never does.

    Raises:
        ProfkitError: no such profiler, or an option that it does not take.
    """
    if options.profiler == AUTO:
        return
    profiler = get(options.profiler)
    if options.nproc is not None and "--nproc" not in profiler.takes:
        other = next(one for one in PROFILERS if "--nproc" in one.takes and one.vendors & profiler.vendors)
        raise ProfkitError(f"--nproc is not done with {profiler.name} yet. Use --profiler {other.name}.")
    if options.run_bodies and "--run-bodies" not in profiler.takes:
        raise ProfkitError(
            f"--run-bodies belongs to the {_taking('--run-bodies')} profiler; {profiler.name} always runs "
            "kernels. Leave it out."
        )


def choose(options: Options) -> tuple[Profiler, str]:
    """The profiler that records a workload, and why it does, one clause for the user.

    Args:
        options: as `check` lets them pass.

    Raises:
        ProfkitError: it cannot be used here, or none can; or ``--graph-level`` where another than nsys records.
    """
    found, why = _first_usable(options) if options.profiler == AUTO else (None, "as asked")
    profiler = get(options.profiler) if found is None else type(found)
    if options.graph_level and "--graph-level" not in profiler.takes:
        raise ProfkitError(
            f"--graph-level needs {_taking('--graph-level')}, and {profiler.name} would record ({why}). "
            "Leave it out, or see `profkit doctor`."
        )
    return found or profiler.find(options), why


def _first_usable(options: Options) -> tuple[Profiler, str]:
    """What ``auto`` takes: the best for the device here that takes what is asked for; and why."""
    if options.run_bodies:
        own = next(profiler for profiler in PROFILERS if "--run-bodies" in profiler.takes)
        return own.find(options), "--run-bodies asks for it"
    from profkit.capture.device import probe_torch

    torch = probe_torch()
    if torch.problem is not None:
        raise ProfkitError(f"No profiler can run a workload here: {torch.problem}")
    passed_over = ""
    for profiler in PROFILERS:
        if torch.vendor not in profiler.vendors:
            continue
        if options.nproc is not None and "--nproc" not in profiler.takes:
            passed_over = f"several ranks are not recorded with {profiler.name} yet"
            continue
        try:
            found = profiler.find(options)
        except ProfkitError as error:
            passed_over = f"{profiler.name} cannot be used: {error}"
            continue
        return found, passed_over or found.reason
    raise ProfkitError(f"No profiler can run a workload here: {passed_over or 'none knows this device'}.")


def diagnose(profiler: type[Profiler], torch: TorchProbe) -> State:
    """What `profkit doctor` says of `profiler`."""
    try:
        found = profiler.find()
    except ProfkitError as error:
        return State(False, None, str(error))
    return found.state(torch)


def choose_for_command(options: Options) -> Profiler:
    """The profiler that records a command; ``auto`` is the first that can.

    Raises:
        ProfkitError: a profiler that records no command or is not here, or flags that it must not get.
    """
    able = [profiler for profiler in PROFILERS if profiler.records_commands]
    name = options.profiler
    if name not in names(able):
        hint = did_you_mean(name, names(able))
        needed = one_of([profiler.name for profiler in able])
        raise ProfkitError(f"--profiler {name} records workloads; a command needs {needed}.{hint}")
    profiler = able[0] if name == AUTO else get(name)
    if split_flags(options.nsys_args) and "--nsys-args" not in profiler.takes:
        raise ProfkitError(f"--nsys-args are flags of {_taking('--nsys-args')}; --profiler {profiler.name} takes none.")
    return profiler.find(options)


def first_found(profilers: Sequence[type[Profiler]]) -> Profiler:
    """The first of `profilers` that can be used here.

    Raises:
        ProfkitError: none can; says why the last cannot.
    """
    *others, last = profilers
    for profiler in others:
        try:
            return profiler.find()
        except ProfkitError:
            continue
    return last.find()


def for_floor_of(profiler: Profiler) -> Profiler:
    """What records the floor of a capture by `profiler`: that, or else another for the same devices.

    Raises:
        ProfkitError: it cannot be used here.
    """
    if profiler.records_floor:
        return profiler
    return first_found([one for one in recording_floor() if one.vendors & profiler.vendors])


def recording_floor() -> list[type[Profiler]]:
    """Those that can record the dispatch floor."""
    return [profiler for profiler in PROFILERS if profiler.records_floor]
