"""CUDA files compiled to machine code without a GPU or a driver, by NVRTC from its wheel.

``python tests/support/nvrtc.py`` prints what each kernel of the package takes of registers and shared memory.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tartan

__all__ = ["ARCHITECTURES", "KernelUse", "compile_cuda", "cuda_files", "find_nvrtc"]

_OPTIONS = ("-std=c++17", "-ftz=true", "--device-as-default-execution-space", "--ptxas-options=-v")
"""What CuPy compiles with, and the last, to learn what kernels take."""

ARCHITECTURES = ("sm_80", "sm_90")
"""GPUs that kernels are compiled for: A100 and H100 or H200."""

_ENTRY = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    r".*?Used (\d+) registers(?:[^\n]*?(\d+) bytes smem)?",
    re.DOTALL,
)


@dataclass(frozen=True)
class KernelUse:
    """What a kernel takes of a GPU.

    Attributes
    ----------
    registers : int
        Of a thread.
    spilled_bytes : int
        Of a thread, stored to memory for lack of registers, and loaded again.
    stack_bytes : int
        Of a thread, for arrays with indices that are not known when it is compiled.
    shared_bytes : int
        Of a block.
    """

    registers: int
    spilled_bytes: int
    stack_bytes: int
    shared_bytes: int


def find_nvrtc() -> Path | None:
    """Return the library of a wheel of NVRTC, for CUDA 12 or 13; None where none is installed."""
    for name in ("nvidia.cuda_nvrtc", "nvidia.cu13"):
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            return None
        for folder in list(found.submodule_search_locations or []) if found else []:
            for path in sorted(Path(folder).glob("lib/libnvrtc.so.*")):
                return path
    return None


def cuda_files() -> list[Path]:
    """Return the CUDA files of the package."""
    return sorted(Path(tartan.__file__).parent.rglob("*.cu"))


@cache
def _library() -> Any:
    path = find_nvrtc()
    if path is None:
        raise RuntimeError("NVRTC is not installed; run: pip install nvidia-cuda-nvrtc-cu12")
    return ctypes.CDLL(str(path))


def compile_cuda(source: str, architecture: str, *, include: Path | None = None) -> tuple[bytes, dict[str, KernelUse]]:
    """Compile a CUDA file; return its machine code, and what each of its kernels takes.

    Parameters
    ----------
    source : str
        Text of the file.
    architecture : str
        Such as "sm_90" for machine code, or "compute_90" for PTX; of PTX nothing is known yet.
    include : Path, optional
        Folder of headers that the file names.

    Raises
    ------
    RuntimeError
        If NVRTC is not installed.
    ValueError
        If it refuses the source; the message has its lines.
    """
    nvrtc, program = _library(), ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None) == 0
    try:
        options = [f"--gpu-architecture={architecture}", *_OPTIONS]
        options += [f"-I{include}"] if include else []
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = nvrtc.nvrtcCompileProgram(program, len(options), given)
        log = _text(nvrtc, program, "ProgramLog").decode(errors="replace")
        if status:
            raise ValueError(f"the kernels do not compile for {architecture}:\n{log[:4000]}")
        code = _text(nvrtc, program, "CUBIN" if architecture.startswith("sm_") else "PTX")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return code, _uses(log)


def _text(nvrtc: Any, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    assert getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)) == 0
    text = ctypes.create_string_buffer(size.value)
    assert getattr(nvrtc, f"nvrtcGet{what}")(program, text) == 0
    return text.raw


def _uses(log: str) -> dict[str, KernelUse]:
    return {
        name: KernelUse(int(registers), int(stores) + int(loads), int(stack), int(shared or 0))
        for name, stack, stores, loads, registers, shared in _ENTRY.findall(log)
    }


def main() -> None:
    """Print a table of the kernels of the package."""
    print(f"| file | kernel | {' | '.join(f'{name}: registers, spilled' for name in ARCHITECTURES)} | shared bytes |")
    print(f"|---|---|{'---|' * len(ARCHITECTURES)}---|")
    for path in cuda_files():
        found = [compile_cuda(path.read_text(), architecture)[1] for architecture in ARCHITECTURES]
        for name in found[0]:
            uses = " | ".join(f"{use[name].registers}, {use[name].spilled_bytes}" for use in found)
            print(f"| {path.name} | {name} | {uses} | {found[-1][name].shared_bytes:,} |")


if __name__ == "__main__":
    main()
