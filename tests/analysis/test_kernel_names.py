"""Kernel names: canonical for pairing, short for people (F17, F18)."""

from __future__ import annotations

import gzip
import json
import sqlite3

import pytest
from bench import SHARED
from hypothesis import given
from hypothesis import strategies as st

from profkit.model.names import canonical, display

ONE_KERNEL_TWO_SPELLINGS = [
    pytest.param(
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<long>, "
        "std::array<char *, (unsigned long)1>>(int, T2, T3)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<long>, std::array<char*, 1ul> >"
        "(int, at::native::FillFunctor<long>, std::array<char*, 1ul>)",
        id="template integers and parameters",
    ),
    pytest.param("void f<const float *>(const float *)", "void f<float const*>(float const*)", id="const"),
    pytest.param("void a::<unnamed>::f<int>(int)", "void a::(anonymous namespace)::f<int>(int)", id="anonymous"),
    pytest.param(
        "void k<[lambda(float, float) (instance 2)]>(T1)", "void k<{lambda(float, float)#2}>(T1)", id="lambda"
    ),
    pytest.param("void k<(bool)1, (bool)0>(int)", "void k<true, false>(int)", id="bool"),
    pytest.param("void k<(long)-1>(int)", "void k<-1l>(int)", id="negative"),
    pytest.param("plain(int *, float)", "plain(int*, float)", id="no template"),
    pytest.param("void add<float>(float*) [clone .kd]", "void add<float>(float*)", id="clone suffix"),
    pytest.param("add.kd", "add", id="kd suffix"),
    pytest.param(
        "_Z15addition_kernelIfEvPT_PKS0_S3_ii",
        "void addition_kernel<float>(float*, float const*, float const*, int, int)",
        id="mangled",
    ),
    pytest.param("_ZN2at6native11fill_kernelEPfi.kd", "at::native::fill_kernel(float*, int)", id="mangled, kd"),
    pytest.param("_ZN12_GLOBAL__N_14packEPf", "(anonymous namespace)::pack(float*)", id="mangled, anonymous"),
    pytest.param("triton_poi_fused_add_16", "triton_poi_fused_add_22", id="Inductor counter"),
    pytest.param("triton_red_fused__to_copy_mean_3", "triton_red_fused__to_copy_mean_117", id="Inductor, underscores"),
    pytest.param("triton_poi_fused_add_conv2d_3", "triton_poi_fused_add_conv2d_4", id="Inductor, a digit in the op"),
    pytest.param("cutlass_gemm_0x7f3a10", "cutlass_gemm_0x55aa00", id="address"),
    pytest.param("kernel_3f0a9b1c2d4e5f60_tail", "kernel_0123456789abcdef_tail", id="hash"),
]

DIFFERENT_KERNELS = [
    ("_Z18subtraction_kernelIfEvPT_", "void subtraction_kernel<double>(double*)"),
    ("_Z", "_Z1"),
    ("void k<FillFunctor<int>>(T)", "void k<FillFunctor<long>>(T)"),
    ("void k<AddFunctor>(T)", "void k<MulFunctor>(T)"),
    ("void k<(int)4, A>(T)", "void k<(int)8, A>(T)"),
    ("void k<{lambda(int)#1}>(T)", "void k<{lambda(int)#2}>(T)"),
    ("void k<(bool)1>(T)", "void k<(bool)0>(T)"),
    ("triton_poi_fused_add_16", "triton_poi_fused_mul_16"),
    ("triton_poi_fused_add_16", "triton_red_fused_add_16"),
    ("nvjet_hsh_64x8_64x16_4x1", "nvjet_hsh_64x8_64x16_4x2"),
    ("pack_v1", "pack_v2"),
    ("a::k<int>(int)", "b::k<int>(int)"),
]


@pytest.mark.parametrize(("one", "other"), ONE_KERNEL_TWO_SPELLINGS)
def test_two_spellings_of_one_kernel_have_one_canonical_name(one: str, other: str) -> None:
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT_KERNELS)
def test_different_kernels_have_different_canonical_names(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT_KERNELS)
def test_different_kernels_have_different_display_names(one: str, other: str) -> None:
    assert display(canonical(one)) != display(canonical(other))


