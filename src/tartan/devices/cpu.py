"""The CPU as a device: its memory is host memory, its array namespace NumPy. The oracle of the other devices.

It copies nothing by itself: the runtime sees ``shares_host_memory`` and compares items where they lie. The copies
work all the same, so that code written for a GPU runs here. Parallelism (worker threads, worker processes) is the
business of the runtime's executors; ``compute`` runs its function and returns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tartan.base.machine import memory
from tartan.devices.checks import check_copy, check_open, nbytes_of
from tartan.errors import DeviceMemoryError

T = TypeVar("T")


class CpuDevice:
    """The CPU and host memory, as ``Device``.

    Parameters
    ----------
    memory_bytes : int, optional
        Pretend that no more than this is free; default: what the operating system says.
    """

    name = "cpu"
    shares_host_memory = True

    def __init__(self, *, memory_bytes: int | None = None) -> None:
        self._memory_bytes = memory_bytes
        self._closed = False

    @cached_property
    def xp(self) -> Any:
        """The array namespace; runs on the CPU do without it, and it takes as long to import as NumPy."""
        import array_api_compat.numpy as namespace

        return namespace

    def allocate(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
        check_open(self._closed, self.name)
        # Asked before, because Linux promises memory that it does not have and kills the process that touches it.
        wanted, free = nbytes_of(shape, dtype), self.free_bytes()
        if wanted > free:
            raise DeviceMemoryError(
                f"cpu: an array {np.dtype(dtype)}{shape} needs {wanted} bytes, {free} are free; "
                "use smaller caches or tiles",
                context={"wanted_bytes": wanted, "free_bytes": free},
            )
        return np.empty(shape, dtype)

    def free_bytes(self) -> int:
        check_open(self._closed, self.name)
        available = memory().available_bytes
        return available if self._memory_bytes is None else min(self._memory_bytes, available)

    def staging(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
        check_open(self._closed, self.name)
        return np.empty(shape, dtype)

    def pin(self, host: np.ndarray) -> bool:
        check_open(self._closed, self.name)
        return False

    def upload(self, host: np.ndarray, target: np.ndarray) -> None:
        check_open(self._closed, self.name)
        check_copy(host, target, what="upload")
        np.copyto(target, host)

    def download(self, source: np.ndarray, host: np.ndarray) -> None:
        check_open(self._closed, self.name)
        check_copy(host, source, what="download")
        np.copyto(host, source)

    def compute(self, stage: str, count: int, call: Callable[[], T]) -> T:
        check_open(self._closed, self.name)
        try:
            return call()
        except MemoryError as error:
            raise DeviceMemoryError(
                f"cpu: host memory ran out in {stage} of {count}: {error}", retryable=True
            ) from error

    def close(self) -> None:
        self._closed = True
