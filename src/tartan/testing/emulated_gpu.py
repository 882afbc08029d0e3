"""A GPU on the CPU for slots of a communicator: each thread of a kernel is a system thread, against the real proxy."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from tartan._native import CommArena
from tartan.comm.slots import HEADERS, STATE_BYTES, Kernel
from tartan.errors import ConfigError
from tartan.testing.emulator.build import (
    Argument,
    KernelError,
    check_arguments,
    compiled,
    find_compiler,
    kernel_names,
    translated,
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
        try:
            text = _DEFINED + translated(kernel.source)
            library = compiled(text, options=["-O0", "-shared"], suffix=".so", include=HEADERS)
        except (RuntimeError, ValueError) as error:
            raise ConfigError(str(error)) from None
        most = self.most_threads // (kernel.threads * kernel.blocks_per_slot)
        return _EmulatedKernel(kernel, ctypes.CDLL(str(library)), most)


class _EmulatedKernel:
    """A compiled kernel."""

    def __init__(self, kernel: Kernel, library: ctypes.CDLL, most_slots: int) -> None:
        self.most_slots = most_slots
        self._kernel, self._library = kernel, library
        describe = getattr(library, f"describe_{kernel.name}")
        describe.restype = ctypes.c_char_p
        self._parameters: list[str] = describe().decode().split(",")

    def launch(self, n_slots: int, arena: CommArena, local: int, rank: int) -> None:
        """Run the kernel to its end."""
        kernel, name = self._kernel, self._kernel.name
        states = np.zeros(n_slots * STATE_BYTES, np.uint8)
        slots = arena.slots(local, rank, kernel.blocks_per_slot, states.ctypes.data)
        first = np.frombuffer(slots.words, np.uint8).copy()
        if not self._parameters or self._parameters[0] != f"u{first.size}":
            raise ConfigError(f"the kernel {name} does not take tartan::Slots first")
        try:
            arrays = check_arguments(name, self._parameters[1:], kernel.args)
        except KernelError as error:
            raise ConfigError(str(error)) from None
        given = (Argument * (1 + len(arrays)))(Argument(first.ctypes.data, first.size, 0, 0))
        for at, array in enumerate(arrays):
            given[1 + at] = Argument(array.ctypes.data, array.nbytes, array.ndim > 0, 0)
        sizes = (ctypes.c_uint * 6)(n_slots * kernel.blocks_per_slot, 1, 1, kernel.threads, 1, 1)
        self._call(sizes, given)

    def _call(self, sizes: Any, given: Any) -> None:
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        launch = getattr(self._library, f"launch_{self._kernel.name}")
        if launch(sizes, ctypes.c_uint64(0), given, error, ctypes.c_size_t(_ERROR_BYTES)):
            raise ConfigError(f"{self._kernel.name}: {error.value.decode(errors='replace')}")
