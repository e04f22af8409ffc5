"""A scrubbed Kineto trace holds known fields and arguments alone, and times to the digit."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from recorded import TRACES, all_bytes, shared

from profkit import readers
from profkit.commands.scrub import scrub

SECRET = "zebra_x"
NESTED = {"a": [SECRET, {"b": SECRET}], SECRET: 1}
#: One event of each kind, each with the secret wherever the format has or could have a text.
HIDING = {
    "Call stack": SECRET,
    "cmdline": [SECRET, "/home/zebra_x/x"],
    "environment": NESTED,
    "grid": [SECRET],
    "block": [[SECRET]],
    "launch": {"x": SECRET},
    "stream": SECRET,
    "kind": SECRET,
    "Concrete Inputs": [SECRET],
    "kernel_file": f"/tmp/{SECRET}.py",
    "kernel": f"f<(lambda at /home/{SECRET}/k.hip:3:5)>(int)",
    "kernel_backend": SECRET,
    "hostname": SECRET,
    SECRET: 5,
    "correlation": 7,
}


def event(name: str, ts: str, *, cat: str = "kernel", **fields: Any) -> dict[str, Any]:
    args = {**HIDING, "device": 0, **fields.pop("args", {})}
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": "1.5", "args": args, **fields}


EVENTS = [
    event("kernel_a", "1428625731622.251", args={"stream": 7}),
    event("cudaLaunchKernel", "1428625731600.001", cat="cuda_runtime", pid=4, tid=f"thread {SECRET}"),
    event(f"layers.3.mla KEY={SECRET}", "1428625731500.5", cat="user_annotation", pid=4, tid=f"thread {SECRET}"),
    event(f"/home/{SECRET}/x.py(12): f", "1428625731500.25", cat="python_function", pid=4, tid=9, unknown=NESTED),
    event(SECRET, "1428625731500.25", cat=SECRET, pid=SECRET, id=SECRET, bp=SECRET, s=SECRET),
    event("not a time", SECRET, cat="cpu_op", pid=SECRET, id=SECRET, bp=SECRET, s=SECRET),
    {"ph": "M", "name": "process_name", "pid": 4, "tid": 0, "ts": 0, "args": {"name": SECRET}},
    {"ph": "M", "name": "process_labels", "pid": 4, "tid": 0, "ts": 0, "args": {"labels": SECRET, "x": SECRET}},
    {"ph": "M", "name": "thread_name", "pid": 4, "tid": 9, "ts": 0, "args": {"name": f"thread 9 ({SECRET})"}},
    {"ph": "M", "name": SECRET, "pid": 4, "tid": 9, "ts": 0, "args": {"sort_index": SECRET}},
    {"ph": SECRET, "name": SECRET},
]
HEADER = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "uuid": SECRET, "numSms": SECRET, SECRET: 1, "x": NESTED}],
    "cupti_version": 130001,
    "cuda_runtime_version": SECRET,
    "distributedInfo": {"backend": SECRET, "rank": 3, "world_size": SECRET, "pg_config": [SECRET], "host": SECRET},
    "metadata": {"hostname": SECRET, "environment": NESTED, "cuda_driver_version": 13000},
    "traceName": f"/tmp/{SECRET}.json",
    "username": SECRET,
    "displayTimeUnit": SECRET,
    "trace_id": SECRET,
    "baseTimeNanoseconds": 1790857026000000000,
    SECRET: SECRET,
}


def written(path: Path) -> Path:
    """`EVENTS` and `HEADER` as a file, with times as numbers of all their digits."""
    text = json.dumps({**HEADER, "traceEvents": EVENTS})
    path.write_text(re.sub(r'"(ts|dur)": "([\d.]+)"', r'"\1": \2', text))
    return path


def test_no_secret_survives_in_any_field_or_nesting(tmp_path: Path) -> None:
    scrub(written(tmp_path / "t.json"), tmp_path / "clean.json", force=False)
    assert SECRET.encode() not in all_bytes(tmp_path / "clean.json")


def test_what_accounting_needs_stays(tmp_path: Path) -> None:
    scrub(written(tmp_path / "t.json"), tmp_path / "clean.json", force=False)
    trace = readers.read(tmp_path / "clean.json")
    assert trace.ops["name"].tolist() == ["kernel_a"]
    assert trace.ranges["text"].tolist() == ["layers.3.mla KEY=…", "x.py(12): f"]
    assert trace.launches["kernel"].tolist() == ["f<(lambda at k.hip:3:5)>(int)"]
    assert trace.info.devices == {0: "NVIDIA H200"}
    assert trace.info.processes[0].rank == 3


def test_threads_with_ids_in_words_stay_apart_from_others(tmp_path: Path) -> None:
    scrub(written(tmp_path / "t.json"), tmp_path / "clean.json", force=False)
    events = json.loads((tmp_path / "clean.json").read_text())["traceEvents"]
    assert [e["tid"] for e in events[:4]] == [7, "id 1", "id 1", 9]


@pytest.mark.parametrize("name", ["eager", "fused"])
def test_times_and_arguments_are_written_digit_by_digit(name: str, tmp_path: Path) -> None:
    source = TRACES / "dcp-combine-torch" / name / "trace.kineto.json.gz"
    scrub(source, tmp_path / "clean.json.gz", force=False)

    def activities(path: Path) -> list[dict[str, Any]]:
        content = json.loads(gzip.decompress(path.read_bytes()), parse_float=str, parse_int=str)
        return [e for e in content["traceEvents"] if e["ph"] != "M"]

    before, after = activities(source), activities(tmp_path / "clean.json.gz")
    assert len(before) > 4000
    assert after == before


def test_numbers_beyond_a_float_keep_their_digits(tmp_path: Path) -> None:
    source = tmp_path / "t.json"
    source.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 9007199254740993.123, '
        '"dur": 1.50, "args": {"device": 0, "stream": 7, "correlation": 18446744073709551615, "blocks per SM": 0.10}}]}'
    )
    scrub(source, tmp_path / "clean.json", force=False)
    for digits in (b"9007199254740993.123", b"1.50", b"18446744073709551615", b"0.10"):
        assert digits in (tmp_path / "clean.json").read_bytes()


def test_a_bare_array_of_events_is_scrubbed(tmp_path: Path) -> None:
    source = tmp_path / "t.json"
    source.write_text(json.dumps([e for e in EVENTS if e.get("cat") == "kernel"]))
    scrub(source, tmp_path / "clean.json", force=False)
    assert SECRET.encode() not in (tmp_path / "clean.json").read_bytes()


def test_a_recorded_trace_loses_its_user_and_the_paths_of_its_sources(tmp_path: Path) -> None:
    folder = shared("corpus", "facebookresearch+HolisticTraceAnalysis", "tests", "data", "cpu_only")
    source = next(folder.glob("*.json.gz"))
    scrub(source, tmp_path / "clean.json.gz", force=False)
    known = [b"mojif", b"pyper:trainer", b"/tmp/"]
    assert all(word in all_bytes(source) for word in known)
    assert [word for word in known if word in all_bytes(tmp_path / "clean.json.gz")] == []


def test_arguments_of_another_kind_are_absent_before_and_after(tmp_path: Path) -> None:
    # GIVEN a shape with a text in it, a device that is no number, and a text that is not UTF-8
    args = {"device": "X", "stream": 7, "correlation": 1, "grid": [1, "/home/alice/x", 1], "block": [64, 1, 1]}
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 3, "tid": 7, "ts": 1, "dur": 2, "args": args}
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 0, "dur": 1}
    text = json.dumps({"traceEvents": [kernel, {**launch, "args": {"correlation": 1, "kernel": "BYTES"}}]})
    source, target = tmp_path / "trace.json", tmp_path / "scrubbed.json"
    source.write_bytes(text.encode().replace(b"BYTES", b"a\xff"))

    scrub(source, target, force=False)

    ops = readers.read(target, detail=True).ops
    assert ops[["device", "grid_x", "grid_y", "block_x"]].to_numpy().tolist() == [[3, -1, -1, 64]]
