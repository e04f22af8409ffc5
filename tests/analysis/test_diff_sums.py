"""The printed table of a diff adds up, in every column, in text and in Markdown."""

from __future__ import annotations

import io
import re
import tempfile
from fractions import Fraction
from pathlib import Path

from bench import Bench
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from recording import Op, step_recording
from rich.console import Console

from profkit.comparison.model import Comparison
from profkit.reporters import blocks, diff, diff_table, markdown, terminal

EXAMPLES = settings(max_examples=8, deadline=None, phases=(Phase.explicit, Phase.generate))
LAYER = st.lists(
    st.builds(Op, name=st.sampled_from("abcdef"), ns=st.integers(1, 4000), scope=st.sampled_from(["", "x", "x/y"])),
    min_size=1,
    max_size=6,
)


@given(st.lists(st.fractions(0, 10**6), max_size=12), st.sampled_from([Fraction(1), Fraction(10), Fraction(1, 3)]))
def test_apportioned_parts_sum_to_the_rounded_whole(values: list[Fraction], unit: Fraction) -> None:
    parts = blocks.apportion(values, unit)
    assert sum(parts) == round(sum(values, Fraction()) / unit)
    assert all(abs(p - v / unit) < 1 for p, v in zip(parts, values, strict=True))


@given(st.integers(-(10**7), 10**7))
def test_hundredths_print_the_number(units: int) -> None:
    assert Fraction(blocks.hundredths(units).replace("−", "-")) == Fraction(units, 100)


@st.composite
def comparisons(draw: st.DrawFn) -> Comparison:
    """Two runs of a few layers with any launches, some in only one layer, jittered."""
    layers = draw(st.integers(1, 3))
    sides = []
    for seed in (1, 2):
        shared = draw(LAYER)
        own = [[*shared, *draw(st.lists(st.builds(Op, name=st.just("only")), max_size=1))] for _ in range(layers)]
        replays = draw(st.integers(1, 7))
        outside = draw(st.sampled_from(["", "embed:333", "embed:1 head:77"]))
        sides.append(step_recording(own, replays=replays, jitter_ns=37, seed=seed, outside=outside).rows)
    with tempfile.TemporaryDirectory() as directory:
        return Bench(Path(directory)).diff(sides[0], sides[1])


def number(cell: str) -> Fraction:
    """A printed number."""
    return Fraction(cell.replace("−", "-").replace("+", "").replace("*", "").replace(",", "").strip())


#: Rows and total of each table.
Tables = list[tuple[list[list[Fraction]], list[Fraction]]]


def markdown_tables(text: str) -> Tables:
    """Numbers of the layers' rows, and of their total, table by table."""
    found: Tables = []
    rows: list[list[Fraction]] = []
    for line in text.splitlines():
        cells = line[2:-2].split(" | ")
        if not line.startswith("| ") or not re.fullmatch(r"[*−+\d.,]+", cells[-2].strip()):
            rows = rows if line.startswith("| ") else []
            continue
        # The last cell is the interval.
        numbers = [number(c) for c in cells[-7:-1]]
        if "total" in line:
            found.append((rows, numbers))
            rows = []
        else:
            rows.append(numbers)
    return found


def text_tables(text: str) -> Tables:
    """The same of the terminal's table, whose rows end in launches and µs of both sides, and their change."""
    n = r"([−+]?[\d,]+(?:\.\d\d)?)"
    row = re.compile(rf"^.*?\s+{n} → {n}\s+{n} → {n}\s+{n}(?:\s+{n} … {n})?\s*$")
    found: Tables = []
    rows: list[list[Fraction]] | None = None
    for line in text.splitlines():
        if re.search(r"status\s+launches\s+µs\s+change", line):
            rows = []
        elif rows is not None:
            match = row.match(line)
            if match is None:  # a table outside the layers ends without a total
                rows = None
                continue
            before, after, *us = (number(g) for g in match.groups()[:5])
            rows.append([before, after, after - before, *us])
            if line.split()[0] == "total":
                found.append((rows[:-1], rows[-1]))
                rows = None
    return found


