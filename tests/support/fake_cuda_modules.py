"""Modules of CUDA C++ kernels for ``FakeCupy``: compiled and run by the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from support.fake_cuda_libraries import MemoryRules
from support.fake_cuda_resident import RawKernel, ResidentRules
from tartan.devices.sim import GuardedArray

if TYPE_CHECKING:
    from tartan.testing.emulator import Emulator


class LaunchRules(MemoryRules, ResidentRules, Protocol):
    """What modules need of the GPUs behind a stand-in."""

    def next_seed(self) -> int:
        """Return a number for the order of the threads of a launch."""

    def issue(self, stream: Any, raw: np.ndarray, *, writes: bool) -> None:
        """Put work on an array into a stream."""


class FakeModule:
    """Stands for ``cupy.RawModule``: compiled by the C++ compiler of the machine, run by the emulator."""

    def __init__(self, machine: LaunchRules, *, code: str, options: tuple[str, ...] = ()) -> None:
        self._machine = machine
        self._code = code
        self._options = options

    @cached_property
    def _emulator(self) -> Emulator:
        from tartan.testing.emulator import Emulator

        return Emulator(self._code, options=self._options)

    def compile(self) -> None:
        """Compile the source; it is loaded to the selected device."""
        self._machine.current_stream()
        assert self._emulator.names

    def get_function(self, name: str) -> RawKernel:
        """Return what launches a kernel, which is compiled where it is used."""
        self._machine.current_stream()
        return RawKernel(self._machine, name, self._code, self._options, partial(self._launch, name))

    def _launch(self, name: str, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...]) -> None:
        from tartan.testing.emulator import KernelError

        given = [self._argument(name, argument) for argument in args]
        read, written = _read_and_written(self._emulator.parameters(name), given)
        self._machine.before_launch(read, written)
        try:
            self._emulator.launch(name, grid, block, given, seed=self._machine.next_seed())
        except KernelError as error:
            raise self._machine.misused(str(error)) from error
        self._machine.launched.append(name)
        for raw in read:
            self._machine.issue(self._machine.current_stream(), raw, writes=False)
        self._machine.after_use(written)

    def _argument(self, name: str, argument: Any) -> Any:
        if isinstance(argument, GuardedArray):
            return np.atleast_1d(self._machine.unwrap(argument))
        if isinstance(argument, np.ndarray):
            raise self._machine.misused(f"{name} got a host array {argument.dtype}{argument.shape}")
        return argument


def _read_and_written(parameters: Sequence[str], args: Sequence[Any]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the arrays that a kernel only reads, and those that it may write."""
    arrays = [(declared, raw) for declared, raw in zip(parameters, args) if isinstance(raw, np.ndarray)]
    read = [raw for declared, raw in arrays if declared.startswith("const ")]
    return read, [raw for declared, raw in arrays if not declared.startswith("const ")]
