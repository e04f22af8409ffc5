"""Names and range texts: what stays as it is, and what is taken out of it."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import TRACES, shared

from profkit.model.scope import LAYER
from profkit.scrub.fields import kept_text as kept


@pytest.mark.parametrize(
    "text",
    [
        "aten::div",
        "layers.3.mla/x",
        "model.layers.3 / mla / pack",
        "Memcpy HtoD (Pageable -> Device)",
        "ProfilerStep#3",
        "step[DECODE bs=32]",
        "aten::view, op_id = 314290",
        "nn.Module: Linear_0",
        "torch/_functorch/utils.py(34): <genexpr>",
        "step[bs=32]/BATCH=4 decode",
        "num_tokens=32 causal=True shape=[2,3]",
        "Foo::operator=(Foo const&)",
        "void f<(anonymous namespace)::g(int)::{lambda(int)#1}>(a<=b, a==b)",
        "get_token(int)::Token::run",
    ],
)
def test_plain_texts_stay(text: str) -> None:
    assert kept(text) == text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("/home/alice/x.py(12): f", "x.py(12): f"),
        ("/home/alice", "…"),
        ("~/src/k.cu", "k.cu"),
        (r"C:\Users\bob\k.cu", "k.cu"),
        (r"\\server\share\data", "…"),
        ("open '/home/alice/My Files/a.bin'", "open 'a.bin'"),
        ("run in scratch/home/alice/z", "run in …"),
        ("f<(lambda at /home/alice/k.hip:33:5)>(int*)", "f<(lambda at k.hip:33:5)>(int*)"),
        ("load file:///data/x", "load …"),
        ("HF_TOKEN=SECRET_1", "HF_TOKEN=…"),
        ("token=SECRET_1", "token=…"),
        ('{"api_key": "SECRET_1", "b": 2}', '{"api_key":…'),
        ("hosts=n1,n2 bs=4", "hosts=… bs=4"),
        ("USER=alice smith\nPATH=/usr/bin:/opt/my tools HOME=/root", "USER=…\nPATH=… HOME=…"),
        ("KEY=''SECRET_1 x=(SECRET_2) y=1,SECRET_3", "KEY=… x=… y=…"),
        ("mail bob@example.org", "mail …"),
        ("from bob@node17:/data/x", "from …"),
        ("rpc 10.1.2.3:80", "rpc …"),
        ("prog --user alice", "prog --user …"),
        ("layers.3.mla KEY=SECRET_1", "layers.3.mla KEY=…"),
        ("/models/layers.3/mla", "layers.3 …"),
        ("model.layers.3.attn in=[2048,7168]", "model.layers.3.attn"),
        ("{'Module': 'model.layers.3', 'Inputs': {'p': '/home/alice'}}", "model.layers.3"),
    ],
)
def test_what_names_a_machine_or_a_secret_goes(text: str, clean: str) -> None:
    assert kept(text) == clean


def recorded_names(path: Path) -> set[str]:
    """Every name of an op, a call or a range in a trace."""
    if path.suffix == ".gz":
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        return {e["name"] for e in events} | {e["args"]["kernel"] for e in events if "kernel" in e.get("args", {})}
    database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    names = {text for (text,) in database.execute("SELECT text FROM NVTX_EVENTS WHERE text NOT NULL")}
    names |= {text for (text,) in database.execute("SELECT value FROM StringIds")}
    database.close()
    return names


SHIPPED = sorted(p for p in TRACES.rglob("trace.*"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: f"{p.parent.parent.name}-{p.parent.name}")
def test_names_of_shipped_runs_stay(path: Path) -> None:
    names = recorded_names(path)
    assert len(names) > 30
    assert [n for n in names if kept(n) != n] == []


@pytest.mark.parametrize("folder", ["AMD-AGI+TraceLens", "facebookresearch+HolisticTraceAnalysis"])
def test_only_absolute_paths_of_recorded_traces_change(folder: str) -> None:
    names = set().union(*(recorded_names(p) for p in shared("corpus", folder).rglob("*.json.gz")))
    changed = {n for n in names if kept(n) != n}
    assert {n for n in changed if not n.startswith("/")} == set()
    assert {n for n in changed if kept(n) != n.rpartition("/")[2]} == set()


@settings(max_examples=200)
@given(st.text(alphabet="layers.37_/~ =\\:@ab'\"[]KEY\n", max_size=40))
def test_filtering_twice_changes_nothing_and_layers_stay(text: str) -> None:
    clean = kept(text)
    assert kept(clean) == clean
    assert re.findall(LAYER, clean) == re.findall(LAYER, text)


@pytest.mark.parametrize(
    "piece", ["x", "a.", "a-", "/", "a/", "\\", "A= ", "secret", "secret ", "ab:", "a@", "a::", "a=(1"]
)
def test_a_long_text_takes_no_longer_than_its_length(piece: str) -> None:
    began = time.perf_counter()
    kept(piece * (60_000 // len(piece)))

    # Where each character looks to the end it takes a minute.
    assert time.perf_counter() - began < 10
