"""A sweep's directory: what an interrupted start leaves is taken over, nothing else; failed writes leave nothing."""

from __future__ import annotations

import copy
import json
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from capture_cli import names
from sweep_data import region, sweep

from profkit.commands.sweep import Report
from profkit.errors import ProfkitError
from profkit.reporters import csv_text
from profkit.reporters import sweep as reporter
from profkit.runs.whole_files import write_json, write_whole
from profkit.sweep import records, run
from profkit.sweep.records import Sweep


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    "left",
    [[], [".sweep.json.0a.part"], [".sweep.json.0a.part", ".sweep.json.0b.part"]],
)
def test_what_an_interrupted_start_leaves_is_taken_over(left: list[str], force: bool, tmp_path: Path) -> None:
    for name in left:
        (tmp_path / name).write_text("half")
    run.begin(tmp_path, sweep(planned=("r1",)), force=force)
    assert names(tmp_path) == ["regions", "sweep.json"]
    assert names(tmp_path / "regions") == []
    assert records.load(tmp_path) == sweep(planned=("r1",))


@pytest.mark.parametrize("other", ["notes.txt", ".other.part", "regions/0000.r.json", "regions/notes.json"])
def test_anything_else_is_left_alone(other: str, tmp_path: Path) -> None:
    (tmp_path / "regions").mkdir()
    (tmp_path / other).write_text("mine")
    with pytest.raises(ProfkitError, match=r"exists and holds no sweep \(no sweep.json\)"):
        run.begin(tmp_path, sweep(planned=("r1",)), force=True)
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


GONE = "nothing there"
BEST, ENTRY = "configurations/1/times/hot", "configurations/0/times/hot"


def stored(directory: Path) -> Path:
    """A sweep of one finished region in `directory`; the file of that region."""
    data = sweep(region())
    head = msgspec.structs.replace(data, regions=[])
    assert run.begin(directory, head, force=False) == head
    file = records.region_file(directory, 0, "r1")
    write_json(file, msgspec.to_builtins(data.regions[0]))
    assert records.load(directory) == data
    return file


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (f"{BEST}/us", -5, "$.configurations[1].times[...].us"),
        (f"{BEST}/us", 0, "$.configurations[1].times[...].us"),
        (f"{BEST}/us", True, "$.configurations[1].times[...].us"),
        (f"{BEST}/us", GONE, "missing required field `us` - at `$.configurations[1].times[...]`"),
        (f"{BEST}/against", {}, "timed hot are not compared with the same entries"),
        (f"{BEST}/against/table", None, "timed hot are not compared with the same entries"),
        (f"{BEST}/against/table/verdict", "same", "$.configurations[1].times[...].against[...].verdict"),
        (f"{BEST}/against/table/p", 1.5, "$.configurations[1].times[...].against[...].p"),
        ("timing/hot/noise/copies_orders_us", [[-1.0]] * 8, "$.timing[...].noise.copies_orders_us[0][0]"),
        (BEST, GONE, "times of configuration warps=2 tile=64 are not those of its status"),
        ("configurations/1/parameters", {"warps": 2}, "its configurations have not the same parameters"),
        ("configurations/1/status", "wrong", "times of configuration warps=2 tile=64"),
        ("configurations/1/status", "lost", "$.configurations[1].status"),
        ("configurations", [], "$.configurations"),
        ("timing", {}, "times of configuration warps=1 tile=64"),
        ("timing/hot", GONE, "times of configuration warps=1 tile=64"),
        ("timing/hot/nothing_us", -0.5, "$.timing[...].nothing_us"),
        ("left_out", {"warm": "why"}, "$.left_out"),
        ("reference", 5, "$.reference"),
        ("least_bytes", -1, "$.least_bytes"),
        ("tolerance", [0.1], "$.tolerance"),
        ("shapes", {"rows": 5}, "region r1 with its shapes is not the one that was planned"),
        ("name", "r2", "region r2 with its shapes is not the one that was planned"),
        ("date", 5, "$.date"),
        ("duration_s", -1, "$.duration_s"),
    ],
)
def test_a_damaged_region_is_refused_with_its_field(path: str, value: Any, field: str, tmp_path: Path) -> None:
    file = stored(tmp_path)
    file.write_text(json.dumps(damaged(json.loads(file.read_text()), path, value)))
    with pytest.raises(ProfkitError) as raised:
        records.load(tmp_path)
    assert str(raised.value).startswith(f"{file} ")
    assert field in str(raised.value)
    assert str(raised.value).endswith("Remove it, and the same command measures the region again.")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" * 400, '"\\udcff"'])
def test_what_no_json_holds_is_refused_wherever_it_is(number: str, tmp_path: Path) -> None:
    file = stored(tmp_path)
    file.write_text(file.read_text().replace('"min_us": 8.0', f'"min_us": {number}'))
    with pytest.raises(ProfkitError, match=r"0000.r1.json is not "):
        records.load(tmp_path)


