"""Slots on GPUs: the memory of the node is pinned and mapped, and a cooperative launch keeps all slots resident."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tartan._native import CommArena
from tartan.comm.slots import HEADERS, STATE_BYTES, Kernel
from tartan.devices.cuda import check_index, import_cupy
from tartan.devices.resident import KernelSource, ResidentKernel
from tartan.errors import DeviceError, RankLostError

# As the first argument of a kernel begins: nine words of 64 bits, then those of 32 bits.
_WORDS = struct.Struct("<9Q6I")


@dataclass(frozen=True)
class GpuSlots:
    """Runs slots on the GPUs of each node.

    Attributes
    ----------
    load_cupy : callable, optional
        Returns what to use in CuPy's place (``FakeCupy`` of the tests), in each process anew.
    """

    load_cupy: Callable[[], Any] = import_cupy
    pins_memory = True

    def require(self, gpus: int) -> None:
        """Refuse to begin where the GPUs, or CuPy, are not there.

        Raises
        ------
        DeviceError
            If so. The message names the way out.
        """
        try:
            check_index(self.load_cupy(), gpus - 1)
        except DeviceError as error:
            raise DeviceError(
                f"slots cannot run on a GPU: {str(error).removesuffix(', or use --device cpu')}; "
                "or give device=tartan.testing.emulated_gpu.EmulatedGpu(), which runs them on the CPU",
                code=error.code,
            ) from error

    def load(self, kernel: Kernel, gpu: int) -> _GpuKernel:
        """Compile a kernel for a GPU.

        Raises
        ------
        ConfigError
            If there is no such kernel, it does not compile, or its arguments are not what it takes.
        DeviceError
            If the GPU cannot be used.
        """
        arrays = [np.asarray(argument) for argument in kernel.args]
        source = KernelSource(kernel.source, kernel.name, checks(kernel.name, arrays), HEADERS)
        return _GpuKernel(kernel, ResidentKernel(source, kernel.threads, gpu, cupy=self.load_cupy()), arrays)


class _GpuKernel:
    """A kernel on a GPU."""

    def __init__(self, kernel: Kernel, resident: ResidentKernel, arrays: list[np.ndarray]) -> None:
        self.most_slots = resident.most_blocks // kernel.blocks_per_slot
        self._kernel, self._resident, self._arrays = kernel, resident, arrays

    def launch(self, n_slots: int, arena: CommArena, local: int, rank: int) -> None:
        """Run the kernel to its end."""
        try:
            self._run(n_slots, arena, local, rank)
        except DeviceError as error:
            if error.code != "kernel-failed":
                raise
            raise RankLostError(str(error)) from error
        finally:
            self._resident.close()

    def _run(self, n_slots: int, arena: CommArena, local: int, rank: int) -> None:
        states = self._resident.upload(np.zeros(n_slots * STATE_BYTES, np.uint8))
        mapped = arena.slots(local, rank, self._kernel.blocks_per_slot, int(states.data.ptr))
        memory = SlotMemory(mapped.words)
        base = self._resident.map(*memory.base)
        first = memory.moved(base, self._resident.map(*memory.window))
        args = [
            self._resident.upload(np.ascontiguousarray(array)) if array.ndim else array.reshape(1)
            for array in self._arrays
        ]
        self._resident.run(n_slots * self._kernel.blocks_per_slot, [first, *args])


@dataclass(frozen=True)
class SlotMemory:
    """The first argument of a kernel.

    Attributes
    ----------
    words : bytes
        As ``CommSlots`` has them, with addresses of the host.
    """

    words: bytes

    @property
    def base(self) -> tuple[int, int]:
        """Address and bytes of what all ranks of the node map."""
        base, _, _, heaps, heap, *_ = _WORDS.unpack_from(self.words)
        n_local = _WORDS.unpack_from(self.words)[12]
        return base, heaps + (n_local + 1) * heap

    @property
    def window(self) -> tuple[int, int]:
        """Address and bytes of the window of the group of all ranks."""
        found = _WORDS.unpack_from(self.words)
        return found[1], found[7] + 2 * found[8]

    def moved(self, base: int, window: int) -> np.ndarray:
        """Return it with addresses of a GPU, as an array of one item."""
        words = struct.pack("<2Q", base, window) + self.words[16:]
        return np.frombuffer(words, np.dtype((np.void, len(words))))


def checks(name: str, arrays: list[np.ndarray]) -> str:
    """Return assertions, in C++, that a kernel takes its slots and these arguments."""
    taken = f"decltype(tartan::given::parameters_of(&{name}))"
    lines = [
        '#line 1 "arguments"',
        "#include <tartan_comm_arguments.h>",
        f'static_assert(tartan::given::IsSlots<{taken}>::value, "{name} does not take tartan::Slots first");',
        f"static_assert({taken}::count == {len(arrays)}, "
        f'"{name} takes another number of arguments; got tartan::Slots and {len(arrays)}");',
    ]
    for at, array in enumerate(arrays):
        kind = "u" if array.dtype.kind == "b" else array.dtype.kind
        given = f"{'*' if array.ndim else ''}{kind}{array.itemsize}"
        wanted = f"{at}, {str(array.ndim > 0).lower()}, '{kind}', {array.itemsize}"
        lines.append(f'static_assert({taken}::takes({wanted}), "{name}, argument {at}: another type; got {given}");')
    return "\n" + "\n".join(lines) + "\n"
