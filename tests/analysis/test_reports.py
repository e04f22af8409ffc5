"""Every format of both reports: what it must hold, and names that try to be markup, code or control codes."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from bench import Bench, profkit
from markdown_it import MarkdownIt
from nsys_builder import Rows
from recording import Op, Recording, step_recording

from profkit.reporters import diff, diff_table

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")
FORMATS = ("text", "json", "csv", "md")
HOSTILE = [
    "a|b",
    "<script>alert(1)</script>",
    "`code`",
    "@someone",
    "line\nbreak",
    "\x1b[31mred\x1b[0m",
    "\x9b31m",
    "bell\x07",
    "=cmd|' /C calc'!A0",
    "+1+1",
    "[link](http://example.com)",
    "**bold** _it_ ~~no~~ # head",
    'quote"d, "comma"',
    "[red]rich[/red]",
    "k" * 10_000,
    "\u202eevil",
]


def hostile() -> Rows:
    """Each hostile name as a kernel of two layers, as a scope, and outside layers."""
    layer = [Op(name) for name in HOSTILE] + [Op("inner", scope=text.replace("/", "")) for text in HOSTILE[:6]]
    recording = step_recording([layer] * 2, replays=3)
    for name in HOSTILE:
        recording.launch(Op(name))
    return recording.rows


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """(command, format) to what it printed, for traces full of hostile names."""
    bench = Bench(tmp_path_factory.mktemp("hostile"))
    before, after = bench.path(hostile()), bench.path(step_recording(["gemm pack"] * 2, replays=3).rows)
    printed: dict[tuple[str, str], str] = {}
    for output_format in FORMATS:
        for command, paths in (("layers", [before]), ("diff", [before, after])):
            result = profkit(command, *paths, "--format", output_format)
            assert (result.stderr == "") == ((command, output_format) != ("diff", "csv"))
            assert CONTROL.findall(result.stderr) == []
            printed[command, output_format] = result.stdout
    return printed


COMMANDS = ("layers", "diff")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("output_format", ["text", "md"])
def test_no_control_character_reaches_the_reader(
    outputs: dict[tuple[str, str], str], command: str, output_format: str
) -> None:
    assert CONTROL.findall(outputs[command, output_format]) == []


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("output_format", ["csv", "json"])
def test_no_control_character_reaches_a_terminal_through_data(
    outputs: dict[tuple[str, str], str], command: str, output_format: str
) -> None:
    assert [c for c in CONTROL.findall(outputs[command, output_format]) if c != "\u202e"] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_markdown_escapes_names(outputs: dict[tuple[str, str], str], command: str) -> None:
    text = outputs[command, "md"]
    for markup in ("<script", "@someone", "[link](", "**bold**", "[31m"):
        # Code spans show what is in them as it is.
        assert markup not in re.sub(r"\\.|`[^`\n]*`", "", text)
    for is_table, lines in itertools.groupby(text.splitlines(), lambda line: line.startswith("|")):
        cells = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
        assert not is_table or len(cells) == 1, "every row has as many cells as its head"


def test_markdown_shows_provenance_and_names_without_backslashes(outputs: dict[tuple[str, str], str]) -> None:
    # GIVEN the report as CommonMark renders it
    html = MarkdownIt("commonmark").enable("table").render(outputs["diff", "md"])
    shown = re.sub(r"<[^>]+>", "", html)
    # Characters that no one sees are shown as escapes.
    assert "\\" not in re.sub(r"\\u[0-9a-f]{4}", "", shown)
    # THEN the two sides are lines of their own, with their parentheses
    assert re.search(r"<sub>before: .* 3 steps \(graph .*\).*<br>after: .* 3 steps \(graph .*</sub>", html)


def test_markdown_has_the_interval_of_every_launch(bench: Bench) -> None:
    before = step_recording(["gemm:3000 a pack:1300"] * 2, replays=3)
    after = step_recording(["gemm:3100 pack:1300"] * 2, replays=3)
    text = profkit("diff", bench.path(before.rows), bench.path(after.rows), "--format", "md").stdout
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert rows[0][-2:] == ["change", "95 % CI"]
    assert [row[-1] for row in rows[2:] if row[2] == "`gemm`"] == ["+0.10 … +0.10"]


@pytest.mark.parametrize("command", COMMANDS)
def test_text_leaves_out_the_middle_of_long_names_and_shows_markup_as_it_is(
    outputs: dict[tuple[str, str], str], command: str
) -> None:
    text = outputs[command, "text"]
    assert max(map(len, text.splitlines())) <= 200
    assert "<script>" in text
    assert "[red]" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_csv_has_one_row_a_line_and_no_formula(outputs: dict[tuple[str, str], str], command: str) -> None:
    rows = list(csv.reader(io.StringIO(outputs[command, "csv"])))
    assert {len(r) for r in rows} == {len(rows[0])}
    number = re.compile(r"^[-+]?[\d.]+(e-?\d+)?$")
    cells = [c for r in rows for c in r]
    assert [c for c in cells if c[:1] in ("=", "+", "@") and not number.match(c)] == []


def test_a_diffs_csv_says_per_what_its_rows_are_and_the_verdict_beside_them(bench: Bench) -> None:
    before = bench.path(step_recording(["gemm a pack"] * 2, outside="embed", replays=3).rows)
    after = bench.path(step_recording(["gemm pack"] * 2, outside="embed", replays=3).rows)
    done = profkit("diff", before, after, "--format", "csv", "--expect-removed", "1")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert {(r["name"], r["place"], r["per"]) for r in rows} == {
        ("a", "layer", "layer"),
        ("gemm", "layer", "layer"),
        ("pack", "layer", "layer"),
        ("embed", "outside", "step"),
    }
    assert done.stderr.startswith("CONFIRMED\n[launches-removed] 1 launch a layer is gone from 2 layers (−2 a step).\n")


def test_the_csv_of_a_refused_diff_says_why_beside_it(bench: Bench) -> None:
    before = bench.path(step_recording(["gemm pack"] * 2, replays=3).rows)
    after = bench.path(step_recording(["gemm pack"] * 3, replays=3).rows)
    done = profkit("diff", before, after, "--format", "csv")
    assert (done.returncode, len(done.stdout.splitlines())) == (3, 1)
    assert done.stderr.startswith("INCONCLUSIVE\n[other-layer-count] ")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("gemm combine/mask/fill pack", "gemm combine/pack", "after: --scope '^combine/mask' matches nothing"),
        ("gemm combine/pack", "gemm combine/mask/fill pack", "before: --scope '^combine/mask' matches nothing"),
    ],
)
def test_a_scope_that_one_side_lacks_names_the_side(bench: Bench, before: str, after: str, said: str) -> None:
    paths = [bench.path(step_recording([layer] * 2, replays=3).rows) for layer in (before, after)]
    done = profkit("diff", *paths, "--scope", "^combine/mask")
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert ("Before has it" in done.stderr) == said.startswith("after")


def test_a_sentence_has_the_numbers_of_its_row(bench: Bench) -> None:
    # GIVEN 46 ns more, which the rows, rounded so that they add up, print as 3.01 → 3.05
    before = bench.diff(
        step_recording(["gemm:3004 x:1004 y:1004"] * 2, replays=3).rows,
        step_recording(["gemm:3050 x:1004 y:1004"] * 2, replays=3).rows,
    )
    table = diff_table.build(before)
    (gemm,) = [row for row in table.parts[0].rows if row.name == "gemm"]
    said = diff.others_line(before, table)
    assert (gemm.us_before, gemm.us_after) == (301, 305)
    assert said is not None
    assert "the largest change is +0.04 µs a layer (95 % CI +0.04 to +0.05) in gemm" in said
    assert gemm.interval is not None
    assert gemm.interval[0] <= gemm.us_change <= gemm.interval[1]


def test_csv_and_json_of_a_plain_trace_agree(bench: Bench) -> None:
    path = bench.path(step_recording(["gemm:3000 combine/pack:1300"] * 2, replays=3).rows)
    rows = list(csv.DictReader(io.StringIO(profkit("layers", path, "--format", "csv").stdout)))
    data = json.loads(profkit("layers", path, "--format", "json").stdout)
    expected = [
        (str(layer["layer"]), k["scope"], k["name"], float(k["launches"]), k["us"])
        for layer in data["runs"][0]["layers"]
        for k in layer["kernels"]
    ]
    found = [(r["layer"], r["scope"], r["name"], float(r["launches"]), float(r["us"])) for r in rows if r["layer"]]
    assert found == expected


# -- JSON -------------------------------------------------------------------------------------------------------------


def keys(data: Any, *path: str | int) -> set[str]:
    """The keys at `path`."""
    for part in path:
        data = data[part]
    return set(data)


def sample() -> Rows:
    """Warm-up, layers, something outside layers, a copy."""
    return step_recording(["gemm combine/fill combine/+DtoD"] * 2, outside="embed", warm_up=True, replays=3).rows


def test_the_layers_json_has_what_the_schema_promises(bench: Bench) -> None:
    data = json.loads(profkit("layers", bench.path(sample()), "--format", "json").stdout)
    assert data["schema"] == "profkit.layers/2"
    run = ["run", "rank", "device", "methods", "ledger", "step_kinds", "layers", "selected", "warnings"]
    assert set(run) <= keys(data, "runs", 0)
    ledger = ["ops", "in_layers", "in_ranges", "in_graph_outside_layers", "outside_graphs", "unattributed", "set_aside"]
    assert set(ledger) <= keys(data, "runs", 0, "ledger")
    assert {"id", "steps", "layers", "outside"} <= keys(data, "runs", 0, "step_kinds", 0)
    assert {"where", "name", "kind", "launches", "us"} <= keys(data, "runs", 0, "step_kinds", 0, "outside", 0)
    layer = [
        "stack",
        "layer",
        "layer_kind",
        "module",
        "scope",
        "launches",
        "kernel_us",
        "busy_us",
        "span_us",
        "kernels",
    ]
    assert set(layer) <= keys(data, "runs", 0, "layers", 0)
    assert {"position", "of", "name", "kind", "launches", "us", "floor"} <= keys(
        data, "runs", 0, "layers", 0, "kernels", 0
    )
    assert {"layers", "launches", "kernel_us", "kinds"} <= keys(data, "runs", 0, "selected")
    assert data["runs"][0]["selected"]["launches"] == 3
    assert data["average"]["launches"] == 3


def test_the_diff_json_has_what_the_schema_promises(bench: Bench) -> None:
    before = step_recording(["gemm fill mask pack"] * 2, replays=4, jitter_ns=5).rows
    after = step_recording(["gemm pack:1900"] * 2, replays=4, jitter_ns=5, seed=1).rows
    data = json.loads(profkit("diff", bench.path(before), bench.path(after), "--format", "json").stdout)
    assert data["schema"] == "profkit.diff/2"
    top = [
        "verdict",
        "work",
        "reasons",
        "layers",
        "removed",
        "added",
        "changed",
        "moved",
        "unchanged",
        "fusions",
        "net",
        "untraced",
    ]
    assert set(top) <= keys(data)
    assert keys(data, "reasons", 0) == {"code", "message"}
    assert data["layers"] == {"before": 2, "after": 2}
    row = ["name", "launches_before", "launches_after", "us_before", "us_after", "us_delta", "ci"]
    assert set(row) <= keys(data, "removed", 0)
    fusion = {"removed", "absorbed_by", "evidence", "us_removed", "us_absorbed"}
    assert fusion <= keys(data, "fusions", 0)
    net = {"launches_per_layer", "launches_per_step", "us_per_layer", "us_per_step", "share_of_step"}
    assert net <= keys(data, "net")
    assert [f["name"] for f in data["removed"]] == ["fill", "mask"]
    assert data["net"]["launches_per_step"] == -4


def test_inconclusive_json_is_whole(bench: Bench, tmp_path: Path) -> None:
    one, other = bench.path(sample()), bench.path(step_recording(["gemm"] * 5).rows)
    result = profkit("diff", one, other, "--format", "json")
    data = json.loads(result.stdout)
    assert (result.returncode, data["verdict"], data["net"], data["removed"]) == (3, "inconclusive", None, [])


def test_two_processes_with_one_graph_id_are_divided_by_their_own_steps(bench: Bench) -> None:
    # GIVEN 10 replays of graph 2 without layers in one process, 5 of graph 2 with layers in another
    other = Recording(100)
    with other.range("capture"), other.capture() as graph:
        other.launch_all("big:90000")
    other.replay(other.clone(graph), 10)
    path = bench.path(other.rows + step_recording(["x:1000"] * 2, pid=200, replays=5).rows)

    text = profkit("layers", path, "--format", "md").stdout

    assert re.search(r"\| `x` \| 1 \| 1\.00 \|", text)


def test_data_holds_both_recorded_names_of_a_renamed_launch(bench: Bench) -> None:
    # GIVEN a kernel that is alone in its scope under a new name; the scopes keep the others apart
    old, new = "void ns::pack_v1<int>(T1 *)", "void ns::pack_v2<int>(T1 *)"
    sides = [
        bench.path(step_recording([[Op("gemm"), Op(name, scope="combine")]] * 2, replays=3).rows) for name in (old, new)
    ]
    names = {"gemm": None, new: old}

    data = json.loads(profkit("diff", *sides, "--format", "json").stdout)
    found = [f for status in ("removed", "added", "changed", "moved", "unchanged") for f in data[status]]
    assert {f["name"]: f["renamed_from"] for f in found} == names

    rows = csv.DictReader(io.StringIO(profkit("diff", *sides, "--format", "csv").stdout))
    assert {r["name"]: r["renamed_from"] or None for r in rows} == names


# -- privacy ----------------------------------------------------------------------------------------------------------

SECRETS = ["SECRET_TOKEN=hunter2", "HOME=/root/somebody", "cudaSECRET=hunter2", "HOSTNAME=node17.example.com"]
META = [
    "CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)",
    "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'SECRET_TOKEN=hunter2')",
    "CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)",
    "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', 'node17.example.com')",
    "CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER, severity INTEGER, text TEXT)",
    "INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 3, 'Cannot open /root/somebody/x')",
    "INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 3, 'Variable SECRET_TOKEN=hunter2 is odd')",
    "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_USER', 'somebody')",
]


@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_of_the_recorded_environment_is_printed(bench: Bench, command: str, output_format: str) -> None:
    paths = [
        bench.path(step_recording([layer] * 2, replays=3).rows, strings=SECRETS, extra_sql=META)
        for layer in ("gemm fill", "gemm")[: 2 if command == "diff" else 1]
    ]
    result = profkit(command, *paths, "--format", output_format)
    assert "gemm" in result.stdout
    for secret in ("hunter2", "SECRET", "somebody", "node17"):
        assert secret not in result.stdout + result.stderr
