"""A sweep's directory: what an interrupted start leaves is taken over, nothing else; failed writes leave nothing."""

from __future__ import annotations

import copy
import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from capture_cli import names
from sweep_data import region, sweep

from profkit.commands.sweep import Report
from profkit.errors import ProfkitError
from profkit.runs.whole_files import write_whole
from profkit.sweep import store

PLAN = {"seed": 1, "regions": {"r1": {"rows": 4}}}
FACTS = {name: value for name, value in sweep().items() if name not in ("schema", "regions", "regions_planned")}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    "left",
    [[], [".sweep.json.0a.part"], ["regions/"], [".sweep.json.0a.part", "regions/", "regions/.0000.r.json.0a.part"]],
)
def test_what_an_interrupted_start_leaves_is_taken_over(left: list[str], force: bool, tmp_path: Path) -> None:
    for name in left:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).write_text("half")
    store.begin(tmp_path, PLAN, FACTS, force=force)
    assert names(tmp_path) == ["regions", "sweep.json"]
    assert names(tmp_path / "regions") == []
    assert store.read_facts(tmp_path) == (PLAN, FACTS)


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


def test_a_link_in_the_place_of_the_part_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN somebody who knows the name
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 2 * size)
    (tmp_path / f".file.{'0' * 16}.part").symlink_to(tmp_path / "other")
    (tmp_path / "other").write_text("theirs")
    with pytest.raises(ProfkitError, match="Cannot write"):
        write_whole(tmp_path / "file", "text")
    assert (tmp_path / "other").read_text() == "theirs"


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


def damaged(content: Any, path: str, value: Any) -> Any:
    """A copy of `content` in which the field at `path` is `value`, or is gone where that is `GONE`."""
    changed = copy.deepcopy(content)
    *folders, last = [int(name) if name.isdigit() else name for name in path.split("/")]
    place = changed
    for folder in folders:
        place = place[folder]
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    return changed


def test_equal_times_may_round_apart(tmp_path: Path) -> None:
    store.begin(tmp_path, PLAN, FACTS, force=False)
    close = damaged(region(), f"{BEST}/min_us", 8.0001)
    store.write_region(tmp_path, 0, close)
    assert store.read_region(tmp_path, 0, "r1", {"rows": 4}, FACTS) == close


