"""Kernels of ``FakeCupy``, those of cooperative launches above all: their blocks run as threads of the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from support.fake_cuda_errors import FakeCompileError
from tartan.devices.sim import GuardedArray
from tartan.testing.emulated_gpu import SlotThreads
from tartan.testing.emulator.build import KernelError

_MOST_BLOCKS = 8
_ATTRIBUTES = {16: 1, 95: 1}


def attribute(number: int, index: int) -> int:
    """Stand for ``deviceGetAttribute``: one multiprocessor, which can launch cooperatively."""
    return _ATTRIBUTES[number]


def occupancy(function: int, threads: int, shared_bytes: int) -> int:
    """Stand for ``occupancyMaxActiveBlocksPerMultiprocessor``."""
    return _MOST_BLOCKS


class ResidentRules(Protocol):
    """What cooperative launches need of the GPUs behind a stand-in."""

    n_resident: int
    lost: bool
    crashing: frozenset[str]
    mapped: dict[int, int]
    launched: list[str]

    def misused(self, what: str) -> AssertionError:
        """Record what would be wrong on a GPU; return the error to raise."""

    def unwrap(self, array: Any) -> np.ndarray:
        """Return what is inside a device array."""

    def check_alive(self) -> None:
        """Raise where a kernel has crashed."""

    def check_idle(self, what: str) -> None:
        """Refuse what would wait for a kernel that waits for the host."""


class RawKernel:
    """Stands for ``cupy.RawKernel``.

    Parameters
    ----------
    machine : ResidentRules
    name, code : str
    options : sequence of str
        Of NVRTC.
    launch : callable
        Runs its blocks in any order.
    """

    def __init__(
        self, machine: ResidentRules, name: str, code: str, options: Sequence[str], launch: Callable[..., None]
    ) -> None:
        self._machine, self._name, self._code, self._options = machine, name, code, options
        self._launch = launch

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...]) -> None:
        self._launch(grid, block, args)

    @property
    def kernel(self) -> _Function:
        """The function of the driver, whose blocks can be launched together."""
        self._machine.check_idle("code loaded")
        try:
            return _Function(self._machine, self._name, self._code, self._options)
        except (RuntimeError, ValueError) as error:
            raise FakeCompileError(str(error)) from error


class _Function:
    """Stands for ``cupy.cuda.function.Function``.

    Parameters
    ----------
    machine : ResidentRules
    name, code : str
    options : sequence of str
        Of NVRTC.
    """

    ptr = 1

    def __init__(self, machine: ResidentRules, name: str, code: str, options: Sequence[str]) -> None:
        self._machine, self._name = machine, name
        folder = next((option.removeprefix("-I") for option in options if option.startswith("-I")), None)
        self._threads = SlotThreads(code, name, Path(folder) if folder else None)

    def __call__(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        args: tuple[Any, ...],
        *,
        stream: Any,
        enable_cooperative_groups: bool,
    ) -> None:
        """Put a launch into a stream."""
        machine = self._machine
        machine.check_alive()
        if not enable_cooperative_groups:
            raise machine.misused("blocks that wait for each other in a launch that may run them one after the other")
        if grid[0] > _MOST_BLOCKS:
            raise machine.misused(f"of {grid[0]} blocks CuPy launches only the {_MOST_BLOCKS} that can be resident")
        first, others = self._opened(args)
        machine.n_resident += 1
        stream.issue(self._work(grid[0], block[0], first, others))

    def _work(self, blocks: int, threads: int, first: np.ndarray, others: list[np.ndarray]) -> Callable[[], None]:
        def run() -> None:
            machine = self._machine
            try:
                if self._name in machine.crashing:
                    machine.lost = True
                    machine.check_alive()
                self._threads.run(blocks, threads, first, others)
            except KernelError as error:
                raise machine.misused(str(error)) from error
            finally:
                machine.n_resident -= 1
            machine.launched.append(self._name)

        return run

    def _opened(self, args: Sequence[Any]) -> tuple[np.ndarray, list[np.ndarray]]:
        opened = []
        for argument in args:
            if isinstance(argument, GuardedArray):
                opened.append(np.atleast_1d(self._machine.unwrap(argument)))
            elif isinstance(argument, np.ndarray) and argument.size == 1:
                opened.append(argument.reshape(()))
            else:
                raise self._machine.misused(f"{self._name} got a {type(argument).__name__}")
        first = np.frombuffer(opened[0].tobytes(), np.uint8)
        for address in np.frombuffer(first[:16].tobytes(), np.uint64):
            if int(address) not in self._machine.mapped:
                raise self._machine.misused(f"{self._name} uses host memory that is not mapped")
        return first, opened[1:]
