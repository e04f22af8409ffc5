"""JSON documents are what their types say, the docs are made from the types, and a report is one file and one line."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import msgspec
import pytest
from bench import Bench, profkit
from recording import step_recording

from profkit import reporters
from profkit.reporters import Report
from profkit.reporters.diff_document import DiffDocument
from profkit.reporters.layers_document import LayersDocument

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "traces" / "dcp-combine"


def test_the_docs_are_made_from_the_types_and_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    generate = importlib.import_module("generate")
    stale = [path.name for path, text in generate.files().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run python docs/generate.py"


@pytest.mark.parametrize(
    ("words", "document"),
    [(("layers", RUNS / "eager"), LayersDocument), (("diff", RUNS / "eager", RUNS / "fused"), DiffDocument)],
)
def test_what_is_printed_is_as_its_type_says(
    words: tuple[str | Path, ...], document: type[LayersDocument | DiffDocument]
) -> None:
    text = profkit(*words, "--format", "json").stdout
    # Decoding checks every field; what comes out again is all that went in.
    again = msgspec.json.encode(msgspec.json.decode(text, type=document))
    assert json.loads(again) == json.loads(text)


TOY = """
from profkit.reporters import send

def write(answer):
    send(" ".join(answer.records().columns[:2]) + "\\n")
"""


def test_a_report_is_one_file_and_one_line(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN one file, and one line in the registry
    (tmp_path / "toy.py").write_text(TOY, encoding="utf-8")
    monkeypatch.setattr(reporters, "__path__", [*reporters.__path__, str(tmp_path)])
    monkeypatch.setattr(reporters, "REPORTS", (*reporters.REPORTS, Report("toy", "toy", ("layers", "diff"))))
    path = bench.path(step_recording(["gemm pack"] * 2, replays=3).rows)
    # THEN both commands have it, and sweep has not
    try:
        assert profkit("layers", path, "--format", "toy").stdout == "run step_kind\n"
        assert profkit("diff", path, path, "--format", "toy").stdout == "place status\n"
    finally:
        sys.modules.pop("profkit.reporters.toy", None)
    assert "toy" not in reporters.formats("sweep")
    assert "There are: text, json, csv, md, brief, toy." in profkit("layers", path, "--format", "xml").stderr
