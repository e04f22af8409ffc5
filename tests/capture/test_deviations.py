"""How far outputs are from their references: as a share of the tolerance, and never quietly for what is no number."""

from __future__ import annotations

import math

import msgspec
import pytest

torch = pytest.importorskip("torch", reason="deviations are of tensors")

from profkit.capture.outputs import of_tensor  # noqa: E402
from profkit.capture.record import against_references, deviation  # noqa: E402
from profkit.errors import ProfkitError  # noqa: E402
from profkit.model.workload import References  # noqa: E402

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("output", "reference", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        # allowed: 0.25 + 0.5 * 2 = 1.25
        ([0.75], [2.0], 1.0),
        ([0.0, 2.5], [0.0, 2.0], 0.4),
        # The tolerance grows with the reference's size and not with the output's.
        ([-2.0], [0.0], 8.0),
        ([INF, -INF, NAN], [INF, -INF, NAN], 0.0),
        ([INF], [-INF], INF),
        ([INF], [1.0], INF),
        ([1.0], [INF], INF),
        ([NAN, 0.0], [1.0, 0.0], INF),
        ([1.0], [NAN], INF),
        ([], [], 0.0),
    ],
)
def test_deviation(output: list[float], reference: list[float], expected: float) -> None:
    assert deviation(torch.tensor(output), torch.tensor(reference), rtol=0.5, atol=0.25) == pytest.approx(expected)


def test_every_chunk_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profkit.capture.record.CHUNK", 3)
    output = torch.zeros(4, 2)
    for index in range(8):
        one = output.clone()
        one.view(-1)[index] = 1.0
        assert deviation(one, output, 0.0, 0.5) == 2.0


def test_the_record_says_what_each_output_was_held_against() -> None:
    outputs = {"layers.0/out": torch.tensor([1.0, 2.0]), "layers.1/out": torch.tensor([NAN]), "other": torch.zeros(1)}
    expected = {"layers.1/out": torch.tensor([1.0]), "layers.0/out": torch.tensor([1.0, 2.5])}
    found = against_references(outputs, References(lambda: expected, rtol=0.0, atol=1.0))
    assert found is not None
    assert msgspec.to_builtins(found) == {
        "rtol": 0.0,
        "atol": 1.0,
        "outputs": {
            "layers.0/out": {"within": True, "deviation": 0.5, "reference": of_tensor(expected["layers.0/out"]).digest},
            "layers.1/out": {
                "within": False,
                "deviation": None,
                "reference": of_tensor(expected["layers.1/out"]).digest,
            },
        },
    }


def test_a_step_without_references_has_none() -> None:
    assert against_references({"out": torch.zeros(1)}, None) is None


@pytest.mark.parametrize(("name", "size", "message"), [("gone", 1, "no such output"), ("out", 2, r"\(2,\).*\(1,\)")])
def test_a_reference_for_no_output_is_refused(name: str, size: int, message: str) -> None:
    references = References(lambda: {name: torch.zeros(size)}, 0.0, 0.0)
    with pytest.raises(ProfkitError, match=message):
        against_references({"out": torch.zeros(1)}, references)
