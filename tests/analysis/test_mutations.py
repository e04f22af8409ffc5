"""The mutation table: what a diff of two good runs must say once one of them is damaged.

The runs are those in `traces/`: the mask in eight kernels, and fused. Each row damages a copy of one of them, and runs
the command line. docs/damage.md shows the same table.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import damage as do
import pytest
from bench import Output, profkit
from damage import Damage
from recording import step_trace

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "traces" / "dcp-combine"
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"


@dataclass(frozen=True)
class Mutation:
    """One row: what was done, to which sides, and what the diff must say.

    Args:
        what: as docs/damage.md calls it.
        verdict, status: the answer, and the exit status.
        code: a reason's code that must be among the reasons; the first one where there is no verdict.
        damages: for a side its damage.
        sides: the runs; the fusion if not given.
    """

    what: str
    verdict: str
    status: int
    code: str
    before: Damage | None = None
    after: Damage | None = None
    sides: tuple[str, str] = ("eager", "fused")

    @property
    def answer(self) -> tuple[str, str]:
        """As the documentation has it."""
        return self.verdict, f"`{self.code}`" if self.code else ""


def _outputs(content: dict[str, Any]) -> dict[str, str]:
    outputs: dict[str, str] = content["digests"]["outputs"]
    return outputs


def _delete(condition: str) -> Damage:
    return do.sql(f"DELETE FROM {{ops}} WHERE {condition}")


def _field(**fields: Any) -> Damage:
    return do.record(lambda content: content.update(fields))


_numberless = do.record(lambda content: content["digests"].pop("numbers"))
_without_layer_7 = do.record(
    lambda content: content["digests"].update(
        outputs={name: digest for name, digest in _outputs(content).items() if not name.startswith("layers.7.")}
    )
)


def _stalled(content: dict[str, Any]) -> None:
    content["compiles"]["inside"] = [{"name": "pack_kernel", "seconds": 0.4}]


_GRAPH_LEVEL = do.sql(
    'CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE AS SELECT min(start) AS start, max("end") AS "end", deviceId, '
    f"contextId, streamId, correlationId, globalPid, 2 AS graphId, 2 AS graphExecId FROM {KERNEL} "
    f"WHERE {do.GRAPH_OPS} GROUP BY correlationId",
    f"DELETE FROM {{ops}} WHERE {do.GRAPH_OPS}",
    "DROP TABLE CUDA_GRAPH_NODE_EVENTS",
    "UPDATE META_DATA_CAPTURE SET value = 'Graph'",
)
#: Every op again, as of a second process on another GPU.
_SECOND_RANK = do.sql(
    *(
        statement
        for table in do.ACTIVITIES
        for statement in (
            f"CREATE TABLE again_{table} AS SELECT * FROM {table}",
            f"UPDATE again_{table} SET globalPid = globalPid + {do.NEXT_PROCESS}, deviceId = 1",
            f"INSERT INTO {table} SELECT * FROM again_{table}",
        )
    )
)

MUTATIONS = [
    Mutation("nothing", "confirmed", 0, "nothing-else-moved"),
    # -- lost ops ---
    Mutation("one kernel of one replay is gone", "confirmed", 0, "partial-replay",
             after=_delete(f"{do.ONE_NODE} AND {do.of_replays(1)}")),
    Mutation("one kernel of every replay is gone", "inconclusive", 3, "nodes-without-ops", after=_delete(do.ONE_NODE)),
    Mutation("one replay lost all its ops", "confirmed", 0, "launches-without-ops", after=_delete(do.of_replays(1))),
    Mutation("one replay is gone, its launch too", "confirmed", 0, "fewer-replays",
             after=do.both(_delete(do.of_replays(1)),
                           do.sql(f"DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE {do.of_replays(1)}"))),
    Mutation("half of the replays lost their ops", "inconclusive", 3, "under-recorded",
             after=_delete(do.of_replays(10))),
    Mutation("half of the replays are gone, their launches too", "inconclusive", 3, "under-recorded",
             after=do.both(_delete(do.of_replays(10)),
                           do.sql(f"DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE {do.of_replays(10)}"))),
    Mutation("a layer lost its ops in every replay", "inconclusive", 3, "nodes-without-ops",
             after=_delete(do.of_layer(23))),
    Mutation("a layer was never recorded", "inconclusive", 3, "layers-missing",
             after=do.both(_delete(do.of_layer(23)),
                           do.sql(f"DELETE FROM CUDA_GRAPH_NODE_EVENTS WHERE {do.of_layer(23)}"))),
    Mutation("a layer was never recorded, and no run.json tells", "inconclusive", 3, "other-layer-count",
             after=do.both(_delete(do.of_layer(23)),
                           do.sql(f"DELETE FROM CUDA_GRAPH_NODE_EVENTS WHERE {do.of_layer(23)}"), do.bare)),
    Mutation("the last hundredth of the recording is gone", "confirmed", 0, "partial-replay",
             after=_delete(do.after_per_cent(99))),
    Mutation("the second half of the recording is gone", "inconclusive", 3, "under-recorded",
             after=_delete(do.after_per_cent(50))),
    Mutation("an eager launch outside the graph lost its op", "confirmed", 0, "eager-launches-without-ops",
             after=_delete("graphNodeId IS NULL AND start = (SELECT max(start) FROM CUPTI_ACTIVITY_KIND_MEMCPY "
                           "WHERE graphNodeId IS NULL)")),
    Mutation("every op is gone", "inconclusive", 3, "under-recorded", after=_delete("1")),
    Mutation("everything is gone", "inconclusive", 3, "empty",
             after=do.sql("DELETE FROM {ops}", "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME",
                          "DROP TABLE CUDA_GRAPH_NODE_EVENTS", "DROP TABLE NVTX_EVENTS")),
    # -- a run.json that is another recording's ---
    Mutation("the trace is another than the one captured", "inconclusive", 3, "trace-replaced",
             after=do.another_trace),
    Mutation("no trace digest, and more replays than run.json tells of", "confirmed", 0, "more-replays",
             after=_field(replays=19, trace_sha256=None)),
    # -- other rows ---
    Mutation("every op is there twice", "confirmed", 0, "duplicate-rows",
             after=do.sql("INSERT INTO {ops} SELECT * FROM {ops}")),
    Mutation("one node ran twice in one replay", "confirmed", 0, "doubled-node",
             after=do.sql(f"CREATE TABLE again AS SELECT * FROM {KERNEL} WHERE {do.ONE_NODE} AND {do.of_replays(1)}",
                          'UPDATE again SET start = start + 90000000, "end" = "end" + 90000000',
                          f"INSERT INTO {KERNEL} SELECT * FROM again")),
    Mutation("the times of one kernel are zero", "confirmed", 0, "rows-set-aside",
             after=do.sql(f'UPDATE {KERNEL} SET start = 0, "end" = 0 WHERE {do.ONE_NODE} AND {do.of_replays(1)}')),
    Mutation("one kernel ends centuries after it started", "confirmed", 0, "rows-set-aside",
             after=do.sql(f'UPDATE {KERNEL} SET "end" = start + 9000000000000000000 '
                          f"WHERE {do.ONE_NODE} AND {do.of_replays(1)}")),
    Mutation("every kernel of one name lasts twice as long", "confirmed", 0, "others-changed",
             after=do.sql(f'UPDATE {KERNEL} SET "end" = 2 * "end" - start WHERE {do.kernels_named("%unpack")}')),
    Mutation("kernels and copies are on other streams", "confirmed", 0, "nothing-else-moved",
             after=do.sql("UPDATE {ops} SET streamId = 20 - streamId")),
    Mutation("the GPU's clock is 5 ms off the host's", "confirmed", 0, "nothing-else-moved",
             after=do.sql('UPDATE {ops} SET start = start + 5000000, "end" = "end" + 5000000')),
    Mutation("all clocks began a day earlier, at negative times", "confirmed", 0, "nothing-else-moved",
             after=do.sql(*(f'UPDATE {t} SET start = start - 86400000000000, "end" = "end" - 86400000000000'
                            for t in ("{ops}", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUDA_GRAPH_NODE_EVENTS",
                                      "NVTX_EVENTS")))),
    Mutation("ops name no launch", "inconclusive", 3, "under-recorded",
             after=do.sql("UPDATE {ops} SET correlationId = NULL")),
    Mutation("graph level: one row for each launch of the graph", "inconclusive", 3, "graph-level",
             after=_GRAPH_LEVEL),
    Mutation("no range was recorded", "inconclusive", 3, "other-method", after=do.sql("DROP TABLE NVTX_EVENTS")),
    Mutation("no range is named after a layer, nor repeats", "inconclusive", 3, "other-method",
             after=do.sql("UPDATE NVTX_EVENTS SET text = 'x', textId = NULL")),
    Mutation("one of two ranks of the recording is missing", "inconclusive", 3, "other-ranks", before=_SECOND_RANK),
    # -- files ---
    Mutation("the trace file is cut in half", "error", 2, "", after=do.cut(0.5)),
    Mutation("the trace file is empty", "error", 2, "", after=do.cut(0)),
    Mutation("the trace file is gone", "error", 2, "", after=lambda run: (run / "trace.sqlite").unlink()),
    Mutation("a column without which nothing can be told is missing", "error", 2, "",
             after=do.sql(f"ALTER TABLE {KERNEL} DROP COLUMN start")),
    Mutation("the column by which ops name their launch is missing", "inconclusive", 3, "under-recorded",
             after=do.sql(f"ALTER TABLE {KERNEL} DROP COLUMN correlationId")),
    # -- what run.json says ---
    Mutation("no digests", "inconclusive", 3, "outputs-not-compared", after=_field(digests=None)),
    Mutation("no digests on either side", "inconclusive", 3, "outputs-not-compared",
             before=_field(digests=None), after=_field(digests=None)),
    Mutation("the work was dropped, and no digests", "inconclusive", 3, "outputs-not-compared",
             after=_field(digests=None), sides=("eager", "dropped")),
    Mutation("another digest of one output, and no numbers of it", "inconclusive", 3, "outputs-differ-in-bits",
             after=do.both(do.record(lambda c: _outputs(c).update({"layers.7.mla/out": "0" * 64})), _numberless)),
    Mutation("numbers of other outputs than the digests", "error", 2, "",
             after=do.record(lambda c: _outputs(c).update({"layers.7.mla/out": "0" * 64}))),
    Mutation("one output is missing", "refuted", 1, "outputs-missing",
             after=do.both(do.record(lambda c: _outputs(c).pop("layers.7.mla/out")), _numberless)),
    Mutation("outputs of one layer are not there", "inconclusive", 3, "outputs-partly",
             before=do.both(_without_layer_7, _numberless), after=do.both(_without_layer_7, _numberless)),
    Mutation("digests of another seed", "inconclusive", 3, "digests-of-other-inputs", after=_field(seed=7)),
    Mutation("the work was dropped, and digests of another seed", "inconclusive", 3, "digests-of-other-inputs",
             after=_field(seed=7), sides=("eager", "dropped")),
    Mutation("outputs that differ from run to run", "inconclusive", 3, "digests-not-reproducible",
             after=_field(untraced_digests_equal=False)),
    Mutation("the work was dropped, and outputs differ from run to run", "inconclusive", 3,
             "digests-not-reproducible", after=_field(untraced_digests_equal=False), sides=("eager", "dropped")),
    Mutation("another device", "inconclusive", 3, "other-device",
             after=do.sql("UPDATE TARGET_INFO_GPU SET name = 'NVIDIA H100'")),
    Mutation("other shapes", "inconclusive", 3, "other-shapes",
             after=do.record(lambda c: c["workload"]["shapes"].update(rows=64))),
    Mutation("another workload", "inconclusive", 3, "other-workload",
             after=do.record(lambda c: c["workload"].update(name="another"))),
    Mutation("another driver", "confirmed", 0, "settings-differ",
             after=do.record(lambda c: c["versions"].update(driver="570.0"))),
    Mutation("something compiled inside the window", "confirmed", 0, "compiled-inside-window",
             after=do.record(_stalled)),
    # -- sides ---
    Mutation("the sides are swapped", "changed", 0, "launches-added", sides=("fused", "eager")),
    Mutation("one run is both sides", "neutral", 0, "same-input", sides=("eager", "eager")),
    Mutation("the work was dropped instead of fused", "refuted", 1, "outputs-differ", sides=("eager", "dropped")),
]  # fmt: skip


#: The same for a repeated capture of three pairs, whose runs are damaged by the directory that holds them all.
POOLS = [
    Mutation("a repeated capture, nothing", "confirmed", 0, "nothing-else-moved"),
    Mutation("a repetition was set aside for a compilation", "confirmed", 0, "set-aside",
             after=do.within("fused/1/0", _field(set_aside={"code": "compiled-inside-window", "message": "1 ran."}))),
    Mutation("every repetition of one arm was set aside", "error", 2, "",
             after=do.both(*(do.within(f"fused/{n}/0", _field(set_aside={"code": "step-time-outlier"}))
                             for n in range(3)))),
    Mutation("a repetition with a compilation was not set aside", "confirmed", 0, "compiled-inside-window",
             after=do.within("unfused/2/0", do.record(_stalled))),
    Mutation("a planned repetition is missing", "confirmed", 0, "repetitions-missing",
             after=lambda pool: shutil.rmtree(pool / "fused" / "2")),
    Mutation("the baseline's first repetition is missing", "confirmed", 0, "repetitions-missing",
             after=lambda pool: shutil.rmtree(pool / "unfused" / "0")),
    Mutation("the baseline's first repetition is missing, and capture.json", "confirmed", 0, "nothing-else-moved",
             after=lambda pool: (shutil.rmtree(pool / "unfused" / "0"), (pool / "capture.json").unlink())),
    Mutation("one repetition is of another workload", "inconclusive", 3, "other-workload",
             after=do.within("fused/1/0", do.record(lambda c: c["workload"].update(name="another")))),
    Mutation("one repetition has other shapes", "inconclusive", 3, "other-shapes",
             after=do.within("fused/1/0", do.record(lambda c: c["workload"]["shapes"].update(rows=64)))),
    Mutation("one repetition is of another variant", "inconclusive", 3, "other-variants-in-side",
             after=do.within("fused/1/0", do.record(lambda c: c["workload"].update(variant="another")))),
    Mutation("one repetition under another driver", "confirmed", 0, "settings-differ",
             after=do.within("fused/1/0", do.record(lambda c: c["versions"].update(driver="570.0")))),
    Mutation("one repetition of each arm on another device", "inconclusive", 3, "other-device",
             after=do.both(*(do.within(f"{arm}/1/0", do.sql("UPDATE TARGET_INFO_GPU SET name = 'NVIDIA H100'"))
                             for arm in ("unfused", "fused")))),
    Mutation("one arm is missing", "error", 2, "", after=lambda pool: shutil.rmtree(pool / "fused")),
    Mutation("one repetition twice in an arm", "error", 2, "",
             after=lambda pool: shutil.copy(pool / "fused/0/0/trace.sqlite", pool / "fused/1/0/trace.sqlite")),
    Mutation("one repetition in both arms", "inconclusive", 3, "shared-recording",
             after=lambda pool: shutil.copy(pool / "unfused/0/0/trace.sqlite", pool / "fused/1/0/trace.sqlite")),
    Mutation("a repetition of one layer less", "inconclusive", 3, "other-layers-in-side",
             after=lambda pool: repetition(pool, "fused", 1, layers=3)),
    Mutation("a repetition that is three times as slow", "confirmed", 0, "unlike-run",
             after=lambda pool: repetition(pool, "fused", 1, layer="gemm:9000 pack:5400")),
    Mutation("capture.json is cut", "error", 2, "",
             after=lambda pool: (pool / "capture.json").write_text("{", encoding="utf-8")),
]  # fmt: skip
_ARMS = {"unfused": "gemm:3000 fill:900 mask:900 pack:1300", "fused": "gemm:3000 pack:1800"}


def repetition(pool: Path, arm: str, pair: int, *, layer: str | None = None, layers: int = 4) -> None:
    """Write one repetition of a repeated capture, made up."""
    directory = pool / arm / str(pair) / "0"
    directory.mkdir(parents=True, exist_ok=True)
    index = list(_ARMS).index(arm)
    seed = 10 * pair + index
    step_trace(directory / "trace.sqlite", [layer or _ARMS[arm]] * layers, replays=6, jitter_ns=6, seed=seed)
    place = {"arm": arm, "pair": pair, "sequence": 2 * pair + (index if pair % 2 == 0 else 1 - index)}
    content = {
        "schema": "profkit.run/1",
        "trace": "trace.sqlite",
        "repetition": place,
        "compiles": {"inside": []},
        "workload": {"name": "toy", "variant": arm, "shapes": {"rows": 8}},
        "versions": {"driver": "580.0"},
        "seed": 0,
        "digests": {"outputs": {f"layers.{i}/out": "00" for i in range(layers)}},
    }
    (directory / "run.json").write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize("mutation", [pytest.param(m, id=m.what) for m in POOLS])
def test_damage_to_a_repeated_capture(mutation: Mutation, tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    for arm, pair in itertools.product(_ARMS, range(3)):
        repetition(pool, arm, pair)
    plan = {"arms": [{"name": arm, "variant": arm} for arm in _ARMS], "pairs": 3}
    (pool / "capture.json").write_text(json.dumps({"schema": "profkit.capture/1", "plan": plan}), encoding="utf-8")
    if mutation.after is not None:
        mutation.after(pool)
    assert_says(mutation, *answer(profkit("diff", pool, "--format", "json")))


def copy(variant: str, target: Path, damage: Damage | None) -> Path:
    """A run's directory, damaged; the run itself where there is nothing to damage."""
    if damage is None:
        return RUNS / variant
    shutil.copytree(RUNS / variant, target)
    for file in target.iterdir():
        file.chmod(0o644)
    damage(target)
    return target


