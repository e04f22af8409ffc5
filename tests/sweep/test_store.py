"""A sweep's directory: what an interrupted start leaves is taken over, nothing else; failed writes leave nothing."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from capture_cli import names

from profkit.commands.sweep import Report
from profkit.errors import ProfkitError
from profkit.sweep import store
from profkit.whole_files import write_whole

PLAN = {"seed": 1, "regions": {"r": {}}}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    "left", [[], [".sweep.json.part"], ["regions/"], [".sweep.json.part", "regions/", "regions/.0000.r.json.part"]]
)
def test_what_an_interrupted_start_leaves_is_taken_over(left: list[str], force: bool, tmp_path: Path) -> None:
    for name in left:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).write_text("half")
    store.begin(tmp_path, PLAN, {}, force=force)
    assert names(tmp_path) == ["regions", "sweep.json"]
    assert names(tmp_path / "regions") == []
    assert store.read_facts(tmp_path) == (PLAN, {})


@pytest.mark.parametrize("other", ["notes.txt", ".other.part", "regions/0000.r.json", "regions/notes.json"])
def test_anything_else_is_left_alone(other: str, tmp_path: Path) -> None:
    (tmp_path / "regions").mkdir()
    (tmp_path / other).write_text("mine")
    with pytest.raises(ProfkitError, match=r"exists and holds no sweep \(no sweep.json\)"):
        store.begin(tmp_path, PLAN, {}, force=True)
    assert (tmp_path / other).read_text() == "mine"
    assert not (tmp_path / "sweep.json").exists()


@contextmanager
def small_files(most_bytes: int) -> Iterator[None]:
    """No file may grow beyond `most_bytes`, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_failed_write_names_the_file_and_leaves_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "regions.json"
    file.write_text("before")
    with small_files(100), pytest.raises(ProfkitError) as raised:
        write_whole(file, "x" * 1000)
    assert str(raised.value) == f"Cannot write {file}: File too large."
    assert names(tmp_path) == ["regions.json"]
    assert file.read_text() == "before"


def test_a_text_that_cannot_be_encoded_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "file", "\udcff")
    assert names(tmp_path) == []


def test_a_link_that_leads_nowhere_needs_force_and_no_pipe_is_replaced(tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="heat maps are drawn with plotly")
    link, pipe = tmp_path / "link.html", tmp_path / "pipe.html"
    link.symlink_to(tmp_path / "nowhere.html")
    os.mkfifo(pipe)
    with pytest.raises(ProfkitError, match=r"link.html exists and will not be overwritten"):
        Report("json", link).check(force=False)
    Report("json", link).check(force=True)
    with pytest.raises(ProfkitError, match=r"pipe.html is a device or a pipe"):
        Report("json", pipe).check(force=True)
