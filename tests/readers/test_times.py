"""Times that cannot be: of all ops, of one among many, and ranges that never end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from builders import csv_kernel, kineto_trace, op, rocprof_csv
from recordings import FORMATS, Kernel, Launch, Range, Recording, nsys_sqlite

from profkit import readers
from profkit.counting.count import take_census
from profkit.errors import ProfkitError
from profkit.model.selection import Selection


@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS.keys())
def test_a_recording_none_of_whose_ops_has_times(tmp_path: Path, write: object) -> None:
    assert callable(write)
    path = write(tmp_path, Recording([Kernel("k", 20 + i, 10) for i in range(3)], [Launch(5)]))

    with pytest.raises(ProfkitError, match="none of its 3 ops has valid times"):
        readers.read(path)


def codes(path: Path) -> list[str]:
    return [d.code for d in readers.read(path).info.diagnostics]


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ({}, False),
        ({7: 2_000_000_000}, True),
        # a programmatic launch, and a long op that others wait for
        ({7: 15_000}, False),
        ({49: 2_000_000_000}, False),
    ],
)
def test_an_op_that_reaches_over_the_later_ones(tmp_path: Path, lengths: dict[int, int], said: bool) -> None:
    # GIVEN 50 kernels of 4 µs, one after the other, and a copy on another stream
    kernels = [op("k", i * 10_000, lengths.get(i, 4_000)) for i in range(50)]
    copy = op("memcpy", 3_000, 500_000, cat="gpu_memcpy", stream=9)

    found = codes(kineto_trace(tmp_path / "trace.json", [*kernels, copy]))

    assert ("impossible-duration" in found) == said


def test_rows_of_more_fields_than_the_header(tmp_path: Path) -> None:
    path = rocprof_csv(tmp_path, kernels=[csv_kernel("k(float*, int)", 10, 20)])
    head, row, *_ = path.read_text().split("\n")
    path.write_text(f"{head}\n{row},0,0\n")

    with pytest.raises(ProfkitError, match=r"line 2: the row has \d+ fields, the header has \d+"):
        readers.read(path)


def test_pushes_without_a_pop_take_no_square_of_their_number(tmp_path: Path) -> None:
    # GIVEN 20,000 pushes that nothing closes, and a kernel in each
    count = 20_000
    ranges = [Range("layers.0", 1, None), *(Range(f"r{i}", 10 * i + 2, None) for i in range(count))]  # type: ignore[arg-type]
    kernels = [Kernel("k", 10 * i + 5, 10 * i + 9, i + 1) for i in range(count)]
    launches = [Launch(10 * i + 3, i + 1) for i in range(count)]
    path = nsys_sqlite(tmp_path, Recording(kernels, launches, ranges))
    began = time.perf_counter()

    trace = readers.read(path)

    assert [d.message.split(" and ")[0] for d in trace.info.diagnostics if d.code == "unclosed-range"] == [
        "20001 ranges were never closed",
        "19901 ranges beyond the first 100 of a thread have no pop",
    ]
    assert take_census(trace, Selection()).ledger.in_layers == count
    assert time.perf_counter() - began < 20
