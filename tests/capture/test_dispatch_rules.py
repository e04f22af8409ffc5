"""Which torch operators count as a launch, asked of torch itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the dispatch profiler runs torch operators")

from profkit.capture.profilers.dispatch_step import DispatchRecorder  # noqa: E402
from profkit.readers.dispatch_file import Recording  # noqa: E402

A = torch.arange(12, dtype=torch.float32).reshape(3, 4)
OUT = torch.empty(3, 4)
WEIGHT = torch.eye(4)


def recorded(work: Callable[[], object], *, run_bodies: bool = True) -> list[tuple[str, str]]:
    recording = Recording()
    with torch.no_grad(), DispatchRecorder(recording, run_bodies=run_bodies):
        work()
    return [(op["name"], op["kind"]) for op in recording.ops]


@pytest.mark.parametrize(
    "work",
    [
        lambda: A.view(-1)[2:].unsqueeze(0),
        lambda: A.transpose(0, 1).expand(4, 3).split(2),
        lambda: torch.empty(5),
        lambda: torch.empty_like(A).resize_(2),
        lambda: A.new_empty(3).t_(),
        lambda: torch.empty_strided((2, 2), (2, 1)).detach(),
        lambda: A.contiguous(),
        lambda: A.to(torch.float32),
        lambda: A.new_zeros(0),
        lambda: torch.empty(0, 4).add_(1),
        lambda: (A.shape, A.stride(), A.is_contiguous(), A.numel()),
    ],
)
def test_views_allocations_metadata_and_empty_tensors_launch_nothing(work: Callable[[], object]) -> None:
    assert recorded(work) == []


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (lambda: torch.arange(4), [("aten.arange.default", "kernel")]),
        (lambda: A.masked_fill_(A > 99, 0), [("aten.gt.Scalar", "kernel"), ("aten.masked_fill_.Scalar", "kernel")]),
        (lambda: torch.add(A, 1, out=OUT), [("aten.add.out", "kernel")]),
        (lambda: torch.zeros(3), [("aten.zeros.default", "kernel")]),
        (lambda: OUT.zero_(), [("aten.zero_.default", "kernel")]),
        (lambda: A.to(torch.bfloat16), [("aten._to_copy.default", "kernel")]),
        (lambda: torch.cat([A, A]), [("aten.cat.default", "kernel")]),
        (lambda: A[0, 0].item(), [("aten._local_scalar_dense.default", "memcpy")]),
        (lambda: torch.equal(A, A), [("aten.equal.default", "kernel")]),
    ],
)
def test_what_computes_or_reads_back_launches(work: Callable[[], object], expected: list[tuple[str, str]]) -> None:
    assert recorded(work) == expected


@pytest.mark.parametrize(
    ("work", "kind"),
    [
        (lambda: OUT.copy_(A), "memcpy"),
        (lambda: OUT.t().copy_(A.t()), "memcpy"),
        (lambda: A.clone(), "memcpy"),
        (lambda: A[1:2].clone(), "memcpy"),
        (lambda: OUT.copy_(A.to(torch.float32).t().contiguous().t()), "kernel"),
        (lambda: OUT.copy_(A[0]), "kernel"),
        (lambda: A.t().contiguous(), "kernel"),
        (lambda: A[:, 1:].clone(), "kernel"),
        (lambda: OUT.copy_(A.to(torch.float64)), "kernel"),
    ],
)
def test_a_copy_is_a_memcpy_only_between_equal_dense_layouts(work: Callable[[], object], kind: str) -> None:
    assert recorded(work)[-1][1] == kind


def test_inference_mode_counts_what_a_composite_operator_is_made_of() -> None:
    def work() -> None:
        with torch.inference_mode():
            torch.nn.functional.linear(A, WEIGHT)

    assert recorded(work) == [("aten.mm.default", "kernel")]


def test_without_bodies_products_are_shaped_and_not_computed() -> None:
    results: list[torch.Tensor] = []
    ops = recorded(lambda: results.append(torch.mm(A, WEIGHT)), run_bodies=False)
    assert ops == [("aten.mm.default", "kernel")]
    assert results[0].shape == (3, 4)
    assert results[0].stride() == (4, 1)
    assert results[0].device.type == "cpu"


def test_without_bodies_an_out_form_leaves_its_out_untouched() -> None:
    out = torch.full((3, 4), 7.0)
    assert recorded(lambda: torch.mm(A, WEIGHT, out=out), run_bodies=False) == [("aten.mm.out", "kernel")]
    assert (out == 7.0).all()


@torch.library.custom_op("profkit_test::two_steps", mutates_args=())
def two_steps(x: torch.Tensor) -> torch.Tensor:
    return torch.add(torch.mul(x, 2), 1)


@torch.library.custom_op("profkit_test::opaque", mutates_args=())
def opaque(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() * 2)


def test_a_custom_operator_counts_by_what_it_dispatches() -> None:
    assert recorded(lambda: two_steps(A)) == [("aten.mul.Tensor", "kernel"), ("aten.add.Tensor", "kernel")]


def test_a_custom_operator_that_dispatches_nothing_counts_itself() -> None:
    assert recorded(lambda: opaque(A)) == [("profkit_test.opaque.default", "kernel")]


@pytest.fixture
def distributed(tmp_path) -> Iterator[Any]:
    """torch.distributed with a process group of this process alone."""
    module = pytest.importorskip("torch.distributed", reason="collectives need torch.distributed")
    if not module.is_available() or not module.is_gloo_available():
        pytest.skip("this torch is built without gloo")
    store = module.FileStore(str(tmp_path / "store"), 1)
    module.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timedelta(seconds=30))
    yield module
    module.destroy_process_group()


def test_a_functional_collective_counts_and_its_wait_does_not(distributed: Any) -> None:
    from torch.distributed import _functional_collectives as collectives

    def work() -> None:
        collectives.all_gather_tensor(A, 0, distributed.group.WORLD).wait()

    assert recorded(work) == [("_c10d_functional.all_gather_into_tensor.default", "kernel")]


def test_an_exchange_counts_though_its_schema_says_nothing_of_its_outputs_and_a_barrier_does_not(
    distributed: Any,
) -> None:
    target = torch.zeros_like(A)

    def work() -> None:
        distributed.all_to_all_single(target, A)
        distributed.barrier()
        distributed.all_to_all_single(target[:0], A[:0])

    assert recorded(work) == [("c10d.alltoall_base_.default", "kernel")]
    assert torch.equal(target, A)