def _assert_table_adds_up(comparison: Comparison) -> None:
    table = diff_table.build(comparison)
    groups = sorted((group for group in comparison.groups if group.selected), key=lambda group: -group.layers)
    for group, part in zip(groups, table.parts, strict=True):
        for column in ("us_before", "us_after", "us_change", "launches_before", "launches_after", "launches_change"):
            assert sum(getattr(r, column) for r in part.rows) == getattr(part.total, column), column
            assert sum(getattr(r, column) for r in part.scopes) == getattr(part.total, column), column
        for row in (*part.rows, part.total, *table.outside):
            assert row.us_after - row.us_before == row.us_change
        own = [f.row for f in comparison.findings if f.row.group == group.index]
        exact = sum(row.ns_before for row in own) / (group.layers * comparison.steps[0])
        assert abs(part.total.us_before * 10 - exact) < 10


@EXAMPLES
@given(comparisons())
def test_who_adds_up_the_printed_rows_finds_the_printed_total(comparison: Comparison) -> None:
    _assert_table_adds_up(comparison)
    out = io.StringIO()
    terminal.render(diff.report(comparison), Console(file=out, width=200, highlight=False, markup=False))
    tables = [*markdown_tables(markdown.render(diff.report(comparison))), *text_tables(out.getvalue())]
    assert len(tables) == 2 * len([group for group in comparison.groups if group.selected])
    for rows, total in tables:
        # THEN a part in which nothing differs is its total alone
        assert not rows or [sum(r[c] for r in rows) for c in range(6)] == total
        for before, after, change, us_before, us_after, us_change in [*rows, total]:
            assert (after - before, us_after - us_before) == (change, us_change)


def test_launches_of_a_third_of_the_layers_add_up(bench: Bench) -> None:
    # GIVEN three kernels that each run in one layer of three
    before = step_recording(["gemm a b c", "gemm", "gemm"], replays=4).rows
    comparison = bench.diff(before, step_recording(["gemm"] * 3, replays=4).rows)
    # THEN no count is a fraction: the layers that have them and the ones that have not stand apart
    (_, other_total), (first, first_total) = markdown_tables(markdown.render(diff.report(comparison)))
    assert first_total[0] == sum(r[0] for r in first) == 4
    assert other_total[0] == 1


def net_sentence(bench: Bench) -> tuple[str, str]:
    """The net and the untraced sentence of a diff that saves 1.004 µs in each of 24 layers, 24.096 µs a step."""
    records = ({"untraced": {"median": 300.0}}, {"untraced": {"median": 290.0}})
    sides = [step_recording([layer] * 24, replays=7).rows for layer in ("gemm:3003 fill:1004", "gemm:3003")]
    lines = markdown.render(diff.report(bench.diff(sides[0], sides[1], records=records))).splitlines()
    net = next(line for line in lines if line.startswith("- Net: "))
    return net, next(line for line in lines if line.startswith("- Untraced: "))


def test_one_report_has_one_saving_per_step(bench: Bench) -> None:
    net, untraced = net_sentence(bench)
    per_step = re.findall(r", (−[\d.]+) µs of kernel time", net)
    assert len(per_step) == 1
    assert per_step[0] in untraced


def test_the_saving_per_step_is_the_exact_one(bench: Bench) -> None:
    per_step = re.findall(r", (−[\d.]+) µs of kernel time", net_sentence(bench)[0])
    assert abs(number(per_step[0]) - Fraction("-24.096")) < Fraction("0.05")


def test_a_printed_change_lies_in_its_printed_interval(bench: Bench) -> None:
    match = re.search(r"(−[\d.]+) µs a layer \S*\(95 % CI (\S+) to ([−\d.]+)", net_sentence(bench)[0].replace("\\", ""))
    assert match
    change, low, high = (number(g) for g in match.groups())
    assert low <= change <= high


def test_rows_outside_the_selection_have_an_interval_in_their_own_unit(bench: Bench) -> None:
    # GIVEN the unselected part of each of 8 layers 1 µs slower: 8 µs a step
    sides = [
        step_recording([f"gemm:{ns} combine/pack:1000"] * 8, replays=9, jitter_ns=5, seed=ns).rows
        for ns in (2000, 3000)
    ]
    comparison = bench.diff(sides[0], sides[1], scope="combine")
    row = next(r for r in diff_table.build(comparison).outside if r.name == "gemm")
    assert row.interval is not None
    assert row.interval[0] <= row.us_change <= row.interval[1]
