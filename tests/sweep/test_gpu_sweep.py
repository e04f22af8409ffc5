"""The GPU clock on a copy kernel, whose times are bounded by the bytes that it moves.

Other processes may share the GPU, so a time here is the least of several short samples, and bounds are factors: what
the tests are for, such as two runs that are counted as one, is a factor too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from capture_cli import profkit

torch = pytest.importorskip("torch", reason="sweeps run torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

FILE = Path(__file__).parents[2] / "benchmarks" / "copy_tunable.py"
COPY = f"{FILE}:COPY"


@pytest.fixture(scope="module")
def clock() -> Iterator[Any]:
    from profkit.sweep.clock import GpuClock

    made = GpuClock()
    with torch.no_grad(), made.region():
        yield made


def least_us(clock: Any, run: Callable[[], None], *prepared: tuple[str, int]) -> list[float]:
    """The least of 15 samples of `run` for each state and number of runs; they are taken in turn."""
    entries = [clock.prepare(run, state, runs) for state, runs in prepared]
    rounds = [clock.sample_us(entries) for _ in range(15)]
    return [min(samples) for samples in zip(*rounds, strict=True)]


def test_a_run_that_does_nothing_takes_about_a_launch(clock: Any) -> None:
    hot, evicted = least_us(clock, clock.nothing, ("hot", 100), ("evicted", 5))
    assert 0.2 < hot < 3
    assert 0.2 < evicted < 10


def test_a_run_takes_as_long_whatever_the_state_and_the_number_of_runs(clock: Any) -> None:
    # 40,000 cycles are about 20 us, less than it takes to write twice the L2 cache: a time with the eviction, with the
    # untimed run or with all ten runs in it would be about twice as long or longer.
    sleep = partial(torch.cuda._sleep, 40_000)
    sleep()
    torch.cuda.synchronize()
    times = least_us(clock, sleep, ("hot", 1), ("hot", 10), ("evicted", 1), ("evicted", 5))
    assert max(times) < 1.6 * min(times), times
    # At 0.4 to 4 GHz.
    assert 10 < min(times) < 100, times


def test_data_that_fit_in_l2_are_read_faster_hot_than_evicted(clock: Any) -> None:
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    source = torch.randn(l2_bytes // 16, device="cuda")
    target = torch.empty_like(source)

    def copy() -> None:
        torch.add(source, 1.0, out=target)

    copy()
    torch.cuda.synchronize()
    hot, evicted = least_us(clock, copy, ("hot", 30), ("evicted", 5))
    assert hot < evicted


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    arguments = ("--set", "block=512,1024,4194304", "--set", "warps=4,32", "--jobs", "2", "--screen", "0")
    done = profkit("sweep", COPY, *arguments, "--format", "json", cwd=tmp_path_factory.mktemp("sweep"))
    assert done.returncode == 0, done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def test_each_configuration_has_the_fate_that_it_must(swept: dict[str, Any]) -> None:
    (region,) = swept["regions"]
    fates = {tuple(c["parameters"].values())[:2]: (c["status"], c["reason"]) for c in region["configurations"]}
    assert {values: status for values, (status, _) in fates.items()} == {
        (512, 4): "timed",
        (512, 32): "rejected",
        (1024, 4): "timed",
        (1024, 32): "timed",
        (4194304, 4): "failed",
        (4194304, 32): "failed",
    }
    assert "Error" in fates[4194304, 4][1]


def test_hot_is_faster_than_evicted_and_no_faster_than_nothing(swept: dict[str, Any]) -> None:
    (region,) = swept["regions"]
    for configuration in region["configurations"]:
        if configuration["status"] == "timed":
            hot, evicted = (configuration["times"][state]["min_us"] for state in ("hot", "evicted"))
            assert hot < evicted
            # Medians both, as there is no least one of a run that does nothing.
            assert region["timing"]["hot"]["nothing_us"] < configuration["times"]["hot"]["us"]


def test_the_document_names_the_device_and_the_bytes_evicted(swept: dict[str, Any]) -> None:
    assert swept["device"]["name"] == torch.cuda.get_device_name()
    mib = 2 * torch.cuda.get_device_properties(0).L2_cache_size / 2**20
    assert f"after a write of {mib:.0f} MiB (2 x L2)" in swept["protocol"]["methods"]["evicted"]
