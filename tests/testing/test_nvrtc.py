"""Each kernel of the package is compiled for GPUs, without one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.nvrtc import ARCHITECTURES, compile_cuda, cuda_files, find_nvrtc
from tartan.base.kernels import kernel_names

pytestmark = pytest.mark.slow

if find_nvrtc() is None:
    if os.environ.get("TARTAN_REQUIRE_COMPILER") == "1":
        pytest.fail("TARTAN_REQUIRE_COMPILER=1, but NVRTC is not installed", pytrace=False)
    pytest.skip("NVRTC is not installed (nvidia-cuda-nvrtc-cu12)", allow_module_level=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("path", cuda_files(), ids=lambda path: path.name)
def test_all_kernels_compile_without_spills(path: Path, architecture: str) -> None:
    code, uses = compile_cuda(path.read_text(), architecture)
    assert code.startswith(b"\x7fELF")
    assert sorted(uses) == sorted(kernel_names(path.read_text()))
    assert {name: use for name, use in uses.items() if use.spilled_bytes} == {}


def test_ptx_and_errors() -> None:
    code, _ = compile_cuda('extern "C" __global__ void k(float* x) { x[threadIdx.x] += 1; }', "compute_80")
    assert b".visible .entry k(" in code
    with pytest.raises(ValueError, match=r"kernels\.cu\(1\).*undefined"):
        compile_cuda('extern "C" __global__ void k() { y = 1; }', "sm_80")


def test_spills_are_seen() -> None:
    many = "\n".join(f"float v{k} = x[{k} * 32 + threadIdx.x];" for k in range(200))
    summed = " + ".join(f"v{k} * v{(k * 7 + 3) % 200}" for k in range(200))
    source = f'extern "C" __global__ void __launch_bounds__(1024, 2) k(volatile float* x) {{ {many} x[0] = {summed}; }}'
    _, uses = compile_cuda(source, "sm_80")
    assert uses["k"].spilled_bytes > 0