def test_a_region_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    data = sweep(region("r1"), region("r2"))
    run.begin(tmp_path, msgspec.structs.replace(data, regions=[]), force=False)
    write_json(records.region_file(tmp_path, 0, "r1"), msgspec.to_builtins(data.regions[1]))
    with pytest.raises(ProfkitError, match=r"0000.r1.json does not belong here: region r2 with its shapes"):
        records.load(tmp_path)


def test_a_region_of_other_parameters_is_refused(tmp_path: Path) -> None:
    file = stored(tmp_path)
    content = json.loads(file.read_text())
    for configuration in content["configurations"]:
        del configuration["parameters"]["tile"]
    file.write_text(json.dumps(content))
    with pytest.raises(ProfkitError, match="does not belong here: the configurations of region r1 have other"):
        records.load(tmp_path)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("versions", GONE, "missing required field `versions`"),
        ("versions/torch", 5, "$.versions[...]"),
        ("device/name", 5, "$.device.name"),
        ("workload", None, "$.workload"),
        ("parameters", {}, "$.parameters"),
        ("parameters/warps/values", ["x"], "$.parameters[...].values[0]"),
        ("protocol/states", ["warm"], "$.protocol.states[0]"),
        ("protocol/orders", 0, "$.protocol.orders"),
        ("start_s", -1, "$.start_s"),
        ("planned", [], "$.planned"),
        ("planned/r1", None, "$.planned[...]"),
        ("schema", "profkit.sweep-plan/1", "schema is 'profkit.sweep-plan/1', expected 'profkit.sweep/2'"),
    ],
)
@pytest.mark.parametrize("resumed", [False, True])
def test_a_damaged_plan_is_refused_with_its_field(
    path: str, value: Any, field: str, resumed: bool, tmp_path: Path
) -> None:
    stored(tmp_path)
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps(damaged(json.loads(file.read_text()), path, value)))
    with pytest.raises(ProfkitError) as raised:
        run.begin(tmp_path, sweep(region()), force=False) if resumed else records.load(tmp_path)
    assert str(raised.value).startswith(f"{file}")
    assert field in str(raised.value)
    assert str(raised.value).endswith("Sweep again: with -o elsewhere, or there with --force.")


def test_a_damaged_sweep_can_be_started_over(tmp_path: Path) -> None:
    stored(tmp_path).write_text("{")
    (tmp_path / "sweep.json").write_text("{")
    (tmp_path / "mine.txt").touch()
    run.begin(tmp_path, sweep(planned=("r9",)), force=True)
    assert records.load(tmp_path) == sweep(planned=("r9",))
    assert names(tmp_path) == ["mine.txt", "regions", "sweep.json"]


def change_seed(data: Sweep) -> None:
    data.seed = 3


def change_torch(data: Sweep) -> None:
    data.versions["torch"] = "2.12.0"


def change_source(data: Sweep) -> None:
    data.workload.sources["file.py"] = "1" * 64


def change_orders(data: Sweep) -> None:
    data.protocol.orders = 3


def change_values(data: Sweep) -> None:
    data.parameters["warps"].values = [8]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (change_seed, "seed was 0, now 3"),
        (change_torch, 'versions was {"torch": "2.11.0"}, now {"torch": "2.12.0"}'),
        (change_source, 'sources was {"file.py": "0000'),
        (change_orders, "orders was 2, now 3"),
        (change_values, 'values was {"warps": [1, 2, 4]}, now {"warps": [8]}'),
    ],
)
def test_what_may_not_be_mixed_in_one_table_is_refused(
    change: Callable[[Sweep], None], told: str, tmp_path: Path
) -> None:
    stored(tmp_path)
    other = sweep(planned=("r1",))
    other.date, other.start_s = "2027-01-01", 5.0
    assert run.begin(tmp_path, other, force=False).date == sweep().date
    change(other)
    with pytest.raises(ProfkitError, match="holds a sweep with other options: ") as raised:
        run.begin(tmp_path, other, force=False)
    assert told in str(raised.value)


def places(value: Any, path: str = "") -> Iterator[str]:
    """The path of every field in `value`."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield f"{path}{key}"
        yield from places(inner, f"{path}{key}/")


@pytest.mark.parametrize("value", [GONE, None, -1, "x", [], {}, {"a": 1}], ids=repr)
@pytest.mark.parametrize("name", ["sweep.json", "regions/0000.r1.json"])
def test_whatever_field_is_damaged_it_is_refused_or_can_be_reported(name: str, value: Any, tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="heat maps are drawn with plotly")
    from profkit.reporters import sweep_html

    stored(tmp_path)
    content = json.loads((tmp_path / name).read_text())
    refused = 0
    for path in places(content):
        (tmp_path / name).write_text(json.dumps(damaged(content, path, value)))
        try:
            found = records.load(tmp_path)
        except ProfkitError:
            refused += 1
            continue
        assert list(reporter.report(found, ()))
        assert csv_text.render(reporter.rows(found))
        for one in found.regions:
            for state in found.protocol.states:
                sweep_html.make_view(one, state, sweep_html.choose_axes(found))
    assert refused >= 20
