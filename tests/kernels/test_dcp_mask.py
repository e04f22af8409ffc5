"""The eager mask: eight kernels, and which rows it hits."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the kernels need torch")

from dcp_cases import EDGES  # noqa: E402
from dcp_oracle import Batch, is_empty  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from profkit.kernels.dcp.mask import mask_dcp_empty_shards_, row_mask  # noqa: E402

VIEWS = {"slice", "select", "unsqueeze"}


class Recorder(TorchDispatchMode):
    """Records the name of every aten op that runs."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def kernel_ops(run: Callable[[], object]) -> list[str]:
    """The aten ops that `run` dispatches, without those that only make views."""
    with Recorder() as recorder:
        run()
    return [name for name in recorder.names if name not in VIEWS]


def expected_rows(batch: Batch) -> list[bool]:
    return [is_empty(row, batch.seq_lens, batch.starts) for row in range(batch.rows)]


def test_it_dispatches_eight_ops_that_make_kernels_in_this_order() -> None:
    lse = torch.zeros(5, 4)
    seq_lens, starts = EDGES["interior"].tensors("cpu")
    ops = kernel_ops(lambda: mask_dcp_empty_shards_(lse, seq_lens, starts))
    assert ops == ["arange", "searchsorted", "clamp_max", "ge", "index", "eq", "bitwise_or", "masked_fill_"]


def test_the_row_part_is_the_same_without_the_fill() -> None:
    seq_lens, starts = EDGES["interior"].tensors("cpu")
    assert len(kernel_ops(lambda: row_mask(5, seq_lens, starts))) == 7


@pytest.mark.parametrize("batch", EDGES.values(), ids=EDGES.keys())
def test_edge_cases_match_the_formula(batch: Batch, device: str) -> None:
    lse = torch.ones(batch.rows, 3, device=device)
    result = mask_dcp_empty_shards_(lse, *batch.tensors(device))
    assert result is lse
    assert [[value == -math.inf for value in row] for row in lse.tolist()] == [[e] * 3 for e in expected_rows(batch)]


@pytest.mark.parametrize("seed", range(40))
def test_random_batches_match_the_formula(seed: int, device: str) -> None:
    draw = random.Random(seed)
    requests = draw.randint(1, 12)
    spans = [draw.randint(0, 4) for _ in range(requests)]
    batch = Batch([draw.choice([0, 0, 3, 16]) for _ in spans], spans, draw.randint(0, 4))
    assert row_mask(batch.rows, *batch.tensors(device)).tolist() == expected_rows(batch)


def test_a_strided_half_precision_lse_is_masked_in_place() -> None:
    storage = torch.ones(4, 10, dtype=torch.float16)
    lse = storage.t()[::2]
    mask_dcp_empty_shards_(lse, *EDGES["interior"].tensors("cpu"))
    assert torch.isinf(storage[:, ::2]).sum() == 4
    assert not torch.isinf(storage[:, 1::2]).any()


def test_without_metadata_nothing_is_masked() -> None:
    lse = torch.ones(3, 2)
    assert kernel_ops(lambda: mask_dcp_empty_shards_(lse, None, None)) == []
    assert (lse == 1).all()


def test_no_rows_is_a_no_op() -> None:
    lse = torch.ones(0, 2)
    seq_lens, starts = EDGES["single"].tensors("cpu")
    assert kernel_ops(lambda: mask_dcp_empty_shards_(lse, seq_lens, starts)) == []


@pytest.mark.parametrize(
    ("seq_lens", "starts", "message"),
    [
        (torch.zeros(3, dtype=torch.int32), None, "go together"),
        (None, torch.zeros(4, dtype=torch.int32), "go together"),
        (torch.zeros(3, 1, dtype=torch.int32), torch.zeros(4, dtype=torch.int32), "1-D"),
        (torch.zeros(3, dtype=torch.int32), torch.zeros(3, dtype=torch.int32), "one more"),
        (torch.zeros(6, dtype=torch.int32)[::2], torch.zeros(4, dtype=torch.int32), "contiguous"),
    ],
)
def test_malformed_metadata_is_refused(seq_lens: Any, starts: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mask_dcp_empty_shards_(torch.ones(3, 2), seq_lens, starts)
