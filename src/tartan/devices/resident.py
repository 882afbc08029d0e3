"""Kernels whose blocks are all on a GPU at once, and which talk to the host while they run.

While such a kernel runs, whatever waits for the whole GPU waits for it: allocating and freeing, pinning memory, loading
code, the null stream. So all of that is done before the launch, and undone after the end.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tartan.base.kernels import kernel_names
from tartan.devices.cuda import check_index, import_cupy, library_errors
from tartan.errors import ConfigError, DeviceError

_FOR_ALL_GPUS, _MAPPED = 1, 2
# By format: CUDA's numbers of attributes.
_MULTIPROCESSORS, _COOPERATIVE = 16, 95


@dataclass(frozen=True)
class KernelSource:
    """A kernel in CUDA C++.

    Attributes
    ----------
    text, name : str
        The source, and the function in it that is ``extern "C" __global__ void``.
    checks : str
        What is compiled behind the source: assertions of what the kernel takes.
    headers : Path
        The folder of headers that it includes.
    """

    text: str
    name: str
    checks: str
    headers: Path

    def options(self) -> tuple[str, ...]:
        """Return how NVRTC compiles it. CuPy's cache does not look into headers, so the options tell them apart."""
        content = b"".join(path.read_bytes() for path in sorted(self.headers.glob("*.h")))
        return "-std=c++17", f"-I{self.headers}", f"-DTARTAN_HEADERS=0x{hashlib.sha256(content).hexdigest()[:16]}"


class ResidentKernel:
    """A kernel, compiled and loaded for one GPU, to be run once.

    Parameters
    ----------
    source : KernelSource
    threads : int
        Threads of a block.
    index : int
        Number of the GPU, from 0, as CUDA counts them.
    cupy : module, optional
        What to use in CuPy's place (``FakeCupy`` of the tests).

    Attributes
    ----------
    most_blocks : int
        How many blocks can be resident at once.

    Raises
    ------
    ConfigError
        If there is no such kernel, or it does not compile.
    DeviceError
        If CuPy is missing, there is no such GPU, or it cannot launch such kernels.
    """

    def __init__(self, source: KernelSource, threads: int, index: int = 0, *, cupy: Any = None) -> None:
        self._cupy = import_cupy() if cupy is None else cupy
        check_index(self._cupy, index)
        self._index, self._threads, self._name = index, threads, source.name
        self._errors = library_errors(self._cupy)
        self._arrays: list[Any] = []
        self._pinned: list[int] = []
        with self._select("opening"):
            runtime = self._cupy.cuda.runtime
            if not runtime.deviceGetAttribute(_COOPERATIVE, index):
                raise DeviceError(f"GPU {index} cannot keep all blocks of a kernel resident", code="no-gpu")
            self._pool = self._cupy.cuda.MemoryPool()
            self._work, self._copies = (self._cupy.cuda.Stream(non_blocking=True) for _ in range(2))
            self._function = self._load(source)
            occupancy = self._cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
            blocks = int(occupancy(self._function.ptr, threads, 0))
            self.most_blocks = blocks * int(runtime.deviceGetAttribute(_MULTIPROCESSORS, index))

    def _load(self, source: KernelSource) -> Any:
        names = kernel_names(source.text)
        if source.name not in names:
            raise ConfigError(f"there is no kernel {source.name!r}; the source has {', '.join(names) or 'none'}")
        with self._copies:
            try:
                module = self._cupy.RawModule(code=source.text + source.checks, options=source.options())
                return module.get_function(source.name).kernel
            except self._cupy.cuda.compiler.CompileException as error:
                raise ConfigError(f"the kernels do not compile:\n{str(error)[:4000]}") from None

    def map(self, address: int, n_bytes: int) -> int:
        """Pin a range of host memory and let kernels use it; return its address on the GPU.

        Raises
        ------
        DeviceError
            If it cannot be pinned.
        """
        with self._select(f"pinning {n_bytes >> 20} MiB of host memory"):
            runtime = self._cupy.cuda.runtime
            runtime.hostRegister(address, n_bytes, _FOR_ALL_GPUS | _MAPPED)
            self._pinned.append(address)
            return int(runtime.pointerGetAttributes(address).devicePointer)

    def upload(self, host: np.ndarray) -> Any:
        """Return a copy of an array on the GPU, which lives until ``close``."""
        with self._select(f"copying {host.nbytes} bytes"), self._copies:
            with self._cupy.cuda.using_allocator(self._pool.malloc):
                array = self._cupy.empty(host.shape, host.dtype)
            if host.nbytes:
                array.data.copy_from_host_async(host.ctypes.data, host.nbytes, self._copies)
                self._wait(self._copies)
            self._arrays.append(array)
        return array

    def run(self, blocks: int, args: Sequence[Any]) -> None:
        """Run the kernel to its end; the calling thread sleeps meanwhile.

        Parameters
        ----------
        blocks : int
        args : sequence
            Arrays of ``upload``; NumPy arrays of one item, which are passed by value.

        Raises
        ------
        DeviceError
            If it cannot be launched, or not all blocks can be resident; with the code "kernel-failed", if it traps, or
            uses memory that is not its own.
        """
        if blocks > self.most_blocks:  # CuPy would leave the others out, with a warning
            raise DeviceError(
                f"{blocks} blocks cannot be resident at once on GPU {self._index}; {self.most_blocks} can"
            )
        with self._select("the launch"):
            event = self._cupy.cuda.Event(block=True, disable_timing=True)
            grid, block = (blocks, 1, 1), (self._threads, 1, 1)
            self._function(grid, block, tuple(args), stream=self._work, enable_cooperative_groups=True)
            event.record(self._work)
        try:
            with self._cupy.cuda.Device(self._index):
                event.synchronize()
        except self._errors as error:
            text = f"the kernel {self._name} has failed on GPU {self._index}: {error}"
            raise DeviceError(text, code="kernel-failed") from error

    def close(self) -> None:
        """Free what it took; a GPU whose kernel has failed refuses that, and its memory goes with the process."""
        self._arrays.clear()
        with contextlib.suppress(*self._errors), self._cupy.cuda.Device(self._index):
            self._pool.free_all_blocks()
        while self._pinned:
            with contextlib.suppress(*self._errors), self._cupy.cuda.Device(self._index):
                self._cupy.cuda.runtime.hostUnregister(self._pinned.pop())

    def _wait(self, stream: Any) -> None:
        event = self._cupy.cuda.Event(block=True, disable_timing=True)
        event.record(stream)
        event.synchronize()

    @contextlib.contextmanager
    def _select(self, action: str) -> Iterator[None]:
        try:
            with self._cupy.cuda.Device(self._index):
                yield
        except self._errors as error:
            raise DeviceError(f"GPU {self._index}: {action} failed: {error}", code="gpu") from error