def answer(done: Output) -> tuple[int, str, list[str]]:
    """Exit status, verdict (``error`` for none) and the reasons' codes."""
    if done.returncode == 2:
        assert done.stdout == ""
        assert len(done.stderr.strip().splitlines()) == 1
        return 2, "error", []
    data = json.loads(done.stdout)
    return done.returncode, data["verdict"], [reason["code"] for reason in data["reasons"]]


def diff(mutation: Mutation, directory: Path, *options: str) -> tuple[int, str, list[str]]:
    """The answer to two sides, damaged."""
    before = copy(mutation.sides[0], directory / "before", mutation.before)
    after = copy(mutation.sides[1], directory / "after", mutation.after)
    return answer(profkit("diff", before, after, "--format", "json", *options))


def assert_says(mutation: Mutation, status: int, verdict: str, codes: Sequence[str]) -> None:
    assert (status, verdict) == (mutation.status, mutation.verdict), codes
    if verdict == "inconclusive" and "launches-removed" not in codes:
        # The two were not compared, for this reason before any other.
        assert codes[0] == mutation.code
    elif mutation.code:
        assert mutation.code in codes


@pytest.mark.parametrize("after", ["fused", "dropped"])
def test_no_count_of_launches_confirms_outputs_that_differ_from_run_to_run(after: str, tmp_path: Path) -> None:
    unsteady = Mutation("", "", 3, "", before=_field(untraced_digests_equal=False), after=_field(digests=None),
                        sides=("eager", after))  # fmt: skip
    status, verdict, codes = diff(unsteady, tmp_path, "--expect-removed", "8")
    assert (status, verdict) == (3, "inconclusive")
    assert "digests-not-reproducible" in codes


