"""Which device a rank of a session computes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tartan.base.checks import whole
from tartan.base.format import show_value
from tartan.blocks.loans import LOAN_BYTES
from tartan.blocks.subtask_lane import SubtaskLane
from tartan.devices import Device, open_device
from tartan.errors import ConfigError
from tartan.workers.arena import Arena

# By judgement: functions' temporaries are about as large as what they write, a third of a subtask. No benchmark: no GPU
# measured yet.
_SHARE = 0.7
"""Of the free memory of a device, for the arrays of subtasks; the rest is for what functions allocate."""


@dataclass(frozen=True)
class DeviceOptions:
    """What a session was told of devices.

    Attributes
    ----------
    names : tuple of str
        As for ``tartan.devices.open_device``; the ranks take them in turn.
    cache : int or None
        Bytes for arrays in the memory of each device.
    pins : bool
        Whether host memory is pinned.
    """

    names: tuple[str, ...] = ("cpu",)
    cache: int | None = None
    pins: bool = False

    def lane(self, rank: int, n_sharing: int, arena: Arena) -> SubtaskLane | None:
        """Open the device of a rank; None where it is the CPU.

        Parameters
        ----------
        rank : int
        n_sharing : int
            Ranks on this machine.
        arena : Arena
            The host memory of the rank: that of a store.

        Raises
        ------
        ConfigError, DeviceError
            If the device is unknown or not there.
        """
        device = open_device(self.names[rank % len(self.names)])
        return open_lane(device, self, arena, n_sharing=-(-n_sharing // len(self.names)))


def open_lane(device: Device, options: DeviceOptions, arena: Arena, *, n_sharing: int = 1) -> SubtaskLane | None:
    """Return what runs calls on an open device, which it owns from now on; None where that is the CPU."""
    if device.shares_host_memory:
        device.close()
        return None
    if options.pins:
        device.pin(arena.view(0, (arena.n_bytes - LOAN_BYTES,), np.uint8))
    return SubtaskLane(device, options.cache or int(device.free_bytes() * _SHARE) // n_sharing, arena)


def device_options(device: Any, cache: int | None, *, pins: bool) -> DeviceOptions:
    """Check what a user said of devices.

    Parameters
    ----------
    device : str, sequence of str or None
        None: the CPU.
    cache : int or None
    pins : bool

    Raises
    ------
    ConfigError
        If it is not understood.
    """
    if cache is not None:
        whole("device_cache", cache, 1, option="--device-cache")
    names = ("cpu",) if device is None else (device,) if isinstance(device, str) else tuple(device)
    if not names or not all(isinstance(name, str) for name in names):
        raise ConfigError(
            f"device={show_value(device)}: choose cpu, cuda, cuda:1 or sim", context={"option": "--device"}
        )
    return DeviceOptions(names, cache, pins)
