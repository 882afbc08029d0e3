"""What one rank has to compute with: devices, workers, cores and memory. What a run makes of them is in plan.py."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from dataclasses import dataclass

from tartan.application import Application
from tartan.base.machine import memory, usable_cores
from tartan.devices import open_device
from tartan.devices.protocol import Device
from tartan.errors import ResourceError
from tartan.options import RunOptions
from tartan.workers.executor import Executor
from tartan.workers.start import open_executor

# By judgement: page cache, workers' own memory and the result take the rest. At half of it a run loads twice as much
# (docs/performance.md), at twice it leaves nothing for them.
HOST_SHARE = 0.4
# By judgement: what is left is for temporaries of compare (products of tiles) and the libraries' workspaces; memory
# that is still too little is tried again with less (DEVICE_MEMORY_TRIES). No benchmark.
DEVICE_SHARE = 0.8
# By judgement: a megabyte, so that a machine without free memory ends with an error of its own and not with a cache of
# nothing. No benchmark.
LEAST_HOST_BITS = 20
# By judgement: the interpreter and NumPy map about as much before anything is loaded; below, imports fail without a
# word that helps. No benchmark.
LEAST_ADDRESS_BYTES = 250_000 * 1024


@dataclass(frozen=True)
class Rank:
    """Open devices and workers, and how much they have, measured once.

    Attributes
    ----------
    devices : tuple of Device
    executor : Executor
    host_bytes : int
        Memory for loaded items, if the user names no other limit.
    device_bytes : tuple of (int or None)
        Memory for items on each device; None where a device uses that of the host.
    """

    devices: tuple[Device, ...]
    executor: Executor
    host_bytes: int
    device_bytes: tuple[int | None, ...]


@contextlib.contextmanager
def open_rank(app: Application, options: RunOptions, n_sharing: int = 1) -> Iterator[Rank]:
    """Open the devices of a run and start its workers; both are closed at the end, whatever happens.

    Parameters
    ----------
    app : Application
    options : RunOptions
    n_sharing : int
        Ranks of the run on this machine, this one included: memory and cores that no option names are divided by it.

    Raises
    ------
    ConfigError, DeviceError
        If a device is unknown or not there.
    ResourceError
        If this process may have too few addresses for any run.
    """
    _refuse_too_few_addresses()
    with contextlib.ExitStack() as stack:
        devices = []
        for name in options.device:
            devices.append(open_device(name))
            stack.callback(devices[-1].close)
        executor = open_executor(app, options.workers or max(1, usable_cores() // n_sharing))
        stack.callback(executor.close, kill=True)
        yield Rank(
            tuple(devices),
            executor,
            _host_bytes(n_sharing),
            tuple(None if one.shares_host_memory else int(one.free_bytes() * DEVICE_SHARE) for one in devices),
        )


def _host_bytes(n_sharing: int) -> int:
    """Return a share of the memory that is free.

    It is a power of two: what other programs use at the moment does not change how pairs are cut.
    """
    return 1 << max(int(memory().available_bytes * HOST_SHARE / n_sharing).bit_length() - 1, LEAST_HOST_BITS)


def _refuse_too_few_addresses() -> None:
    """Refuse a limit within which threads may fail to begin: one that does may leave its starter waiting."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= limit < LEAST_ADDRESS_BYTES:
        raise ResourceError(
            f"`ulimit -v` allows this process {limit // 1024} kB of addresses, and a run needs at least "
            f"{LEAST_ADDRESS_BYTES // 1024}; raise it (2 GB do), and bound the memory of a run by --host-cache instead"
        )
