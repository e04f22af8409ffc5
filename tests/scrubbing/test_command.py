"""`profkit scrub` as it is called: what it refuses, and that it leaves nothing half done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from recorded import TRACES, all_bytes, execute, shared
from typer.testing import CliRunner

from profkit import readers
from profkit.cli import app
from profkit.commands.scrub import scrub
from profkit.errors import ProfkitError
from profkit.scrub import SCRUBBERS, Scrubber, check

RUN = TRACES / "dcp-combine" / "fused"
TRACE = RUN / "trace.sqlite"


@pytest.mark.parametrize("force", [False, True])
def test_a_directory_is_no_target_for_a_file(force: bool, tmp_path: Path) -> None:
    with pytest.raises(ProfkitError, match="is a directory"):
        scrub(TRACE, tmp_path, force=force)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_with_force_alone(tmp_path: Path) -> None:
    target = tmp_path / "clean.sqlite"
    target.write_text("mine")
    with pytest.raises(ProfkitError, match="add --force"):
        scrub(TRACE, target, force=False)
    assert target.read_text() == "mine"
    scrub(TRACE, target, force=True)
    assert len(readers.read(target).ops) == len(readers.read(TRACE).ops)


def test_a_run_directory_is_replaced_with_force_alone(tmp_path: Path) -> None:
    scrub(RUN, tmp_path / "clean", force=False)
    with pytest.raises(ProfkitError, match="add --force"):
        scrub(RUN, tmp_path / "clean", force=False)
    scrub(RUN, tmp_path / "clean", force=True)


def test_neither_the_source_nor_a_place_in_it_is_a_target(nsys_run: Path) -> None:
    before = all_bytes(nsys_run)
    for source, target in ((nsys_run, nsys_run), (nsys_run / "trace.sqlite", nsys_run / "trace.sqlite")):
        with pytest.raises(ProfkitError, match="the source itself"):
            scrub(source, target, force=True)
    with pytest.raises(ProfkitError, match="lies inside"):
        scrub(nsys_run, nsys_run / "clean", force=False)
    assert all_bytes(nsys_run) == before


def test_a_run_directory_does_not_replace_a_file(tmp_path: Path) -> None:
    (tmp_path / "clean").write_text("mine")
    with pytest.raises(ProfkitError, match="is a file"):
        scrub(RUN, tmp_path / "clean", force=True)


def test_a_missing_parent_is_an_error_without_a_traceback(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["scrub", str(TRACE), str(tmp_path / "no" / "clean.sqlite")])
    assert isinstance(done.exception, ProfkitError)
    assert "Cannot write to" in str(done.exception)


def test_other_formats_are_refused_by_name(tmp_path: Path) -> None:
    source = shared("corpus", "HGLiu1998+batched_gemm", "ck_bmm", "37ca13315e70", "28_results.db")
    with pytest.raises(ProfkitError, match="of format rocpd, which cannot be scrubbed; these can: nsys sqlite"):
        scrub(source, tmp_path / "clean.db", force=False)
    assert list(tmp_path.iterdir()) == []


def test_a_format_is_one_file_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a module that scrubs rocpd by copying it, and its entry
    (tmp_path / "toy_scrub.py").write_text(
        "import shutil\n\ndef scrub(source, target):\n    shutil.copy(source, target)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("profkit.scrub.SCRUBBERS", [*SCRUBBERS, Scrubber("rocpd", "toy_scrub")])
    source = shared("corpus", "HGLiu1998+batched_gemm", "ck_bmm", "37ca13315e70", "28_results.db")
    # THEN it is used, and its copy is checked by reading it
    scrub(source, tmp_path / "clean.db", force=False)
    assert (tmp_path / "clean.db").read_bytes() == source.read_bytes()


def test_a_report_becomes_its_scrubbed_export(nsys_run: Path, tmp_path: Path) -> None:
    report = nsys_run / "trace.nsys-rep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report 2025@3@1@90\n SECRET_x")
    os.utime(report, ns=(0, 0))
    scrub(report, tmp_path / "clean.sqlite", force=False)
    assert b"SECRET_x" not in all_bytes(tmp_path / "clean.sqlite")
    assert len(readers.read(tmp_path / "clean.sqlite").ops) == len(readers.read(TRACE).ops)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = end + 1 WHERE rowid = 100", "ops.end"),
        ("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET start = start - 1", "launches.start"),
        ("UPDATE StringIds SET value = 'layers.4.mla' WHERE value = 'layers.3.mla'", "ranges.text"),
        ("UPDATE CUDA_GRAPH_NODE_EVENTS SET originalGraphNodeId = originalGraphNodeId + 1", "nodes.origin"),
        ("DELETE FROM NVTX_EVENTS WHERE rowid = 3", "ranges.rows"),
        ("UPDATE TARGET_INFO_GPU SET name = 'another'", "devices"),
    ],
)
def test_a_copy_that_reads_otherwise_is_refused(change: str, named: str, nsys_run: Path) -> None:
    execute(nsys_run / "trace.sqlite", change)
    with pytest.raises(ProfkitError, match=f"scrubbing would change {named}"):
        check(readers.read(TRACE, detail=True), readers.read(nsys_run / "trace.sqlite", detail=True))
