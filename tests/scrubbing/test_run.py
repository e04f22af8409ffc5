"""Run directories: documented fields alone, and the same report before and after."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from recorded import TRACES, all_bytes, copy_of_run, execute
from typer.testing import CliRunner

from profkit.cli import app
from profkit.commands.scrub import scrub
from profkit.errors import ProfkitError
from profkit.runs import run_dir
from profkit.runs.run_dir import replaced_trace

SECRET = "zebra_x"


def report(*arguments: object) -> Any:
    """What a command prints as JSON."""
    done = CliRunner().invoke(app, [*map(str, arguments), "--format", "json"])
    assert done.stdout, done.output
    return json.loads(done.stdout)


def edit(run: Path, change: Any) -> None:
    """Let `change` edit run.json's content in place."""
    content = json.loads((run / "run.json").read_text())
    change(content)
    (run / "run.json").write_text(json.dumps(content))


HIDING = {"extra": SECRET, "env": {"A": [SECRET]}}
#: What the lists of run.json may hold more of.
MORE = {
    "files": SECRET,
    "arguments": SECRET,
    "inside": {"name": f"/home/{SECRET}", **HIDING},
    "warnings": {"code": SECRET, "message": f"in /home/{SECRET}: K={SECRET}", **HIDING},
}


def everywhere(value: Any, key: str = "") -> Any:
    """`value` with the secret added to every object and list, as a path in every text that no report reads."""
    if isinstance(value, dict):
        return {**{k: everywhere(v, k) for k, v in value.items()}, **HIDING}
    if isinstance(value, list):
        return [*(everywhere(v) for v in value), *([MORE[key]] if key in MORE else [])]
    return f"/home/{SECRET}" if isinstance(value, str) and key not in ("schema", "trace", "unit") else value


def test_a_run_whose_trace_was_replaced_is_not_scrubbed(nsys_run: Path, tmp_path: Path) -> None:
    # A digest of the copy would make the two fit each other.
    edit(nsys_run, lambda content: content["trace_sha256"].update({"trace.sqlite": "0" * 64}))
    with pytest.raises(ProfkitError, match=r"trace\.sqlite is not the file that was captured"):
        scrub(nsys_run, tmp_path / "clean", force=False)
    assert not (tmp_path / "clean").exists()


def test_unknown_fields_and_paths_stay_behind(nsys_run: Path, tmp_path: Path) -> None:
    def poison(content: dict[str, Any]) -> None:
        outputs = content["digests"].pop("outputs")
        content["digests"].pop("numbers", None)
        shapes, digests = content["workload"].pop("shapes"), content.pop("trace_sha256")
        content.update(everywhere(content))
        content["workload"]["shapes"] = {**shapes, "path": f"/home/{SECRET}", f"/home/{SECRET}": 1}
        content["digests"]["outputs"] = {**outputs, f"/home/{SECRET}/out": f"{SECRET}"}
        quartiles = {"median": 1.5, **HIDING}
        kernel = {**dict.fromkeys(("untraced_per_node", "traced_duration", "traced_gap"), quartiles), **HIDING}
        profiler = {"name": SECRET, "version": f"/home/{SECRET}", **HIDING}
        content["floor"] = {"schema": SECRET, "method": f"host={SECRET}", "device": f"/home/{SECRET}"}
        content["floor"] |= {"profiler": profiler, "empty": kernel, "load_store": kernel}
        content["command"] = {"program": f"/home/{SECRET}/serve", "arguments": 1, "text": [SECRET]}
        content["repetition"] = {"arm": f"/home/{SECRET}/a", "pair": 1, "host": SECRET}
        content["set_aside"] = {"code": SECRET, "message": f"/home/{SECRET}"}
        content["hostname"] = SECRET
        content["trace_sha256"] = digests

    edit(nsys_run, poison)
    assert (nsys_run / "run.json").read_text().count(SECRET) > 50
    scrub(nsys_run, tmp_path / "clean", force=False)
    assert SECRET.encode() not in all_bytes(tmp_path / "clean")
    kept = json.loads((tmp_path / "clean" / "run.json").read_text())
    assert kept["warnings"][-1] == {"code": None, "message": "in …: K=…"}
    assert kept["untraced"]["median"] > 0
    assert len(kept["digests"]["outputs"]) == 48


@pytest.mark.parametrize(
    "wrong",
    [
        {"floor": {"empty": {"traced_gap": {"median": SECRET}}}},
        {"command": {"program": "serve", "arguments": [SECRET]}},
        {"warnings": [SECRET]},
        {"files": [{"code": SECRET}]},
    ],
)
def test_a_field_of_another_type_is_refused(wrong: dict[str, Any], nsys_run: Path, tmp_path: Path) -> None:
    edit(nsys_run, lambda content: content.update(wrong))
    with pytest.raises(ProfkitError, match="is not as profkit writes it"):
        scrub(nsys_run, tmp_path / "clean", force=False)
    assert not (tmp_path / "clean").exists()


@pytest.mark.parametrize("name", [p.parent.relative_to(TRACES).as_posix() for p in TRACES.rglob("run.json")])
def test_of_a_shipped_run_nothing_is_left_to_scrub(name: str, tmp_path: Path) -> None:
    scrub(TRACES / name, tmp_path / "clean", force=False)
    clean, shipped = (said((run / "run.json").read_text()) for run in (tmp_path / "clean", TRACES / name))
    # The copy has a digest of its own: another SQLite or zlib writes the same content in other bytes.
    assert clean | {"trace_sha256": None} == shipped | {"trace_sha256": None}
    copy = run_dir.load(tmp_path / "clean")
    assert sorted(copy.record.trace_sha256 or ()) == sorted(copy.record.files)
    assert replaced_trace(copy.path, copy.record) is None
    assert written(next((tmp_path / "clean").glob("trace.*"))) == written(next((TRACES / name).glob("trace.*")))


