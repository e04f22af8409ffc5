"""The profilers, best first, and which of them records a capture.

The command line asks here for names, so these modules import what takes long only where it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from profkit.capture.profilers.dispatch import Dispatch
from profkit.capture.profilers.nsys import Nsys
from profkit.capture.profilers.profiler import COMMAND, FLOOR, GraphTrace, Kept, Profiler, State
from profkit.capture.profilers.rocprofv3 import Rocprofv3
from profkit.capture.profilers.torch_profiler import TorchProfiler
from profkit.errors import ProfkitError, did_you_mean
from profkit.model.wording import one_of

if TYPE_CHECKING:
    from profkit.capture.options import Options

__all__ = ["AUTO", "COMMAND", "FLOOR", "PROFILERS", "GraphTrace", "Kept", "Profiler", "State"]

AUTO = "auto"
#: Best first: ``auto`` takes the first that can be used. A new profiler is its file and a line here.
PROFILERS: list[type[Profiler]] = [
    Nsys,
    Rocprofv3,
    TorchProfiler,
    Dispatch,
]


def names(need: str | None = None) -> list[str]:
    """What ``--profiler`` may say: ``auto`` and each profiler, of them only those that take `need`."""
    return [AUTO, *(profiler.name for profiler in PROFILERS if need is None or need in profiler.takes)]


def get(name: str) -> type[Profiler]:
    """The profiler of that name.

    Raises:
        ProfkitError: there is none.
    """
    known = {profiler.name: profiler for profiler in PROFILERS}
    if name not in known:
        raise ProfkitError(f"No profiler {name!r}.{did_you_mean(name, names())}")
    return known[name]


def _refusal(profiler: type[Profiler], needs: Sequence[str]) -> str | None:
    """Why `profiler` does not do what is asked for; None where it does."""
    refusal = "--profiler {} does not go with {}; that needs {}."
    absent = (need for need in needs if need not in profiler.takes)
    return next((refusal.format(profiler.name, need, one_of(names(need)[1:])) for need in absent), None)


def choose(options: Options, what: str | None = None) -> tuple[Profiler, str]:
    """The profiler that records, and why it does, one clause for the user.

    Args:
        what: `COMMAND` or `FLOOR`; None for a workload.

    Raises:
        ProfkitError: no such profiler, one that does not do what is asked for, or none can be used here.
    """
    needs = [need for need in (what, *options.needs) if need is not None]
    if options.profiler != AUTO:
        asked = get(options.profiler)
        if refused := _refusal(asked, needs):
            raise ProfkitError(refused)
        return asked.find(options), "as asked"
    fitting = [profiler for profiler in PROFILERS if not _refusal(profiler, needs)]
    if what == COMMAND:
        return _first_usable(fitting, options)
    from profkit.capture.device import probe_torch

    torch = probe_torch()
    if torch.problem is not None:
        raise ProfkitError(f"No profiler can run a workload here: {torch.problem}")
    here = [profiler for profiler in PROFILERS if torch.vendor in profiler.vendors]
    able = [profiler for profiler in here if profiler in fitting] or [own for own in fitting if not own.needs_gpu]
    refused = _refusal(here[0], needs) if here else "None of them knows this device."
    if not able:
        lacking = "" if torch.cuda else f"{torch.without_gpu} "
        raise ProfkitError(f"{lacking}No profiler can do this here. {refused} `profkit doctor` says what can be used.")
    found, why = _first_usable(able, options)
    return found, why if refused is None else refused.rstrip(".")


def _first_usable(profilers: Sequence[type[Profiler]], options: Options | None = None) -> tuple[Profiler, str]:
    """The first of `profilers` that can be used here, and why that; raises why the first cannot."""
    first: ProfkitError | None = None
    for profiler in profilers:
        try:
            found = profiler.find(options)
            return found, found.reason if first is None else f"{profilers[0].name} cannot be used: {first}"
        except ProfkitError as error:
            first = first or error
    assert first is not None
    raise first


def for_floor_of(profiler: Profiler) -> Profiler:
    """What records the floor of a capture by `profiler`: that, or else another for the same devices."""
    if FLOOR in profiler.takes:
        return profiler
    return _first_usable([one for one in PROFILERS if FLOOR in one.takes and one.vendors & profiler.vendors])[0]
