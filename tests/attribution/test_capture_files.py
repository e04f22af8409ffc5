"""Which capture traces are read, and what is said of those that are missing or named unlike the rest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from profkit.attribution.capture_traces import MANIFEST, find
from profkit.errors import ProfkitError


def directory(path: Path, files: Sequence[str], manifest: object | None = None) -> Path:
    """A directory of empty trace files and, if given, a manifest."""
    for name in files:
        (path / name).write_text("{}")
    if manifest is not None:
        (path / MANIFEST).write_text(manifest if isinstance(manifest, str) else json.dumps(manifest))
    return path


def entry(name: str, batch_size: int = 32) -> dict[str, object]:
    """A line of the manifest."""
    return {"file": name, "batch_size": batch_size, "mode": "FULL"}


def test_one_file_is_taken_as_it_is(tmp_path: Path) -> None:
    path = directory(tmp_path, ["any.json.gz"]) / "any.json.gz"
    assert find(path, []).paths == (path,)


@pytest.mark.parametrize("given", [".", MANIFEST])
def test_a_manifest_names_the_files(tmp_path: Path, given: str) -> None:
    directory(tmp_path, ["bs_32.json.gz"], [entry("bs_32.json.gz")])
    assert find(tmp_path / given, []).paths == (tmp_path / "bs_32.json.gz",)


def test_a_file_that_the_manifest_names_and_is_not_there_is_an_error(tmp_path: Path) -> None:
    directory(tmp_path, ["graph_capture_1.json.gz"], [entry("bs_32.json.gz")])
    with pytest.raises(ProfkitError, match=r"such as bs_32\.json\.gz\. Trace files there: graph_capture_1\.json\.gz"):
        find(tmp_path, [])


@pytest.mark.parametrize("absolute", [True, False])
def test_a_file_elsewhere_is_another_recordings(tmp_path: Path, absolute: bool) -> None:
    (tmp_path / "engine").mkdir()
    elsewhere = directory(tmp_path, ["bs_32.json.gz"]) / "bs_32.json.gz"
    directory(tmp_path / "engine", [], [entry(str(elsewhere) if absolute else "../bs_32.json.gz")])
    with pytest.raises(ProfkitError, match="not beside it"):
        find(tmp_path / "engine", [])


def test_a_file_that_the_manifest_does_not_name_is_said(tmp_path: Path) -> None:
    directory(tmp_path, ["bs_32.json.gz", "other.json.gz"], [entry("bs_32.json.gz")])
    files = find(tmp_path, [])
    assert files.paths == (tmp_path / "bs_32.json.gz",)
    assert "other.json.gz" in files.notes[0]


def test_without_a_manifest_all_traces_are_read_and_that_is_said(tmp_path: Path) -> None:
    directory(tmp_path, ["a.json", "b.json.gz", "notes.txt"])
    files = find(tmp_path, [])
    assert [p.name for p in files.paths] == ["a.json", "b.json.gz"]
    assert MANIFEST in files.notes[0]


@pytest.mark.parametrize("text", ["execute_8_context_0(sq0)", "step[DECODE bs=8]", "capture_8_FULL"])
def test_the_batch_size_in_the_traces_ranges_chooses_and_that_is_said(tmp_path: Path, text: str) -> None:
    directory(tmp_path, ["bs_8.json", "bs_32.json"], [entry("bs_8.json", 8), entry("bs_32.json")])
    files = find(tmp_path, ["replay", text])
    assert [p.name for p in files.paths] == ["bs_8.json"]
    assert "batch size 8" in files.notes[0]


def test_a_batch_size_that_no_capture_has_leaves_all(tmp_path: Path) -> None:
    directory(tmp_path, ["bs_8.json", "bs_32.json"], [entry("bs_8.json", 8), entry("bs_32.json")])
    assert len(find(tmp_path, ["execute_16_context"]).paths) == 2


@pytest.mark.parametrize(
    ("manifest", "message"),
    [("{", "cannot be read"), ("[]", "lists no capture traces"), ('[{"batch_size": 1}]', "lists no capture traces")],
)
def test_a_damaged_manifest_is_an_error(tmp_path: Path, manifest: str, message: str) -> None:
    directory(tmp_path, [], manifest)
    with pytest.raises(ProfkitError, match=message):
        find(tmp_path, [])


@pytest.mark.parametrize(("name", "message"), [("absent", "no such file"), (".", "neither")])
def test_nothing_there_is_an_error(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ProfkitError, match=message):
        find(tmp_path / name, [])
