"""run.json: what a capture says of a run beside its trace (schema ``profkit.run/1``, see docs/run-directory.md).

These types are its one description: capture builds a `RunRecord`, `profkit.runs.run_dir` writes and reads it, reports
use it, and scrub keeps its fields by their types: numbers and truth values as they are, texts that have a `form`
where they are of it, other texts filtered. A field that does not apply is None, and so is one that an earlier profkit
did not write or that scrub emptied; fields that are not named here are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

SCHEMA = "profkit.run/1"
FLOOR_SCHEMA = "profkit.floor/1"


def form(pattern: str) -> Meta:
    """Of a text that scrub keeps only where `pattern` matches it as a whole."""
    return Meta(extra={"form": pattern})


#: ``2.11.0+cu130``, ``2025.3.1.90-253135822126v0``, ``2.4.0a0+07cecf4168.nv24.05``; no local labels in words.
VERSION = (
    r"v?\d+(?:\.\d+){0,5}(?:(?:a|b|rc|\.?dev|\.?post)\d+)*"
    r"(?:[-+](?:cu|rocm|git|g|cpu)?[0-9a-f.]{0,48}(?:v\d{1,3})?)*(?:\.nv[\d.]{1,8})?"
)
#: The flags that profkit itself gives a profiler. Others are the user's, and may hold anything.
OWN_FLAG = (
    r"--(?:trace|cuda-graph-trace|sample|cpuctxsw|cuda-event-trace)=[a-z,:-]{1,40}"
    r"|--(?:kernel|marker|hip|memory-copy|runtime|scratch-memory|rccl)-trace|--hip-runtime-trace|--run-bodies"
    r"|--output-format|csv|json|rocpd"
)

Version = Annotated[str, form(VERSION)]
Sha256 = Annotated[str, form(r"[0-9a-f]{64}")]
Microseconds = Annotated[str, form("us")]
ProfilerName = Annotated[str, form(r"nsys|rocprofv3|torch|dispatch|torch\.profiler|Nsight Systems")]


class MessageRecord(Struct, frozen=True, kw_only=True):
    """A stable code and a sentence."""

    code: Annotated[str, form(r"[a-z][a-z0-9-]{0,60}")] | None = None
    message: str | None = None


class WorkloadRecord(Struct, frozen=True, kw_only=True):
    """Which workload ran: a shipped one, or one of a user's file."""

    name: str
    variant: str | None = None
    shapes: Mapping[str, int | float | str] = {}
    layers: int | None = None
    source: Annotated[str, form("shipped|file")] | None = None


class CommandRecord(Struct, frozen=True, kw_only=True):
    """The program of ``capture -- CMD`` and the number of its arguments, whose text may hold secrets."""

    program: str | None = None
    arguments: int | None = None


class ProfilerRecord(Struct, frozen=True, kw_only=True):
    """What recorded the trace, and what pushed its ranges."""

    name: ProfilerName | None = None
    version: Version | None = None
    graph_trace: Annotated[str, form("node|graph")] | None = None
    ranges: Annotated[str, form(r"(?:nvtx|roctx|torch)[\w.]{0,40}(?: \d[\w.+]{0,20})?")] | None = None
    arguments: Sequence[Annotated[str, form(OWN_FLAG)]] | None = None


class DeviceRecord(Struct, frozen=True, kw_only=True):
    """The device; its name is ``cpu`` without a GPU."""

    name: str | None = None
    vendor: Annotated[str, form("nvidia|amd|none|cpu")] | None = None
    count: int | None = None
    compute_capability: Annotated[str, form(r"\d{1,3}\.\d{1,3}|gfx[0-9a-f]{3,6}")] | None = None
    multiprocessors: int | None = None
    memory_bytes: int | None = None


class VersionsRecord(Struct, frozen=True, kw_only=True):
    """Versions of the software beside the profiler, None where it is absent."""

    driver: Version | None = None
    cuda: Version | None = None
    torch: Version | None = None
    triton: Version | None = None
    python: Version | None = None


class CompileRecord(Struct, frozen=True, kw_only=True):
    """One compilation."""

    name: str | None = None
    seconds: float | None = None


class CompilesRecord(Struct, frozen=True, kw_only=True):
    """Compilations before the recorded window, counted, and those inside it."""

    before: int | None = None
    inside: Sequence[CompileRecord] = ()


