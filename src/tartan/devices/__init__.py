"""Where items are preprocessed and compared: the CPU, a GPU, or a simulator.

``Device`` says what a device owes; ``open_device`` makes one from the name that the user gives.
"""

from __future__ import annotations

from typing import Any

from tartan.devices.protocol import Device
from tartan.errors import ConfigError

__all__ = ["Device", "find_gpus", "open_device"]


def open_device(name: str, /, **options: Any) -> Device:
    """Open a device by name.

    Parameters
    ----------
    name : {"cpu", "cuda", "cuda:1", "sim", "sim:compare=1.1ms,..."}
        ``cuda`` is the first GPU. What follows ``sim:`` is read by ``tartan.devices.sim.parse_sim_options``.
    **options
        Keyword arguments of CpuDevice, CudaDevice or SimDevice.

    Returns
    -------
    Device
        Close it when done.

    Raises
    ------
    ConfigError
        If there is no device of such a name, or the options in the name cannot be understood.
    DeviceError
        If the device is not there. The message says what is missing and the way out.

    Examples
    --------
    >>> open_device("cpu").shares_host_memory
    True
    """
    kind, _, rest = name.strip().partition(":")
    if kind == "cpu" and not rest:
        from tartan.devices.cpu import CpuDevice

        return CpuDevice(**options)
    if kind == "cuda" and (not rest or rest.isdecimal()):
        from tartan.devices.cuda import CudaDevice

        return CudaDevice(int(rest or 0), **options)
    if kind == "sim":
        return _open_sim(rest, options)
    raise ConfigError(f"there is no device {name!r}; use cpu, cuda, cuda:1 or sim", context={"device": name})


def _open_sim(text: str, options: dict[str, Any]) -> Device:
    from tartan.devices.sim import SimDevice, parse_sim_options

    if text and "options" in options:
        raise ConfigError(f"sim: options are given twice, as 'sim:{text}' and as an argument")
    return SimDevice(options.pop("options", None) or parse_sim_options(text), **options)


def find_gpus() -> list[dict[str, Any]]:
    """Describe the GPUs of this machine; never raises. See ``tartan.devices.cuda.find_gpus``."""
    from tartan.devices import cuda

    return cuda.find_gpus()
