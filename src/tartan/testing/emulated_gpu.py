"""A GPU on the CPU for slots of a communicator: each thread of a kernel is a system thread, against the real proxy."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tartan._native import CommArena
from tartan.base.kernels import kernel_names
from tartan.comm.slots import HEADERS, STATE_BYTES, Kernel
from tartan.errors import ConfigError
from tartan.testing.emulator.build import (
    Argument,
    KernelError,
    check_arguments,
    compile_translated,
    find_compiler,
    translate,
)

__all__ = ["EmulatedGpu"]

_DEFINED = "#define EMULATOR_THREADS\n#define EMULATOR_PATIENCE_SECONDS 0\n"
_ERROR_BYTES = 1024


@dataclass(frozen=True)
class EmulatedGpu:
    """Runs slots on threads of the CPU.

    Attributes
    ----------
    most_threads : int
        How many threads can be resident at once.

    Examples
    --------
    >>> EmulatedGpu().most_threads
    2048
    """

    most_threads: int = 2048
    pins_memory = False

    def load(self, kernel: Kernel, gpu: int) -> _EmulatedKernel:
        """Compile a kernel with the C++ compiler of the machine.

        Raises
        ------
        ConfigError
            If there is no compiler, no such kernel, or it does not compile.
        """
        if find_compiler() is None:
            raise ConfigError("slots on the CPU need a C++ compiler: install g++, or name one by CXX")
        names = kernel_names(kernel.source)
        if kernel.name not in names:
            raise ConfigError(f"there is no kernel {kernel.name!r}; the source has {', '.join(names) or 'none'}")
        most = self.most_threads // (kernel.threads * kernel.blocks_per_slot)
        try:
            return _EmulatedKernel(kernel, SlotThreads(kernel.source, kernel.name, HEADERS), most)
        except (RuntimeError, ValueError) as error:
            raise ConfigError(str(error)) from None


class SlotThreads:
    """A kernel as system threads, all blocks at once.

    Parameters
    ----------
    source, name : str
        A CUDA file, and the kernel in it.
    include : Path, optional
        Folder of headers that the source names.

    Raises
    ------
    RuntimeError
        If the source does not compile.
    """

    def __init__(self, source: str, name: str, include: Path | None) -> None:
        text = _DEFINED + translate(source)
        library = compile_translated(text, options=["-O0", "-shared", "-Wl,-Bsymbolic"], suffix=".so", include=include)
        self._name, self._library = name, ctypes.CDLL(str(library))
        describe = getattr(self._library, f"describe_{name}")
        describe.restype = ctypes.c_char_p
        self.parameters: list[str] = describe().decode().split(",")

    def run(self, blocks: int, threads: int, first: np.ndarray, args: Sequence[Any]) -> None:
        """Run the kernel to its end; ``first`` are the bytes of its first argument.

        Raises
        ------
        KernelError
            If the arguments are not what the kernel takes, or it does what would be wrong on a GPU.
        """
        arrays = check_arguments(self._name, self.parameters[1:], args)
        given = (Argument * (1 + len(arrays)))(Argument(first.ctypes.data, first.size, 0, 0))
        for at, array in enumerate(arrays):
            given[1 + at] = Argument(array.ctypes.data, array.nbytes, array.ndim > 0, 0)
        sizes = (ctypes.c_uint * 6)(blocks, 1, 1, threads, 1, 1)
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        launch = getattr(self._library, f"launch_{self._name}")
        if launch(sizes, ctypes.c_uint64(0), given, error, ctypes.c_size_t(_ERROR_BYTES)):
            raise KernelError(f"{self._name}: {error.value.decode(errors='replace')}")


class _EmulatedKernel:
    """A compiled kernel."""

    def __init__(self, kernel: Kernel, threads: SlotThreads, most_slots: int) -> None:
        self.most_slots = most_slots
        self._kernel, self._threads = kernel, threads

    def launch(self, n_slots: int, arena: CommArena, local: int, rank: int) -> None:
        """Run the kernel to its end."""
        kernel = self._kernel
        states = np.zeros(n_slots * STATE_BYTES, np.uint8)
        slots = arena.slots(local, rank, kernel.blocks_per_slot, states.ctypes.data)
        first = np.frombuffer(slots.words, np.uint8).copy()
        if self._threads.parameters[0] != f"u{first.size}":
            raise ConfigError(f"the kernel {kernel.name} does not take tartan::Slots first")
        try:
            self._threads.run(n_slots * kernel.blocks_per_slot, kernel.threads, first, kernel.args)
        except KernelError as error:
            raise ConfigError(str(error)) from None
