"""What tells processes, launches, streams and devices apart where several recordings are one file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from builders import SHARED, annotation, call, kineto_trace, op, rocpd_db
from recordings import FORMATS, Kernel, Launch, Recording, nsys_sqlite

from profkit import readers
from profkit.cli import main
from profkit.commands.scrub import scrub
from profkit.model.trace import NONE, Trace

REPORTS = SHARED / "reports"


def processes_of_ops(trace: Trace) -> dict[str, int]:
    """Name to pid of the process."""
    pids = [trace.info.processes[p].pid for p in trace.ops["process"]]
    return dict(zip(trace.ops["name"].tolist(), pids, strict=True))


def merged(path: Path, ranks: Sequence[str]) -> Path:
    """A file of several ranks with equal correlation ids, as SGLang merges them: every pid has its rank before it."""
    events = []
    for number, rank in enumerate(ranks):
        mine = [call("cudaLaunchKernel", 1000, pid=80 + number), annotation("layers.0", 900, 500, pid=80 + number)]
        mine.append(op(f"k{number}", 2000, 1000))
        events += [{**event, "pid": f"{rank}{event['pid']}"} for event in mine]
    return kineto_trace(path, events)


@pytest.mark.parametrize("ranks", [["[TP00] ", "[TP01] "], ["rank0:", "rank1:"], ["/home/alice/0-", "/home/alice/1-"]])
def test_pids_that_are_texts(tmp_path: Path, ranks: Sequence[str]) -> None:
    path = merged(tmp_path / "trace.json", ranks)

    trace = readers.read(path)

    assert processes_of_ops(trace) == {"k0": 80, "k1": 81}
    assert sorted(trace.info.processes[p].pid for p in trace.ranges["process"]) == [80, 81]
    # THEN a scrubbed copy tells them apart too, and names nothing
    scrub(path, tmp_path / "scrubbed.json", force=False)
    assert processes_of_ops(readers.read(tmp_path / "scrubbed.json")) == {"k0": 80, "k1": 81}
    assert b"alice" not in (tmp_path / "scrubbed.json").read_bytes()


@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS.keys())
def test_0_names_no_launch(tmp_path: Path, write: object) -> None:
    assert callable(write)
    trace = readers.read(write(tmp_path, Recording([Kernel("k", 20, 30, 0)], [Launch(5, 0), Launch(6, 0)])))

    assert trace.ops["correlation"].tolist() == [NONE]
    assert trace.launches["correlation"].tolist() == [NONE, NONE]


def test_streams_of_two_contexts_with_one_number_nsys(tmp_path: Path) -> None:
    path = nsys_sqlite(tmp_path, Recording([Kernel("a", 10, 20), Kernel("b", 15, 25), Kernel("c", 30, 40)], []))
    database = sqlite3.connect(path)
    database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN contextId DEFAULT 1")
    database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET contextId = 2 WHERE start = 15")
    database.commit()
    database.close()

    a, b, c = readers.read(path).ops["stream"].tolist()

    assert a == c != b


def test_streams_of_two_contexts_with_one_number_kineto(tmp_path: Path) -> None:
    events = [op("a", 10, 9, context=1), op("b", 15, 9, context=2), op("c", 30, 9, context=1)]

    a, b, c = readers.read(kineto_trace(tmp_path / "trace.json", events)).ops["stream"].tolist()

    assert a == c != b


@pytest.mark.parametrize("same", [True, False])
def test_devices_of_two_machines_that_are_one_file(tmp_path: Path, same: bool) -> None:
    # GIVEN two runs whose GPUs have the same number, on one machine or on two
    path = tmp_path / "run.db"
    guids = [f"0000000{i}-9106-7106-804d-ebe920342aed" for i in range(2)]
    for i, guid in enumerate(guids):
        rocpd_db(path, guid=guid, pid=717, kernels=[{"start": 10 + i, "end": 20 + i, "stack": 1}])
    database = sqlite3.connect(path)
    if not same:
        for table, column, value in (("agent", "product_name", "AMD Instinct MI355X"),):
            name = f"rocpd_info_{table}_{guids[1].replace('-', '_')}"
            database.execute(f"UPDATE {name} SET {column} = ? WHERE type = 'GPU'", [value])
    database.commit()
    database.close()

    trace = readers.read(path)

    assert len(set(trace.ops["device"])) == (1 if same else 2)
    assert len(set(trace.info.devices.values())) == (1 if same else 2)


# -- graphs whose number stays and whose ops change --------------------------------------------------------------------


def replays(tmp_path: Path, contents: Sequence[str]) -> tuple[list[int], list[str]]:
    """What graph each replay of graph 7 is taken to be of, and the codes of what is said; a letter is a kernel."""
    events = []
    for index, content in enumerate(contents, 1):
        events.append(call("cudaGraphLaunch", index * 10_000, correlation=index))
        for place, name in enumerate(content):
            events.append(op(name, index * 10_000 + 500 + place * 100, 50, correlation=index, **{"graph id": 7}))
    trace = readers.read(kineto_trace(tmp_path / "trace.json", events))
    graphs = trace.ops.groupby("correlation")["graph"].unique()
    assert all(len(found) == 1 for found in graphs)
    return [int(found[0]) for found in graphs], [d.code for d in trace.info.diagnostics]


@pytest.mark.parametrize(
    ("contents", "graphs"),
    [
        (["abc"] * 4 + ["abx"] * 4, [7] * 4 + [8] * 4),
        (["abc"] + ["abx"] * 5, [7] + [8] * 5),
        (["abc"] * 3 + ["abcd"] * 3, [7] * 3 + [8] * 3),
        (["abc"] * 3 + ["abx"] * 3 + ["aby"] * 3, [7] * 3 + [8] * 3 + [9] * 3),
        # another order is the same work
        (["abc", "acb", "abc"], [7] * 3),
        # lost ops
        (["ab"] + ["abc"] * 4, [7] * 5),
        (["abc"] * 4 + ["ab", "a"], [7] * 6),
        (["abc", "ab", "abc", "ac", "abc"], [7] * 5),
        # something else now and then
        (["abc", "abx", "abc", "abx"], [7] * 4),
    ],
    ids=lambda value: ",".join(map(str, value)),
)
def test_a_graph_that_is_updated_is_another_from_then_on(
    tmp_path: Path, contents: Sequence[str], graphs: Sequence[int]
) -> None:
    found, codes = replays(tmp_path, contents)

    assert found == graphs
    assert codes.count("graph-updated") == len(set(graphs)) - 1


# -- recordings of others' mergers ------------------------------------------------------------------------------------


@pytest.mark.skipif(not REPORTS.exists(), reason="the reported recordings are not here: ../shared/reports")
@pytest.mark.parametrize(
    ("name", "code", "found"),
    [
        ("01-merged-ranks-text-pids/n1_merged2_off.json", 0, "3 × sequence 1: 16 launches a step"),
        ("01-merged-ranks-text-pids/n1_merged2_unlike.json", 0, "3 × sequence 1: 16 launches a step"),
        ("02-ranks-with-unlike-ranges/s2_rank0of4.sqlite", 0, "5 × graph 2: 16 launches a step"),
        ("03-correlation-zero-graph-kernels/c0_few.sqlite", 3, "correlation id 0"),
        ("04-crossing-record-function/n4_cross_4us.json", 0, "48 ops = 48 in layers"),
        ("04-crossing-record-function/n4_prefetch.json", 0, "48 ops = 48 in layers"),
        ("07-impossible-duration-two-streams/n11_2s_2streams.json", 0, "1 op has a duration that cannot be"),
        ("10-never-popped-ranges/n5_500.sqlite", 0, "500 ops = 500 in layers"),
        ("13-ranges-there-but-denied/n15_xpu.json", 3, "no call that launches anything is on record"),
        ("13-ranges-there-but-denied/x2_nort.sqlite", 3, "no call that launches anything is on record"),
        ("13-ranges-there-but-denied/x2_thread.sqlite", 3, "push them on the thread that launches"),
        ("14-start-end-only/s1_dom_cubi.sqlite", 0, "80 by lineage"),
        ("14-start-end-only/s1_se.sqlite", 0, "they are start/end ranges"),
        ("14-start-end-only/y_nvtxv2.sqlite", 0, "The ranges in the table NVTX_EVENTS_V2 are left out"),
        ("16-anchor-advice-is-circular/fin_anchor.json", 3, "of an eager trace also its steps, with --steps"),
        ("17-correlation-missing/n6_rccl0.json", 3, "18 of 90 ops name no launch"),
        ("17-correlation-missing/rj_c0.json", 3, "48 of 48 ops name no launch"),
        ("17-correlation-missing/x2_nocorr.sqlite", 3, "48 of 48 ops name no launch"),
        ("24-step-kinds-collide/hash_02.json.gz", 0, "6 × sequence 2: 36 launches a step"),
        ("19-all-set-aside/m1_neg.json", 2, "none of its 48 ops has valid times"),
        ("19-all-set-aside/n9_long.csv", 2, "line 2: the row has 21 fields, the header has 19"),
        ("06-exec-update/h3_layers.json", 0, "4 × graph 78: 24 launches a step"),
        ("06-exec-update/rj_reuse.json.gz", 0, "4 × graph 10: 24 launches a step"),
        ("06-exec-update/h3d_after.sqlite", 0, "norm_kernel_v2"),
        ("06-exec-update/h3d_before.sqlite", 0, "20 × graph 2: 16 launches a step"),
        ("22-two-nodes-device/r_2nodes.db", 0, "AMD Instinct MI300X, AMD Instinct MI355X"),
        ("23-gzip-of-other-formats/rj.json.gz", 0, "in layers"),
        ("23-gzip-of-other-formats/base.sqlite.gz", 0, "in layers"),
        ("23-gzip-of-other-formats/717_kernel_trace.csv.gz", 3, "717_kernel_trace.csv.gz"),
        ("20-lfs-pointer-jax/lfs.json", 2, "git lfs pull"),
        ("20-lfs-pointer-jax/x1_jax.json.gz", 2, "JAX"),
    ],
)
def test_reported_recordings(name: str, code: int, found: str, capsys: pytest.CaptureFixture[str]) -> None:
    ended: object = 0
    try:
        main(["layers", str(REPORTS / name)])
    except SystemExit as end:
        ended = end.code
    said = capsys.readouterr()

    assert ended == code
    assert found in " ".join(f"{said.out} {said.err}".split())
