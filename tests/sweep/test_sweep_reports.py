"""The table, csv and heat maps of results with known times; names that would be markup are shown as text."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from sweep_data import region, sweep

from profkit.errors import ProfkitError
from profkit.reporters import csv_text, terminal
from profkit.reporters import sweep as report
from profkit.sweep import records
from profkit.sweep.records import Parameter, Sweep

HOSTILE = "</script><script>alert(1)</script><b>x</b>\x1b[31m[bold]"


def printed(data: Sweep, notes: tuple[str, ...] = ()) -> str:
    out = io.StringIO()
    console = Console(file=out, width=120, highlight=False, emoji=False, markup=False)
    terminal.render(report.report(data, notes), console)
    return out.getvalue()


def table_lines(data: Sweep) -> list[str]:
    return [" ".join(line.split()) for line in printed(data).splitlines() if line.startswith(("hot  ", "evicted  "))]


def test_each_state_shows_the_best_and_every_known_entry_against_it() -> None:
    best, entry, evicted, _ = table_lines(sweep(region()))
    assert best == "hot best 2 64 8.00 8.00 … 8.00 1.000 2"
    # The entry's eight copies are 10.00 to 10.14 us: 10.07 in the geometric mean, and the best is 20.6 % below it.
    assert entry.startswith("hot table 1 64 10.07 10.04 … 10.11 1.259 1.59 −20.6 % (")
    assert entry.endswith("): better")
    assert evicted.startswith("evicted best 2 64 18.00 ")


def test_what_became_of_each_configuration_is_counted_and_said() -> None:
    text = printed(sweep(region()))
    assert "r1 (rows=4): 6 configurations: 2 timed, 1 screened, 1 rejected, 1 failed, 1 WRONG" in text
    assert "WRONG: warps=4 tile=128: out: 1 of 9 elements differ" in text
    assert "failed: warps=2 tile=128: OutOfResources: shared memory" in text
    assert "rejected: warps=1 tile=128: no room" in text


def test_device_versions_method_noise_and_its_floor_are_said() -> None:
    text = " ".join(printed(sweep(region()), ("a note",)).split())
    assert (
        "file.py:W, variant plain, on NVIDIA H200 · torch 2.11.0, triton 3.6.0, cuda 13.0, profkit 0.1.0 · seed 0"
        in text
    )
    assert "hot: by hot means." in text
    assert "better or worse is what differs beyond the scatter of its orders' ratios" in text
    assert "noise, from copies of warps=1 tile=64: hot ±1.23 % (the 8 A/A copies differ by up to 1.40 %)" in text
    assert "a run that does nothing 0.90 µs; evicted" in text
    assert text.endswith("a note")


def test_several_regions_are_summed_up_by_known_table() -> None:
    won, unclear = region("c"), region("d")
    won.configurations[0].times["hot"].us = 7.0
    found = unclear.best("hot").times["hot"].against["table"]
    assert found is not None
    found.verdict = "unclear"
    text = " ".join(printed(sweep(region("a"), region("b"), won, unclear)).split())
    assert (
        "table, hot: the best is better than its entry in 2 of 4 regions, equal in 0, unclear in 1, and the entry "
        "itself in 1." in text
    )


def test_a_known_entry_that_was_not_timed_is_listed_with_its_fate() -> None:
    odd = region()
    odd.known["odd"] = {"warps": 2, "tile": 128}
    odd.configurations[4].known = ["odd"]
    assert "hot odd 2 128 failed" in table_lines(sweep(odd))


def test_csv_has_a_row_for_each_region_configuration_and_state() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text.render(report.rows(sweep(region("a"), region("b")))))))
    assert len(rows) == 2 * 2 * 6
    best = next(row for row in rows if row["region"] == "b" and row["state"] == "hot" and row["parameter.warps"] == "2")
    assert (best["shape.rows"], best["us"], best["ratio_to_best"], best["samples"]) == ("4", "8.0", "1.0", "4")
    assert (best["ratio.table"], best["verdict.table"]) == ("0.794447", "better")
    screened = next(row for row in rows if row["status"] == "screened")
    assert (screened["us"], screened["screen_us"]) == ("", "30.0")
    wrong = next(row for row in rows if row["status"] == "wrong")
    assert (wrong["us"], wrong["screen_us"], wrong["reason"]) == ("", "", "out: 1 of 9 elements differ")


def test_results_are_read_back_from_json_and_as_a_table(tmp_path: Path) -> None:
    data = sweep(region("a"))
    (tmp_path / "s.json").write_bytes(msgspec.json.encode(data))
    found = records.load(tmp_path / "s.json")
    assert found == data
    table = found.to_pandas()
    assert len(table) == 12
    assert table.loc[table["verdict.table"] == "better", "parameter.warps"].tolist() == [2, 2]


def as_json(data: Sweep, **changes: object) -> str:
    return json.dumps({**msgspec.to_builtins(data), **changes})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not valid JSON"),
        ("[]", "is not as profkit writes it: Expected `object`, got `array`"),
        ("{}", "schema is None, expected 'profkit.sweep/2'"),
        ("[" * 100_000, "is not valid JSON"),
        ("1" * 10_000, "is not valid JSON"),
        (r'"\udcff"', "is not valid JSON"),
        ("NaN", "is not valid JSON"),
        (as_json(sweep(region()), regions=[msgspec.to_builtins(region())] * 2), "two regions have the same name"),
        (as_json(sweep(region()), planned={}), "region r1 with its shapes is not the one that was planned"),
        (as_json(sweep(region()), parameters={}), r"Expected `object` of length >= 1 - at `\$.parameters`"),
        (as_json(sweep(), schema="profkit.sweep/1"), "schema is 'profkit.sweep/1', expected 'profkit.sweep/2'"),
    ],
)
def test_what_is_no_sweep_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "s.json").write_text(content)
    with pytest.raises(ProfkitError, match=message) as raised:
        records.load(tmp_path / "s.json")
    assert str(raised.value).endswith("Give what this profkit's sweep --format json has written.")


def test_hostile_names_reach_neither_terminal_nor_spreadsheet_as_commands() -> None:
    hostile = region(HOSTILE)
    hostile.configurations[4].reason = "=cmd()\x1b[2J"
    assert "\x1b" not in printed(sweep(hostile))
    text = csv_text.render(report.rows(sweep(hostile)))
    assert "\x1b" not in text
    assert "'=cmd()" in text


class TestHeatMaps:
    """Needs plotly."""

    @pytest.fixture(autouse=True)
    def _plotly(self) -> None:
        pytest.importorskip("plotly", reason="heat maps are drawn with plotly")

    def test_colour_is_the_time_over_the_best_and_what_has_no_time_is_a_gap(self) -> None:
        from profkit.reporters.sweep_html import choose_axes, make_view

        data = sweep(region())
        axes = choose_axes(data)
        assert (axes.x, axes.y, axes.facets) == ("warps", "tile", [])
        view = make_view(data.regions[0], "hot", axes)
        (ratios,) = view.ratios
        # Rows are tiles 64 and 128, columns 1, 2 and 4 warps; the screening saw 30 us against 8.
        assert ratios == [[pytest.approx(10.07 / 8, abs=1e-4), 1.0, 30 / 8], [None, None, None]]
        assert view.texts == [[["table", "best", ""], ["", "", ""]]]
        assert view.hovers[0][1][2] == "warps=4 tile=128<br>wrong: out: 1 of 9 elements differ"
        assert view.hovers[0][0][2].startswith("warps=4 tile=64<br>screened out: 30.00 µs in the screening, 3.8 ×")

    @pytest.mark.parametrize("lost", ["one", "best", "all"])
    def test_a_configuration_that_was_not_screened_in_a_state_is_a_gap(self, lost: str) -> None:
        from profkit.reporters.sweep_html import choose_axes, make_view, page

        data = sweep(region())
        places = {"one": [2], "best": [1], "all": range(6)}[lost]
        for place in places:
            data.regions[0].configurations[place].screen_us = {}
        (ratios,) = make_view(data.regions[0], "evicted", choose_axes(data)).ratios
        # What was timed stays; what was screened has a place only beside the best of the same screening.
        assert [ratio is not None for ratio in ratios[0]] == [True, True, False]
        assert page(data).rstrip().endswith("</html>")

    def test_further_parameters_are_facets(self) -> None:
        from profkit.reporters.sweep_html import choose_axes, make_view

        one = region()
        for number, configuration in enumerate(one.configurations):
            configuration.parameters["stages"] = number % 2
        data = sweep()
        data.regions = [one]
        data.parameters["stages"] = Parameter(help="stages", values=[0, 1])
        axes = choose_axes(data)
        assert (axes.facets, axes.combinations()) == (["stages"], [("0",), ("1",)])
        view = make_view(one, "evicted", axes)
        assert [sum(r is not None for row in ratios for r in row) for ratios in view.ratios] == [2, 1]

    def test_one_parameter_alone_is_one_row(self) -> None:
        from profkit.reporters.sweep_html import choose_axes, make_view

        one = region()
        for configuration in one.configurations:
            configuration.parameters.pop("tile")
        one.configurations = one.configurations[:3]
        data = sweep()
        data.regions = [one]
        del data.parameters["tile"]
        axes = choose_axes(data)
        assert (axes.x, axes.y) == ("warps", None)
        assert [len(row) for row in make_view(one, "hot", axes).ratios[0]] == [3]

    def test_the_page_is_whole_and_hostile_names_are_text(self) -> None:
        from profkit.reporters.sweep_html import page

        hostile = region(HOSTILE)
        hostile.configurations[4].reason = HOSTILE
        hostile.configurations[0].known = [HOSTILE]
        data = sweep(hostile, region("plain"))
        data.workload.name = HOSTILE
        text = page(data)
        assert text.startswith("<!DOCTYPE html>")
        assert text.rstrip().endswith("</html>")
        assert "<script>alert" not in text
        assert "<b>x" not in text
        assert "\x1b" not in text
        # Twice escaped: for plotly, which reads tags, as HTML; for the page as JSON.
        assert r"\u0026lt;b\u0026gt;x" in text or "&lt;b&gt;x" in text
        # Self-contained: no script comes from elsewhere.
        assert "<script src" not in text

    def test_no_finished_region_is_a_page_without_maps(self) -> None:
        from profkit.reporters.sweep_html import page

        assert "</html>" in page(sweep(planned=("a", "b")))
