"""Products with the matrix on a device, such as a GPU: the matrix stays there as stored, or is streamed through it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tartan.analytics.clusters.dapwc.product import Columns
from tartan.analytics.matrix import Dissimilarities
from tartan.analytics.monitor import Monitor
from tartan.comm.communicator import Communicator, partition
from tartan.devices.protocol import Device

_TILE_BYTES = 256 << 20
_SHARE = 0.8  # of the free memory may be taken by the matrix


class DeviceProduct:
    """The operator on a device; see ``Product``.

    Parameters
    ----------
    D : Dissimilarities
        Checked.
    device : Device
        Closed by :meth:`close`.
    communicator : Communicator
    monitor : Monitor
    tile_bytes : int
        Values that are converted for one product at a time.

    Notes
    -----
    Values stay int16 or float32 in the device's memory and are converted a tile at a time. Sums are taken in float32,
    in float64 where values are float64: they differ from those of the CPU in the last digits of that type.
    """

    def __init__(
        self,
        D: Dissimilarities,
        device: Device,
        communicator: Communicator,
        monitor: Monitor,
        tile_bytes: int = _TILE_BYTES,
    ) -> None:
        found = D.check()
        self.n, self.scale = D.n, D.scale
        self.unknown = self.unit = found.largest
        self.masses = found.n_missing > 0
        self._D, self._device, self._communicator, self._monitor = D, device, communicator, monitor
        self._real = np.dtype(np.float64 if D.dtype.itemsize == 8 else np.float32)
        self._stored = np.dtype(np.int16) if D.dtype.kind == "i" else self._real
        first, last = partition(D.n, communicator.size)[communicator.rank]
        height = max(1, tile_bytes // (D.n * self._real.itemsize))
        self._tiles = [(start, min(last, start + height)) for start in range(first, last, height)]
        size = (last - first) * D.n * self._stored.itemsize
        self._held: list[Any] = []
        if size + 3 * tile_bytes <= _SHARE * device.free_bytes():
            self._held = [self._uploaded(D.block(*tile)) for tile in self._tiles]

    @property
    def resident(self) -> bool:
        """Whether the whole matrix lies on the device."""
        return bool(self._held)

    def __call__(self, columns: Columns) -> tuple[Columns, Columns | None]:
        on_device = self._uploaded(columns.astype(self._real))
        products, masses = [], []
        for number, tile in enumerate(self._tiles):
            rows = self._held[number] if self._held else self._uploaded(self._D.block(*tile))
            multiply = partial(self._multiply, rows, on_device)
            product, mass = self._device.compute("product", tile[1] - tile[0], multiply)
            products.append(self._downloaded(product))
            if mass is not None:
                masses.append(self._downloaded(mass))
            self._monitor.check()
        empty = np.empty((0, columns.shape[1]))
        gathered = self._communicator.all_gather(np.concatenate([empty, *products]))
        if not self.masses:
            return gathered, None
        return gathered, self._communicator.all_gather(np.concatenate([empty, *masses]))

    def close(self) -> None:
        """Give the device back."""
        self._held = []
        self._device.close()

    def _multiply(self, rows: Any, columns: Any) -> tuple[Any, Any]:
        xp = self._device.xp
        values = xp.astype(rows, columns.dtype)
        if not self.masses:
            return xp.matmul(values, columns), None
        known = values >= 0  # neither NaN nor a negative integer
        product = xp.matmul(xp.where(known, values, xp.zeros_like(values)), columns)
        return product, xp.matmul(xp.astype(known, columns.dtype), columns)

    def _uploaded(self, host: NDArray[Any]) -> Any:
        contiguous = np.ascontiguousarray(host)
        array = self._device.allocate(contiguous.shape, contiguous.dtype)
        self._device.upload(contiguous, array)
        return array

    def _downloaded(self, array: Any) -> Columns:
        host = np.empty(array.shape, self._real)
        self._device.download(array, host)
        return host.astype(np.float64)
