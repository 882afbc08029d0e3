"""How near each kernel of the package comes to what a GPU can do: to a copy within it, or to a product of cuBLAS.

Bytes are those that a kernel must read and write at the least, operations those that its formula has; both come from
shapes, so a share tells what is left to gain and cannot be raised by reading twice.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tartan.apps import builtin
from tartan.apps.forensics.cuda import ncc_tile, pce_tile, write_item
from tartan.apps.phylogeny.app import distance_tile
from tartan.base.products import multiply_slices
from tartan.devices import Device

#: Bytes of a pixel that the stages of a noise pattern read and write: filter 6, means 8, transforms 16 each, Wiener
#: filter 8, energy 4, pattern 6.
PATTERN_BYTES = 64
#: Operations of a pair of points in one evaluation: differences, exponential, and sums of value, gradient and Hessian.
POINT_OPERATIONS = 40
#: A share below this needs a reason.
LEAST_SHARE = 0.3
#: Photos of a tile; and so few items that only the benchmark itself is tried.
MOST_PHOTOS, FEW = 32, 4
UNITS = {"GB/s": 1e9, "Tflop/s": 1e12}
REASONS = {
    "phylogeny, merged": "bisection reads here and there",
    "microscopy, a tile": "points that are far apart are left out, and counted here",
    "forensics, PCE": "products of float32, and a few pairs are measured alone",
}

#: Seconds of a call on the device.
Timer = Callable[[Callable[[], Any]], float]


def shares(device: Device, seconds_of: Timer, sides: tuple[int, int], n: int) -> list[list[object]]:
    """Return a line for each kernel: what it reaches, what the GPU reaches, the share, and why it is low.

    Parameters
    ----------
    device : Device
        A GPU.
    seconds_of : callable
        Times a call on the device.
    sides : tuple of int
        Height and width of the photos.
    n : int
        Items a side of the tiles.
    """
    copied = _copy_rate(device, seconds_of, 2**26 if n > FEW else 2**16)
    rates = {kind: _product_rate(device, seconds_of, kind, 64 * n) for kind in ("float16", "float32")}
    lines: list[list[object]] = [["a copy within the GPU, GB/s read and written", copied / 1e9, "", "", ""]]
    lines += [[f"a product of {kind}, Tflop/s", rate / 1e12, "", "", ""] for kind, rate in rates.items()]
    seconds = {}
    for what, unit, amount, peak, call in (
        *_forensics(device, sides, min(n, MOST_PHOTOS), copied, rates),
        *_phylogeny(device, n, copied, rates),
        _microscopy(device, n, rates),
    ):
        seconds[what] = seconds_of(call)
        reached, scale = amount / seconds[what], UNITS[unit]
        share = reached / peak
        why = next((why for name, why in REASONS.items() if what.startswith(name)), "") if share < LEAST_SHARE else ""
        lines.append([f"{what}, {unit}", reached / scale, peak / scale, share, why])
    times_faster = seconds["phylogeny, merged"] / seconds["phylogeny, multiplied"]
    return [*lines, ["phylogeny, multiplied, times faster than merged", times_faster, "", "", ""]]


def _copy_rate(device: Device, seconds_of: Timer, n: int) -> float:
    """Return bytes read and written in a second by a copy of floats within the device."""
    source, target = _loaded(device, np.ones(n, np.float32)), device.allocate((n,), np.float32)
    return 8 * n / seconds_of(lambda: device.xp.add(source, np.float32(0), out=target))


def _product_rate(device: Device, seconds_of: Timer, kind: str, side: int) -> float:
    rows = _loaded(device, np.ones((side, side), kind))
    return float(2 * side**3 / seconds_of(lambda: multiply_slices(rows, rows, device.xp)))


def _forensics(device: Device, sides: tuple[int, int], n: int, copied: float, rates: dict[str, float]) -> list[Any]:
    height, width = sides
    n_pixels, columns = height * width, width // 2 + 1
    rng, xp = np.random.default_rng(0), device.xp
    grey = _loaded(device, rng.integers(0, 65535, sides, dtype=np.uint16))
    pattern = device.allocate(sides, np.float16)
    patterns = _loaded(device, rng.standard_normal((n, *sides)).astype(np.float16))
    planes = _loaded(device, rng.standard_normal((n, 2, height, columns)).astype(np.float16))
    product, half = 2.0 * n * n * n_pixels, 2.0 * n * n * height * columns
    # Products of spectra are those of two float16 planes, products of powers of one float32 plane.
    least = 2 * half / rates["float16"] + half / rates["float32"]
    return [
        ("forensics, a noise pattern", "GB/s", float(PATTERN_BYTES * n_pixels), copied,
         partial(write_item, grey, pattern, xp)),
        ("forensics, NCC of a tile", "Tflop/s", product, rates["float16"], partial(ncc_tile, patterns, patterns, xp)),
        ("forensics, PCE of a tile", "Tflop/s", 3 * half, 3 * half / least, partial(pce_tile, planes, planes, xp)),
    ]  # fmt: skip


def _phylogeny(device: Device, n: int, copied: float, rates: dict[str, float]) -> list[Any]:
    app = builtin("phylogeny")()
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as place:
        files = _simulated("phylogeny", Path(place), n, n_proteins=3000 if n > FEW else 30)
        parsed = [app.parse(path.name, path.read_bytes()) for path in files if path.name.endswith(app.item_suffixes)]
    vectors = [tuple(_loaded(device, part) for part in vector) for vector in parsed]
    n_pairs, n_bytes = len(parsed) ** 2, sum(part.nbytes for vector in parsed for part in vector)
    compare = partial(distance_tile, vectors, vectors, app.k, device.xp)
    return [
        ("phylogeny, multiplied", "Tflop/s", 6.0 * 20**app.k * n_pairs, rates["float16"], partial(compare, 0)),
        ("phylogeny, merged", "GB/s", 2.0 * n_bytes * len(parsed), copied, partial(compare, np.inf)),
    ]


def _microscopy(device: Device, n: int, rates: dict[str, float]) -> Any:
    app = builtin("microscopy")()
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as place:
        _simulated("microscopy", Path(place), n, localisations=36 if n > FEW else 2)
        parts = app.split("p", (Path(place) / "particles.json").read_bytes()) or []
    items = [app.device_form(app.parse(str(at), part), device.xp) for at, part in enumerate(parts)]
    loaded = [(_loaded(device, host), facts) for host, facts in items]
    compare = partial(app.compare, loaded, loaded, device.xp)
    found = device.compute("compare", 1, compare)["evaluations"]
    evaluations = np.empty(found.shape, found.dtype)
    device.download(found, evaluations)
    points = np.array([host[0] for host, _ in items])  # the header begins with their number
    operations = float((evaluations * np.outer(points, points)).sum()) * POINT_OPERATIONS
    return "microscopy, a tile", "Tflop/s", operations, rates["float32"], compare


def _simulated(name: str, folder: Path, n: int, **options: Any) -> Sequence[Path]:
    importlib.import_module(f"tartan.apps.{name}.simulate").simulate(folder, n, 1, **options)
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _loaded(device: Device, host: np.ndarray) -> Any:
    array = device.allocate(host.shape, host.dtype)
    device.upload(host, array)
    return array