@pytest.mark.parametrize(
    "name",
    [
        "void k<A<B>(int",
        "void k<A, std::array<ch",
        "k<<<",
        ")))(((",
        "<",
        "(",
        "operator<<",
        "void k<&(f(int)::operator())>(T)",
        "",
        " ",
        "\x1b[31m<b>\n|`@",
        "k<" * 3000,
        "x" * 10_000,
        "void f<" + "(int)4, " * 1500 + "A>(T)",
        "triton_poi_fused_" + "add_" * 2500 + "7",
    ],
)
def test_truncated_and_hostile_names_are_taken_as_they_are(name: str) -> None:
    assert isinstance(canonical(name), str)
    assert canonical(canonical(name)) == canonical(name)


@given(st.text(alphabet="ab<>(){}:,*& _0123456789#\x1b\n", max_size=60))
def test_a_canonical_name_is_its_own_canonical_name(name: str) -> None:
    assert canonical(canonical(name)) == canonical(name)


@pytest.mark.parametrize(
    ("canonical_name", "shown"),
    [
        ("pack_kernel", "pack_kernel"),
        ("at::native::vectorized_elementwise_kernel<4,at::native::A<float>,std::array<char*,2>>",
         "vectorized_elementwise_kernel<A, float, 4>"),
        ("at::native::vectorized_elementwise_kernel<4,at::native::A<c10::BFloat16>,std::array<char*,2>>",
         "vectorized_elementwise_kernel<A, BFloat16, 4>"),
        ("vllm::rms_norm_kernel<c10::BFloat16,8>", "vllm::rms_norm_kernel<BFloat16, 8>"),
        ("k<{lambda#1}>", "k~9224"),
        ("k<{lambda#2}>", "k~2c7d"),
    ],
)  # fmt: skip
def test_a_display_name_is_short_and_keeps_what_tells_two_kernels_apart(canonical_name: str, shown: str) -> None:
    assert display(canonical_name) == shown


@pytest.mark.skipif(not (SHARED / "h200").is_dir(), reason="no h200 recordings beside the repository")
def test_nsys_and_kineto_spell_the_kernels_of_one_program_alike() -> None:
    # GIVEN the eager toy under both profilers, its names read without profkit
    with gzip.open(SHARED / "h200" / "toy_eager.kineto.json.gz", "rt", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    kineto = {e["name"] for e in events if e.get("cat") == "kernel"}
    db = sqlite3.connect(f"file:{SHARED}/h200/toy_eager.nsys2025.sqlite?mode=ro&immutable=1", uri=True)
    sql = "SELECT DISTINCT value FROM StringIds JOIN CUPTI_ACTIVITY_KIND_KERNEL ON demangledName = id"
    nsys = {name for (name,) in db.execute(sql)}
    db.close()

    assert len(nsys) >= 11
    assert {canonical(n) for n in nsys} == {canonical(n) for n in kineto}


def test_functions_as_template_arguments_are_the_same_in_every_profiler_and_tell_kernels_apart() -> None:
    kineto = (
        "void act_and_mul<c10::BFloat16, &(c10::BFloat16 vllm::silu<c10::BFloat16>(c10::BFloat16 const&, float))>(int)"
    )
    nsys = "void act_and_mul<c10::BFloat16, &vllm::silu<c10::BFloat16>>(T1 *, int)"
    assert canonical(kineto) == canonical(nsys) == "act_and_mul<c10::BFloat16,&vllm::silu<c10::BFloat16>>"
    assert canonical(kineto.replace("silu", "gelu")) != canonical(kineto)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Memcpy DtoD (Device -> Device)", "memcpy DtoD"),
        ("MemcpyHtoD", "memcpy HtoD"),
        ("memcpy_kernel<float>(float*)", "memcpy_kernel<float>"),
        ("Memset (Device)", "memset"),
        ("memset_kernel<int>(int*)", "memset_kernel<int>"),
        ("f<&(cut", "f<&(cut"),
    ],
)
def test_kernels_that_copy_and_set_are_no_copies_and_sets(name: str, expected: str) -> None:
    assert canonical(name) == expected
