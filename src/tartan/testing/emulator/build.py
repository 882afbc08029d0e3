"""From a CUDA file to kernels that run on the CPU: its text is turned into C++, compiled, loaded and launched."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.kernels import kernel_names

_HEADERS = Path(__file__).parent
_SHARED = re.compile(r"\b__shared__\s+([^;=]+?)\s*\b(\w+)\s*((?:\[[^\]]+\]\s*)*);")
_ERROR_BYTES = 1024
_COMPILE_SECONDS = 300


class KernelError(AssertionError):
    """A kernel did what would be wrong on a GPU, perhaps silently."""


def find_compiler() -> str | None:
    """Return the path of the C++ compiler that ``CXX`` names, or of ``c++`` or ``g++``; None where there is none."""
    wanted = os.environ.get("CXX")
    return next((found for name in ([wanted] if wanted else ["c++", "g++"]) if (found := shutil.which(name))), None)


def translate(source: str) -> str:
    """Return a CUDA file as C++ on the header of the emulator; line numbers stay."""
    if re.search(r"\bextern\s+__shared__", source):
        raise ValueError("the emulator has no dynamic shared memory; declare it with a size")
    body = _SHARED.sub(lambda found: f"EMULATED_SHARED({found[2]}, {found[1]} {found[3]});", source)
    kernels = "".join(f"EMULATED_KERNEL({name})\n" for name in kernel_names(source))
    return f'#include "emulator.h"\n#line 1 "kernel.cu"\n{body}\n{kernels}'


def compile_translated(source: str, *, options: Sequence[str], suffix: str, include: Path | None = None) -> Path:
    """Compile translated source; return the file, which is kept in the user's cache.

    ``include`` is a folder of headers that the source names.

    Raises
    ------
    RuntimeError
        If there is no compiler, or it refuses the source.
    """
    compiler = find_compiler()
    if compiler is None:
        raise RuntimeError("kernels on the CPU need a C++ compiler: install g++, or name one by CXX")
    files = [*sorted(_HEADERS.glob("*.h")), *(sorted(include.glob("*.h")) if include else [])]
    headers = "".join(path.read_text() for path in files)
    parts = (source, headers, compiler, *options)
    target = _cache() / f"{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:32]}{suffix}"
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=target.parent) as made_in:
        text, made = Path(made_in) / "kernel.cpp", Path(made_in) / "made"
        text.write_text(source)
        command = [compiler, "-std=c++17", "-fPIC", "-Wno-unknown-pragmas", "-U_FORTIFY_SOURCE", "-fno-strict-aliasing"]
        command += [f"-I{folder}" for folder in (_HEADERS, include) if folder]
        command += [*options, str(text), "-o", str(made), "-lpthread"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS)
        if done.returncode:
            raise RuntimeError(f"the kernels do not compile:\n{done.stderr[:4000]}")
        made.replace(target)
    return target


def _cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "tartan" / "emulator"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Argument(ctypes.Structure):
    """One argument of a launch, as ``emulator_launch.h`` declares it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("n_bytes", ctypes.c_uint64),
        ("is_array", ctypes.c_int32),
        ("is_written", ctypes.c_int32),
    )


