"""The registry of methods: a method is one file and one line, and the surer ones go first."""

from __future__ import annotations

import pytest
import toy_method
from step_traces import codes, counted, replayed, step

from profkit import attribution
from profkit.attribution import METHODS
from profkit.attribution.method import Method


def test_a_method_is_one_file_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = replayed(step(["gemm copy"]), kinds=["kernel", "memcpy"])
    assert "toy" not in counted(trace).methods
    monkeypatch.setattr(attribution, "METHODS", (*METHODS, Method("toy", toy_method.attribute)))
    census = counted(trace)
    assert census.methods["toy"] == 2
    assert census.chosen.layers["number"].tolist() == [7]
    assert "copies" in codes(census)


def test_a_method_that_needs_steps_runs_after_they_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = replayed(step(["gemm copy"]), kinds=["kernel", "memcpy"])
    monkeypatch.setattr(attribution, "METHODS", (*METHODS, Method("toy", toy_method.attribute, in_steps=True)))
    assert counted(trace).methods == {"toy": 2}


def test_exact_methods_go_first_and_those_that_need_steps_last() -> None:
    order = [(not method.exact, method.in_steps) for method in METHODS]
    assert order == sorted(order)
    assert not any(method.exact for method in METHODS if method.by_pattern)
