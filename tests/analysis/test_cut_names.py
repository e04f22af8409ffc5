"""Names that two runs spell in different ways are paired where one fits, and reported where several do (F17)."""

from __future__ import annotations

import pytest
from bench import Bench
from recording import Op, step_recording

from profkit.comparison.align import ABSENT, align, may_be_one_kernel, pair, unify
from profkit.model.names import canonical

FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul>>(int)"
COPY = "void at::native::vectorized_elementwise_kernel<4, at::native::CopyFunctor<float>, std::array<char*, 1ul>>(int)"
ADD = "void addition_kernel<float>(float*, float const*, float const*, int, int)"
ADD_MANGLED = "_Z15addition_kernelIfEvPT_PKS0_S3_ii"


@pytest.mark.parametrize("length", range(48, len(FILL) - 1))
def test_a_cut_name_may_be_what_it_was_cut_from(length: int) -> None:
    cut = FILL[:length]
    assert may_be_one_kernel(cut, FILL) == may_be_one_kernel(FILL, cut)
    # Without its parameter list alone, a name has the same canonical name.
    assert may_be_one_kernel(cut, FILL) == (canonical(cut) != canonical(FILL))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("addition_kernel", ADD),
        ("addition_kernel", ADD_MANGLED),
        ("fill_kernel", "_ZN2at6native11fill_kernelEPfi"),
        ("fill_kernel", "void at::native::fill_kernel<int>(int*)"),
    ],
)
def test_a_bare_name_of_one_kernel(one: str, other: str) -> None:
    assert may_be_one_kernel(one, other)
    assert may_be_one_kernel(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("pack", "pack_lse"),
        ("pack_lse_and_partial_outputs", "pack_lse_and_partial_outputs_2"),
        (FILL, COPY),
        ("subtraction_kernel", ADD),
        ("_Z18subtraction_kernelIfEvPT_", ADD),
        ("_ZN2at6native4fillEPfi", "c10::cuda::fill(float*, int)"),
        ("void at::", FILL),
        ("_Z", ADD),
        ("", ADD),
        ("memcpy DtoD", "memset"),
    ],
)
def test_other_kernels_are_not_one(one: str, other: str) -> None:
    assert not may_be_one_kernel(one, other)
    assert not may_be_one_kernel(other, one)


def test_names_are_paired_where_one_fits() -> None:
    found = pair([FILL, ADD, "gemm"], [FILL[:63], "addition_kernel", "gemm"])

    assert found.renamed == {FILL[:63]: FILL, "addition_kernel": ADD}
    assert found.ambiguous == {}


@pytest.mark.parametrize("swap", [False, True])
def test_a_prefix_of_two_names_is_reported_and_pairs_none(swap: bool) -> None:
    sides = ([FILL, COPY, ADD], [FILL[:55], "addition_kernel"])

    found = pair(*(sides[::-1] if swap else sides))

    assert found.ambiguous == {FILL[:55]: (FILL, COPY)}
    assert list(found.renamed.items()) == [(ADD, "addition_kernel") if swap else ("addition_kernel", ADD)]


def test_a_name_that_both_runs_have_is_no_candidate() -> None:
    assert pair([FILL, COPY], [FILL, COPY[:56]]).renamed == {COPY[:56]: COPY}
    assert pair([FILL], [FILL, FILL[:63]]).renamed == {}


def test_launches_with_cut_names_align(bench: Bench) -> None:
    def census(*names: str) -> object:
        layer = [Op(name) for name in names]
        return bench.count(step_recording([layer, layer]).rows).chosen

    before, after = census(FILL, ADD, "gemm"), census(FILL[:63], ADD_MANGLED, "gemm")

    unified, reasons = unify(before, after)  # type: ignore[arg-type]

    pairs = [(0, 0), (1, 1)]
    assert reasons == ()
    assert (align(before, after, pairs)["after"] == ABSENT).any()  # type: ignore[arg-type]
    aligned = align(before, unified, pairs)  # type: ignore[arg-type]
    assert aligned["after"].tolist() == [0, 1, 2, 3, 4, 5]


def test_what_is_ambiguous_is_a_reason(bench: Bench) -> None:
    before = bench.count(step_recording([[Op(FILL), Op(COPY)]]).rows).chosen
    after = bench.count(step_recording([[Op(FILL[:55])]]).rows).chosen

    unified, (reason,) = unify(before, after)

    assert reason.code == "ambiguous-name"
    assert FILL in reason.message
    assert COPY in reason.message
    assert unified.slots["canonical"].tolist() == after.slots["canonical"].tolist()