class Emulator:
    """The kernels of one CUDA file, on the CPU.

    Parameters
    ----------
    source : str
        Text of the file. Kernels are ``extern "C" __global__ void``.
    options : sequence of str
        Definitions such as ``-DSIDE=16``.
    include : Path, optional
        Folder of headers that the file names.

    Raises
    ------
    RuntimeError
        If there is no C++ compiler, or it refuses the source.

    Examples
    --------
    >>> add = 'extern "C" __global__ void add(float* x, float by) { x[threadIdx.x] += by; }'
    >>> x = np.zeros(4, np.float32)
    >>> Emulator(add).launch("add", 1, 4, (x, np.float32(2)))
    >>> x
    array([2., 2., 2., 2.], dtype=float32)
    """

    def __init__(self, source: str, *, options: Sequence[str] = (), include: Path | None = None) -> None:
        self.names = kernel_names(source)
        defined = [option for option in options if option.startswith("-D")]
        flags = ["-O2", "-shared", "-Wl,-Bsymbolic", *defined]
        self._library_path = compile_translated(translate(source), options=flags, suffix=".so", include=include)

    @cached_property
    def _library(self) -> ctypes.CDLL:
        return ctypes.CDLL(str(self._library_path))

    def parameters(self, name: str) -> list[str]:
        """Return what a kernel takes: ``*`` for a pointer, ``const`` before it, then kind and bytes, such as ``*f4``.

        Raises
        ------
        KeyError
            If there is no such kernel.
        """
        if name not in self.names:
            raise KeyError(f"there is no kernel {name!r}; there are {', '.join(self.names)}")
        describe = getattr(self._library, f"describe_{name}")
        describe.restype = ctypes.c_char_p
        text: str = describe().decode()
        return text.split(",") if text else []

    def launch(
        self, name: str, grid: int | Sequence[int], block: int | Sequence[int], args: Sequence[Any], *, seed: int = 0
    ) -> None:
        """Run a kernel on contiguous NumPy arrays, in place, and on NumPy scalars.

        Parameters
        ----------
        name : str
        grid, block : int or up to three ints
            Blocks, and threads of a block.
        args : sequence
            Arrays and scalars of exactly the types that the kernel declares.
        seed : int
            Of the order in which threads go on.

        Raises
        ------
        KernelError
            If arguments do not fit, or the kernel leaves its buffers, diverges at a barrier or gets stuck.
        """
        sizes = (ctypes.c_uint * 6)(*three(grid), *three(block))
        if min(sizes) == 0 or int(np.prod(sizes[3:])) > 1024:
            raise KernelError(f"{name}: no launch of {list(sizes[:3])} blocks of {list(sizes[3:])} threads")
        arrays = check_arguments(name, self.parameters(name), args)
        given = (Argument * max(1, len(args)))()
        for at, array in enumerate(arrays):
            given[at] = Argument(
                array.ctypes.data, array.nbytes, array.ndim > 0, array.ndim > 0 and array.flags.writeable
            )
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        launch = getattr(self._library, f"launch_{name}")
        if launch(sizes, ctypes.c_uint64(seed), given, error, ctypes.c_size_t(_ERROR_BYTES)):
            raise KernelError(f"{name}, seed {seed}: {error.value.decode(errors='replace')}")


def check_arguments(name: str, wanted: Sequence[str], args: Sequence[Any]) -> list[np.ndarray]:
    """Return the arguments as arrays, scalars of no dimension; arrays that a kernel only reads are read-only views.

    Raises
    ------
    KernelError
        If number, kind, type or layout differ from what the kernel declares, or an array that is written overlaps
        another.
    """
    if len(args) != len(wanted):
        raise KernelError(f"{name} takes {len(wanted)} arguments; got {len(args)}")
    arrays = []
    for at, (argument, type_name) in enumerate(zip(args, wanted)):
        array = argument if isinstance(argument, np.ndarray) else np.array(argument)
        given = ("*" if array.ndim else "") + f"{'u' if array.dtype.kind == 'b' else array.dtype.kind}{array.itemsize}"
        if given != type_name.removeprefix("const "):
            raise KernelError(f"{name}, argument {at}: declared {type_name}, got {given} {array.shape}")
        if not array.flags.c_contiguous:
            raise KernelError(f"{name}, argument {at}: an array {array.shape} with strides {array.strides} has gaps")
        if type_name.startswith("const "):
            array = array.view()
            array.flags.writeable = False
        arrays.append(array)
    for at, array in enumerate(arrays):
        others = [other for position, other in enumerate(arrays) if position != at and other.ndim]
        if array.ndim and array.flags.writeable and any(np.may_share_memory(array, other) for other in others):
            raise KernelError(f"{name}, argument {at}: it is written and overlaps another argument")
    return arrays


def three(size: int | Sequence[int]) -> tuple[int, ...]:
    """Return a number of blocks or threads along x, y and z."""
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return (*sizes, 1, 1)[:3]
