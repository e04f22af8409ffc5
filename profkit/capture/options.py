"""What a capture is to do and what it finds: the user's options, a worker's job and its result."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

from profkit.model.run import RunRecord

#: Building a model-sized workload and compiling its kernels takes minutes at worst; a rank that hangs takes for ever.
RANK_TIMEOUT_S = 600.0
#: The workload that measures the dispatch floor; no name that a user can give.
FLOOR_WORKLOAD = "<floor>"
#: Of each kernel in the graph whose trace gives the floor.
TRACED_NODES = 256
#: An untraced process times at least this many replays: the quartiles of 20 are coarse and a replay costs under 1 ms.
MIN_UNTRACED_REPLAYS = 50
#: Pairs where `--against` is given and `--pairs` is not: a sign test on seven can reach p = 0.016, and still 0.031
#: where one pair is set aside.
DEFAULT_PAIRS = 7


@dataclass(frozen=True)
class Options:
    """What the user asked for: fields are the options of `profkit capture`, whose help says what they are.

    A worker gets it as it is: variant and shapes are resolved there, where a user's file is imported, and never in the
    process that the user has started.

    Args:
        workload: a shipped name or ``path/file.py:name``; "" for a command.
        profiler: once it is chosen, not ``auto``.
        replays: a profiler without times runs the step once.
        warmup: outside the recorded window; the first of these runs compiles kernels.
        nproc: None for one process that is in no process group.
        rank_timeout_s: of the processes of all ranks together, each time they are started.
        pairs: of a repeated capture, the repetitions of each arm; None for a single capture.
        against: of a repeated capture, the second arm's variant; None repeats one arm.
    """

    workload: str
    variant: str | None = None
    shapes: tuple[str, ...] = ()
    profiler: str = "auto"
    profiler_args: str = ""
    replays: int = 20
    warmup: int = 3
    seed: int = 0
    run_bodies: bool = False
    graph_level: bool = False
    nproc: int | None = None
    rank_timeout_s: float = RANK_TIMEOUT_S
    keep_report: bool = True
    with_floor: bool = True
    pairs: int | None = None
    against: str | None = None
    stop_after_s: float | None = None

    @property
    def name(self) -> str:
        """The workload as run.json records it, without directories."""
        return Path(self.workload).name

    @property
    def needs(self) -> list[str]:
        """The options given that not every profiler takes, see `Profiler.takes`."""
        given = {
            "--nproc": self.nproc is not None,
            "--run-bodies": self.run_bodies,
            "--graph-level": self.graph_level,
            "--nsys-args": self.profiler_args.strip() != "",
        }
        return [option for option, is_given in given.items() if is_given]

    @property
    def is_file(self) -> bool:
        """Whether the workload is one of the user's."""
        return ":" in self.workload


@dataclass(frozen=True)
class Recording:
    """One recorded process: where the profiler wrote, and how it ended, in words.

    Args:
        log: what the process and its profiler printed, empty for a command; exports add to it.
    """

    work: Path
    log: Path
    ended: str = "exit status 0"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker's result file holds; nothing else beside an error or a crash.

    Args:
        error: what the user can mend.
        crash: the first line of an exception that nothing handled.
        record: run.json, as far as the worker knows it.
        backend: what the process group runs over; None where there is none.
        samples_us: of the ``floor`` recorder: kernel to the time of one node in each replay.
    """

    error: str | None = None
    crash: str | None = None
    record: RunRecord = RunRecord(trace="")
    backend: str | None = None
    samples_us: Mapping[str, Sequence[float]] = {}


@dataclass(frozen=True)
class Job:
    """One worker process's task; it travels as a file.

    Args:
        recorder: a profiler's name, ``untraced`` (CUDA events) or ``floor`` (CUDA events around graphs of kernels that
            do nothing).
        directory: where its files lie.
        ranges_api: which API pushes ranges, see `Profiler.ranges_api`.
        master_port: where rank 0 listens while the process group is made.
        parent_pid: the process that started the job; its end is the worker's.
    """

    options: Options
    recorder: str
    directory: Path
    ranges_api: str = ""
    rank: int = 0
    master_port: int = 0
    parent_pid: int = field(default_factory=os.getpid)

    @property
    def held(self) -> bool:
        """Whether it imports torch, then waits for a line on stdin before anything touches the GPU."""
        return self.recorder in ("untraced", "floor")

    @property
    def replays(self) -> int:
        """How many are recorded or timed."""
        return max(self.options.replays, MIN_UNTRACED_REPLAYS) if self.held else self.options.replays

    @property
    def world_size(self) -> int:
        """How many processes are in the process group; 0 where there is none."""
        return self.options.nproc or 0

    def file(self, suffix: str) -> Path:
        """One of its files: ``result.json``, complete or not there; ``log``, the worker's output; ``pid``, its process
        id, under whichever profiler; ``stage``, what a rank is doing; ``job.json``, itself."""
        return self.directory / f"{self.recorder}.{suffix}"

    def at(self, stage: str) -> None:
        """Say what this process is doing from now on, for the message where it hangs; nothing if it is the only one."""
        if self.world_size:
            self.file("stage").write_text(stage, encoding="utf-8")

    def write(self) -> Path:
        """Write the file that a worker reads; returns it."""
        path = self.file("job.json")
        path.write_bytes(msgspec.json.encode(self, enc_hook=str))
        return path

    @classmethod
    def read(cls, path: Path) -> Self:
        """The job that was written to `path`."""
        return msgspec.json.decode(path.read_bytes(), type=cls, dec_hook=lambda kind, text: kind(text))

    def finish(self, result: Result) -> None:
        """Leave the result; a reader sees all of it or no file."""
        file = self.file("result.json")
        partial_file = file.with_suffix(".part")
        partial_file.write_bytes(msgspec.json.encode(result))
        partial_file.replace(file)

    def result(self) -> Result | None:
        """What the worker has left, None where that is nothing."""
        file = self.file("result.json")
        return msgspec.json.decode(file.read_bytes(), type=Result) if file.exists() else None
