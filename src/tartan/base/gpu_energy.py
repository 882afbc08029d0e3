"""Joules that the NVIDIA GPUs of this machine take, from the counters of NVML, the library that comes with the driver.

NVML is called by ctypes: no package is needed, and where the library is missing the meter says so. Counters are in
millijoules since the driver was loaded, of GPUs from Volta on. They are those of whole GPUs: what else runs there is in
them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
# By contract: nvmlReturn_t of nvml.h.
_SUCCESS, _NOT_SUPPORTED, _NO_PERMISSION = 0, 3, 4


class GpuEnergyMeter:
    """Joules since it was made.

    Parameters
    ----------
    load : callable
        Returns the library; raises OSError where there is none.

    Attributes
    ----------
    n_gpus : int
        Whose counters are read.
    problem : str
        Why nothing is measured; empty where all GPUs could be read each time.
    """

    def __init__(self, load: Callable[[], Any] = lambda: ctypes.CDLL(LIBRARY)) -> None:
        self.problem = ""
        self.n_gpus = 0
        self._nvml: Any = None
        self._handles: list[ctypes.c_void_p] = []
        self._first: list[int] = []
        try:
            self._nvml = load()
            self._call("nvmlInit_v2")
            count = ctypes.c_uint()
            self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
            self._handles = [self._handle(index) for index in range(count.value)]
            self._first = self._read()
        except (OSError, AttributeError) as error:
            self.problem = _explain(error)
        self.n_gpus = len(self._first)
        if not self.n_gpus and not self.problem:
            self.problem = "NVML sees no GPU"

    def joules(self) -> float | None:
        """Read the counters; return the joules of all GPUs so far, None if they are not known."""
        if self.problem:
            return None
        try:
            now = self._read()
        except OSError as error:
            self.problem = _explain(error)
            return None
        if any(after < before for before, after in zip(self._first, now, strict=True)):
            self.problem = "a counter of NVML began again: the driver was loaded anew"
            return None
        return 1e-3 * (sum(now) - sum(self._first))

    def close(self) -> None:
        """Let the library go; joules are not known any more."""
        if self._nvml is not None and not self.problem:
            self._nvml.nvmlShutdown()
        self.problem = self.problem or "the meter is closed"

    def _handle(self, index: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return handle

    def _read(self) -> list[int]:
        """Return millijoules by GPU."""
        found = []
        for handle in self._handles:
            counter = ctypes.c_ulonglong()
            self._call("nvmlDeviceGetTotalEnergyConsumption", handle, ctypes.byref(counter))
            found.append(counter.value)
        return found

    def _call(self, name: str, *arguments: Any) -> None:
        code = int(getattr(self._nvml, name)(*arguments))
        if code == _NOT_SUPPORTED:
            raise OSError(f"{name}: this GPU counts no energy (those before Volta do not)")
        if code == _NO_PERMISSION:
            raise OSError(f"{name}: this user may not read it; ask who runs the machine for access to /dev/nvidia*")
        if code != _SUCCESS:
            raise OSError(f"{name} returned {code}")


def _explain(error: Exception) -> str:
    if isinstance(error, AttributeError):
        return f"{LIBRARY} is too old: {error}"
    return f"the energy of GPUs is not known: {error}"