GONE = object()
BEST, ENTRY = "configurations/1/times/hot", "configurations/0/times/hot"


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (f"{BEST}/us", -5, "$.configurations[1].times[...].us"),
        (f"{BEST}/us", 0, "$.configurations[1].times[...].us"),
        (f"{BEST}/us", True, "$.configurations[1].times[...].us"),
        (f"{BEST}/us", 9.0, "configurations[1].times.hot.against.table: the ratio"),
        (f"{ENTRY}/us", 7.9, "$.configurations[0].times[...]"),
        (f"{BEST}/p75_us", 7.0, "$.configurations[1].times[...]"),
        (f"{BEST}/orders_us", [8.0], "configurations[1].times.hot.orders_us: the protocol has 2 orders"),
        (f"{BEST}/samples", 5, "configurations[1].times.hot.samples: 5, by the protocol 4"),
        (f"{BEST}/against", {}, "times.hot.against: its names are not those of the anchors"),
        (f"{BEST}/against/table", None, "times.hot.against.table: null is for the anchor itself"),
        (f"{BEST}/against/table/verdict", "worse", "$.configurations[1].times[...].against[...]"),
        (f"{BEST}/against/table/ratio", 0.9, "$.configurations[1].times[...].against[...]"),
        (f"{BEST}/against/table/p", 1.5, "$.configurations[1].times[...].against[...].p"),
        ("configurations/1/parameters/warps", 16, "configurations[1].parameters: a value that was not swept"),
        ("timing/hot/noise/copies_us", [10.0] * 7, "timing.hot.noise: its copies are not the 8 of the reference"),
        ("timing/hot/noise/copies_orders_us", [[10.0]], "timing.hot.noise: its copies are not the 8"),
        ("timing/hot/noise/copies_orders_us", [[-1.0]] * 8, "$.timing[...].noise.copies_orders_us[0][0]"),
        (BEST, GONE, "configurations[1].times: its states are not those of timing"),
        ("configurations/1/parameters", {"warps": 2}, "configurations[1].parameters: they are not those"),
        ("configurations/1/parameters", {"warps": 1, "tile": 64}, "configurations[1].known: it is []"),
        ("configurations/2/parameters", {"warps": 2, "tile": 64}, "configurations: two are the same"),
        ("configurations/1/status", "wrong", "$.configurations[1]"),
        ("configurations/5/status", "failed", "counts: "),
        ("configurations/3/reason", None, "$.configurations[3]"),
        ("configurations", [], "$.configurations"),
        ("timing/hot/best", 0, "timing.hot.best: 0 is not the fastest"),
        ("timing/hot/best", 2, "timing.hot.best: 2 is no configuration that was timed"),
        ("timing/hot/best", 77, "timing.hot.best: 77 is no configuration that was timed"),
        ("timing/hot/best", -1, "$.timing[...].best"),
        ("timing/hot/anchors", {"table": 1}, "timing.hot.anchors: {'table': 1}"),
        ("timing/hot/nothing_us", -0.5, "$.timing[...].nothing_us"),
        ("timing/hot/noise/percent", -1.0, "$.timing[...].noise.percent"),
        ("timing/hot/noise/copies_us", [0.0] * 8, "$.timing[...].noise.copies_us[0]"),
        ("timing", {}, "configurations[0].times: its states are not those of timing"),
        ("timing/hot", GONE, "configurations[0].times: its states are not those of timing"),
        ("left_out", {"evicted": "why"}, "left_out: a state that was timed"),
        ("left_out", {"warm": "why"}, "$.left_out"),
        ("known", {}, "configurations[0].known: it is ['table']"),
        ("known/table/warps", 8, "configurations[0].known: it is ['table']"),
        ("reference", None, "reference: it is no configuration that was timed"),
        ("reference", {"warps": 2, "tile": 128}, "reference: it is no configuration that was timed"),
        ("counts/timed", 3, "counts: "),
        ("counts/wrong", GONE, "counts: "),
        ("least_bytes", -1, "$.least_bytes"),
        ("tolerance", [0.1], "$.tolerance"),
        ("shapes", {"rows": 5}, "for region 'r1' and its shapes"),
        ("name", "r2", "for region 'r1' and its shapes"),
        ("date", 5, "$.date"),
        ("duration_s", -1, "$.duration_s"),
    ],
)
def test_a_damaged_region_is_refused_with_its_field(path: str, value: Any, field: str, tmp_path: Path) -> None:
    store.begin(tmp_path, PLAN, FACTS, force=False)
    good = region()
    store.write_region(tmp_path, 0, good)
    assert store.read_region(tmp_path, 0, "r1", {"rows": 4}, FACTS) == good
    file = store.region_file(tmp_path, 0, "r1")
    file.write_text(json.dumps(damaged(json.loads(file.read_text()), path, value)))
    with pytest.raises(ProfkitError) as raised:
        store.read_region(tmp_path, 0, "r1", {"rows": 4}, FACTS)
    assert str(raised.value).startswith(f"{file} is not ")
    assert field in str(raised.value)
    assert str(raised.value).endswith("Remove it, and the same command measures the region again.")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" * 400, '"\\udcff"'])
def test_what_no_json_holds_is_refused_wherever_it_is(number: str, tmp_path: Path) -> None:
    store.begin(tmp_path, PLAN, FACTS, force=False)
    store.write_region(tmp_path, 0, region())
    file = store.region_file(tmp_path, 0, "r1")
    file.write_text(file.read_text().replace('"min_us": 8.0', f'"min_us": {number}'))
    with pytest.raises(ProfkitError, match=r"0000.r1.json is not "):
        store.read_region(tmp_path, 0, "r1", {"rows": 4}, FACTS)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("facts", GONE, "facts: Expected `object`"),
        ("facts/versions/torch", GONE, "$.versions"),
        ("facts/device/name", 5, "$.device.name"),
        ("facts/workload", None, "$.workload"),
        ("facts/parameters", {}, "$.parameters"),
        ("facts/parameters/warps/values", ["x"], "$.parameters[...].values[0]"),
        ("facts/protocol/states", ["warm"], "$.protocol.states[0]"),
        ("facts/protocol/orders", 0, "$.protocol.orders"),
        ("facts/start_s", {"x": -1}, "$.start_s[...]"),
        ("plan/regions", [], "$.regions"),
        ("plan/regions", {}, "$.regions"),
        ("plan/regions/r1", None, "$.regions[...]"),
    ],
)
def test_a_damaged_plan_is_refused_with_its_field(path: str, value: Any, field: str, tmp_path: Path) -> None:
    store.begin(tmp_path, PLAN, FACTS, force=False)
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps(damaged(json.loads(file.read_text()), path, value)))
    with pytest.raises(ProfkitError) as raised:
        store.read_facts(tmp_path)
    assert str(raised.value).startswith(f"{file} is not as profkit writes it: ")
    assert field in str(raised.value)