@pytest.mark.parametrize("mutation", [pytest.param(m, id=m.what) for m in MUTATIONS])
def test_damage_to_a_good_pair(mutation: Mutation, tmp_path: Path) -> None:
    assert_says(mutation, *diff(mutation, tmp_path))


#: Without an answer about the work the runs are compared nevertheless, and a gate on launches can be judged.
_OF_THE_WORK = {
    "outputs-not-compared",
    "outputs-differ-in-bits",
    "outputs-partly",
    "digests-of-other-inputs",
    "digests-not-reproducible",
    "trace-replaced",
}
_FORBIDDEN = [m for m in MUTATIONS if m.verdict == "inconclusive" and m.code not in _OF_THE_WORK]


@pytest.mark.parametrize("mutation", [pytest.param(m, id=m.what) for m in _FORBIDDEN])
def test_no_gate_turns_a_forbidden_comparison_green(mutation: Mutation, tmp_path: Path) -> None:
    gates = ("--expect-removed", "8", "--expect-fused", "--max-launches-per-layer", "12", "--max-regression", "50")
    assert diff(mutation, tmp_path, *gates)[0] == 3


def _rows(mutations: Sequence[Mutation]) -> list[str]:
    """The documentation's table of these: a row for each answer."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in mutations:
        found.setdefault(one.answer, []).append(one.what)
    return [f"| {verdict} | {code} | {'; '.join(what)} |" for (verdict, code), what in found.items()]


def test_the_documentation_shows_these_tables() -> None:
    page = (ROOT / "docs" / "damage.md").read_text(encoding="utf-8")
    shown = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| answer")]
    assert shown == [*_rows(MUTATIONS), *_rows(POOLS)]


def test_a_verdict_has_one_exit_status() -> None:
    known = {"confirmed": 0, "changed": 0, "neutral": 0, "refuted": 1, "error": 2, "inconclusive": 3}
    assert {one.verdict: one.status for one in (*MUTATIONS, *POOLS)} == known
