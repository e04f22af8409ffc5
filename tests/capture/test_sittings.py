"""Progress lines: names in them are a stranger's, and no control character of theirs reaches a terminal."""

from __future__ import annotations

import pytest

from profkit.capture import sittings


def test_control_characters_of_a_name_are_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    with sittings.shown(0, 1, "region") as display:
        display.begins("r\x1b[31m\x07\x9b2J\udcff")
        display.note("checking \x1b]0;title\x07")
    said = capsys.readouterr().err
    assert said == "region 1 of 1: r�[31m��2J�\nchecking �]0;title�\n"


def test_nor_do_they_reach_the_bar() -> None:
    from rich.progress import Progress

    with Progress(disable=True) as bar:
        bar.add_task("", total=1)
        display = sittings.Progress(0, 1, "region", bar)
        for show in (display.begins, display.note, display.detail):
            show("a")
            show("r\x1b[31m")
            assert bar.tasks[0].description == "r�[31m"
