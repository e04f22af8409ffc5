"""Digests say whether bits, shape and dtype are equal, and nothing else about a tensor."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="digests are of tensors")

from profkit.capture.outputs import of_tensor  # noqa: E402
from profkit.capture.record import digest_outputs  # noqa: E402


def digest(tensor: torch.Tensor) -> str:
    return of_tensor(tensor).digest


def test_strides_do_not_matter() -> None:
    x = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    assert digest(x.t().contiguous().t()) == digest(x)


@pytest.mark.parametrize(
    "other",
    [
        torch.tensor([[1.0, 2.0], [3.0, 5.0]]),
        torch.tensor([1.0, 2.0, 3.0, 4.0]),
        torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64),
        torch.tensor([[1.0, 2.0], [3.0, 4.0]]).view(torch.int32),
    ],
)
def test_bits_shape_and_dtype_matter(other: torch.Tensor) -> None:
    assert digest(other) != digest(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))


def test_the_two_zeros_and_nan_payloads_are_told_apart() -> None:
    assert digest(torch.tensor([0.0])) != digest(torch.tensor([-0.0]))
    quiet, other = (torch.tensor([bits], dtype=torch.int32).view(torch.float32) for bits in (0x7FC00000, 0x7FC00001))
    assert digest(quiet) != digest(other)
    assert digest(quiet) == digest(quiet.clone())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.int64])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_every_dtype_and_shape_has_a_digest(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    assert len(digest(torch.zeros(shape, dtype=dtype))) == 64


def test_outputs_are_digested_by_name_in_order() -> None:
    outputs = {"layers.1/out": torch.ones(1), "layers.0/out": torch.zeros(1)}
    assert list(digest_outputs(outputs)) == ["layers.0/out", "layers.1/out"]
