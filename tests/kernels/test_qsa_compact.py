"""A sweep made compact: what is in it, that it tells what the sweep told, and the one that the results rest on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from qsa_sweeps import DEFAULT, NEW, OTHER, SCRIPT, SM_90, named, qsa_compact, qsa_confirm, qsa_table, sweep, swept

from profkit.kernels.qsa.tables import REGIONS, TABLES

RESULTS = SCRIPT.parents[1] / "docs" / "results"


@pytest.fixture
def document() -> dict[str, Any]:
    """Two problems, a configuration that was screened out and one that was rejected."""
    regions = swept({DEFAULT: 10, SM_90: 9, OTHER: 8}), swept({DEFAULT: 10, SM_90: 10.1, OTHER: 10.4}, rows=8)
    made = {**sweep(*regions), "versions": {}}
    for measured in made["regions"]:
        measured["known"]["mine"] = named(OTHER)
        measured["least_bytes"] = 1234
        measured["left_out"] = {"evicted": "it is large"}
        measured["timing"]["hot"]["nothing_us"] = 0.5
        for configuration in measured["configurations"]:
            us = configuration["times"]["hot"]["us"]
            configuration["times"]["hot"] |= {"p25_us": us - 1, "p75_us": us + 1}
    rejected = {"parameters": named(NEW), "times": {}, "screen_us": {}}
    made["regions"][0]["configurations"] += [{**rejected, "screen_us": {"hot": 30.5}}, rejected]
    return made


def test_it_has_medians_and_verdicts_of_what_was_timed_and_the_times_of_the_screening(document: dict[str, Any]) -> None:
    written = json.loads(qsa_compact.compact(document))
    assert written["schema"] == "profkit.qsa-sweep/2"
    assert written["seed"] == 1
    region, other = written["regions"]
    assert region["timed"] == [
        [32, 64, 4, {"hot": [10, 9, 11, {"default": None, "sm_90": "worse"}]}],
        [64, 64, 2, {"hot": [9, 8, 10, {"default": "better", "sm_90": None}]}],
        [32, 2, 2, {"hot": [8, 7, 9, {"default": "better", "sm_90": "better"}]}],
    ]
    assert region["screened"] == [[64, 16, 4, {"hot": 30.5}]]
    assert region["noise_percent"] == {"hot": 1.25}
    assert region["nothing_us"] == {"hot": 0.5}
    assert region["known"] == {"default": [32, 64, 4], "sm_90": [64, 64, 2], "mine": [32, 2, 2]}
    assert region["left_out"] == {"evicted": "it is large"}
    assert other["timed"][1][3]["hot"][3] == {"default": "equal", "sm_90": None}


def test_it_is_judged_as_the_sweep_is(document: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "compact.json"
    path.write_text(qsa_compact.compact(document))
    again = qsa_compact.read(path)
    assert qsa_compact.compact(again) == path.read_text()
    judged, untimed = qsa_confirm.judge([again], "mine")
    assert ([one.verdict for one in judged], untimed) == (["better", "worse"], [])
    assert judged == qsa_confirm.judge([document], "mine")[0]
    assert qsa_table.choose([again]) == qsa_table.choose([document])
    assert qsa_table.carry_over([again]) == qsa_table.carry_over([document])


def test_the_script_writes_it_beside_what_it_says_of_a_table(document: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text(json.dumps(document))
    for options in (["sweep.json"], ["sweep.json", "--confirm", "default"]):
        arguments = [sys.executable, SCRIPT, *options, "--compact", "compact.json"]
        subprocess.run(arguments, cwd=tmp_path, capture_output=True, check=False)
        assert (tmp_path / "compact.json").read_text() == qsa_compact.compact(document)
        (tmp_path / "compact.json").unlink()


def test_one_without_verdicts_is_refused() -> None:
    arguments = [sys.executable, SCRIPT, RESULTS / "qsa-sweep-h200.json", "--confirm", "h200"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "Give sweeps of qsa-attention of schema profkit.sweep/2 or profkit.qsa-sweep/2.\n"


def test_the_page_of_results_says_what_the_run_beside_it_says() -> None:
    arguments = [sys.executable, SCRIPT, RESULTS / "qsa-confirmation.json", "--confirm", "h200"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    page = (RESULTS / "qsa-attention-h200.md").read_text(encoding="utf-8")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith((*REGIONS, "all "))]
    assert len(rows) == 2 * len(REGIONS) + 1
    for region, cache, *counts, least, most in rows[:-1]:
        entry = getattr(TABLES["h200"], cache)[REGIONS.index(region)]
        launch = f"{entry.block_n},{entry.splits},{entry.warps}"
        name = "bf16" if cache == "bits_16" else cache
        times = "1" if least == most else f"{least}–{most}"
        assert f"| {' | '.join([region, name, launch, *counts, times])} |" in page
    assert f"| together | | | {' | '.join(rows[-1][1:])} | " in page
