"""Where a sweep's own time goes: seconds by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Phases:
    """Adds up the seconds of named phases that follow one another."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Count the block towards the phase `name`."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.monotonic() - begun

    def seconds(self) -> dict[str, float]:
        """Phase to seconds so far, in order of appearance."""
        return {name: round(seconds, 3) for name, seconds in self._seconds.items()}
