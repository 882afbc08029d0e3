"""Checks that all devices share, so that an error on the GPU is the same error on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from tartan.errors import DeviceError


def check_copy(host: np.ndarray, array: Any, *, what: str) -> None:
    """Refuse a copy between a host and a device array that do not match.

    Parameters
    ----------
    host : ndarray
        Must be C-contiguous.
    array : device array
        Any object with ``shape`` and ``dtype``.
    what : {"upload", "download"}
        Name of the copy, for the message.

    Raises
    ------
    DeviceError
        If ``host`` has gaps, or shapes or dtypes differ.
    """
    if host.shape != array.shape or host.dtype != array.dtype:
        raise DeviceError(
            f"{what}: host array {host.dtype}{host.shape} and device array {array.dtype}{array.shape} "
            "differ in shape or dtype; convert before the copy",
            code="copy-mismatch",
        )
    if not host.flags.c_contiguous:
        raise DeviceError(
            f"{what}: the host array {host.shape} with strides {host.strides} is not C-contiguous; "
            "copy through an array of Device.staging",
            code="copy-not-contiguous",
        )


def check_open(closed: bool, name: str) -> None:
    """Refuse the use of a closed device.

    Raises
    ------
    DeviceError
        If ``closed``.
    """
    if closed:
        raise DeviceError(f"device {name!r} is closed; open it again with open_device", code="closed")


def nbytes_of(shape: tuple[int, ...], dtype: Any) -> int:
    """Return the size in bytes of an array, exact for shapes beyond 64 bits."""
    size: int = np.dtype(dtype).itemsize
    for length in shape:
        size *= int(length)
    return size