class ReferenceRecord(Struct, frozen=True, kw_only=True):
    """One output beside what it must be: `deviation` is in units of the tolerance, None where infinite."""

    within: bool
    deviation: float | None = None
    reference: Sha256


class ReferencesRecord(Struct, frozen=True, kw_only=True):
    """Outputs beside references that the workload computes by other means."""

    rtol: float
    atol: float
    outputs: Mapping[str, ReferenceRecord]


class DigestsRecord(Struct, frozen=True, kw_only=True):
    """Digests of outputs, by output, and the file with their numbers; `nondeterministic` are those whose bits another
    run of the same step in the same capture did not repeat."""

    inputs: Annotated[str, form("digest")] | None = None
    algorithm: Annotated[str, form("sha256")] | None = None
    outputs: Mapping[str, Sha256] | None = None
    numbers: Annotated[str, form(r"outputs\.npz")] | None = None
    nondeterministic: Sequence[str] | None = None
    notes: Mapping[str, Any] | None = None
    references: ReferencesRecord | None = None


class StepTimesRecord(Struct, frozen=True, kw_only=True):
    """How long a step took, in µs: the samples and what is said of them."""

    unit: Microseconds | None = None
    method: str | None = None
    replays: int | None = None
    median: Annotated[float, Meta(gt=0)] | None = None
    p25: float | None = None
    p75: float | None = None
    min: float | None = None
    max: float | None = None
    samples: Sequence[float] | None = None


class QuartilesRecord(Struct, frozen=True, kw_only=True):
    """Times in µs."""

    median: float | None = None
    p25: float | None = None
    p75: float | None = None
    count: int | None = None


class KernelFloorRecord(Struct, frozen=True, kw_only=True):
    """What a kernel costs: one more node of a replay untraced, and its row and the gap between two rows traced."""

    untraced_per_node: QuartilesRecord
    traced_duration: QuartilesRecord
    traced_gap: QuartilesRecord


class RecorderRecord(Struct, frozen=True, kw_only=True):
    """What recorded the traced half of a floor."""

    name: ProfilerName | None = None
    version: Version | None = None


class FloorRecord(Struct, frozen=True, kw_only=True):
    """The dispatch floor of the machine (also schema ``profkit.floor/1``)."""

    unit: Microseconds | None = None
    method: str | None = None
    device: str | None = None
    profiler: RecorderRecord | None = None
    empty: KernelFloorRecord
    load_store: KernelFloorRecord


class RankRecord(Struct, frozen=True, kw_only=True):
    """Which rank of which job a run is; `job` is the same for the ranks of one capture and for no others."""

    rank: Annotated[int, Meta(ge=0)]
    world_size: Annotated[int, Meta(ge=1)]
    job: Annotated[str, form(r"[0-9a-f]{16}")]
    backend: Annotated[str, form(r"(?:nccl|gloo)(?: \d[\d.]{0,20})?")] | None = None


class RepetitionRecord(Struct, frozen=True, kw_only=True):
    """Which repetition of a repeated capture a run is; `sequence` counts them in the order of recording, from 0."""

    arm: str | None = None
    pair: int | None = None
    sequence: int | None = None


class RunRecord(Struct, frozen=True, kw_only=True, tag_field="schema", tag=SCHEMA):
    """All of run.json."""

    created: Annotated[str, form(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")] | None = None
    profkit: Version | None = None
    commit: Annotated[str, form(r"[0-9a-f]{7,64}(?:-dirty)?")] | None = None
    trace: str
    files: Sequence[str] | None = None
    trace_sha256: Mapping[str, Sha256] | None = None
    workload: WorkloadRecord | None = None
    command: CommandRecord | None = None
    exit_code: int | None = None
    profiler: ProfilerRecord | None = None
    timed: bool | None = None
    device: DeviceRecord | None = None
    versions: VersionsRecord | None = None
    seed: int | None = None
    warmup: int | None = None
    replays: int | None = None
    compiles: CompilesRecord | None = None
    digests: DigestsRecord | None = None
    untraced: StepTimesRecord | None = None
    untraced_digests_equal: bool | None = None
    graph_level: StepTimesRecord | None = None
    floor: FloorRecord | None = None
    ranks: RankRecord | None = None
    repetition: RepetitionRecord | None = None
    set_aside: MessageRecord | None = None
    warnings: Sequence[MessageRecord] | None = None
