"""What fills up over several sittings, a repeated capture or a sweep: its plan, the lock on it, and how far it is.

Progress is a bar with the time left on a terminal, plain lines elsewhere; always on stderr.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from profkit.errors import ProfkitError, without_controls
from profkit.runs import run_dir

if TYPE_CHECKING:
    import rich.progress

T = TypeVar("T")


def source_digest(spec: str) -> str | None:
    """SHA-256 of the file in ``path/file.py:name``, so that a change between sittings is seen; None if it is shipped.

    Raises:
        ProfkitError: there is no such file.
    """
    path, separator, _ = spec.rpartition(":")
    if not separator:
        return None
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise ProfkitError(f"{path} cannot be read: {error.strerror}. Check the path before the colon.") from None


def check_same(output: Path, what: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to go on with `what` (with its article) that was begun otherwise in `output`.

    Raises:
        ProfkitError: the plans differ; names every difference.
    """
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if names:
        differences = "; ".join(_difference(name, before.get(name), now.get(name)) for name in names)
        raise ProfkitError(
            f"{output} holds {what} with other options: {differences}. Give the same ones to resume it, "
            "choose another -o, or add --force to start over."
        )


def _difference(name: str, before: Any, now: Any) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        # What both have alike may be long.
        before, now = (
            {key: value for key, value in one.items() if key not in other or other[key] != value}
            for one, other in ((before, now), (now, before))
        )
    return f"{name} was {_shown(before)}, now {_shown(now)}"


def _shown(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(entry, dict) and "name" in entry for entry in value):
        return " and ".join(str(entry["name"]) for entry in value)
    return json.dumps(value, ensure_ascii=False)


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """`output`, made if it is not there, and held by this process alone.

    Raises:
        ProfkitError: it cannot be made, or another process is recording into it.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProfkitError(f"Cannot write to {output}: {error.strerror}.") from None
    with run_dir.held(output) as is_ours:
        if not is_ours:
            raise ProfkitError(f"Another profkit is recording into {output}. Wait for it, or end it.")
        yield


def within(missing: Sequence[T], stop_after_s: float | None) -> Iterator[T]:
    """The units that may begin: the first always, another one while the longest so far would still fit."""
    begun = time.monotonic()
    longest_s = 0.0
    for place, unit in enumerate(missing):
        started = time.monotonic()
        if place and stop_after_s is not None and started - begun + longest_s > stop_after_s:
            return
        yield unit
        longest_s = max(longest_s, time.monotonic() - started)


class Progress:
    """How far units of work are: a bar that names what runs now; or a line when one begins and one when it has ended.

    `done` of them were there before; `unit` is what one is called, `bar` of one task, on a terminal.
    """

    def __init__(
        self, done: int, total: int, unit: str = "repetition", bar: rich.progress.Progress | None = None
    ) -> None:
        self.done = done
        self.total = total
        self.unit = unit
        self._bar = bar
        self._durations_s: list[float] = []

    def note(self, text: str) -> None:
        """Something else than a unit begins."""
        self.detail(text)
        if self._bar is None:
            say(text)

    def detail(self, text: str) -> None:
        """How far a unit is; for a display that can replace it by the next one."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=without_controls(text))

    def begins(self, label: str) -> None:
        """A unit begins; `label` names it."""
        self.note(label if self._bar else f"{self.unit} {self.done + 1} of {self.total}: {label}")

    def ended(self, duration_s: float) -> None:
        """The unit is complete."""
        self.done += 1
        self._durations_s.append(duration_s)
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0])
        else:
            left_s = (self.total - self.done) * statistics.median(self._durations_s)
            say(f"  took {duration_s:.1f} s; about {left_s:.0f} s left")


def say(line: str) -> None:
    """One line for the user, beside the command's output; names in it may be a stranger's."""
    sys.stderr.write(without_controls(line) + "\n")
    sys.stderr.flush()


@contextmanager
def shown(done: int, total: int, unit: str = "repetition", *, kept: bool = True) -> Iterator[Progress]:
    """The progress of `total` units, `done` of which are there already; an interrupt says what is kept.

    Args:
        kept: whether a unit that is complete outlives an interrupt.
    """
    display = Progress(done, total, unit)
    try:
        if not sys.stderr.isatty():
            yield display
            return
        import rich.console
        from rich import progress

        columns = (
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
        )
        console = rich.console.Console(stderr=True)
        # Speed over the whole sitting: rich's own window of 30 s holds two units at best.
        with progress.Progress(*columns, console=console, speed_estimate_period=3600.0) as bar:
            bar.add_task("", total=total, completed=done)
            display = Progress(done, total, unit, bar)
            yield display
    except (KeyboardInterrupt, SystemExit):
        then = "the same command resumes" if kept else "with -o DIR they would have been"
        say(f"interrupted: {display.done if kept else 0} of {total} {unit}s are kept; {then}")
        raise
