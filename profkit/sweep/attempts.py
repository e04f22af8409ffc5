"""Running one configuration: which of its failures belong to the configuration, and which end the sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from traceback import TracebackException
from typing import TYPE_CHECKING, Literal

from profkit.capture.process import without_directories
from profkit.errors import ProfkitError, Terminated
from profkit.model.workload import Configuration, Problem
from profkit.sweep.check import difference
from profkit.sweep.clock import Clock, Run
from profkit.sweep.problems import check_poisoned, check_tensors, printable

if TYPE_CHECKING:
    import torch


class RunError(Exception):
    """The workload's code raised something, or called ``sys.exit``, when it ran a configuration; says what."""


#: What a configuration that cannot run raises: its own code, or torch when it synchronises or ends a graph's capture.
CONFIGURATION_ERRORS = (RunError, RuntimeError)


def run_once(run: Callable[[Configuration], None], configuration: Configuration) -> None:
    """Call a problem's `run`.

    Raises:
        RunError: it raised whatever it may be, or called ``sys.exit``.
    """
    try:
        run(configuration)
    except (Terminated, KeyboardInterrupt):
        raise
    # The code of a workload may raise anything, and none of it is an error of profkit: nothing else is called here.
    except BaseException as error:
        raise RunError(reason_of(error)) from error


def reason_of(error: BaseException) -> str:
    """The kind of `error` and the first line of what it says, without this machine's directories.

    Triton's compiler begins with a place in the source and ends with what is wrong there.
    """
    if isinstance(error, RunError):
        return str(error)
    # The class may be the workload's, and its own __str__ may raise: this one does not.
    text = printable(str(TracebackException(type(error), error, None)))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    said = f"{lines[0]} {lines[-1]}" if len(lines) > 1 and lines[0].startswith("at ") else lines[0]
    if "active drivers" in said:
        # Triton's own words for it name no cause.
        said = "Triton finds no GPU that it can use here"
    return without_directories(f"{type(error).__name__}: {said}")


@contextmanager
def workload_errors(what: str) -> Iterator[None]:
    """Around code of the workload: whatever it raises ends in one error.

    Args:
        what: the workload was doing, e.g. ``building region r4``.
    """
    try:
        yield
    except (ProfkitError, Terminated, KeyboardInterrupt):
        raise
    except BaseException as error:
        reason = reason_of(error).rstrip(".")
        raise ProfkitError(f"The workload failed {what}: {reason}. Mend it, or leave that out.") from error


def shown(configuration: Configuration) -> str:
    """A configuration as users write it: ``warps=4 tile=64``."""
    return " ".join(f"{name}={value}" for name, value in configuration.items())


@dataclass(frozen=True)
class Attempts:
    """Tries configurations of one problem.

    Args:
        reference: what `Problem.reference` gave.
        workload, region: their names, for messages.
    """

    problem: Problem
    reference: Mapping[str, torch.Tensor]
    clock: Clock
    workload: str
    region: str

    def outputs(self) -> dict[str, torch.Tensor]:
        """What the last run wrote.

        Raises:
            ProfkitError: nothing that can be compared.
        """
        return check_tensors(self.workload, self.region, "outputs()", self.problem.outputs())

    def require_poison(self) -> None:
        """Poison the outputs and see that they are wrong then.

        Raises:
            ProfkitError: some are right, so that the check would pass what writes nothing.
        """
        with workload_errors(f"poisoning the outputs of region {self.region}"):
            self.problem.poison()
            self.clock.synchronize()
        with workload_errors(f"comparing the outputs of region {self.region}"):
            check_poisoned(self.workload, self.region, self.outputs(), self.reference, self.problem.tolerance)

    def run(self, configuration: Configuration) -> None:
        """Run `configuration`; see `run_once`."""
        run_once(self.problem.run, configuration)

    def failure(self, configuration: Configuration, action: Run) -> str | None:
        """Why `action`, which runs `configuration` by `run`, fails; None where it does not.

        Raises:
            ProfkitError: it took the device with it, or what is around the run failed.
        """
        with workload_errors(f"in configuration {shown(configuration)} of region {self.region}"):
            try:
                action()
                self.clock.synchronize()
            except CONFIGURATION_ERRORS as error:
                reason = reason_of(error)
            else:
                return None
            self._require_device(configuration, reason)
            return reason

    def _require_device(self, configuration: Configuration, reason: str) -> None:
        """An error on the device (an illegal address) stays: nothing can be run after it in this process."""
        try:
            self.clock.synchronize()
        except RuntimeError:
            raise ProfkitError(
                f"Configuration {shown(configuration)} of region {self.region} broke the device's context ({reason}); "
                "nothing more can be timed in this process. Let the workload reject it, or leave it out with --set."
            ) from None

    def trouble(self, configuration: Configuration, run: Run) -> tuple[Literal["failed", "wrong"], str] | None:
        """Poison the outputs, `run` the configuration, compare; what is amiss and why, None where it is right.

        Raises:
            ProfkitError: see `failure`.
        """

        def poisoned() -> None:
            self.problem.poison()
            run()

        reason = self.failure(configuration, poisoned)
        if reason is not None:
            return "failed", reason
        with workload_errors(f"comparing the outputs of region {self.region}"):
            told = difference(self.outputs(), self.reference, self.problem.tolerance)
        return None if told is None else ("wrong", told)
