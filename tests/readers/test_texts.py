"""Names of API calls and texts of hooks."""

from __future__ import annotations

import re

import pytest

from profkit.readers.rows import call_name, launch_api, module_path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("{'Module': 'model.layers.3.self_attn', 'TrainableParams': {'w': [2, 3]}}", "model.layers.3.self_attn"),
        ("{'Inputs': [[1, 2]], 'Module': 'model.layers.3'}", "model.layers.3"),
        ('{"Module": "model.layers.3"}', "model.layers.3"),
        ("{'Module': \"it's.layers.3\"}", "it's.layers.3"),
        ("model.layers.3.mlp in=[2048,7168]", "model.layers.3.mlp"),
        ("model.layers.3.mlp in=[[2048, 7168], [1]]", "model.layers.3.mlp"),
        ("model.layers.3.mlp in=(2048, 7168)", "model.layers.3.mlp"),
        ("layers.3", "layers.3"),
        ("step in progress", "step in progress"),
        ("{not a hook}", "{not a hook}"),
        ("{'Module': ''}", "{'Module': ''}"),
        ("", ""),
    ],
)
def test_module_path(text: str, path: str) -> None:
    assert module_path(text) == path


def test_layer_numbers_in_shapes_cannot_be_taken_for_layers() -> None:
    text = "{'Module': 'model.norm', 'Inputs': 'layers.7'}"

    assert re.search(r"layers?[._](\d+)", module_path(text)) is None


KERNEL_LAUNCHES = """
    cudaLaunchKernel cudaLaunchKernelExC cudaLaunchCooperativeKernel cuLaunchKernel cuLaunchKernelEx
    cuLaunchCooperativeKernel hipLaunchKernel hipModuleLaunchKernel hipExtLaunchKernel hipExtModuleLaunchKernel
    hipLaunchCooperativeKernel hipModuleLaunchCooperativeKernel hipDrvLaunchKernelEx hipHccModuleLaunchKernel
"""
NO_LAUNCHES = """
    cudaLaunchHostFunc hipLaunchHostFunc hipGraphLaunchNotReally cudaGraphAddKernelNode cudaGraphInstantiate
    cuModuleLoadData hipMalloc __hipPushCallConfiguration
"""


@pytest.mark.parametrize("call", KERNEL_LAUNCHES.split())
def test_kernel_launches(call: str) -> None:
    assert launch_api(call) == "kernel"


@pytest.mark.parametrize("call", NO_LAUNCHES.split())
def test_calls_that_launch_nothing(call: str) -> None:
    assert launch_api(call) is None


@pytest.mark.parametrize("suffix", ["", "_v7000", "_ptsz", "_ptds", "_v7000_ptsz", "_ptsz_v7000"])
def test_abi_suffixes(suffix: str) -> None:
    assert call_name("cudaMemcpyAsync" + suffix) == "cudaMemcpyAsync"
    assert launch_api("cudaGraphLaunch" + suffix) == "graph"