def said(text: str) -> dict[str, Any]:
    """A run.json without what it leaves open: fields that came later are not in it."""
    return json.loads(text, object_pairs_hook=lambda pairs: {key: value for key, value in pairs if value is not None})


def written(trace: Path) -> bytes:
    """What a trace file says, whatever way it is packed."""
    if trace.suffix != ".sqlite":
        return all_bytes(trace)
    with contextlib.closing(sqlite3.connect(trace)) as database:
        return "\n".join(database.iterdump()).encode()


def test_the_arguments_of_a_command_stay_behind(nsys_run: Path, tmp_path: Path) -> None:
    edit(nsys_run, lambda content: content.update(workload=None, command={"program": "serve", "arguments": 3}))
    scrub(nsys_run, tmp_path / "clean", force=False)
    kept = json.loads((tmp_path / "clean" / "run.json").read_text())
    assert kept["profiler"]["arguments"] == []
    assert kept["command"] == {"program": "serve", "arguments": 3}


def test_only_profkits_own_flags_of_the_profiler_stay(nsys_run: Path, tmp_path: Path) -> None:
    given = ["--trace=cuda,nvtx", "--sample=none", f"--env-var={SECRET}", SECRET]
    edit(nsys_run, lambda content: content["profiler"].update(arguments=given))
    scrub(nsys_run, tmp_path / "clean", force=False)
    kept = json.loads((tmp_path / "clean" / "run.json").read_text())
    assert kept["profiler"]["arguments"] == ["--trace=cuda,nvtx", "--sample=none"]


@pytest.mark.parametrize("folder", ["dcp-combine", "dcp-combine-torch"])
def test_the_diff_of_scrubbed_runs_is_that_of_the_runs(folder: str, tmp_path: Path) -> None:
    for name in ("eager", "fused"):
        scrub(TRACES / folder / name, tmp_path / name, force=False)
    before = report("diff", TRACES / folder / "eager", TRACES / folder / "fused")
    after = report("diff", tmp_path / "eager", tmp_path / "fused")
    text = json.dumps(before).replace(str(TRACES / folder), str(tmp_path))
    assert json.loads(text) == after


def test_layers_before_and_after_differ_by_filtered_texts_alone(nsys_run: Path, tmp_path: Path) -> None:
    execute(
        nsys_run / "trace.sqlite",
        f"UPDATE StringIds SET value = 'layers.3.mla KEY={SECRET}' WHERE value = 'layers.3.mla'",
        f"UPDATE StringIds SET value = 'pack /home/{SECRET}/x.py' WHERE value = 'pack'",
    )
    scrub(nsys_run, tmp_path / "clean", force=False)
    before, after = report("layers", nsys_run), report("layers", tmp_path / "clean")
    assert after["runs"][0]["selected"]["layers"] == 24
    text = json.dumps(before, ensure_ascii=False).replace(str(nsys_run), str(tmp_path / "clean"))
    assert SECRET in text
    text = text.replace(f"KEY={SECRET}", "KEY=…").replace(f"/home/{SECRET}/x.py", "x.py")
    assert json.loads(text) == after


def dispatch_run(path: Path) -> Path:
    """A dispatch recording of two launches, with the secret in every place."""
    op = {"order": 2, "name": "aten::div", "kind": "kernel", "source": "aten", "grid": None, "scope": ["layers.0"]}
    hiding = {"extra": SECRET, SECRET: 1, "env": {"A": [SECRET]}}
    content = {
        "schema": "profkit.dispatch/1",
        "run_bodies": False,
        "torch": "2.13.0+cpu",
        "triton": "3.9.0",
        "ranges": [{"text": f"layers.0 KEY={SECRET}", "start": 1, "end": 5, **hiding}],
        "ops": [
            {**op, **hiding},
            {
                **op,
                "order": 3,
                "name": f"f /home/{SECRET}/k.py",
                "grid": [1, 2, 3],
                "source": SECRET,
                "scope": [f"a=/{SECRET}"],
            },
        ],
        **hiding,
    }
    path.write_text(json.dumps(content))
    return path


def test_a_dispatch_recording_keeps_its_documented_fields(tmp_path: Path) -> None:
    scrub(dispatch_run(tmp_path / "dispatch.json"), tmp_path / "clean.json", force=False)
    assert SECRET.encode() not in all_bytes(tmp_path / "clean.json")
    kept = json.loads((tmp_path / "clean.json").read_text())
    assert [(op["name"], op["grid"]) for op in kept["ops"]] == [("aten::div", None), ("f k.py", [1, 2, 3])]
    assert kept["ranges"] == [{"text": "layers.0 KEY=…", "start": 1, "end": 5}]


def test_several_runs_are_scrubbed_together(tmp_path: Path) -> None:
    for arm in ("eager", "fused"):
        copy_of_run(f"dcp-combine/{arm}", tmp_path / "source" / arm / "0")
    assert scrub(tmp_path / "source", tmp_path / "clean", force=False).endswith("2 runs, scrubbed")
    assert sorted(p.parent.parent.name for p in (tmp_path / "clean").rglob("run.json")) == ["eager", "fused"]
