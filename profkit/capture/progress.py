"""How far a repeated capture is: a bar with the time left on a terminal, plain lines elsewhere; always on stderr."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class Lines:
    """One line when a repetition begins and one when it has ended.

    Args:
        done: repetitions that were there before.
        total: all of them.
    """

    def __init__(self, done: int, total: int) -> None:
        self.done = done
        self.total = total
        self._durations_s: list[float] = []

    def note(self, text: str) -> None:
        """Something else than a repetition begins."""
        say(text)

    def begins(self, label: str) -> None:
        """A repetition begins; `label` names it."""
        say(f"repetition {self.done + 1} of {self.total}: {label}")

    def ended(self, duration_s: float) -> None:
        """The repetition is complete."""
        self.done += 1
        self._durations_s.append(duration_s)
        left_s = (self.total - self.done) * statistics.median(self._durations_s)
        say(f"  took {duration_s:.1f} s; about {left_s:.0f} s left")


class Bar(Lines):
    """A bar that names what runs now."""

    def __init__(self, bar: RichProgress, task: TaskID, done: int, total: int) -> None:
        super().__init__(done, total)
        self._bar = bar
        self._task = task

    def note(self, text: str) -> None:
        """See `Lines`."""
        self._bar.update(self._task, description=text)

    def begins(self, label: str) -> None:
        """See `Lines`."""
        self._bar.update(self._task, description=label)

    def ended(self, duration_s: float) -> None:
        """See `Lines`."""
        del duration_s
        self.done += 1
        self._bar.advance(self._task)


def say(line: str) -> None:
    """One line for the user, beside the command's output."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


@contextmanager
def shown(done: int, total: int) -> Iterator[Lines]:
    """The progress of `total` repetitions, `done` of which are there already; an interrupt says what is kept."""
    display = Lines(done, total)
    try:
        if not sys.stderr.isatty():
            yield display
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        # Speed over the whole sitting: rich's own window of 30 s holds two repetitions at best.
        with RichProgress(*columns, console=Console(stderr=True), speed_estimate_period=3600.0) as bar:
            display = Bar(bar, bar.add_task("", total=total, completed=done), done, total)
            yield display
    except (KeyboardInterrupt, SystemExit):
        say(f"interrupted: {display.done} of {total} repetitions are kept; the same command resumes")
        raise
