"""What a device owes the runtime, and what the runtime owes a device.

A device is where items are preprocessed and compared. It has three engines, *upload*, *compute* and *download*,
which work at the same time. There are three devices: ``cpu`` (the simple one), ``cuda`` (CuPy) and ``sim`` (own
memory and adjustable speed, without hardware). ``tartan.testing.DeviceKit`` is the executable form of this page.

The device promises

- that every method blocks the calling thread until its effect is complete: after ``upload`` the host array may be
  overwritten, after ``compute`` the result may be downloaded or used by the next call, after ``download`` the host
  array may be read;
- that a blocked method lets other threads run (no spinning, interpreter lock released), and that no engine waits
  for another one;
- that of two copies one way the second is queued while the first is under way, where the device copies by itself;
- that memory of an array is given back when its last reference goes;
- that errors raised by the caller's function leave ``compute`` unchanged, except those that say that memory ran out,
  which become DeviceMemoryError.

The runtime promises

- at most two threads at a time in each of ``upload``, ``download`` and ``compute`` (all at once are fine);
  ``allocate``, ``free_bytes`` and ``staging`` may be called from any thread at any time;
- that no thread writes to an array while another engine uses it: a slot is uploaded, then compared, then filled anew;
- that device arrays are read, written and created (through ``xp``) only inside ``compute``. Taking a slice with
  integers and slices is allowed anywhere, because it touches no memory;
- that host arrays given to ``upload`` and ``download`` are C-contiguous and have the shape and dtype of the device
  array. Views with gaps are refused, because the hidden copy would cost more than the transfer;
- that it closes the device when all calls have returned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

T = TypeVar("T")


@runtime_checkable
class Device(Protocol):
    """One GPU, the CPU pool, or the simulator.

    Attributes
    ----------
    name : str
        How the user names it: "cpu", "cuda:0", "sim".
    shares_host_memory : bool
        True when device arrays are NumPy arrays in host memory: items need no upload and no slots of their own.
    xp : module
        Array namespace (array API standard) of the device's arrays, for use inside ``compute``.
    """

    @property
    def name(self) -> str: ...

    @property
    def shares_host_memory(self) -> bool: ...

    @property
    def xp(self) -> Any: ...

    def allocate(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Any:
        """Return a C-contiguous device array with arbitrary contents.

        Raises
        ------
        DeviceMemoryError
            If it does not fit. Nothing changed; a smaller request may succeed.
        """
        ...

    def free_bytes(self) -> int:
        """Return how many bytes can still be allocated, in one piece at best."""
        ...

    def staging(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
        """Return a C-contiguous host array from which copies are fastest: pinned memory where that exists."""
        ...

    def pin(self, host: np.ndarray) -> bool:
        """Make copies from and to existing host memory as fast as the device can, until the device is closed.

        The memory must outlive that. Returns whether it is pinned; where that is refused or gains nothing, copies work
        all the same.
        """
        ...

    def upload(self, host: np.ndarray, target: Any) -> None:
        """Copy a host array into a device array of the same shape and dtype, both C-contiguous.

        Raises
        ------
        DeviceError
            If the arrays do not match, or the device failed.
        """
        ...

    def download(self, source: Any, host: np.ndarray) -> None:
        """Copy a device array into a host array of the same shape and dtype.

        ``host`` must be C-contiguous; ``source``, which may be any result of a user's compare, need not be.

        Raises
        ------
        DeviceError
            If the arrays do not match, or the device failed.
        """
        ...

    def compute(self, stage: str, count: int, call: Callable[[], T]) -> T:
        """Run ``call`` on the compute engine, wait until all its device work is done, return what it returned.

        Two threads may be inside: one ``call`` runs at a time, its device work queues behind that of the one before.
        So the engine has its next work while the runtime still learns the end of the last.

        Parameters
        ----------
        stage : str
            "preprocess", "compare", or another name for work of the runtime itself (copies between arrays).
        count : int
            Items (preprocess) or pairs (compare) that the call handles. Only the simulator's clock uses it.
        call : callable
            Works on device arrays through ``xp``. Runs in the calling thread.

        Raises
        ------
        DeviceMemoryError
            If the device ran out of memory inside ``call``; a call with fewer items may succeed.
        DeviceError
            If the device is lost: no later call will succeed.
        Exception
            Whatever else ``call`` raised, unchanged.
        """
        ...

    def close(self) -> None:
        """Give everything back. Calling it again does nothing; other calls afterwards raise DeviceError."""
        ...
