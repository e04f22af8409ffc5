"""What a repeated capture will record, in which order, and the file that says so: capture.json beside the arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profkit.capture.plan import Plan
from profkit.capture.plan_file import source_digest, write_json
from profkit.errors import ProfkitError
from profkit.model.run import RepetitionRecord
from profkit.runs import run_dir
from profkit.runs.planned import PLAN_FILE, SCHEMA

#: Pairs where `--against` is given and `--pairs` is not: a sign test on seven can reach p = 0.016, and still 0.031
#: where one pair is set aside.
DEFAULT_PAIRS = 7


@dataclass(frozen=True)
class Arm:
    """One side of the comparison.

    Args:
        name: its directory: the variant, with ``-2`` where both arms are of one variant.
        variant: the workload's.
    """

    name: str
    variant: str


@dataclass(frozen=True)
class Repetition:
    """One capture of one arm.

    Args:
        sequence: its place in the order of recording, from 0.
        pair: from 0.
        nproc: ranks; None for one process without a group.
    """

    sequence: int
    pair: int
    arm: Arm
    nproc: int | None = None

    def directory(self, output: Path) -> Path:
        """What is renamed into place once it is complete: its run directory, or that of all of its ranks'."""
        pair = output / self.arm.name / str(self.pair)
        return pair / "0" if self.nproc is None else pair

    def runs(self, output: Path) -> list[Path]:
        """Its run directories in a repeated capture at `output`, one a rank."""
        return [output / self.arm.name / str(self.pair) / str(rank) for rank in range(self.nproc or 1)]

    def is_complete(self, output: Path) -> bool:
        """Whether it has been recorded."""
        return all(run_dir.is_run(run) for run in self.runs(output))

    def record(self) -> RepetitionRecord:
        """The `repetition` field of run.json."""
        return RepetitionRecord(arm=self.arm.name, pair=self.pair, sequence=self.sequence)


def make_arms(variant: str, against: str | None) -> tuple[Arm, ...]:
    """The arms of a repeated capture: one, or two that may be of one variant (an A/A control).

    Raises:
        ProfkitError: a variant that cannot name a directory.
    """
    for name in (variant, against or variant):
        if Path(name).name != name or name.startswith("."):
            raise ProfkitError(f"The variant {name!r} cannot name an arm's directory. Rename it in the workload.")
    if against is None:
        return (Arm(variant, variant),)
    return Arm(variant, variant), Arm(against if against != variant else f"{against}-2", against)


def interleaved(arms: Sequence[Arm], pairs: int, nproc: int | None = None) -> list[Repetition]:
    """Every repetition in the order of recording: A B, B A, A B, … so that drift meets both arms alike."""
    ordered = [(pair, arm) for pair in range(pairs) for arm in (arms if pair % 2 == 0 else arms[::-1])]
    return [Repetition(sequence, pair, arm, nproc) for sequence, (pair, arm) in enumerate(ordered)]


def describe(plan: Plan, arms: Sequence[Arm], pairs: int, *, keep_report: bool) -> dict[str, Any]:
    """The `plan` field of capture.json: all that a resumed capture must have in common with the one before.

    A workload file is named without its directory; its content is digested, so that a change between sittings is seen.

    Raises:
        ProfkitError: there is no such file.
    """
    return {
        "workload": plan.name,
        "workload_sha256": source_digest(plan.spec),
        "arms": [{"name": arm.name, "variant": arm.variant} for arm in arms],
        "pairs": pairs,
        "shapes": dict(sorted(text.partition("=")[::2] for text in plan.shapes)),
        "profiler": plan.profiler,
        "replays": plan.replays,
        "warmup": plan.warmup,
        "seed": plan.seed,
        "run_bodies": plan.run_bodies,
        "keep_report": keep_report,
        "nproc": plan.nproc,
        # Absent where it was not asked for, as in captures that were begun before it could be.
        **({"graph_level": True} if plan.graph_level else {}),
    }


def write(output: Path, described: Mapping[str, Any]) -> None:
    """Write capture.json into the directory `output`, whole or not at all."""
    write_json(output / PLAN_FILE, {"schema": SCHEMA, "plan": described})
