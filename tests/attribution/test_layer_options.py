"""The options that find layers, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profkit import cli

RUN = Path(__file__).parents[2] / "traces/dcp-combine/eager"

shipped = pytest.mark.skipif(not RUN.exists(), reason="the shipped runs are not here")


def layers(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, output and errors of `profkit layers RUN …`."""
    with pytest.raises(SystemExit) as stop:
        cli.main(["layers", str(RUN), *arguments])
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


@shipped
def test_an_anchor_where_lineage_knows_the_layers_changes_nothing_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, plain, _ = layers(capsys, "--format", "json")
    status, out, _ = layers(capsys, "--anchor", "nvjet", "--format", "json")
    runs = [json.loads(text)["runs"][0] for text in (plain, out)]
    assert status == 0
    assert runs[0]["layers"] == runs[1]["layers"]
    assert "anchor-not-used" in [w["code"] for w in runs[1]["warnings"]]


@shipped
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--capture-trace", "absent"), "--capture-trace absent: no such file or directory"),
        (("--anchor-every", "2"), "give both, and 1 or more"),
        (("--layer-kind", "Z"), "--layer-kind 'Z' matches no layer. Kinds of layer in the trace: layers.#.mla"),
    ],
)
def test_bad_input_is_one_message_and_status_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    status, out, error = layers(capsys, *arguments)
    assert (status, out) == (2, "")
    assert message in error
    assert error.startswith("profkit: error: ")


@shipped
def test_a_kind_of_layer_is_selected_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = layers(capsys, "--layer-kind", "mla", "--format", "json")
    assert json.loads(out)["runs"][0]["selected"]["layers"] == 24
