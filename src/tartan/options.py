"""Define the options of a run: defaults, text forms, limits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tartan.errors import ConfigError

_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


@dataclass(frozen=True)
class Size:
    """Room in a cache level: a number of bytes, or of slots for items if ``in_items``."""

    amount: int
    in_items: bool = False

    def __str__(self) -> str:
        return f"{self.amount}items" if self.in_items else f"{self.amount}B"


def parse_size(text: str | int | Size, *, option: str = "size") -> Size:
    """Read a size such as ``500MB`` (10^6), ``500MiB`` (2^20) or ``60items``.

    Parameters
    ----------
    text : str, int or Size
        A plain number counts bytes.
    option : str
        Name of the option, for the error message.

    Raises
    ------
    ConfigError
        If the text is not a size, or the size is not positive.
    """
    if isinstance(text, Size):
        return text
    match = _SIZE.fullmatch(str(text))
    unit = match.group(2).lower() if match else ""
    if match is None or (unit not in _UNITS and unit not in ("item", "items")):
        raise ConfigError(
            f"{option}: {text!r} is not a size; write 500MB, 500MiB, 2GB or 60items",
            context={"option": option, "value": str(text)},
        )
    in_items = unit.startswith("item")
    amount = int(float(match.group(1)) * (1 if in_items else _UNITS[unit]))
    if amount <= 0:
        raise ConfigError(f"{option}: {text!r} must be more than zero", context={"option": option})
    return Size(amount, in_items)


def parse_bytes(text: str | int | Size, *, option: str = "size") -> int:
    """Read a size that must not count items.

    Raises
    ------
    ConfigError
        If the text is not a size, or counts items.
    """
    size = parse_size(text, option=option)
    if size.in_items:
        raise ConfigError(f"{option}: {text} counts items; write bytes, such as 2GB", context={"option": option})
    return size.amount


Order = Literal["panel", "quadrant"]
OnError = Literal["skip", "raise"]


@dataclass(frozen=True)
class RunOptions:
    """How a run is executed. No option changes a score; ``tile`` is fixed by the manifest.

    Attributes
    ----------
    host_cache, device_cache : Size or None
        Room for loaded items in host and in device memory; None: chosen from the free memory of the machine.
    tile : int or None
        Side of a chunk of the result and of calls of compare (at most 1,024); None: chosen.
    workers : int or None
        Threads or processes for parsing and, on the CPU device, for comparing; None: all cores.
    order : {"panel", "quadrant"}
        Order in which the pairs are visited.
    device : tuple of str
        Devices to use: "cpu", "cuda", "cuda:1", "sim".
    on_error : {"skip", "raise"}
        Whether a failed item or pair is recorded and skipped, or stops the run.
    max_failures : int or None
        Failed items plus failed compare calls after which the run stops.
    tile_timeout_seconds : float or None
        Longest time one compare call may take.
    disk_cache : Size or None
        Room for parsed items on disk; None: none are kept, or with ``cache_at`` as many as half the free disk holds.
    cache_at : str or None
        Folder on a local disk in which each rank keeps them; None: the run folder.
    """

    host_cache: Size | None = None
    device_cache: Size | None = None
    tile: int | None = None
    workers: int | None = None
    order: Order = "panel"
    device: tuple[str, ...] = ("cpu",)
    on_error: OnError = "skip"
    max_failures: int | None = None
    tile_timeout_seconds: float | None = None
    verify: bool = False
    trace: bool = False
    quiet: bool = True
    disk_cache: Size | None = None
    cache_at: str | None = None
