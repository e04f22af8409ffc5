"""A format is one file and one line: the rest of profkit asks its entry."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from profkit import readers
from profkit.errors import ProfkitError
from profkit.model.trace import LAUNCHES, NODES, OPS, RANGES, Info, Process, Trace, table
from profkit.readers import Files, Format
from profkit.runs import sides

MAGIC = b"TOY\n"


def toy_module() -> ModuleType:
    """The file of a format whose lines are names of kernels; its parts of one process lie beside each other."""
    module = ModuleType("toy_format")

    def sniff(head: bytes, path: Path) -> bool:
        return head.startswith(MAGIC) or path.is_dir()

    def read(path: Path, *, detail: bool = False) -> Trace:
        lines = [line for file in ([*path.glob("*.toy")] or [path]) for line in file.read_text().split()[1:]]
        ops = {"start": [*range(len(lines))], "end": [*range(1, len(lines) + 1)], "process": 0, "name": lines}
        info = Info(str(path), "toy", "none", "toy 1", {}, (Process(1),))
        return Trace(table(OPS, ops), table(LAUNCHES), table(RANGES), table(NODES), info, table(OPS))

    vars(module).update(sniff=sniff, read=read)
    return module


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Format:
    monkeypatch.setitem(sys.modules, "toy_format", toy_module())
    parts = Files(re.compile(r"^(\w+)-(?:ops|calls)\.toy$"), shown="-ops.toy")
    entry = Format(("toy",), "toy_format", (MAGIC,), directory="*.toys", files=parts, own=True)
    monkeypatch.setattr(readers, "FORMATS", [entry, *readers.FORMATS])
    return entry


def test_a_format_is_read_by_its_content(tmp_path: Path, toy: Format) -> None:
    (tmp_path / "x.json").write_bytes(MAGIC + b"gemm\npack\n")

    trace = readers.read(tmp_path / "x.json")

    assert trace.ops["name"].tolist() == ["gemm", "pack"]
    assert readers.format_of(trace.info.format) is toy


def test_its_parts_of_one_process_are_one_run(tmp_path: Path, toy: Format) -> None:
    for name in ("a-calls.toy", "a-ops.toy", "b-calls.toy", "notes.txt"):
        (tmp_path / name).write_bytes(MAGIC)

    assert [run.trace.name for run in sides.find(str(tmp_path))] == ["a-ops.toy", "b-calls.toy"]
    assert [run.trace.name for run in sides.find(str(tmp_path / "a-*"))] == ["a-ops.toy"]


def test_its_directory_is_one_trace(tmp_path: Path, toy: Format) -> None:
    (tmp_path / "index.toys").touch()
    (tmp_path / "b.toy").write_bytes(MAGIC + b"gemm\n")

    (run,) = sides.find(str(tmp_path))

    assert run.trace == tmp_path
    assert readers.read(run.trace).ops["name"].tolist() == ["gemm"]


def test_an_unregistered_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(MAGIC + b"gemm\n")

    with pytest.raises(ProfkitError, match="of no format that profkit knows"):
        readers.read(tmp_path / "x")


def test_every_entry_names_a_reader_and_every_name_one_entry() -> None:
    names = [name for entry in readers.FORMATS for name in entry.names]
    assert len(names) == len(set(names))
    for entry in readers.FORMATS:
        module = __import__(entry.module, fromlist=["read"])
        assert callable(module.sniff)
        assert callable(module.read)


def test_of_a_format_that_no_reader_makes_nothing_is_known() -> None:
    entry = readers.format_of("made by hand")
    assert not entry.own
    assert not entry.whole_graphs
