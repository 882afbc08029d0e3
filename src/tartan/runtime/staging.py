"""Host memory for results on their way from a device: made once for each thread that copies, pinned where possible."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from tartan.devices.protocol import Device

_ALIGNED_BYTES = 64


class Staging:
    """Staging memory of the threads that download from one device.

    Parameters
    ----------
    device : Device

    Examples
    --------
    >>> from tartan.devices.cpu import CpuDevice
    >>> [array.shape for array in Staging(CpuDevice()).arrays([np.zeros((2, 3)), np.zeros(5)])]
    [(2, 3), (5,)]
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._of_thread = threading.local()

    def arrays(self, sources: Sequence[Any]) -> list[np.ndarray]:
        """Return arrays of the shapes and dtypes of others, valid until the calling thread asks again."""
        sizes = [math.prod(source.shape) * source.dtype.itemsize for source in sources]
        rooms = [-(-size // _ALIGNED_BYTES) * _ALIGNED_BYTES for size in sizes]
        memory, found, start = self._memory(sum(rooms)), [], 0
        for source, size, room in zip(sources, sizes, rooms, strict=True):
            found.append(memory[start : start + size].view(source.dtype).reshape(source.shape))
            start += room
        return found

    def _memory(self, n_bytes: int) -> np.ndarray:
        """Return the bytes of the calling thread, made larger where they are too few."""
        held: np.ndarray | None = getattr(self._of_thread, "memory", None)
        if held is None or held.size < n_bytes:
            held = self._of_thread.memory = self._device.staging((n_bytes,), np.uint8)
        return held
