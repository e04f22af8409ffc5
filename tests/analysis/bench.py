"""What the tests do with rows: write them as an export, read it, count it, compare two of them."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from nsys_builder import Rows, nsys_trace

from profkit import readers
from profkit.cli import main
from profkit.comparison.compare import compare
from profkit.comparison.model import Comparison, Finding, Gates, Input
from profkit.counting.count import take_census
from profkit.model.census import Census
from profkit.model.run import RunRecord
from profkit.model.selection import Selection
from profkit.model.trace import Trace

#: The files that came with the project's brief, beside the repository.
SHARED = Path(__file__).parents[2].parent / "shared"

#: Counting is pure and takes most of a test's time: equal rows, which many tests share, are counted once.
_COUNTED: dict[str, Census] = {}
_SELECTION = ("layers", "scope", "steps", "graph")


class Bench:
    """Turns rows into what the analysis makes of them. `options` go to `nsys_trace`, or are a `Selection`'s."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._numbers = itertools.count()

    def path(self, rows: Rows, **options: Any) -> Path:
        """The rows as a file."""
        file = self.directory / f"{next(self._numbers)}.sqlite"
        return nsys_trace(file, rows.kernels, rows.ranges, rows.nodes, rows.launches, **options)

    def trace(self, rows: Rows, **options: Any) -> Trace:
        """The rows, read."""
        return readers.read(self.path(rows, **options))

    def count(self, rows: Rows, **options: Any) -> Census:
        """The rows, counted."""
        key = repr((rows, sorted(options.items())))
        if key not in _COUNTED:
            selection = Selection(**{k: options.pop(k) for k in _SELECTION if k in options})
            _COUNTED[key] = take_census(self.trace(rows, **options), selection)
        return _COUNTED[key]

    def side(self, rows: Rows, label: str, record: Mapping[str, Any] | None = None, **options: Any) -> Input:
        """The rows as one side of a diff."""
        return Input(label, self.count(rows, **options), None if record is None else run_record(record))

    def diff(
        self,
        before: Rows,
        after: Rows,
        *,
        gates: Gates | None = None,
        records: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None] = (None, None),
        **options: Any,
    ) -> Comparison:
        """Two lots of rows, compared."""
        sides = [
            self.side(rows, label, record, **options)
            for rows, label, record in zip((before, after), ("before", "after"), records, strict=True)
        ]
        return compare(sides[0], sides[1], gates)

    def run_directory(self, rows: Rows, name: str, **record: Any) -> Path:
        """The rows as a run directory."""
        directory = self.directory / name
        directory.mkdir()
        self.path(rows).rename(directory / "trace.sqlite")
        content = {"schema": "profkit.run/1", "trace": "trace.sqlite", **record}
        (directory / "run.json").write_text(json.dumps(content), encoding="utf-8")
        return directory


def outputs(layers: int = 64, **other: str) -> dict[str, str]:
    """Digests of an output of each layer; `other` ones by ``layers_3``."""
    return {f"layers.{i}/out": other.get(f"layers_{i}", "aa") for i in range(layers)}


def run_record(fields: Mapping[str, Any]) -> RunRecord:
    """A run.json of which only these fields say anything."""
    return msgspec.convert({"trace": "trace.sqlite", **fields}, RunRecord)


def names(comparison: Comparison, status: str) -> list[str]:
    """Names of the selected layers' findings that have `status`."""
    return [f.row.name for f in comparison.findings if f.status == status]


def statuses(findings: Sequence[Finding]) -> dict[str, str]:
    """Name to status, for findings of distinct names."""
    return {f.row.name: f.status for f in findings}


def codes(comparison: Comparison) -> list[str]:
    """The codes of the reasons."""
    return [r.code for r in comparison.reasons]


def launches_by_layer(census: Census) -> dict[int, float]:
    """Layer number to launches per step, for the chosen kind of step."""
    layers = census.chosen.layers
    per_step = layers["launches"] / census.chosen.kind.steps
    assert layers["number"].is_unique, "one row a layer"
    return dict(zip(layers["number"].tolist(), per_step.tolist(), strict=True))


@dataclass(frozen=True)
class Output:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


def profkit(*arguments: str | Path) -> Output:
    """Run the command line's own entry point in this process; what it does not expect is raised."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    hook, code = sys.excepthook, 0
    try:
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            main([*map(str, arguments)])
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        sys.excepthook = hook
    texts = [s.buffer.getvalue().decode("utf-8") for s in streams if isinstance(s.buffer, io.BytesIO)]
    return Output(code, *texts)


def profkit_process(*arguments: str | Path) -> Output:
    """Run the command line in a process of its own, as a user does; takes a second or more."""
    command = [sys.executable, "-m", "profkit.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False, timeout=60)
    return Output(done.returncode, done.stdout, done.stderr)


def is_excerpt(shown: str, printed: str) -> bool:
    """Whether the words of `shown` stand in `printed` in this order; a line of its own with … stands for any number."""
    parts = [" ".join(part.split()) for part in re.split(r"^…$", shown.strip(), flags=re.MULTILINE)]
    return re.search(".*".join(map(re.escape, parts)), " ".join(printed.split())) is not None
